"""Records a user's own transformers ``generate()``: its drafts, both models' probabilities, every decision.

>>> with recording(model, tokenizer) as recorder:                               # doctest: +SKIP
...     model.generate(**inputs, prompt_lookup_num_tokens=6)
>>> recorder.trace.run["metrics"]["tokens_per_step"]                            # doctest: +SKIP

Nothing of transformers is changed. While the block runs, some methods of this one model are attributes of the instance
that call the class's own and look at what they give; behind the block they are gone. The output is generate()'s own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

from torch import Tensor
from transformers import StoppingCriteriaList

from decoders.errors import UserError
from decoders.model.files.calibration import fingerprint
from decoders.model.files.shape import ModelShape
from decoders.model.target_model.anatomy import decoder_stack
from decoders.prompt.pieces import Pieces
from decoders.trace.files import SUFFIX, save
from decoders.trace.trace import Trace

from .call import Call
from .kinds import model_name
from .reread import Reread

CURRENT = "_specviz_recorder"  # the model's attribute that holds its recorder
SEAM = ("generate", "_get_logits_processor", "_get_stopping_criteria", "_get_candidate_generator")
BATCHED = ("generate_batch", "init_continuous_batching")  # transformers' server of many requests
PLACES = (CURRENT, *SEAM, *BATCHED)  # the attributes that a recorded model has of its own


class Recorder:
    """The result of ``recording``: a context manager, and the traces of the calls made inside it.

    ``traces`` has one per output of every recorded call, in their order: several where a batch or
    ``num_return_sequences`` asked for several. ``hidden[layer]`` is the hidden state ``[positions, hidden]`` of the
    last trace's text, where ``hidden`` named layers (0: the embeddings).
    """

    def __init__(
        self, model: Any, tokenizer: Any = None, *, title: str = "", hidden: Sequence[int] = (),
        attention: Sequence[int] = (),
    ) -> None:  # fmt: skip
        if problem := cannot_record(model):
            raise UserError(problem)
        self.model, self.title = model, title
        self.pieces = None if tokenizer is None else Pieces(tokenizer)
        self.reread = Reread(model, tuple(hidden), tuple(attention))
        self.traces: list[Trace] = []
        self.hidden: dict[int, Tensor] = {}
        self._originals: dict[str, Any] = {}
        self._hook: Any = None
        self._call: Call | None = None
        self._thread = 0
        self._depth = 0  # calls of generate() inside the recorded one: the model drafts for itself
        self._last = 0  # traces of the last call

    @property
    def trace(self) -> Trace:
        """The trace of the last call. Raises UserError where none was recorded, or the call had several outputs."""
        if not self.traces:
            raise UserError("nothing was recorded: call model.generate() inside the with block")
        if self._last > 1:
            raise UserError(f"the call had {self._last} outputs: recorder.traces holds a trace of each")
        return self.traces[-1]

    def show(self, step: int = 0, height: int = 980) -> Any:
        """The inspector in a notebook, of the last call's trace."""
        return self.trace.show(step, height)

    def save(self, path: str | Path) -> list[Path]:
        """Write the traces of the last call: one to ``path``, several to ``path`` with -1, -2, … before its suffix."""
        path = Path(path)
        if not self.traces:
            raise UserError("nothing was recorded: call model.generate() inside the with block")
        stem, suffix = (path.stem, path.suffix) if path.suffix else (path.name, SUFFIX)
        names = [f"-{i}" for i in range(1, self._last + 1)] if self._last > 1 else [""]
        paths = [path.with_name(f"{stem}{name}{suffix}") for name in names]
        for trace, place in zip(self.traces[-self._last :], paths, strict=True):
            save(trace, place)
        return paths

    def __enter__(self) -> Self:
        if CURRENT in vars(self.model):
            raise UserError("this model is being recorded already: leave the first with block before the next")
        makers = self._generate, *map(self._run_after, (begin, StepCriteria, partial(watch, self)))
        wrappers = {name: make(getattr(self.model, name)) for name, make in zip(SEAM, makers, strict=True)}
        refusals = {name: _refuse_batched(name) for name in BATCHED if hasattr(self.model, name)}
        for name, new in {CURRENT: self, **wrappers, **refusals}.items():
            self._originals[name] = vars(self.model).get(name)
            vars(self.model)[name] = new
        self._hook = self.model.register_forward_hook(self._forward)
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._hook.remove()
        for name, original in self._originals.items():
            if original is None:
                vars(self.model).pop(name, None)
            else:
                vars(self.model)[name] = original
        self._originals = {}

    def add(self, traces: Sequence[Trace]) -> None:
        """Take in the traces of one call."""
        if traces:
            self.traces += traces
            self._last = len(traces)

    # what stands in the place of the model's methods -----------------------------------------------------------------

    def _generate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def generate(*args: Any, **kwargs: Any) -> Any:
            if self._call is not None:
                if threading.get_ident() != self._thread:
                    raise UserError("another call of generate() is being recorded: let it end before the next begins")
                self._depth += 1
                try:
                    return original(*args, **kwargs)
                finally:
                    self._depth -= 1
            custom = kwargs.get("custom_generate")
            if custom is not None and not getattr(custom, "records_itself", False):
                raise UserError(
                    "custom_generate has a loop of its own, whose steps cannot be seen from outside: leave it out, or "
                    "call generate() outside the recording"
                )
            self._thread = threading.get_ident()
            if custom is not None:
                return original(*args, **kwargs)
            call = self._call = Call(described_model(self.model), self.pieces, self.model.device, self.title)
            try:
                output = original(*args, **kwargs)
            except BaseException as error:
                self._call = None
                self.add(call.finish(None, error))
                raise
            finally:
                self._call = None
                self._depth = 0
            traces = call.finish(output if isinstance(output, Tensor) else output.sequences)
            for trace in traces:
                self.hidden = self.reread.add_to(trace)
            self.add(traces)
            return output

        return generate

    def _run_after(self, act: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """The model's own method, after which ``act`` is told the call that is recorded, what came of the method and
        what it was given, and gives what stands for it.
        """

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def get(*args: Any, **kwargs: Any) -> Any:
                result, call = original(*args, **kwargs), self._current
                return result if call is None else act(call, result, *args, **kwargs)

            return get

        return wrap

    def _forward(self, model: Any, args: Any, output: Any) -> None:
        call = self._current
        if call is not None and getattr(output, "logits", None) is not None:
            call.take_logits(output.logits.detach())

    @property
    def _current(self) -> Call | None:
        """The call that is recorded, unless the model drafts for itself just now."""
        return None if self._depth else self._call

    def drafts(self, depth_change: int) -> None:
        """Told when a candidate generator begins (1) and ends (-1) to draft: it may run the model itself."""
        self._depth += depth_change


def _refuse_batched(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise UserError(
            f"{name}() interleaves requests in a loop of its own, whose steps cannot be seen from outside: call "
            "generate() for what is to be recorded, or leave the recording first"
        )

    return refuse


def begin(call: Call, processors: Any, *args: Any, **kwargs: Any) -> Any:
    """Once per generate(), when its settings are known and nothing was computed."""
    config = kwargs.get("generation_config", args[0] if args else None)
    if problem := cannot_follow(config, kwargs.get("input_ids_seq_length")):
        raise UserError(problem)
    call.config, call.processors = config, [type(processor).__name__ for processor in processors or ()]
    call.mask = (kwargs.get("model_kwargs") or {}).get("attention_mask")
    call.begin()
    return processors


class StepCriteria(StoppingCriteriaList):
    """The run's own criteria; each step ends when they are asked."""

    def __init__(self, call: Call, criteria: StoppingCriteriaList, *_: Any, **__: Any) -> None:
        super().__init__(criteria)
        self.call = call

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        end_flags = super().__call__(input_ids, scores, **kwargs)
        self.call.step_ended(input_ids, end_flags)
        return end_flags


def watch(recorder: Recorder, call: Call, generator: Any, *_: Any, **__: Any) -> Any:
    """Tell a call what a candidate generator gives. It stays what it is: generate() asks for its class."""
    propose, update = generator.get_candidates, generator.update_candidate_strategy

    def get_candidates(input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        recorder.drafts(1)
        try:
            candidates, logits = propose(input_ids, *args, **kwargs)
        finally:
            recorder.drafts(-1)
        call.on_proposal(input_ids, candidates, logits)
        return candidates, logits

    def update_candidate_strategy(input_ids: Tensor, scores: Tensor, num_matches: int) -> Any:
        call.on_verdict(scores)
        return update(input_ids, scores, num_matches)

    generator.get_candidates, generator.update_candidate_strategy = get_candidates, update_candidate_strategy
    call.generator = generator
    return generator


def cannot_record(model: Any) -> str | None:
    """The reason why a model's generate() cannot be recorded; None where it can."""
    name = type(model).__name__
    if not callable(getattr(model, "_get_candidate_generator", None)) or not hasattr(model, "generation_config"):
        return f"{name} has no generate() of transformers: give a causal language model (AutoModelForCausalLM)"
    if model.config.is_encoder_decoder:
        return f"{name} is an encoder-decoder, and a trace holds one text: give a causal language model"
    if not model.can_generate() or model.get_output_embeddings() is None:
        return f"{name} has no language-model head: load it with AutoModelForCausalLM"
    return None


def cannot_follow(config: Any, prompt_length: int | None) -> str | None:
    """The reason why a call with this generation config cannot be recorded; None where it can."""
    if config is not None and (config.num_beams or 1) > 1:
        return (
            f"num_beams={config.num_beams}: beam search writes several texts at once and goes back on their tokens, so "
            "there are no steps to record. Leave num_beams out, or call generate() outside the recording"
        )
    if config is not None and getattr(config, "cache_implementation", None) == "paged":
        return "cache_implementation='paged' interleaves requests: leave it out, or call generate() outside"
    if prompt_length is not None and prompt_length < 1:
        return "the prompt was given as embeddings, and a trace holds its tokens: give input_ids"
    return None


def described_model(model: Any) -> dict[str, Any]:
    """A run's record of a model, as ``Target.info`` does; found out again only where the model changed."""
    try:
        state = str(vars(model.config)), [(p.data_ptr(), p._version) for p in model.parameters()]
    except RuntimeError:  # weights that count no changes
        return _describe(model)
    entry = _DESCRIPTIONS.get(model)
    if entry is None or entry[0] != state:
        entry = _DESCRIPTIONS[model] = state, _describe(model)
    return dict(entry[1])


_DESCRIPTIONS: WeakKeyDictionary[Any, tuple[Any, dict[str, Any]]] = WeakKeyDictionary()


def _describe(model: Any) -> dict[str, Any]:
    config = model.config.get_text_config()
    numbers: dict[str, Any] = {"family": str(config.model_type), "vocab": int(config.vocab_size)}
    try:
        shape = ModelShape.of(config)
        numbers |= {n: getattr(shape, n) for n in ("family", "layers", "heads", "kv_heads", "hidden", "vocab")}
        numbers["context_length"] = shape.context_length
        stack, _ = decoder_stack(model, shape.layers)
        numbers["key"] = fingerprint(config, stack.parameters())
    except (UserError, AttributeError, RuntimeError, NotImplementedError):
        pass  # a family that specviz's own engine does not run can be recorded all the same
    first = next(model.parameters())
    return {
        "name": model_name(model), **numbers,
        "parameters": sum(p.numel() for p in {id(p): p for p in model.parameters()}.values()),
        "dtype": str(first.dtype).removeprefix("torch."), "device": str(first.device),
    }  # fmt: skip


def recording(
    model: Any, tokenizer: Any = None, *, title: str = "", hidden: Sequence[int] = (), attention: Sequence[int] = ()
) -> Recorder:
    """Record the calls of ``model.generate()`` inside a with block.

    Args:
        model: a causal language model of transformers; it is as before when the block is left, whatever happens in it.
        tokenizer: for the text of the tokens; without one their ids are shown.
        title: the runs' name in lists.
        hidden: layers whose hidden states are wanted (0: the embeddings), see ``Recorder.hidden``.
        attention: layers (from 0) whose attention is wanted: where the model looked from each step's root.

    ``hidden`` and ``attention`` read the text once more when the call is over. Plain, sampled and assisted generation,
    batches and several return sequences are recorded. Raises UserError for a model that cannot be recorded; inside
    generate(), before anything is computed, for beam search and for prompts given as embeddings; for generate_batch();
    and in a second thread that calls generate() before the recorded call has ended.
    """
    return Recorder(model, tokenizer, title=title, hidden=hidden, attention=attention)
