"""Linear layers with weights of eight or four bits, by torch's kernels for the CPU or this project's own (``kernel``).

Torch's round rows to bfloat16, ours to eight bits. The weights stay small: fewer bytes are read, which is what one row
waits for. A row's result is the same bit for bit whatever stands beside it; beside such layers norms, activations,
attention, recurrent states and linear layers of sizes that the kernels do not take are computed in double, or in an
order that does not depend on the rows, so that this holds for whole forwards, compiled or not. Embedding and head stay;
beside our own kernels the head has eight bits. Models with experts, whose weights are none of linear layers, are
refused.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from decoders.errors import UserError
from decoders.model.engines.joint import join
from decoders.model.engines.linear import WeightLayer, give_back, mapped_weights
from decoders.model.engines.norms import fuse_norms

from . import kernel
from .exact import ExactLinear, compute_in_double, exact_norm

GROUP = 32  # weights of a row that share scale and offset in int4, as in GGUF's Q4_1
BLOCK = 16  # outputs that the int4 kernel takes at a time, and inputs that the int8 kernel does


class RoundedLinear(WeightLayer):
    """A linear layer on int8 weights, each row with a scale, or int4 weights, each ``GROUP`` with a scale and an offset
    (w = (q - 8) · scale + offset, q from 0 to 15).
    """

    def __init__(self, weight: Float[Tensor, "out in"], bias: Tensor | None, bits: int) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bits, self.bias = bits, bias
        self.numbers, self.scale = self.pack(weight)

    def pack(self, weight: Float[Tensor, "out in"]) -> tuple[Tensor, Tensor]:
        """Numbers and scales of these weights, as its kernel reads them."""
        if self.bits == 8:
            scale = (weight.abs().amax(1) / 127).clamp_min(1e-12).bfloat16()
            return (weight / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8), scale
        groups = weight.unflatten(1, (-1, GROUP))
        lowest, highest = groups.amin(-1), groups.amax(-1)
        scale = ((highest - lowest) / 15).clamp_min(1e-12).bfloat16()
        offset = (lowest + 8 * scale.float()).bfloat16()
        q = ((groups - offset.float()[..., None]) / scale.float()[..., None]).round().clamp(-8, 7) + 8
        numbers = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.flatten(1).to(torch.int32), 2)
        return numbers, torch.stack([scale, offset], -1).transpose(0, 1).contiguous()

    def forward(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        out = rounded_product(x.reshape(-1, self.in_features), self.numbers, self.scale, self.bits)
        out = out.reshape(*x.shape[:-1], self.out_features)
        return out if self.bias is None else out + self.bias

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        """The weights that it computes with, in fp32."""
        with torch.inference_mode(False), torch.no_grad():
            if self.bits == 8:
                return self.numbers.float() * self.scale.float()[:, None]
            identity = torch.eye(self.in_features, dtype=torch.bfloat16)
            return torch.ops.aten._weight_int4pack_mm_for_cpu(identity, self.numbers, GROUP, self.scale).float().mT


class KernelLinear(RoundedLinear):
    """A linear layer on such weights by this project's own kernels: ``GROUP`` weights share a scale in int8, too."""

    def pack(self, weight: Float[Tensor, "out in"]) -> tuple[Tensor, Tensor]:
        return kernel.pack(weight, self.bits)

    def pointers(self) -> kernel.LinearPointers:
        """Addresses of its tensors."""
        return kernel.pointers(self.numbers, self.scale, self.bias, self.out_features, self.in_features, self.bits)

    def forward(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        rows = x.reshape(-1, self.in_features)
        out = kernel.linear(rows, self.numbers, self.scale, self.bias, self.out_features, self.bits)
        return out.reshape(*x.shape[:-1], self.out_features).to(x.dtype)

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        with torch.inference_mode(False), torch.no_grad():
            return kernel.unpack(self.numbers, self.scale, self.out_features, self.in_features, self.bits)


def fits(outputs: int, inputs: int, bits: int) -> bool:
    """True where the kernel takes a layer's sizes; beyond them the one of int8 reads memory that is not there."""
    return inputs % BLOCK == 0 if bits == 8 else inputs % GROUP == 0 and outputs % BLOCK == 0


def rounded_product(rows: Float[Tensor, "rows in"], numbers: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Rows times the weights of a ``RoundedLinear``, ``[rows, out]`` in the rows' dtype."""
    half = rows.bfloat16()
    if bits == 4:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(half, numbers, GROUP, scale).to(rows.dtype)
    return torch.ops.aten._weight_int8pack_mm(half, numbers, scale).to(rows.dtype)


def takes(device: torch.device, dtype: torch.dtype) -> bool:
    """True where the kernels compute: on a CPU, in fp32."""
    return device.type == "cpu" and dtype == torch.float32


@torch.no_grad()
def round_weights(model: nn.Module, weights: str, name: str, use_kernels: bool = False) -> int:
    """Replace the linear layers below a model's head by ones on ``weights`` of fewer bits; returns how many. Norms, and
    linear layers that do not fit, compute in double then. ``use_kernels``: by this project's kernels, which are usable;
    the head then gets eight bits.

    Raises UserError for a model that is not on a CPU in fp32 or has experts, and where the kernels are missing.
    """
    first = next(model.parameters())
    if not takes(first.device, first.dtype):
        kind = str(first.dtype).removeprefix("torch.")
        raise UserError(f"{weights} weights are for a CPU in float32, and {name} is on the {first.device} in {kind}")
    if any(param.ndim == 3 for module in model.modules() if not isinstance(module, nn.Conv1d)
           for param in module.parameters(recurse=False)):  # fmt: skip
        raise UserError(
            f"{weights} weights are of linear layers, and {name} has experts: theirs would stay in float32, and their "
            "sums would depend on which rows are read together, so that a draft could change a token. Leave --weights "
            "out"
        )
    bits = int(weights.removeprefix("int"))
    if not use_kernels and (reason := _unable(bits)) is not None:
        raise UserError(f"this build of torch does not compute with {weights} weights ({reason}): leave --weights out")
    head: Any = model.get_output_embeddings() if isinstance(model, PreTrainedModel) else None
    mapped_ranges, kind = mapped_weights(), KernelLinear if use_kernels else RoundedLinear
    count = join(
        model, lambda outputs, inputs: fits(outputs, inputs, bits), lambda weight, bias: kind(weight, bias, bits)
    )
    for parent in list(model.modules()):
        child: Any
        for place, child in list(parent.named_children()):
            if type(child) is not nn.Linear:
                continue
            if child is head:
                if use_kernels and fits(child.out_features, child.in_features, 8):
                    setattr(parent, place, KernelLinear(child.weight.detach(), child.bias, 8))
                continue
            if not fits(child.out_features, child.in_features, bits):
                setattr(parent, place, ExactLinear(child))
                continue
            setattr(parent, place, kind(child.weight.detach(), child.bias, bits))
            give_back(child.weight, mapped_ranges)
            count += 1
    own_code = {type(module).__name__ for module in model.modules() if isinstance(module, nn.Linear)} - {"Linear"}
    if not count and own_code:
        raise UserError(
            f"the layers of {name} are {', '.join(sorted(own_code))}, and run by code of their own, which {weights} "
            "weights do not take the place of: leave --weights out"
        )
    if not count:
        raise UserError(f"{name} has no linear layers that {weights} weights fit: leave --weights out")
    fuse_norms(model, kernel.rms_norm if use_kernels else exact_norm)
    if use_kernels:
        for parent in list(model.modules()):
            for place, child in list(parent.named_children()):
                if type(child).__name__ in ("SiLUActivation", "SiLU"):
                    setattr(parent, place, kernel.KernelSiLU())
    compute_in_double(model)
    return count


def _unable(bits: int) -> str | None:
    """The reason why the kernel for so many bits cannot be used; None where it computes what its weights say."""
    generator = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(size, 64, generator=generator) for size in (64, 5))
    try:
        layer = RoundedLinear(weight, None, bits)
        distance = float((layer(x) - x.bfloat16().float() @ layer.weight.T).abs().max())
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        return str(error).splitlines()[0][:120]
    return None if distance < 0.2 else f"it is off by {distance:.2g}"
