"""The numbers of a trained part as its file holds them: as they are, in int8, or in six or four bits; ids of tokens in
16 bits where these do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

SCALE = ".scale"  # ends the name of a matrix's scales, where it is stored in int8 or in fewer bits
GROUP = 64  # weights of a row that share a scale in six or four bits
PACKED = 4  # weights that fill whole bytes, in six bits as in four
CLIPPED = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)  # shares of a group's largest weight that its scale may reach to


def stored_form(weights: Mapping[str, Tensor], dtype: torch.dtype, bits: int = 8) -> dict[str, Tensor]:
    """A part's tensors as its file holds them; matrices in int8, or in fewer ``bits`` where ``GROUP`` divides a row."""
    stored_tensors: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        tensor = tensor.detach().cpu()
        if dtype == torch.int8 and tensor.is_floating_point() and tensor.ndim == 2:
            whole = bits == 8 or tensor.shape[1] % GROUP
            stored_tensors[name], stored_tensors[name + SCALE] = (
                in_int8(tensor.float()) if whole else in_bits(tensor.float(), bits)
            )
        elif tensor.dtype == torch.int32 and torch.equal(tensor, tensor.to(torch.uint16).int()):
            stored_tensors[name] = tensor.to(torch.uint16)
        else:
            stored_dtype = torch.float16 if dtype == torch.int8 else dtype
            stored_tensors[name] = tensor.to(stored_dtype if tensor.is_floating_point() else None).contiguous()
    return stored_tensors


def in_int8(matrix: Float[Tensor, "out in"]) -> tuple[Tensor, Float[Tensor, " out"]]:
    """w[i, j] ≈ int8[i, j] · scale[i]."""
    scale = (matrix.abs().amax(1) / 127).clamp_min(2**-24).half()
    return (matrix / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def in_bits(matrix: Float[Tensor, "out in"], bits: int) -> tuple[Tensor, Float[Tensor, "out groups"]]:
    """w[i, j] ≈ (q[i, j] − 2ᵇ⁻¹) · scale[i, j // GROUP], q from 0 to 2ᵇ − 1 in b ``bits``, 6 or 4: a row's q one after
    another, the first in the lowest bits. Of the scales that ``CLIPPED`` allows a group has the one with the least
    squared error.
    """
    groups, limit = matrix.unflatten(1, (-1, GROUP)), 1 << bits - 1
    largest = groups.abs().amax(-1, keepdim=True)
    scales = torch.stack([(largest * share / (limit - 1)).clamp_min(2**-24).half() for share in CLIPPED]).float()
    levels = (groups / scales).round().clamp(-limit, limit - 1)
    best = (levels * scales - groups).square().sum(-1, keepdim=True).argmin(0, keepdim=True)
    numbers = (levels.gather(0, best.expand(1, *groups.shape))[0].flatten(1) + limit).int()
    words = (numbers.unflatten(1, (-1, PACKED)) << bits * torch.arange(PACKED)).sum(-1, keepdim=True)
    packed = words >> 8 * torch.arange(PACKED * bits // 8) & 255
    return packed.to(torch.uint8).flatten(1), scales.gather(0, best)[0, ..., 0].half()


def full_matrix(numbers: Tensor, scale: Tensor) -> Float[Tensor, "out in"]:
    """A stored matrix in fp32."""
    if numbers.dtype == torch.uint8:
        bits = 8 * numbers.shape[1] // (GROUP * scale.shape[1])
        byte_groups = numbers.int().unflatten(1, (-1, PACKED * bits // 8))
        words = (byte_groups << 8 * torch.arange(byte_groups.shape[2])).sum(-1, keepdim=True)
        numbers = (words >> bits * torch.arange(PACKED) & (1 << bits) - 1).flatten(1) - (1 << bits - 1)
    scale = scale.float() if scale.ndim == 2 else scale.float()[:, None]
    return (numbers.float().unflatten(1, (scale.shape[1], -1)) * scale[..., None]).flatten(1)


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a part's file, rounded ones in fp32. Raises SafetensorError for a damaged one."""
    from safetensors.torch import load_file

    stored_tensors = {
        name: tensor.int() if tensor.dtype == torch.uint16 else tensor for name, tensor in load_file(file).items()
    }
    scales = {name.removesuffix(SCALE): stored_tensors.pop(name) for name in [*stored_tensors] if name.endswith(SCALE)}
    for name, scale in scales.items():
        stored_tensors[name] = full_matrix(stored_tensors[name], scale)
    return stored_tensors
