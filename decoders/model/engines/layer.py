"""One decoder layer of Llama's build as a function of tensors alone, to be compiled once for all layers of a model.

The stock layer calls some forty operations, each with its own dispatch; compiled, the norms, rotary positions and gates
between the matrix products are a few loops. Weights are arguments, so that one compiled layer serves all of a model's,
and every model of the same sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..state.two_parts import StoredRows, TwoParts, attend
from .joint import GROUPS, JointPart
from .linear import PackedLinear
from .norms import rms_norm

LINEARS: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Kind of a compiled layer. ``packed`` and ``biased`` name linear layers, ``joint`` the first ones of those that
    are computed as one (``decoders.model.engines.joint``). ``one_row``: it takes one row, else any number above one.
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        fields: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in data.items()}
        return cls(**fields)

    @property
    def units(self) -> list[tuple[str, ...]]:
        """The linear layers in their order, those that are computed as one side by side."""
        groups = {names[0]: names for names in GROUPS if names[0] in self.joint}
        member_names = {name for names in groups.values() for name in names[1:]}
        return [groups.get(name, (name,)) for name in LINEARS if name not in member_names]

    def tensor_count(self, name: str) -> int:
        """Number of tensors in which a linear layer's weights lie."""
        return 1

    def tensors_of(self, name: str, linear: Any) -> list[Tensor]:
        """A linear layer's weights, as ``LlamaLayer`` takes them."""
        return [linear.packed if name in self.packed else linear.weight]


def layer_weights(layer: nn.Module, shape: LayerShape) -> list[Tensor]:
    """A stock layer's weights, in the order in which ``LlamaLayer`` takes them; nothing is copied.

    Raises AttributeError for a layer that is built otherwise.
    """
    attention: Any = layer.self_attn
    norms: list[Tensor] = [layer.input_layernorm.weight, layer.post_attention_layernorm.weight]  # type: ignore
    if shape.query_norm:
        norms += [attention.q_norm.weight, attention.k_norm.weight]
    linears = linears_of(layer)
    units = {names[0]: linears[names[0]] for names in shape.units}
    weights = [tensor for name, unit in units.items() for tensor in shape.tensors_of(name, unit)]
    return norms + weights + [units[name].bias for name in shape.biased]


def linears_of(layer: Any) -> dict[str, Any]:
    """A stock layer's linear layers by name; each name of joint ones has them all."""
    modules = {n: getattr(layer.self_attn if hasattr(layer.self_attn, n) else layer.mlp, n) for n in LINEARS}
    return {name: module.joint.linear if isinstance(module, JointPart) else module for name, module in modules.items()}


def layer_shape(layer: Any, sizes: Any, one_row: bool) -> LayerShape:
    """The shape of a stock layer of a model of these sizes (``ModelShape``), packed as the layer itself computes at one
    row or at four. Raises AttributeError for a layer that is built otherwise.
    """
    rows, linears = 1 if one_row else 4, linears_of(layer)
    joint = tuple(names[0] for names in GROUPS if linears[names[0]] is linears[names[1]])
    shape = LayerShape(
        sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, layer.mlp.up_proj.out_features, sizes.norm_eps,
        (), (), joint, hasattr(layer.self_attn, "q_norm"), one_row,
    )  # fmt: skip
    units = {names[0]: linears[names[0]] for names in shape.units}
    packed = [n for n, unit in units.items() if isinstance(unit, PackedLinear) and unit.packed_from <= rows]
    return replace(
        shape, packed=tuple(packed), biased=tuple(n for n, unit in units.items() if unit.bias is not None)
    )


