"""Compiling of one decoder layer of Llama's build, on weights as they are or rounded ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from decoders.model.engines.layer import LayerShape, LlamaLayer, layer_shape, linear_sizes, linears_of

from .exact import exact_norm
from .rounding import RoundedLinear, rounded_product

EXAMPLE_ROWS, EXAMPLE_KEYS, EXAMPLE_CAPACITY = 6, 96, 160  # numbers that stand for any, apart from one row


@dataclass(frozen=True, slots=True)
class RoundedShape(LayerShape):
    """Kind of a compiled layer; ``bits`` are those of the weights of the ``rounded`` linear layers (0: none is)."""

    rounded: tuple[str, ...] = ()
    bits: int = 0

    def tensor_count(self, name: str) -> int:
        return 2 if name in self.rounded else 1

    def tensors_of(self, name: str, linear: Any) -> list[Tensor]:
        if name in self.rounded:
            return [linear.numbers, linear.scale]
        return [linear.packed if name in self.packed else linear.weight]


class RoundedLayer(LlamaLayer):
    """The layer, some of whose linear layers may be on rounded weights: norms are then computed in double."""

    shape: RoundedShape

    def norm(self, states: Tensor, weight: Tensor) -> Tensor:
        return exact_norm(states, weight, self.shape.eps) if self.shape.bits else super().norm(states, weight)

    def product(self, name: str, rows: Tensor, weights: list[Tensor], bias: Tensor | None) -> Tensor:
        if name not in self.shape.rounded:
            return super().product(name, rows, weights, bias)
        numbers, scale = weights
        out = rounded_product(rows, numbers, scale, self.shape.bits)
        return out if bias is None else out + bias


def rounded_shape(layer: Any, sizes: Any, one_row: bool) -> RoundedShape:
    """The shape of a stock layer, as ``layer_shape``."""
    shape, linears = layer_shape(layer, sizes, one_row), linears_of(layer)
    units = {names[0]: linears[names[0]] for names in shape.units}
    bits = {name: unit.bits for name, unit in units.items() if isinstance(unit, RoundedLinear)}
    return RoundedShape(**asdict(shape), rounded=tuple(bits), bits=max(bits.values(), default=0))


def example(shape: RoundedShape) -> tuple[Any, ...]:
    """Arguments of ``RoundedLayer(shape)`` to trace it with; packed weights stand there unpacked."""
    s, rows = shape, 1 if shape.one_row else EXAMPLE_ROWS
    sizes = linear_sizes(s)
    outputs = {names[0]: sum(sizes[name][0] for name in names) for names in s.units}
    weights = [torch.zeros(s.hidden), torch.zeros(s.hidden)]
    if s.query_norm:
        weights += [torch.zeros(s.head_dim), torch.zeros(s.head_dim)]
    for name, out in outputs.items():
        weight = torch.zeros(out, sizes[name][1])
        if name in s.rounded:
            linear = RoundedLinear(weight, None, s.bits)
            weights += [linear.numbers, linear.scale]
        else:
            weights.append(weight)
    weights += [torch.zeros(outputs[name]) for name in s.biased]
    cached = torch.float64 if s.rounded else torch.float32
    mask = torch.zeros(rows, EXAMPLE_KEYS, dtype=cached)
    keys, values = torch.zeros(2, 1, s.kv_heads, EXAMPLE_CAPACITY, s.head_dim, dtype=cached)
    turns = torch.zeros(rows, s.head_dim)
    return torch.zeros(rows, s.hidden), turns, turns.clone(), torch.arange(rows), mask, keys, values.clone(), weights


def take_packed_weights() -> None:
    """Have the compiler take packed weights that come as arguments: its own rule takes them as constants alone."""
    from torch._inductor import mkldnn_ir
    from torch._inductor.ir import TensorBox
    from torch._inductor.lowering import lowerings

    def unary(*arguments: Any, layout: Any = None) -> Any:
        return TensorBox.create(mkldnn_ir.LinearUnary.create(*arguments))

    def binary(*arguments: Any, layout: Any = None) -> Any:
        return TensorBox.create(mkldnn_ir.LinearBinary.create(*arguments))

    lowerings[torch.ops.mkldnn._linear_pointwise.default] = unary
    lowerings[torch.ops.mkldnn._linear_pointwise.binary] = binary


def build(shape: dict[str, Any], package: str) -> None:
    """Compile a layer ahead of time into ``package`` (a .pt2 file); ``shape`` as of ``RoundedShape.to_json``. Takes
    tens of seconds and a C++ compiler.
    """
    layer = RoundedShape.from_json(shape)
    if layer.packed:
        take_packed_weights()
    arguments, auto = example(layer), torch.export.Dim.AUTO
    rows = None if layer.one_row else {0: auto}
    mask = {1: auto} if layer.one_row else {0: auto, 1: auto}
    dynamic = (*[rows] * 4, mask, {2: auto}, {2: auto}, [None] * len(arguments[-1]))
    with torch.no_grad():
        program = torch.export.export(RoundedLayer(layer), arguments, dynamic_shapes=dynamic, strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=package)
