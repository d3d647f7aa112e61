"""Our engine under a user's own call: ``model.generate(..., custom_generate=specviz.generate, method="pld+h")``.

The user's model stays as it is. The engine runs a twin, made at the first call: other modules on the same weights.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import LogitsProcessorList, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

from decoders.engine.decoding import Decoding
from decoders.engine.recording import Run
from decoders.errors import UserError
from decoders.model.files.shape import token_ids
from decoders.model.target.target import Target
from decoders.names import QUICK
from decoders.prompt.prompt import Prompt

from .kinds import WARPERS, model_name, sampling_of
from .recorder import CURRENT, PLACES

_TARGETS: weakref.WeakKeyDictionary[nn.Module, tuple[object, Target]] = weakref.WeakKeyDictionary()


def target_of(model: Any) -> Target:
    """The target made of a user's model: one per model, as long as that lives and its weights are what they were.
    Raises UserError for a model that the engine does not run.
    """
    state = tuple((p.data_ptr(), p._version) for p in model.parameters())
    made = _TARGETS.get(model)
    if made is None or made[0] != state:
        made = _TARGETS[model] = state, Target(twin(model), None, model_name(model))
    return made[1]


def twin(model: Any) -> Any:
    """A copy of a model's modules on the same weights, without hooks on the model itself."""
    memo: dict[int, Any] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    memo |= {id(getattr(model, name)): OrderedDict() for name in vars(model) if name.endswith("_hooks")}
    memo |= {id(vars(model)[name]): False for name in PLACES if name in vars(model)}
    other = copy.deepcopy(model, memo)
    for name in PLACES:
        vars(other).pop(name, None)
    return other


class Criteria(threading.Event):
    """The call's own stopping criteria, asked between the engine's steps."""

    def __init__(self, criteria: StoppingCriteriaList, prompt_length: int) -> None:
        super().__init__()
        self.criteria, self.prompt_length = criteria, prompt_length
        self.decoding: Decoding | None = None

    def is_set(self) -> bool:
        if self.decoding is None or self.decoding.session is None:
            return False
        tokens = self.decoding.context.tokens
        if len(tokens) <= self.prompt_length:
            return False
        ids = torch.as_tensor(tokens.copy(), device=self.decoding.target.device)[None]
        return bool(self.criteria(ids, None).all())  # type: ignore[arg-type]


def generate(
    model: Any,
    input_ids: Int[Tensor, "rows length"],
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: Any = None,
    method: str = QUICK,
    params: Mapping[str, Any] | None = None,
    **model_kwargs: Any,
) -> Tensor | GenerateDecoderOnlyOutput:
    """Decode by one of specviz's methods, called by transformers' ``generate(custom_generate=…)``.

    ``method`` and ``params`` are those of ``specviz methods``; lengths, stop tokens and sampling are the call's own.
    Gives what generate() gives: ids ``[1, length]`` with the prompt, or an object with ``sequences``. Inside
    ``recording`` the run's trace is recorded. Raises UserError for a batch, for logits processors that the engine does
    not have, and for a model that it does not run.
    """
    if len(input_ids) != 1:
        raise UserError(f"{len(input_ids)} texts were given, and the engine decodes one at a time: call it for each")
    odd = [type(one).__name__ for one in logits_processor or () if type(one).__name__ not in WARPERS]
    if odd:
        raise UserError(f"{', '.join(odd)}: the engine draws by temperature, top-k and top-p alone; leave it out")
    mask = model_kwargs.get("attention_mask")
    if mask is not None and not bool(mask.bool().all()):
        raise UserError("the attention mask hides tokens, and the engine reads all: give the text without padding")
    ids: list[int] = input_ids[0].tolist()
    if not ids:
        raise UserError("the prompt was given as embeddings, and the engine reads tokens: give input_ids")
    recorder = vars(model).get(CURRENT)
    target = target_of(model)
    target.__dict__["pieces"] = None if recorder is None else recorder.pieces
    criteria = Criteria(stopping_criteria or StoppingCriteriaList(), len(ids))
    prompt = Prompt.from_ids(ids)
    # drawn from torch's generator, so that torch.manual_seed repeats a call
    seed = int(torch.randint(2**31, ())) if generation_config.do_sample else 0
    run = Run(
        target, prompt, method, params, sampling=sampling_of(generation_config, seed),
        max_new_tokens=generation_config.max_length - len(ids), cancel=criteria,
        stop_ids=token_ids(generation_config.eos_token_id), title="" if recorder is None else recorder.title,
    )  # fmt: skip
    criteria.decoding = run.decoding
    if recorder is None:
        output = [token for step in run.decoding for token in step.emitted]
    else:
        trace = run.finish()
        if trace.run["stop"] == "cancelled":
            trace.run["stop"] = "stopped by a criterion"
        recorder.add([trace])
        output = trace.output_ids
    sequences = torch.cat([input_ids, input_ids.new_tensor([output])], dim=-1)
    if generation_config.return_dict_in_generate:
        return GenerateDecoderOnlyOutput(sequences=sequences)  # type: ignore[arg-type]
    return sequences


generate.records_itself = True  # type: ignore[attr-defined]
