"""Norms, activations and linear layers in double, whose results do not depend on which rows are read together."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from decoders.model.state.hybrid import replace_in_forward


def exact_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``rms_norm`` computed in double: the order of its sum, which differs between kernels, is lost in rounding."""
    return F.rms_norm(x.double(), weight.shape, weight.double(), eps).to(x.dtype)


class ExactLinear(nn.Module):
    """A linear layer as it is, its sums formed in double: the order of their terms is lost in rounding."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.out_features, self.in_features = plain.weight.shape
        self.weight, self.bias = plain.weight, plain.bias

    def forward(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        bias = None if self.bias is None else self.bias.double()
        return F.linear(x.double(), self.weight.double(), bias).to(x.dtype)


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
