"""Layers that a text did not need: the target reads a run's text with one layer left out, each in turn.

A layer that is left out hands on what it was given. What is counted is how often the target's first choice stays, place
by place of the output, the whole text given (teacher-forced). Layers are left out one at a time: what two of them do
together it does not say, nor what leaving one out would save.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specviz.pages.whatif.reading import to_trace
from specviz.server.backend_host import Holder

from .. import stages
from ..stages import Stage

if TYPE_CHECKING:
    from decoders import Target, Trace

MEMORY = "layers"
LOST = "the model was exchanged, or its backend lost, while layers were left out: begin again"


def advance(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """Do the next stage of the work ``key``: ``Stage``'s fields, or the {"report"} behind the last one. The first stage
    has the run's ``trace``. Raises UserError where the work is not held here (any more), and for another model's run.
    """
    begin = partial(skip_layers, holder.target, to_trace(request["trace"])) if "trace" in request else None
    return stages.advance(holder, MEMORY, request["key"], begin, LOST)


def forget(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """Let go of work that was stopped."""
    return stages.forget(holder, MEMORY, request["key"])


def skip_layers(target: Target, trace: Trace) -> Generator[Stage, None, dict[str, Any]]:
    """Per layer the share of the output's places whose first choice stays without it (``kept``), of ``places``, and the
    positions where each changes (``changed``), in stages, each with what is known by then; ``ms`` of the
    layers so far, in forwards of ``tokens``. Raises UserError for a run of another model.
    """
    from decoders.study.look.run_settings import check_model

    check_model(target, trace.run)
    ids, count = trace.tables["tokens"]["id"], len(trace.output_ids)
    whole, kept, changed = first_choices(target, ids, count), list[float](), list[list[int]]()
    start_time = time.perf_counter()  # behind the first forward, which is slower than the rest

    def report() -> dict[str, Any]:
        ms = round((time.perf_counter() - start_time) * 1e3)
        return {"kept": [*kept], "changed": [*changed], "places": count, "tokens": len(ids) - 1, "ms": ms}

    for layer in range(len(target.layers)):
        yield Stage(layer, len(target.layers), f"without layer {layer + 1}", report())
        stays = first_choices(target, ids, count, layer) == whole
        kept.append(float(stays.float().mean()))
        changed.append((torch.nonzero(~stays).flatten() + len(ids) - count).tolist())
    return report()


@torch.inference_mode()
def first_choices(target: Target, ids: list[int], count: int, layer: int | None = None) -> Tensor:
    """The target's first choices at the last ``count`` tokens of a text, of ids; without a ``layer`` (from 0)."""

    def pass_on(module: Any, args: tuple, kwargs: dict, out: Any) -> Any:
        state = args[0] if args else kwargs["hidden_states"]
        return (state, *out[1:]) if isinstance(out, tuple) else state

    with target.lock, target.by_own_attention():
        hook = None if layer is None else target.layers[layer].register_forward_hook(pass_on, with_kwargs=True)
        try:
            tokens = torch.tensor([ids[:-1]], device=target.device)
            return target.model(tokens, use_cache=False, logits_to_keep=count).logits[0, -count:].argmax(-1).cpu()
        finally:
            if hook is not None:
                hook.remove()
