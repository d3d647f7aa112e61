"""Forwards of Llama's build, all layers in one call of this project's own kernels (``kernel``).

On rounded weights stock code calls the same kernels, so that both give the same bits, for any number of rows. fp32
weights are read out of the packed copies on which stock code computes, whose sums are formed in another order.
"""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import POINTER, cast
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.needs import Needs, heads_by_layer
from decoders.model.engines.joint import JointPart
from decoders.model.engines.linear import Head, PackedLinear
from decoders.model.engines.norms import FusedRMSNorm
from decoders.model.engines.static import Bucket, StaticRows
from decoders.model.state.capture import Capture
from decoders.model.state.transfer import rows_of

from . import kernel
from .buffers import Buffers
from .compiled_parts import PartsForward
from .compiling import WORKSHOP
from .rounding import KernelLinear

MOST_ROWS = 128  # of a bucket; larger forwards run by stock code


def why_not(model: Any, shape: Any) -> str | None:
    """The reason why one call cannot compute the layers of a model on rounded weights, in one sentence; None where
    it can.
    """
    if reason := shape.unlike_llama("the kernels for rounded weights compute no attention of", "they do of"):
        return reason
    refusal = "the kernels for rounded weights compute no attention of this model: its layers differ from Llama's"
    if shape.attention_softcap or shape.logits_softcap or getattr(model.config, "hidden_act", "silu") != "silu":
        return refusal
    for module in model.modules():
        if hasattr(module, "self_attn"):
            try:
                if not all(isinstance(linear, KernelLinear) for linear in _linears(module)):
                    return refusal
                if not all(norm is None or isinstance(norm, FusedRMSNorm) for norm in _norms(module)):
                    return refusal
            except AttributeError:
                return refusal
    return None


def _linears(layer: Any) -> list[Any]:
    attention, mlp = layer.self_attn, layer.mlp
    if not all(isinstance(part, JointPart) for part in (attention.q_proj, mlp.gate_proj)):
        raise AttributeError("query, key and value are computed apart")
    return [attention.q_proj.joint.linear, attention.o_proj, mlp.gate_proj.joint.linear, mlp.down_proj]


def _rounded_layer(layer: Any) -> kernel.LayerPointers:
    qkv, out, gate_up, down = (linear.pointers() for linear in _linears(layer))
    return _layer_pointers(layer, [qkv], out, [gate_up], down)


def _norms(layer: Any) -> list[Any]:
    attention = layer.self_attn
    return [
        layer.input_layernorm, layer.post_attention_layernorm, getattr(attention, "q_norm", None),
        getattr(attention, "k_norm", None),
    ]  # fmt: skip


def packed_layers(target: Any) -> list[kernel.LayerPointers] | None:
    """The layers of a target whose layers can be compiled (``compiled_layers.why_not``), on packed fp32 weights, as the
    kernels take them; None where weights or norms are of another kind, or lie otherwise.
    """
    try:
        return [_packed_layer(layer) for layer in target.layers]
    except AttributeError:
        return None


def _packed_layer(layer: Any) -> kernel.LayerPointers:
    """Raises AttributeError for a layer of another build, or whose weights lie otherwise."""
    attention, mlp, pointers = layer.self_attn, layer.mlp, kernel.packed_pointers
    if not all(norm is None or isinstance(norm, FusedRMSNorm) for norm in _norms(layer)):
        raise AttributeError("its norms are of another kind")
    q, gate, width = attention.q_proj, mlp.gate_proj, mlp.down_proj.in_features
    if width % kernel.OUT:
        raise AttributeError("its outputs are no whole blocks")
    joint_qkv, joint_mlp = (part.joint.linear if isinstance(part, JointPart) else None for part in (q, gate))
    qkv = [q, attention.k_proj, attention.v_proj] if joint_qkv is None else [joint_qkv]
    up = [gate, mlp.up_proj] if joint_mlp is None else [joint_mlp]
    if not all(isinstance(linear, PackedLinear) for linear in (*qkv, *up, attention.o_proj, mlp.down_proj)):
        raise AttributeError("its weights are not packed")
    parts = [pointers(up[0], 0, width), pointers(up[0], width)] if len(up) == 1 else [pointers(part) for part in up]
    return _layer_pointers(layer, map(pointers, qkv), pointers(attention.o_proj), parts, pointers(mlp.down_proj))


