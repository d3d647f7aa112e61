"""Forwards of Llama's build on rounded weights, all layers in one call of this project's own kernels (``kernel``).

Stock code on the same weights calls the same kernels, so that both give the same bits, for any number of rows.
"""

from __future__ import annotations

from ctypes import POINTER, cast
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.needs import Needs, heads_by_layer
from decoders.model.engines.joint import JointPart
from decoders.model.engines.norms import FusedRMSNorm
from decoders.model.engines.static import Bucket, StaticRows
from decoders.model.state.capture import Capture
from decoders.model.state.transfer import rows_of

from . import kernel
from .buffers import Buffers
from .compiled_parts import PartsForward
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


def _norms(layer: Any) -> list[Any]:
    attention = layer.self_attn
    return [
        layer.input_layernorm, layer.post_attention_layernorm, getattr(attention, "q_norm", None),
        getattr(attention, "k_norm", None),
    ]  # fmt: skip


class KernelForward(PartsForward):
    """A target's forwards in one call; any number of rows is a bucket of its own."""

    sizes = range(1, MOST_ROWS + 1)
    step = 16

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        shape = target.shape
        self.tensors = [[*_norms(layer), *_linears(layer)] for layer in target.layers]  # they have to stay
        self.layers = (kernel.LayerPointers * shape.layers)()
        for place, (input_norm, mlp_norm, query, key, *linears) in zip(self.layers, self.tensors, strict=True):
            place.norm, place.after = input_norm.weight.data_ptr(), mlp_norm.weight.data_ptr()
            place.query_norm, place.key_norm = (
                None if norm is None else norm.weight.data_ptr() for norm in (query, key)
            )
            place.qkv, place.out, place.gate_up, place.down = (linear.pointers() for linear in linears)
        self.stack = kernel.StackPointers(
            shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, self.tensors[0][-1].in_features, 0,
            self.tensors[0][0].eps, cast(self.layers, POINTER(kernel.LayerPointers)),
        )  # fmt: skip

    def ready(self, rows: int) -> bool:
        return True

    def forward(
        self, buffers: Buffers, bucket: Bucket, rows: StaticRows, needs: Needs, captured: Capture
    ) -> Float[Tensor, "rows vocab"]:
        target, store, count = self.target, rows.cache.store, rows.count
        assert store is not None and store.is_contiguous() and store.dtype == torch.float32
        layers, heads = len(self.tensors), heads_by_layer(needs.heads)
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
        return target.head(final[None])[0]
