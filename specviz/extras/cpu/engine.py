"""The engine ``compiled``: this project's own kernels, where the processor and the model's weights suit them, or a
target's layers, compiled once for this machine.
"""

from __future__ import annotations

from typing import Any

from .compiled_layers import CompiledForward, why_not
from .compiled_parts import PartsForward
from .kernel import KERNELS
from .kernel_forward import KernelForward, packed_layers
from .weights import CpuWeights


def forward_of(target: Any) -> PartsForward | str:
    """A target's forwards by this engine, or the reason why it has none, in one sentence."""
    if isinstance(target.rounded_weights, CpuWeights) and target.rounded_weights.by_kernels:
        return KernelForward(target)
    if reason := why_not(target):
        return reason
    packed = packed_layers(target) if KERNELS.why_not() is None else None
    return CompiledForward(target) if packed is None else KernelForward(target, packed)