def _packed_head(head: Head) -> kernel.LinearPointers | None:
    """A head as the kernels take it; None where it lies otherwise."""
    try:
        return kernel.packed_pointers(head.inner) if isinstance(head.inner, PackedLinear) else None
    except AttributeError:
        return None


def _layer_pointers(
    layer: Any, qkv: Iterable[kernel.LinearPointers], out: kernel.LinearPointers,
    gate_up: Iterable[kernel.LinearPointers], down: kernel.LinearPointers,
) -> kernel.LayerPointers:  # fmt: skip
    norms = (None if norm is None else norm.weight.data_ptr() for norm in _norms(layer))
    return kernel.LayerPointers(
        *norms, (kernel.LinearPointers * 3)(*qkv), out, (kernel.LinearPointers * 2)(*gate_up), down
    )


class KernelForward(PartsForward):
    """A target's forwards in one call; any number of rows is a bucket of its own. ``packed``: its layers on fp32
    weights, which run once the kernels were compiled.
    """

    sizes = range(1, MOST_ROWS + 1)
    step = 16
    titles: ClassVar = {"kernels": "the kernels"}

    def __init__(self, target: Any, packed: list[kernel.LayerPointers] | None = None) -> None:
        super().__init__(target)
        shape = target.shape
        self.kernels = None if packed is None else kernel.KernelPart()
        self.parts = {} if self.kernels is None else {"kernels": self.kernels}
        layers = packed or [_rounded_layer(layer) for layer in target.layers]
        self.head = None if packed is None else _packed_head(target.head)
        self.layers = (kernel.LayerPointers * shape.layers)(*layers)
        self.modules = list(target.model.modules())  # whose tensors have to stay
        first = target.layers[0]
        self.stack = kernel.StackPointers(
            shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, first.mlp.down_proj.in_features, 0,
            first.input_layernorm.eps, cast(self.layers, POINTER(kernel.LayerPointers)),
        )  # fmt: skip

    def ready(self, rows: int) -> bool:
        return self.kernels is None or WORKSHOP.open(self.kernels) is not None

    def forward(
        self, buffers: Buffers, bucket: Bucket, rows: StaticRows, needs: Needs, captured: Capture
    ) -> Float[Tensor, "rows vocab"]:
        target, store, count = self.target, rows.cache.store, rows.count
        assert store is not None and store.is_contiguous() and store.dtype == torch.float32
        layers, heads = len(self.layers), heads_by_layer(needs.heads)
        cos, sin = self.rotary(buffers.positions, int(rows.positions.max()))
        x = buffers.embeddings.clone()
        hidden: list[Tensor | None] = [torch.empty_like(x) if n in needs.layers else None for n in range(layers)]
        sizes = target.shape.heads, count, target.shape.head_dim
        queries: list[Tensor | None] = [torch.empty(sizes) if n in heads else None for n in range(layers)]
        self.stack.capacity = rows.cache.capacity
        masks = [buffers.mask(bucket.keys, window) for window in target.shape.layer_windows]
        kernel.forward(self.stack, x, cos, sin, masks, rows.cache.length, store, hidden, queries)
        captured.hidden |= {n: states for n, states in enumerate(hidden) if states is not None}
        for n, query in enumerate(queries):
            if query is not None:
                captured.queries[n] = rows_of(query, heads[n]) * target.shape.head_dim**-0.5
        final = target.stack.norm(x)
        if layers in needs.layers:
            captured.hidden[layers] = final
        return target.head(final[None])[0] if self.head is None else kernel.product(final, self.head)
