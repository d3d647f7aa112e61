"""The engine ``compiled``: a target's layers, compiled once for this machine, or this project's own kernels where its
weights are rounded.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from decoders.draft_models.compiled_draft import compiled_model
from decoders.model.engines.compiled_layers import CompiledForward, why_not
from decoders.model.engines.compiled_parts import PartsForward
from decoders.model.engines.kernel_forward import KernelForward


def forward_of(target: Any, engine: str) -> PartsForward | str:
    """A target's forwards by this engine, or the reason why it has none, in one sentence."""
    if not target.by_kernels and (reason := why_not(target)):
        return reason
    forward = KernelForward(target) if target.by_kernels else CompiledForward(target)
    forward.draft = partial(compiled_model, target)
    return forward
