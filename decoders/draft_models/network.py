"""The draft model of GLIDE (§4.1) and, without its glimpse at the target, the vanilla drafter.

A few decoder layers with an embedding and a head of their own or, where the vocabulary is large, the target's. Each has
self-attention, then (GLIDE) cross-attention to the keys and values that the target has cached anyway, then an MLP.
``draft_run.DraftRun`` is such a model at work on a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from .borrowing import Borrowing
from .config import DraftConfig as DraftConfig
from .config import refusal as refusal
from .own_cache import Remember

THETA = 10_000.0  # of the draft model's own positions


@dataclass(frozen=True, slots=True)
class TargetView:
    """One layer's view of the target: cached keys and values after rotary, and the queries' own rotary.

    ``mask`` is True where a query may look, or added to its scores where every query sees something; None: everywhere.
    ``watch`` collects the queries, for looking at.
    """

    keys: Float[Tensor, "batch kv_heads keys head_dim"]
    values: Float[Tensor, "batch kv_heads keys head_dim"]
    cos: Float[Tensor, "rows head_dim"]
    sin: Float[Tensor, "rows head_dim"]
    mask: Bool[Tensor, "rows keys"] | Float[Tensor, "rows keys"] | None = None
    watch: list[Tensor] | None = None


class Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def rotate(x: Float[Tensor, "*batch rows size"], cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, as the target's families apply them: pair i is (i, i + size / 2)."""
    half = x.shape[-1] // 2
    return x * cos.to(x.dtype) + torch.cat((-x[..., half:], x[..., :half]), -1) * sin.to(x.dtype)


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
    """Attention over ``[batch, heads, rows, size]``, with grouped heads where there are fewer key heads, joined.

    ``mask`` is True where a query may look, or added to the scores, as compiled forwards have it.
    """
    group, rows = query.shape[1] // keys.shape[1], query.shape[2]
    keys, values = keys.to(query.dtype), values.to(query.dtype)
    if group > 1 and mask is not None and mask.is_floating_point():  # a group's heads as rows: no copy of keys
        folded_query = query.reshape(query.shape[0], keys.shape[1], group * rows, -1)
        out = F.scaled_dot_product_attention(folded_query, keys, values, mask.repeat(group, 1)[None, None])
        return out.reshape(query.shape).transpose(1, 2).flatten(2)
    if group > 1 and query.device.type == "cuda":  # no kernel but the one that forms all scores groups under a mask
        keys, values, group = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1), 1
    out = F.scaled_dot_product_attention(query, keys, values, mask, is_causal=causal, enable_gqa=group > 1)
    return out.transpose(1, 2).flatten(2)


class Glimpse(nn.Module):
    """Cross-attention to the target's cache: queries of the target's heads, with its rotary positions and its query
    norm; no projections of keys and values (GLIDE §4.1).
    """

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        size = config.target_heads * config.target_head_dim
        self.heads, self.eps = config.target_heads, config.eps
        self.norm = Norm(config.hidden, config.eps)
        self.query = nn.Linear(config.hidden, size, bias=config.query_bias)
        self.out = nn.Linear(size, config.hidden, bias=False)
        self.query_norm: Tensor | None
        self.register_buffer("query_norm", torch.ones(config.target_head_dim) if config.query_norm else None)

    def queries(self, x: Tensor, view: TargetView) -> Tensor:
        query = self.query(self.norm(x)).unflatten(-1, (self.heads, -1))
        if self.query_norm is not None:  # the target's own, not trained
            query = F.rms_norm(query, self.query_norm.shape, self.query_norm.to(query.dtype), self.eps)
        return rotate(query.transpose(1, 2), view.cos, view.sin)

    def forward(self, x: Float[Tensor, "batch rows hidden"], view: TargetView) -> Float[Tensor, "batch rows hidden"]:
        query = self.queries(x, view)
        if view.watch is not None:
            view.watch.append(query)
        if view.mask is None or view.mask.is_floating_point():
            return self.out(attend(query, view.keys, view.values, view.mask))
        blind = ~view.mask.any(-1)  # nothing to see: nothing is added
        out = attend(query, view.keys, view.values, view.mask | blind[:, None])
        return self.out(out.masked_fill(blind[:, None], 0.0))


def attention(
    queries: Float[Tensor, "heads rows size"], keys: Float[Tensor, "kv_heads keys size"]
) -> Float[Tensor, "heads rows keys"]:
    """The attention weights themselves, every query seeing every key."""
    grouped_queries = queries.float().unflatten(0, (len(keys), -1)).flatten(1, 2)
    weights = (grouped_queries @ keys.float().mT * queries.shape[-1] ** -0.5).softmax(-1)
    return weights.unflatten(1, (-1, queries.shape[1])).flatten(0, 1)


