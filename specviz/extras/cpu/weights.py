"""``--weights int8`` and ``int4``: models put on such weights, and transformers' own attention beside them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from decoders.model.engines.fewer_bits import RoundedWeights
from decoders.model.target_model.load import own_attention

from . import kernel
from .kernel_forward import why_not
from .rounding import round_weights, takes

BITS = {"int8": 8, "int4": 5}  # of a weight, with its share of scales and offsets
IN_DOUBLE, BY_KERNELS = {"sdpa": "sdpa_in_double", "eager": "eager_in_double"}, "sdpa_by_kernels"


def sdpa_in_double(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: torch.Tensor | None, **options: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """transformers' own attention, its sums formed in double: beside rounded weights as the target's are."""
    if attention_mask is not None and attention_mask.is_floating_point():
        attention_mask = attention_mask.double()
    out, _ = sdpa_attention_forward(module, query.double(), key.double(), value.double(), attention_mask, **options)
    return out.to(query.dtype), None


def eager_in_double(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: torch.Tensor | None, **options: Any,
) -> tuple[torch.Tensor, Any]:  # fmt: skip
    """The attention of a model's own code, its sums formed in double, where torch's kernels lack what it needs."""
    mask = None if attention_mask is None else attention_mask.double()
    eager_forward = sys.modules[type(module).__module__].eager_attention_forward
    out, weights = eager_forward(module, query.double(), key.double(), value.double(), mask, **options)
    return out.to(query.dtype), weights


def sdpa_by_kernels(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: torch.Tensor | None, scaling: float | None = None, **options: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Attention by this project's kernels, as the target's is beside weights that they compute on."""
    return kernel.attention(query, key, value, attention_mask, scaling or query.shape[-1] ** -0.5), None


for _name, _function, _mask in (
    (IN_DOUBLE["sdpa"], sdpa_in_double, sdpa_mask), (IN_DOUBLE["eager"], eager_in_double, eager_mask),
    (BY_KERNELS, sdpa_by_kernels, sdpa_mask),
):  # fmt: skip
    AttentionInterface.register(_name, _function)
    AttentionMaskInterface.register(_name, _mask)



@dataclass(frozen=True, slots=True)
class CpuWeights(RoundedWeights):
    """Facts on a model on such weights; ``by_kernels``: one call of this project's kernels computes all its layers."""

    by_kernels: bool


def fits(device: torch.device, dtype: torch.dtype) -> bool:
    """True where models can be put on such weights."""
    return takes(device, dtype)


def round_model(
    model: Any, shape: Any, weights: str, name: str, engine: str, activations: str | None = None
) -> CpuWeights:
    """Round a model's weights (``round_weights``). A target's attention is then computed by the kernels, whatever calls
    it, where one call computes all of its layers.
    """
    use_kernels = kernel.KERNELS.usable("compiled" if activations == "int8" else engine)
    round_weights(model, weights, name, use_kernels)
    able = use_kernels and why_not(model, shape) is None
    for module in model.modules() if able else ():
        if hasattr(module, "self_attn"):
            module.self_attn.own_attention = kernel.attention
    info = {"weights": weights, **({"activations": "int8"} if use_kernels else {})}
    # rounded layers round their rows: an attention sum's last bit, which varies with the rows, must not reach them
    cached_as = None if able else torch.float64
    return CpuWeights(info, cached_as, BY_KERNELS if able else IN_DOUBLE[own_attention(model)], able)


def rounded_bytes(weights: str, count: int, head: int, tables: int, engine: str, itemsize: int) -> int:
    """Bytes of a model's weights. This project's own kernels round the head to int8 too, beside the embedding where
    the two are one.
    """
    rounded_head = head if kernel.KERNELS.can_compute(engine) else 0
    stored_tables = tables - (rounded_head if tables > head else 0)
    return rounded_head + stored_tables * itemsize + int(max(0, count - tables) * BITS[weights] / 8)
