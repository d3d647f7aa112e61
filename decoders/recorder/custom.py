"""Our engine under a user's own call: ``model.generate(..., custom_generate=specviz.generate, method="pld+h")``.

The user's model stays as it is. The engine runs a twin, made at the first call: other modules on the same weights.
"""

from __future__ import annotations

import copy
import sys
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from transformers import LogitsProcessorList, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

from decoders.drafters import select_method
from decoders.engine.recording import Run, describe
from decoders.errors import UserError
from decoders.model.files.shape import token_ids
from decoders.model.target_model.target import Target
from decoders.names import QUICK
from decoders.prompt.prompt import Prompt
from decoders.verifiers.processors import Processing

from .kinds import model_name, sampling_of
from .per_token import CallDecoding, Output
from .recorder import CURRENT, PLACES

_TARGETS: weakref.WeakKeyDictionary[nn.Module, tuple[object, Target]] = weakref.WeakKeyDictionary()


def target_of(model: Any) -> Target:
    """The target made of a user's model: one per model, as long as that lives and its weights are what they were.
    Raises UserError for a model that the engine does not run.
    """
    state = tuple((p.data_ptr(), p._version) for p in model.parameters())
    entry = _TARGETS.get(model)
    if entry is None or entry[0] != state:
        entry = _TARGETS[model] = state, Target(twin(model), None, model_name(model))
    return entry[1]


def twin(model: Any) -> Any:
    """A copy of a model's modules on the same weights, without hooks on the model itself."""
    memo: dict[int, Any] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    memo |= {id(getattr(model, name)): OrderedDict() for name in vars(model) if name.endswith("_hooks")}
    memo |= {id(vars(model)[name]): False for name in PLACES if name in vars(model)}
    clone = copy.deepcopy(model, memo)
    for name in PLACES:
        vars(clone).pop(name, None)
    return clone


def streamer_of(model: Any) -> Any:
    """The streamer of the call of ``model.generate()`` that is under way; None without one.

    transformers feeds it the prompt and hands a callable ``custom_generate`` all but the streamer: it stands in the
    frame of generate() alone. Unserved, its reader would wait for ever.
    """
    frame = sys._getframe(1)
    while (frame := frame.f_back) is not None:
        if frame.f_code.co_name == "generate" and frame.f_locals.get("self") is model:
            return frame.f_locals.get("streamer")
    return None


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

    ``method`` and ``params`` are those of ``specviz methods``; all else is the call's own: lengths, stop tokens,
    sampling, and what it decides token by token (stopping criteria, logits processors, a streamer, max_time), which is
    asked on the same prefixes as without drafts. Gives what generate() gives: ids ``[1, length]`` with the prompt, or
    an object with ``sequences`` and, where asked for, ``scores`` and ``logits``. Inside ``recording`` the run's trace
    is recorded. Raises UserError for a batch, for logits processors with a state beside a lossy verifier, and for a
    model that the engine does not run.
    """
    if len(input_ids) != 1:
        raise UserError(f"{len(input_ids)} texts were given, and the engine decodes one at a time: call it for each")
    mask = model_kwargs.get("attention_mask")
    if mask is not None and not bool(mask.bool().all()):
        raise UserError("the attention mask hides tokens, and the engine reads all: give the text without padding")
    ids: list[int] = input_ids[0].tolist()
    if not ids:
        raise UserError("the prompt was given as embeddings, and the engine reads tokens: give input_ids")
    recorder, streamer = vars(model).get(CURRENT), streamer_of(model)
    target = target_of(model)
    target.__dict__["pieces"] = None if recorder is None else recorder.pieces
    processors = logits_processor if logits_processor is not None else LogitsProcessorList()
    # drawn from torch's generator, so that torch.manual_seed repeats a call
    seed = int(torch.randint(2**31, ())) if generation_config.do_sample else 0
    entry, values = select_method(method, params)
    sampling = sampling_of(generation_config, seed)
    processing = Processing(processors, sampling, target.info["vocab"], ids, target.device, in_order=entry.lossless)
    decoding = CallDecoding.of(
        target, Prompt.from_ids(ids), entry, values, sampling=sampling, processing=processing,
        max_new_tokens=generation_config.max_length - len(ids), stop_ids=token_ids(generation_config.eos_token_id),
    )  # fmt: skip
    output = Output(input_ids, generation_config)
    decoding.follow(output, stopping_criteria or StoppingCriteriaList(), streamer)
    if recorder is None:
        for _ in decoding:
            pass
    else:
        run = Run.of(decoding, describe(entry, values, decoding), recorder.title)
        run.trace.run.pop("passed_over", None)  # the call has settings of its own
        recorder.add([run.finish()])
    if streamer is not None:
        streamer.end()
    if generation_config.return_dict_in_generate:
        return GenerateDecoderOnlyOutput(output.sequences, output.scores, output.logits)  # type: ignore[arg-type]
    return output.sequences


generate.records_itself = True  # type: ignore[attr-defined]
