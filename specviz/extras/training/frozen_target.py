"""A frozen target under trained prompt tokens: text runs once without gradient, prompt tokens many times with it.

Prompt tokens see the text's cached keys and values and one another, the text never sees them; so only their own rows
need a gradient, and the target's weights need none at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.model.files.shape import ModelShape

from .teacher import KeysValues, window_mask

PIECES = 1  # chunks of prompt rows whose attention is gone back through at a time on a CPU: they stay in its caches


def refusal(shape: ModelShape) -> str | None:
    """The reason why prompt tokens cannot be trained for this target, in one sentence; None if they can."""
    return shape.unlike_llama("prompt tokens cannot be trained for", "they can for")


class Linear(NamedTuple):
    """Linear layers that read the same rows, joined; the bias is None where they have none."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, dtype: torch.dtype, *linears: Any) -> Linear:
        """Without gradient, in this dtype."""

        def join(tensors: list[Tensor]) -> Tensor:
            return (torch.cat(tensors) if len(tensors) > 1 else tensors[0]).detach().to(dtype)

        bias = None if linears[0].bias is None else join([linear.bias for linear in linears])
        return cls(join([linear.weight for linear in linears]), bias)


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer's weights and, in fp32, its norms: of what attention and MLP read, of queries and of keys."""

    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear
    attention_norm: Tensor
    mlp_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    eps: float
    window: int | None


@dataclass(frozen=True, slots=True)
class TextStates:
    """The target's reading of a batch: keys and values per layer (after rotary), the states that the head reads, and
    those that went into the layers that were asked for.
    """

    kvs: list[KeysValues]
    states: Float[Tensor, "batch length hidden"]
    hidden: dict[int, Float[Tensor, "batch length hidden"]]


@dataclass(frozen=True, slots=True)
class KeyPlaces:
    """Places of prompt rows: sequence ``batch[c]`` of the text; row r of it at position ``positions[c, r]``, seeing
    the text up to ``parents[c, r]``.
    """

    batch: Int[Tensor, " chunks"]
    parents: Int[Tensor, "chunks rows"]
    positions: Int[Tensor, "chunks rows"]


