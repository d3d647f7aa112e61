"""One decoder layer of Llama's build as a function of tensors alone: what is compiled, once for all layers of a model.

The stock layer calls some forty operations, each with its own dispatch; compiled, the norms, rotary positions and gates
between the matrix products are a few loops. Weights are arguments, so that one compiled layer serves all of a model's,
and every model of the same sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from .joint import GROUPS, JointPart
from .linear import PackedLinear
from .norms import exact_norm, rms_norm
from .rounding import RoundedLinear, rounded_product

LINEARS: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
EXAMPLE_ROWS, EXAMPLE_KEYS, EXAMPLE_CAPACITY = 6, 96, 160  # numbers that stand for any, apart from one row


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Kind of a compiled layer. ``packed``, ``rounded`` and ``biased`` name linear layers, ``joint`` the first
    ones of those that are computed as one (``decoders.model.engines.joint``); ``bits`` are those of the rounded ones'
    weights (0: none is). ``one_row``: it takes one row, else any number above one.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    eps: float
    packed: tuple[str, ...]
    biased: tuple[str, ...]
    joint: tuple[str, ...]
    query_norm: bool
    one_row: bool
    rounded: tuple[str, ...] = ()
    bits: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LayerShape:
        return cls(**{**data, **{name: tuple(data[name]) for name in ("packed", "biased", "joint", "rounded")}})

    @property
    def units(self) -> list[tuple[str, ...]]:
        """The linear layers in their order, those that are computed as one side by side."""
        groups = {names[0]: names for names in GROUPS if names[0] in self.joint}
        member_names = {name for names in groups.values() for name in names[1:]}
        return [groups.get(name, (name,)) for name in LINEARS if name not in member_names]


def layer_weights(layer: nn.Module, shape: LayerShape) -> list[Tensor]:
    """A stock layer's weights, in the order in which ``LlamaLayer`` takes them; nothing is copied.

    Raises AttributeError for a layer that is built otherwise.
    """
    attention: Any = layer.self_attn
    norms: list[Tensor] = [layer.input_layernorm.weight, layer.post_attention_layernorm.weight]  # type: ignore
    if shape.query_norm:
        norms += [attention.q_norm.weight, attention.k_norm.weight]
    linears = _linears(layer)
    units = {names[0]: linears[names[0]] for names in shape.units}
    weights = list[Tensor]()
    for name, unit in units.items():
        if name in shape.rounded:
            weights += [unit.numbers, unit.scale]
        else:
            weights.append(unit.packed if name in shape.packed else unit.weight)
    return norms + weights + [units[name].bias for name in shape.biased]


def _linears(layer: Any) -> dict[str, Any]:
    """A stock layer's linear layers by name; each name of joint ones has them all."""
    modules = {n: getattr(layer.self_attn if hasattr(layer.self_attn, n) else layer.mlp, n) for n in LINEARS}
    return {name: module.joint.linear if isinstance(module, JointPart) else module for name, module in modules.items()}


def layer_shape(layer: Any, sizes: Any, one_row: bool) -> LayerShape:
    """The shape of a stock layer of a model of these sizes (``ModelShape``), packed as the layer itself computes at one
    row or at four. Raises AttributeError for a layer that is built otherwise.
    """
    rows, linears = 1 if one_row else 4, _linears(layer)
    joint = tuple(names[0] for names in GROUPS if linears[names[0]] is linears[names[1]])
    shape = LayerShape(
        sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, layer.mlp.up_proj.out_features, sizes.norm_eps,
        (), (), joint, hasattr(layer.self_attn, "q_norm"), one_row,
    )  # fmt: skip
    units = {names[0]: linears[names[0]] for names in shape.units}
    packed = [n for n, unit in units.items() if isinstance(unit, PackedLinear) and unit.packed_from <= rows]
    rounded_bits = {n: unit.bits for n, unit in units.items() if isinstance(unit, RoundedLinear)}
    return replace(
        shape, packed=tuple(packed), biased=tuple(n for n, unit in units.items() if unit.bias is not None),
        rounded=tuple(rounded_bits), bits=max(rounded_bits.values(), default=0),
    )  # fmt: skip


