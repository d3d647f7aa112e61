"""Linear layers that read the same rows, computed as one: a layer's query, key and value, or its gate and up.

On a CPU a short draft's product is soon done, and each call costs some tens of microseconds besides. The weights lie in
one packed copy; the stock code goes on calling each layer by its own name, and the first call computes for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .linear import PackedLinear, WeightLayer, crossover, give_back, mapped_weights, owners_of, pack

Build = Callable[[Tensor, Tensor | None], Any]  # of a weight [out, in] and a bias, a linear layer
GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class Joint:
    """Layers [out, in] that read the same rows, as one of [sum of out, in], which ``build`` makes of its weight and
    bias.
    """

    def __init__(self, layers: Sequence[nn.Linear], weight: Float[Tensor, "all in"], build: Build) -> None:
        self.sizes = [layer.out_features for layer in layers]
        biased = any(layer.bias is not None for layer in layers)
        biases = [layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias for layer in layers]
        self.linear = build(weight, torch.cat(biases).detach() if biased else None)
        self.last: tuple[Tensor, tuple[Tensor, ...]] | None = None  # what was read, and what came of it

    def part(self, x: Float[Tensor, "*rows in"], index: int) -> Float[Tensor, "*rows out"]:
        """Output of layer ``index`` for ``x``; the others' are cached until the last of them is asked for."""
        last = self.last  # another thread may replace it meanwhile
        if last is None or last[0] is not x:
            last = self.last = x, self.linear(x).split(self.sizes, -1)
        if index == len(self.sizes) - 1:
            self.last = None
        return last[1][index]


class JointPart(WeightLayer):
    """One of the layers, under its own name; ``weight`` and ``bias`` are unpacked at every reading."""

    def __init__(self, joint: Joint, index: int) -> None:
        super().__init__()
        self.joint, self.index = joint, index  # not a module: what is shared would be counted thrice
        self.in_features, self.out_features = joint.linear.in_features, joint.sizes[index]

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        return self.joint.linear.weight.split(self.joint.sizes)[self.index]

    @property
    def bias(self) -> Float[Tensor, " out"] | None:
        biases = self.joint.linear.bias
        return None if biases is None else biases.split(self.joint.sizes)[self.index]

    def forward(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        return self.joint.part(x, self.index)


@torch.no_grad()
def join(model: nn.Module, fits: Callable[[int, int], bool], build: Build = PackedLinear) -> int:
    """Join the groups of a frozen fp32 CPU model whose joint [outputs, inputs] ``fits``; returns how many layers."""
    count, owners, mapped_ranges = 0, owners_of(model), mapped_weights()
    rooms: dict[tuple[int, ...], Tensor] = {}  # weights side by side until they are packed: memory used in turn
    for parent in list(model.modules()):
        for names in GROUPS:
            layers: list[Any] = [getattr(parent, name, None) for name in names]
            if any(type(layer) is not nn.Linear or len(owners[layer.weight.data_ptr()]) > 1 for layer in layers):
                continue
            reads, outputs = {layer.in_features for layer in layers}, sum(layer.out_features for layer in layers)
            if len(reads) > 1 or not fits(outputs, *reads):
                continue
            if (size := (outputs, *reads)) not in rooms:
                rooms[size] = torch.empty(size)
            joint = Joint(layers, torch.cat([layer.weight.detach() for layer in layers], out=rooms[size]), build)
            for index, (name, layer) in enumerate(zip(names, layers, strict=True)):
                setattr(parent, name, JointPart(joint, index))
                give_back(layer.weight, mapped_ranges)
            count += len(layers)
    return count


def pack_joined(model: nn.Module, packed_from: int | None = None) -> int:
    """Join the groups whose packed copy is the only one, then ``pack`` the layers that are left; returns how many were
    packed. With ``packed_from``, all groups are joined or none: those that are packed from one row on.
    """
    joint_count = join(model, lambda *shape: (crossover(*shape) if packed_from is None else packed_from) <= 1)
    return joint_count + pack(model, packed_from)