class FrozenTarget:
    """The decoder layers of a Llama, Mistral, Qwen2 or Qwen3 model as plain tensors, without gradient.

    ``fast`` computes matrix products in bf16 (the stream between layers stays fp32) and compiles what lies between
    attentions. ``dtype``: of matrix products without ``fast``, if not the model's.
    """

    def __init__(self, model: Any, *, fast: bool = False, dtype: torch.dtype | None = None) -> None:
        self.shape, stack = ModelShape.of(model.config), model.model
        self.dtype = torch.bfloat16 if fast else dtype or model.dtype
        self.rotary = stack.rotary_emb
        self.embedding = stack.embed_tokens.weight.detach()
        self.norm = stack.norm.weight.detach()
        self.own_head = Linear.of(self.dtype, model.get_output_embeddings())
        self.act = stack.layers[0].mlp.act_fn
        self.layers = [
            _layer(layer, self.shape.norm_eps, self.dtype, window)
            for layer, window in zip(stack.layers, self.shape.layer_windows, strict=True)
        ]
        self._angles: tuple[Tensor, Tensor] | None = None
        compiled = (lambda f: torch.compile(f, dynamic=True)) if fast else lambda f: f
        self._normed, self._rotate, self._write = compiled(_rms_norm), compiled(rotate), compiled(_write)
        self._backward = compiled(attend_backward)

    def angles(self, length: int) -> tuple[Tensor, Tensor]:
        """cos and sin of positions 0 … length − 1, at least, fp32."""
        if self._angles is None or len(self._angles[0]) < length:
            positions = torch.arange(-(-length // 256) * 256, device=self.embedding.device)[None]
            cos, sin = self.rotary(self.embedding.new_zeros(1, dtype=torch.float32), position_ids=positions)
            self._angles = cos[0], sin[0]
        return self._angles

    @torch.no_grad()
    def read(self, ids: Int[Tensor, "batch length"], layers: Sequence[int] = ()) -> TextStates:
        """Run the text, padded at the right; as attention is causal, padding changes nothing before it. The inputs of
        ``layers`` are given too.
        """
        length = ids.shape[1]
        cos, sin = (angle[:length][None, None] for angle in self.angles(length))
        x = F.embedding(ids, self.embedding).float()
        kvs: list[KeysValues] = []
        hidden: dict[int, Tensor] = {}
        gqa = self.shape.heads != self.shape.kv_heads
        for number, layer in enumerate(self.layers):
            if number in layers:
                hidden[number] = x
            q, k, v = self.project(x, layer, cos, sin)
            kvs.append((k, v))
            mask = window_mask(length, layer.window, ids.device)
            out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=gqa)
            x = self.finish_layer(x, out, layer)
        return TextStates(kvs, self.final_norm(x), hidden)

    def look(
        self,
        x: Float[Tensor, "chunks rows hidden"],
        text: TextStates,
        places: KeyPlaces,
        prefix_mask: Bool[Tensor, "rows seen"],
        prefix: tuple[Float[Tensor, "layers kv_heads prefixes size"], Float[Tensor, "layers kv_heads prefixes size"]]
        | None = None,
        joining: Float[Tensor, " exits"] | None = None,
    ) -> Float[Tensor, "chunks rows hidden"]:
        """States of prompt rows, as the head reads them, with gradient.

        Row i of a chunk sees ``own[i]`` of what all chunks have before the text (``prefix``: keys and values) and of
        its chunk's rows, in this order. ``joining``: the weights of the last layers' states (None: the last one's).
        """
        length = text.states.shape[1]
        cos, sin = (angle[places.positions][:, None] for angle in self.angles(int(places.positions.max()) + 1))
        masks: dict[int | None, Tensor] = {}
        at = torch.arange(length, device=x.device)
        for window in {layer.window for layer in self.layers}:
            sees = at <= places.parents[..., None]
            if window is not None:
                sees &= at > places.positions[..., None] - window
            sees = torch.cat([sees, prefix_mask.expand(len(sees), -1, -1)], -1)
            mask = torch.zeros(sees.shape, dtype=self.dtype, device=x.device)
            masks[window] = mask.masked_fill_(~sees, -math.inf)[:, None]
        exits: list[Tensor] = []
        group = self.shape.heads // self.shape.kv_heads
        for i, (layer, (keys, values)) in enumerate(zip(self.layers, text.kvs, strict=True)):
            q, k, v = self.project(x, layer, cos, sin)
            keys, values = (t.index_select(0, places.batch) for t in (keys, values))
            if prefix is not None:
                prefix_kv = (t[i].to(self.dtype).expand(len(x), -1, -1, -1) for t in prefix)
                k, v = (torch.cat(pair, 2) for pair in zip(prefix_kv, (k, v), strict=True))
            if group > 1:
                keys, values, k, v = (t.repeat_interleave(group, 1) for t in (keys, values, k, v))
            out = Attend.apply(q, k, v, keys, values, masks[layer.window], self._backward)
            x = self.finish_layer(x, out, layer)
            if joining is not None and i >= len(self.layers) - len(joining):
                exits.append(x)
        if joining is not None:
            x = torch.einsum("ecrh,e->crh", torch.stack(exits), joining)
        return self.final_norm(x)

    def project(self, x: Tensor, layer: Layer, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``[batch, heads, rows, head_dim]``, after rotary."""
        h = F.linear(self._normed(x, layer.attention_norm, layer.eps, self.dtype), *layer.qkv)
        h = h.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)
        q, k, v = h.split([self.shape.heads, self.shape.kv_heads, self.shape.kv_heads], 1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q = self._normed(q.float(), layer.q_norm, layer.eps, self.dtype)
            k = self._normed(k.float(), layer.k_norm, layer.eps, self.dtype)
        return Rotation.apply(q, cos, sin, self._rotate), Rotation.apply(k, cos, sin, self._rotate), v

    def finish_layer(self, x: Tensor, attention: Tensor, layer: Layer) -> Tensor:
        """The rest of the layer, behind its attention."""
        return self._write(x, attention, layer, self.act, self.dtype)

    def final_norm(self, x: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows hidden"]:
        """States as the head reads them, of the last layer's."""
        return _norm(x, self.norm, self.shape.norm_eps)

    def head(
        self, states: Float[Tensor, "*rows hidden"], other_head: Float[Tensor, "vocab hidden"] | None = None
    ) -> Float[Tensor, "*rows vocab"]:
        """Logits, fp32, of the target's head or of another one."""
        head = self.own_head if other_head is None else (other_head.to(self.dtype), None)
        return F.linear(states.to(self.dtype), *head).float()


def _layer(layer: Any, eps: float, dtype: torch.dtype, window: int | None) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    norms = (
        layer.input_layernorm, layer.post_attention_layernorm, getattr(attention, "q_norm", None),
        getattr(attention, "k_norm", None),
    )  # fmt: skip
    return Layer(
        Linear.of(dtype, attention.q_proj, attention.k_proj, attention.v_proj),
        Linear.of(dtype, attention.o_proj),
        Linear.of(dtype, mlp.gate_proj, mlp.up_proj),
        Linear.of(dtype, mlp.down_proj),
        *(None if norm is None else norm.weight.detach().float() for norm in norms),  # pyright: ignore[reportArgumentType]
        eps=eps,
        window=window,
    )


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, weight.shape, weight.to(x.dtype), eps)


def _rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    return _norm(x, weight, eps).to(dtype)


class Rotation(torch.autograd.Function):
    """Rotary positions (``decoders.draft_models.network.rotate``). The gradient is turned back by the same kernel,
    which compiles far better than what autograd would make of it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, turn: Any) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.turn = turn
        return turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return ctx.turn(grads[0], cos, -sin), None, None, None


def rotate(x: Float[Tensor, "*batch rows size"], cos: Tensor, sin: Tensor) -> Float[Tensor, "*batch rows size"]:
    """Pairs (i, i + size / 2) turned by their angles, which are the same in both halves."""
    half = x.shape[-1] // 2
    (x1, x2), cos, sin = x.float().chunk(2, -1), cos[..., :half], sin[..., :half]
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).to(x.dtype)


def _write(x: Tensor, attention: Tensor, layer: Layer, act: Any, dtype: torch.dtype) -> Tensor:
    """``FrozenTarget.finish_layer``."""
    x = x + F.linear(attention.transpose(1, 2).flatten(2), *layer.out).float()
    h = F.linear(_norm(x, layer.mlp_norm, layer.eps).to(dtype), *layer.gate_up)
    gate, up = h.chunk(2, -1)
    return x + F.linear(act(gate) * up, *layer.down).float()


class Attend(torch.autograd.Function):
    """Attention of prompt rows over the text (no gradient for its keys and values) and over keys of their own: those
    of the prefix and of the rows of their chunk.

    The flash kernel's backward pass is slow on a CPU and would make gradients for the text too, so it has one of its
    own.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, mask: Tensor, backward_pass: Any
    ) -> Tensor:
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        ctx.own = k.shape[2]
        if q.device.type == "cpu":
            out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, keys, values, attn_mask=mask)
        else:
            scores = (q @ keys.mT).float() * q.shape[-1] ** -0.5 + mask
            out, lse = scores.softmax(-1).to(values.dtype) @ values, scores.logsumexp(-1)
        ctx.save_for_backward(q, keys, values, mask, out, lse)
        ctx.back = backward_pass
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        pieces = PIECES if tensors[0].device.type == "cpu" and ctx.back is attend_backward else len(tensors[0])
        parts = [
            ctx.back(grad, ctx.own, *chunks)
            for grad, *chunks in zip(*(t.split(pieces) for t in (grads[0], *tensors)), strict=True)
        ]
        gradients = parts[0] if len(parts) == 1 else [torch.cat(group) for group in zip(*parts, strict=True)]
        return *gradients, None, None, None, None


def attend_backward(
    grad: Tensor, count: int, q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the queries, and of the rows' own keys and values: the last ``count`` ones."""
    own_start, scale = keys.shape[2] - count, q.shape[-1] ** -0.5
    weights = (q @ keys.mT).float().mul_(scale).add_(mask).sub_(lse[..., None]).exp_()
    even = (grad.float() * out.float()).sum(-1, keepdim=True)
    inner = (grad @ values.mT).float().sub_(even).mul_(weights).mul_(scale).to(q.dtype)
    return inner @ keys, inner[..., own_start:].mT @ q, weights[..., own_start:].to(q.dtype).mT @ grad