class DraftLayer(nn.Module):
    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        width, self.heads = config.hidden, config.heads
        self.norm = Norm(width, config.eps)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.glimpse = Glimpse(config) if config.kv_layers else None
        self.mlp_norm = Norm(width, config.eps)
        self.gate_up = nn.Linear(width, 2 * config.mlp, bias=False)
        self.down = nn.Linear(config.mlp, width, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None, view: TargetView | None = None,
        remember: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None, last_only: bool = False,
    ) -> Float[Tensor, "batch rows hidden"]:  # fmt: skip
        """``remember`` turns the rows' keys and values into all that they see."""
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1))
        rotated_pair = rotate(qkv[:, :, :2], cos[:, None, None], sin[:, None, None]).transpose(1, 3)
        query, keys, values = rotated_pair[:, :, 0], rotated_pair[:, :, 1], qkv[:, :, 2].transpose(1, 2)
        if remember is not None:
            keys, values = remember(keys, values)
        if last_only:
            x, query, mask = x[:, -1:], query[:, :, -1:], None
        causal = mask is None and query.shape[2] > 1
        x = x + self.out(attend(query, keys, values, mask, causal))
        if self.glimpse is not None and view is not None:
            x = x + self.glimpse(x, view)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class DraftModel(Borrowing):
    """A draft model; random weights until trained, with cross-attention that adds nothing yet."""

    def __init__(self, config: DraftConfig, seed: int = 0) -> None:
        super().__init__(config.draft_vocab)
        self.config = config
        if not config.shared:
            self.embedding = nn.Embedding(config.vocab, config.hidden)
        self.layers: Any = nn.ModuleList(DraftLayer(config) for _ in range(config.layers))
        self.norm = Norm(config.hidden, config.eps)
        if not config.shared:
            self.head = nn.Linear(config.hidden, config.vocab, bias=False)
        self.draw_weights(seed, 0.02)
        for layer in self.layers:
            if layer.glimpse is not None:
                layer.glimpse.out.weight.data.zero_()

    def share(self, embedding: Float[Tensor, "vocab hidden"], head: Float[Tensor, "vocab hidden"]) -> None:
        """Take the target's embedding and head; no effect where the model has its own."""
        if self.config.shared:
            super().share(embedding, head)

    def forward(
        self, ids: Int[Tensor, "batch rows"], views: Sequence[TargetView | None] = (),
        turns: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None, remember: Remember | None = None,
        last_only: bool = False,
    ) -> Float[Tensor, "batch said hidden"]:  # fmt: skip
        """Final states of rows, or of the last one alone. Without more, the rows are whole texts, each position seeing
        those before it: how the model is trained. ``turns`` are cos and sin of other positions; ``remember`` has the
        rows before these, and ``mask`` says which of all of them a row sees.
        """
        cos, sin = turns or own_rotary(ids.shape[1], self.norm.weight, self.config)
        x = self.embedding(ids)
        for i, layer in enumerate(self.layers):
            only = last_only and i == self.config.layers - 1 and ids.shape[1] > 1
            layer_writer = None if remember is None else partial(remember, i)
            x = layer(x, cos, sin, mask, views[i] if views else None, layer_writer, only)
        return self.norm(x)


def own_rotary(rows: int, like: Tensor, config: DraftConfig) -> tuple[Tensor, Tensor]:
    """cos and sin ``[rows, head size]`` of the draft model's first positions, in the dtype and on the device of
    ``like``.
    """
    size = config.hidden // config.heads
    frequencies = THETA ** (-torch.arange(0, size, 2, device=like.device, dtype=torch.float32) / size)
    angles = torch.arange(rows, device=like.device)[:, None].float() * frequencies
    angles = torch.cat((angles, angles), -1)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def block_mask(length: int, block: int = 5, device: Any = None) -> Bool[Tensor, "length length"]:
    """The target's keys that a training query sees: those of earlier blocks; in the first block, those up to it.

    Stands for the delay at decoding time, when no drafted token's keys are there yet (GLIDE §4.1, L = 5).

    >>> [int(row.sum()) for row in block_mask(11)[[3, 5, 7, 9, 10]]]
    [4, 5, 5, 5, 10]
    """
    at = torch.arange(length, device=device)
    causal = (at[:, None] < block) & (at[:, None] >= at)
    return (at[:, None] // block > at // block) | causal