class LlamaLayer(nn.Module):
    """The layer itself: ``forward`` writes the rows' keys and values into the cache, and returns the next layer's input
    [rows, hidden] and the queries after rotary [heads, rows, head_dim].
    """

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.shape = shape

    def forward(
        self, x: Float[Tensor, "rows hidden"], cos: Float[Tensor, "rows head_dim"], sin: Float[Tensor, "rows head_dim"],
        slots: Int[Tensor, " rows"], mask: Float[Tensor, "rows keys"], keys: Float[Tensor, "1 kv_heads capacity size"],
        values: Float[Tensor, "1 kv_heads capacity size"], weights: list[Tensor],
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        s = self.shape
        norms = 4 if s.query_norm else 2
        sizes, weight_iter = linear_sizes(s), iter(weights[norms:])
        linears = {names[0]: [next(weight_iter) for _ in range(2 if names[0] in s.rounded else 1)] for names in s.units}
        biases = dict(zip(s.biased, weight_iter, strict=True))

        def linear(name: str, rows: Tensor) -> Tensor:
            if name in s.rounded:
                numbers, scale = linears[name]
                out = rounded_product(rows, numbers, scale, s.bits)
                return out + biases[name] if name in biases else out
            (weight,) = linears[name]
            if name in s.packed:
                packed = torch.ops.mkldnn._linear_pointwise
                return packed(rows, weight, biases.get(name), "none", [], "")
            return F.linear(rows, weight, biases.get(name))

        def several(names: tuple[str, ...], rows: Tensor) -> Sequence[Tensor]:
            if names[0] in s.joint:
                return linear(names[0], rows).split([sizes[name][0] for name in names], -1)
            return [linear(name, rows) for name in names]

        def rotate(states: Tensor) -> Tensor:
            half = s.head_dim // 2
            swapped_halves = torch.cat((-states[..., half:], states[..., :half]), -1)
            return (states * cos[:, None] + swapped_halves * sin[:, None]).transpose(0, 1)

        def norm(states: Tensor, weight: Tensor) -> Tensor:
            return (exact_norm if s.bits else rms_norm)(states, weight, s.eps)

        count = x.shape[0]
        normed = norm(x, weights[0])
        query, key, value = (projection.view(count, -1, s.head_dim) for projection in several(GROUPS[0], normed))
        if s.query_norm:
            query, key = norm(query, weights[2]), norm(key, weights[3])
        query, key, value = rotate(query), rotate(key), value.transpose(0, 1)
        keys.index_copy_(2, slots, key[None].to(keys.dtype))
        values.index_copy_(2, slots, value[None].to(keys.dtype))
        key_count, group = mask.shape[1], s.heads // s.kv_heads
        folded_query = query.reshape(1, s.kv_heads, group * count, s.head_dim).to(keys.dtype)
        masks = mask.repeat(group, 1) if group > 1 else mask
        out = F.scaled_dot_product_attention(
            folded_query,
            keys[:, :, :key_count],
            values[:, :, :key_count],
            attn_mask=masks[None, None],
            scale=s.head_dim**-0.5,
        )
        out = out.to(x.dtype).reshape(s.heads, count, s.head_dim).transpose(0, 1).reshape(count, -1)
        x = x + linear("o_proj", out)
        normed = norm(x, weights[1])
        gate, up = several(GROUPS[1], normed)
        return x + linear("down_proj", F.silu(gate) * up), query


def linear_sizes(s: LayerShape) -> dict[str, tuple[int, int]]:
    """[out, in] of each linear layer."""
    return {
        "q_proj": (s.heads * s.head_dim, s.hidden), "k_proj": (s.kv_heads * s.head_dim, s.hidden),
        "v_proj": (s.kv_heads * s.head_dim, s.hidden), "o_proj": (s.hidden, s.heads * s.head_dim),
        "gate_proj": (s.mlp, s.hidden), "up_proj": (s.mlp, s.hidden), "down_proj": (s.hidden, s.mlp),
    }  # fmt: skip


def example(shape: LayerShape) -> tuple[Any, ...]:
    """Arguments of ``LlamaLayer(shape)`` to trace it with; packed weights stand there unpacked."""
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
    """Compile a layer ahead of time into ``package`` (a .pt2 file); ``shape`` as of ``LayerShape.to_json``. Takes tens
    of seconds and a C++ compiler.
    """
    layer = LayerShape.from_json(shape)
    if layer.packed:
        take_packed_weights()
    arguments, auto = example(layer), torch.export.Dim.AUTO
    rows = None if layer.one_row else {0: auto}
    mask = {1: auto} if layer.one_row else {0: auto, 1: auto}
    dynamic = (*[rows] * 4, mask, {2: auto}, {2: auto}, [None] * len(arguments[-1]))
    with torch.no_grad():
        program = torch.export.export(LlamaLayer(layer), arguments, dynamic_shapes=dynamic, strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=package)
