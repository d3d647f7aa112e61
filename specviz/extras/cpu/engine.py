"""The engine ``compiled``: a target's layers, compiled once for this machine, or this project's own kernels where its
weights are rounded.
"""

from __future__ import annotations

from typing import Any

from .compiled_layers import CompiledForward, why_not
from .compiled_parts import PartsForward
from .kernel_forward import KernelForward
from .weights import CpuWeights


def forward_of(target: Any) -> PartsForward | str:
    """A target's forwards by this engine, or the reason why it has none, in one sentence."""
    if isinstance(target.rounded_weights, CpuWeights) and target.rounded_weights.by_kernels:
        return KernelForward(target)
    return why_not(target) or CompiledForward(target)