class LlamaLayer(nn.Module):
    """The layer itself: ``forward`` writes the rows' keys and values into the cache, and returns the next layer's input
    [rows, hidden] and the queries after rotary [heads, rows, head_dim].
    """

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.shape = shape

    def norm(self, states: Tensor, weight: Tensor) -> Tensor:
        """An RMS norm over the last dimension."""
        return rms_norm(states, weight, self.shape.eps)

    def product(self, name: str, rows: Tensor, weights: list[Tensor], bias: Tensor | None) -> Tensor:
        """A linear layer's output for rows; ``weights`` as of ``LayerShape.tensors_of``."""
        if name in self.shape.packed:
            return torch.ops.mkldnn._linear_pointwise(rows, weights[0], bias, "none", [], "")
        return F.linear(rows, weights[0], bias)

    def attend(
        self, query: Float[Tensor, "heads rows head_dim"], keys: Tensor, values: Tensor,
        row_keys: Float[Tensor, "kv_heads rows head_dim"], row_values: Float[Tensor, "kv_heads rows head_dim"],
        mask: Float[Tensor, "rows keys"] | TwoParts,
    ) -> Float[Tensor, "1 kv_heads group_rows head_dim"]:  # fmt: skip
        """Attention of rows over the cache, in which they are written."""
        s, rows = self.shape, query.shape[1]
        group, scale = s.heads // s.kv_heads, s.head_dim**-0.5
        if isinstance(mask, TwoParts):
            parts = StoredRows(keys, row_keys[None]), StoredRows(values, row_values[None])
            return attend(query[None].to(keys.dtype), *parts, mask, scale)
        folded_query = query.reshape(1, s.kv_heads, group * rows, s.head_dim).to(keys.dtype)
        masks = mask.repeat(group, 1) if group > 1 and rows > 1 else mask
        return F.scaled_dot_product_attention(
            folded_query,
            keys[:, :, : mask.shape[1]],
            values[:, :, : mask.shape[1]],
            attn_mask=masks[None, None],
            scale=scale,
        )

    def forward(
        self, x: Float[Tensor, "rows hidden"], cos: Float[Tensor, "rows head_dim"], sin: Float[Tensor, "rows head_dim"],
        slots: Int[Tensor, " rows"], mask: Float[Tensor, "rows keys"] | TwoParts,
        keys: Float[Tensor, "1 kv_heads capacity size"], values: Float[Tensor, "1 kv_heads capacity size"],
        weights: list[Tensor],
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        query, key, value = self.project(x, cos, sin, *weights)
        keys.index_copy_(2, slots, key[None].to(keys.dtype))
        values.index_copy_(2, slots, value[None].to(keys.dtype))
        out = self.attend(query, keys, values, key, value, mask)
        return self.transform(x, out, *weights), query

    def project(
        self, x: Float[Tensor, "rows hidden"], cos: Float[Tensor, "rows head_dim"], sin: Float[Tensor, "rows head_dim"],
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Queries ``[heads, rows, head_dim]``, keys and values ``[kv_heads, rows, head_dim]`` of rows: all before
        attention.
        """
        s, count = self.shape, x.shape[0]
        linear, several = self.linears(weights)

        def rotate(states: Tensor) -> Tensor:
            half = s.head_dim // 2
            swapped_halves = torch.cat((-states[..., half:], states[..., :half]), -1)
            return (states * cos[:, None] + swapped_halves * sin[:, None]).transpose(0, 1)

        normed = self.norm(x, weights[0])
        if "q_proj" in s.joint and not s.query_norm:  # queries and keys lie side by side and turn together
            states = linear("q_proj", normed).view(count, -1, s.head_dim)
            turned = rotate(states[:, : s.heads + s.kv_heads])
            query, key, value = turned[: s.heads], turned[s.heads :], states[:, s.heads + s.kv_heads :]
        else:
            query, key, value = (projection.view(count, -1, s.head_dim) for projection in several(GROUPS[0], normed))
            if s.query_norm:
                query, key = self.norm(query, weights[2]), self.norm(key, weights[3])
            query, key = rotate(query), rotate(key)
        return query, key, value.transpose(0, 1)

    def transform(
        self, x: Float[Tensor, "rows hidden"], out: Float[Tensor, "1 heads rows head_dim"], *weights: Tensor
    ) -> Float[Tensor, "rows hidden"]:
        """The next layer's input, of this layer's and what attention returned: all behind attention."""
        s, count = self.shape, x.shape[0]
        linear, several = self.linears(weights)
        out = out.to(x.dtype).reshape(s.heads, count, s.head_dim).transpose(0, 1).reshape(count, -1)
        x = x + linear("o_proj", out)
        normed = self.norm(x, weights[1])
        gate, up = several(GROUPS[1], normed)
        return x + linear("down_proj", F.silu(gate) * up)

    def linears(
        self, weights: Sequence[Tensor]
    ) -> tuple[Callable[[str, Tensor], Tensor], Callable[[tuple[str, ...], Tensor], Sequence[Tensor]]]:
        """Functions of the layer's weights: a linear layer's output for rows, and those of several of the same rows."""
        s = self.shape
        sizes, weight_iter = linear_sizes(s), iter(weights[4 if s.query_norm else 2 :])
        tensors = {names[0]: [next(weight_iter) for _ in range(s.tensor_count(names[0]))] for names in s.units}
        biases = dict(zip(s.biased, weight_iter, strict=True))

        def linear(name: str, rows: Tensor) -> Tensor:
            return self.product(name, rows, tensors[name], biases.get(name))

        def several(names: tuple[str, ...], rows: Tensor) -> Sequence[Tensor]:
            if names[0] in s.joint:
                return linear(names[0], rows).split([sizes[name][0] for name in names], -1)
            return [linear(name, rows) for name in names]

        return linear, several


def linear_sizes(s: LayerShape) -> dict[str, tuple[int, int]]:
    """[out, in] of each linear layer."""
    return {
        "q_proj": (s.heads * s.head_dim, s.hidden), "k_proj": (s.kv_heads * s.head_dim, s.hidden),
        "v_proj": (s.kv_heads * s.head_dim, s.hidden), "o_proj": (s.hidden, s.heads * s.head_dim),
        "gate_proj": (s.mlp, s.hidden), "up_proj": (s.mlp, s.hidden), "down_proj": (s.hidden, s.mlp),
    }  # fmt: skip


def uniform_shape(target: Any, shape_of: Callable[[Any, Any, bool], LayerShape] = layer_shape) -> LayerShape | None:
    """The shape that all layers of a target have for one row; None where they are not all built as Llama's are."""
    shape = target.shape
    if getattr(target.config, "hidden_act", "silu") != "silu" or shape.attention_softcap or shape.logits_softcap:
        return None
    try:
        shapes = {shape_of(layer, shape, True) for layer in target.layers}
        layer_weights(target.layers[0], next(iter(shapes)))
    except AttributeError:
        return None
    return shapes.pop() if len(shapes) == 1 else None
