"""RMS norms as one operation instead of five, where that gives the same bits; and norms and activations in double."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..state.hybrid import replace_in_forward

Norm = Callable[[Tensor, Tensor, float], Tensor]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``weight * x / rms(x)`` over the last dimension, by torch's own kernel."""
    return F.rms_norm(x, weight.shape, weight, eps)


def exact_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``rms_norm`` computed in double: the order of its sum, which differs between kernels, is lost in rounding."""
    return F.rms_norm(x.double(), weight.shape, weight.double(), eps).to(x.dtype)


class FusedRMSNorm(nn.Module):
    """An RMS norm as a layer, computed by ``norm``."""

    def __init__(self, weight: Tensor, eps: float, norm: Norm = rms_norm) -> None:
        super().__init__()
        self.weight, self.eps, self.norm = nn.Parameter(weight, requires_grad=False), eps, norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x, self.weight, self.eps)


@torch.no_grad()
def fuse_norms(model: nn.Module, norm: Norm = rms_norm) -> int:
    """Replace RMS norms of a frozen model whose output the fused kernel gives bit for bit; returns how many. Those that
    take their place compute by ``norm``.

    Families write this norm in their own ways (Gemma scales by 1 + weight, some stay in half precision), so each one is
    tried on random rows first and stays as it is where a single bit differs.
    """
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if not type(child).__name__.endswith("RMSNorm"):
                continue
            eps, weight = getattr(child, "variance_epsilon", None), getattr(child, "weight", None)
            if eps is None or weight is None or weight.ndim != 1:
                continue
            fused = FusedRMSNorm(weight.detach(), eps)
            rows = torch.randn(1, 7, len(weight), generator=torch.Generator().manual_seed(0)).to(weight)
            if torch.equal(child(rows), fused(rows)) and torch.equal(child(rows * 50), fused(rows * 50)):
                setattr(parent, name, FusedRMSNorm(weight.detach(), eps, norm))
                count += 1
    return count


class _TorchInDouble:
    """torch, whose ``float32`` is double."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, "float64" if name == "float32" else name)


class ExactActivation(nn.Module):
    """An activation computed in double: kernels' results in fp32 may depend on how many numbers there are."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.double()).to(x.dtype)


def compute_in_double(model: nn.Module) -> None:
    """Have a model's gated norms and its activations, but SiLU, compute in double. A gated norm's own code runs, with
    double where it says float32.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__module__ == "transformers.activations" and "SiLU" not in type(child).__name__:
                setattr(parent, name, ExactActivation(child))
    for module in model.modules():
        if type(module).__name__.endswith("RMSNormGated"):
            replace_in_forward(module, torch=_TorchInDouble())
