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
    if KERNELS.why_not() is None and (packed := packed_layers(target)) is not None:
        return KernelForward(target, packed)
    return why_not(target) or CompiledForward(target)
