"""The draft model of GLIDE (§4.1) and, without its glimpse at the target, the vanilla drafter.

A few decoder layers with an embedding and a head of their own or, where the vocabulary is large, the target's. Each has
self-attention, then (GLIDE) cross-attention to the keys and values that the target has cached anyway, then an MLP.
``DraftRun`` is such a model at work on a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from decoders.model.state.transfer import rows_of, sent

from .borrowing import Borrowing
from .config import DraftConfig as DraftConfig
from .config import refusal as refusal
from .own_cache import OwnCache, Remember

if TYPE_CHECKING:
    from decoders.model.state.memory import Context

THETA = 10_000.0  # of the draft model's own positions
READ_ROWS = 1024  # most rows of a forward that reads a text
DRAFT_ROWS = 512  # cache rows behind the committed ones: room for a draft under way


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
        folded = query.reshape(query.shape[0], keys.shape[1], group * rows, -1)
        out = F.scaled_dot_product_attention(folded, keys, values, mask.repeat(group, 1)[None, None])
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

    def queries(self, x: Tensor, seen: TargetView) -> Tensor:
        query = self.query(self.norm(x)).unflatten(-1, (self.heads, -1))
        if self.query_norm is not None:  # the target's own, not trained
            query = F.rms_norm(query, self.query_norm.shape, self.query_norm.to(query.dtype), self.eps)
        return rotate(query.transpose(1, 2), seen.cos, seen.sin)

    def forward(self, x: Float[Tensor, "batch rows hidden"], seen: TargetView) -> Float[Tensor, "batch rows hidden"]:
        query = self.queries(x, seen)
        if seen.watch is not None:
            seen.watch.append(query)
        if seen.mask is None or seen.mask.is_floating_point():
            return self.out(attend(query, seen.keys, seen.values, seen.mask))
        blind = ~seen.mask.any(-1)  # nothing to see: nothing is added
        out = attend(query, seen.keys, seen.values, seen.mask | blind[:, None])
        return self.out(out.masked_fill(blind[:, None], 0.0))


def attention(
    queries: Float[Tensor, "heads rows size"], keys: Float[Tensor, "kv_heads keys size"]
) -> Float[Tensor, "heads rows keys"]:
    """The attention weights themselves, every query seeing every key."""
    grouped = queries.float().unflatten(0, (len(keys), -1)).flatten(1, 2)
    weights = (grouped @ keys.float().mT * queries.shape[-1] ** -0.5).softmax(-1)
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

    def attend(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
        remember: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None, last_only: bool,
    ) -> Float[Tensor, "batch rows hidden"]:  # fmt: skip
        """After self-attention. ``remember`` turns the rows' keys and values into all that they see."""
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1))
        turned = rotate(qkv[:, :, :2], cos[:, None, None], sin[:, None, None]).transpose(1, 3)
        query, keys, values = turned[:, :, 0], turned[:, :, 1], qkv[:, :, 2].transpose(1, 2)
        if remember is not None:
            keys, values = remember(keys, values)
        if last_only:
            x, query, mask = x[:, -1:], query[:, :, -1:], None
        causal = mask is None and query.shape[2] > 1
        return x + self.out(attend(query, keys, values, mask, causal))

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None = None, seen: TargetView | None = None,
        remember: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None, last_only: bool = False,
    ) -> Float[Tensor, "batch rows hidden"]:  # fmt: skip
        x = self.attend(x, cos, sin, mask, remember, last_only)
        if self.glimpse is not None and seen is not None:
            x = x + self.glimpse(x, seen)
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
        self, ids: Int[Tensor, "batch rows"], seen: Sequence[TargetView | None] = (),
        turns: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None, remember: Remember | None = None,
        last_only: bool = False,
    ) -> Float[Tensor, "batch said hidden"]:  # fmt: skip
        """Final states of rows, or of the last one alone. Without more, the rows are whole texts, each position seeing
        those before it: how the model is trained. ``turns`` are cos and sin of other positions; ``remember`` has the
        rows before these, and ``mask`` says which of all of them a row sees.
        """
        cos, sin = turns or own_rotary(torch.arange(ids.shape[1], device=ids.device), self.config)
        x = self.embedding(ids)
        for i, layer in enumerate(self.layers):
            only = last_only and i == self.config.layers - 1 and ids.shape[1] > 1
            own = None if remember is None else partial(remember, i)
            x = layer(x, cos, sin, mask, seen[i] if seen else None, own, only)
        return self.norm(x)


def own_rotary(positions: Int[Tensor, " rows"], config: DraftConfig) -> tuple[Tensor, Tensor]:
    """cos and sin ``[rows, head size]`` of the draft model's own positions."""
    size = config.hidden // config.heads
    frequencies = THETA ** (-torch.arange(0, size, 2, device=positions.device, dtype=torch.float32) / size)
    angles = positions[:, None].float() * frequencies
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


def first_rotary(rows: int, like: Tensor, config: DraftConfig) -> tuple[Tensor, Tensor]:
    """``own_rotary`` of the first positions, in the dtype and on the device of ``like``."""
    cos, sin = own_rotary(torch.arange(rows, device=like.device), config)
    return cos.to(like.dtype), sin.to(like.dtype)


def block_mask(length: int, block: int = 5, device: Any = None) -> Bool[Tensor, "length length"]:
    """Which of the target's keys a training query sees: those of earlier blocks; in the first block, those up to it.

    Stands for the delay at decoding time, when no drafted token's keys are there yet (GLIDE §4.1, L = 5).

    >>> [int(row.sum()) for row in block_mask(11)[[3, 5, 7, 9, 10]]]
    [4, 5, 5, 5, 10]
    """
    at = torch.arange(length, device=device)
    causal = (at[:, None] < block) & (at[:, None] >= at)
    return (at[:, None] // block > at // block) | causal


def common_prefix(first: np.ndarray, second: np.ndarray) -> int:
    """Number of tokens that two texts begin with alike."""
    n = min(len(first), len(second))
    differs = first[:n] != second[:n]
    return int(differs.argmax()) if differs.any() else n


class CompiledNetwork(Protocol):
    """A draft model's compiled forwards (``compiled_draft.CompiledDraft``)."""

    def takes(self, rows: int) -> bool:
        """True where a forward of so many rows runs there."""
        ...

    def run(
        self, ids: Int[Tensor, " rows"], start: int, own: Sequence[Tensor], theirs: Sequence[Tensor], store: Tensor,
        context: Context,
    ) -> tuple[Float[Tensor, " drafted"], list[Tensor]]:  # fmt: skip
        """Rows behind ``start`` others: logits of the last one, and its queries by layer."""
        ...


class DraftRun:
    """A draft model at work: the states of what it has read, and behind them the rows of a draft under way.

    A position's state depends on the tokens and the target's keys before it alone, so any cut of a run, or another
    text, is picked up where it departs from what was read. Accepted positions are recomputed, as they were drafted
    with the target's keys of drafted tokens missing (GLIDE §4.1).
    """

    def __init__(
        self, model: DraftModel, rotary: Callable[[Tensor], tuple[Tensor, Tensor]],
        compiled: CompiledNetwork | None = None,
    ) -> None:  # fmt: skip
        self.model, self.rotary, self.compiled = model, rotary, compiled
        self.limit = 1 << 30  # no longest text: rotary positions go on
        self.tokens = np.zeros(0, dtype=np.int64)
        self.context: Context | None = None
        config = model.config
        size = config.hidden // config.heads
        self.cache = OwnCache(config.layers, config.heads, size, partial(first_rotary, config=config))
        self.base = self.drafted = 0
        self.sees = np.zeros((0, 0), dtype=bool)
        self.queries: list[list[Tensor]] = [[] for _ in config.kv_layers]  # of the draft under way, by layer
        self.looks_at: dict[str, Any] | None = None
        if config.kv_layers:
            layers, heads = list(config.kv_layers), config.target_heads
            self.looks_at = {"label": "the draft model's cross-attention", "layers": layers, "heads": heads}
        self._theirs = (torch.zeros(0, 0), torch.zeros(0, 0))

    def begin(self, context: Context) -> None:
        """Read the prompt."""
        self.read(context)

    @torch.inference_mode()
    def read(self, context: Context) -> Float[Tensor, " vocab"]:
        """Logits after the context's last token, having caught up with it."""
        have = min(common_prefix(self.tokens, context.tokens), context.length - 1)
        self._make_room(context, have)
        self.context, self.tokens = context, context.tokens.copy()
        self.base, self.drafted = context.length, 0
        self.sees = np.zeros((0, 0), dtype=bool)
        for start in range(have, context.length, READ_ROWS):
            stop = min(start + READ_ROWS, context.length)
            self.queries = [[] for _ in self.queries]
            (ids,) = sent(self.device, self.tokens[start:stop])
            mask = None
            if start and stop - start > 1:
                mask = torch.ones(stop - start, stop, dtype=torch.bool, device=self.device).tril(start)
            logits = self.forward(ids, start, slice(start, stop), mask, last_only=True)[0]
        self.queries = [[query[:, :, -1:] for query in parts] for parts in self.queries]  # the root's
        return logits

    @torch.inference_mode()
    def extend(
        self, tokens: Sequence[int] | Int[Tensor, " rows"], parents: Sequence[int]
    ) -> Float[Tensor, "rows vocab"]:
        """Logits after more draft tokens; ``parents`` count the draft's rows so far (-1: the root)."""
        count, before = len(tokens), self.drafted
        sees = np.zeros((before + count, before + count), dtype=bool)
        sees[:before, :before] = self.sees
        depths = []
        for row, parent in enumerate(parents, start=before):
            if parent >= 0:
                sees[row] = sees[parent]
            sees[row, row] = True
            depths.append(int(sees[row].sum()))
        self.sees, self.drafted = sees, before + count
        first = self.base + depths[0] - 1
        ids = [] if isinstance(tokens, Tensor) else [np.asarray(tokens, dtype=np.int64)]
        positions, mask = slice(first, first + 1), None
        if count > 1 or not sees[-1].all():
            *parts, positions, own = sent(self.device, *ids, np.asarray(depths) + self.base - 1, sees[before:])
            mask = torch.ones((count, self.base + before + count), dtype=torch.bool, device=self.device)
            mask[:, self.base :] = own
        else:
            parts = sent(self.device, *ids)
        there = tokens if isinstance(tokens, Tensor) else parts[0]
        return self.forward(there, self.base + before, positions, mask)

    def wrote(self, tokens: Sequence[int]) -> None:
        """Nothing to do: what was drafted is read again, with the target's keys."""

    def looks(self, rows: Sequence[int]) -> Callable[[], Float[Tensor, "layers heads rows keys"]] | None:
        """A function for where rows of this draft (0 = the root, then in the order they were drafted) look in the
        target's cache: weights over the positions before the root. None where the model does not look, or nothing is
        there yet. Its result stays right while the run goes on.
        """
        context, layers = self.context, self.model.config.kv_layers
        if context is None or not layers or context.root_position == 0:
            return None
        queries = [rows_of(torch.cat(parts, 2)[0], rows, 1) for parts in self.queries]
        return lambda: torch.stack(
            [attention(query, context.keys(layer)) for query, layer in zip(queries, layers, strict=True)]
        )

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    def forward(
        self, ids: Int[Tensor, " rows"], start: int, positions: slice | Int[Tensor, " rows"], mask: Tensor | None, *,
        last_only: bool = False,
    ) -> Float[Tensor, "rows vocab"]:  # fmt: skip
        """Rows through all layers; their keys and values go to cache rows ``start`` on. ``positions`` is a slice where
        they follow one another.
        """
        assert self.context is not None
        chain = isinstance(positions, slice) and (mask is None or last_only) and start and self.context.root_position
        if chain and self.compiled is not None and self.compiled.takes(len(ids)):
            logits, queries = self.compiled.run(ids, start, *self.rotary_at(positions), self.cache.store, self.context)
            for parts, query in zip(self.queries, queries, strict=True):
                parts.append(query)
            return self.model.everything(logits[None])
        rows, last = len(ids), self.model.config.layers - 1
        only = last_only and rows > 1
        seen = [self._view(i, positions, only and i == last) for i in range(last + 1)]
        turns = self.cache.cos[positions], self.cache.sin[positions]
        states = self.model(ids[None], seen, turns, mask, self.cache.rows(start, start + rows), only)
        return self.model.everything(self.model.head(states)[0].float())

    def _view(self, layer: int, positions: slice | Tensor, last_only: bool) -> TargetView | None:
        """The target's keys that rows see: a draft's all its committed ones, a committed position's those before it."""
        config, context = self.model.config, self.context
        assert context is not None
        root = context.root_position
        if not config.kv_layers or root == 0:
            return None
        keys, values = (read(config.kv_layers[layer])[None] for read in (context.keys, context.values))
        cos, sin, watch = self._theirs[0][positions], self._theirs[1][positions], self.queries[layer]
        if not isinstance(positions, slice) or positions.start >= root:
            return TargetView(keys, values, cos, sin, None, watch)
        if last_only and positions.stop > root:
            return TargetView(keys, values, cos[-1:], sin[-1:], None, watch)
        at = torch.arange(positions.start, positions.stop, device=self.device)
        before = at[-1:, None] if last_only else at[:, None]
        cos, sin = (cos[-1:], sin[-1:]) if last_only else (cos, sin)
        return TargetView(keys, values, cos, sin, before > torch.arange(root, device=self.device), watch)

    def rotary_at(self, positions: slice | Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """cos and sin of positions: the draft model's own, and the target's (empty where it does not look there)."""
        cache, (cos, sin) = self.cache, self._theirs
        return (cache.cos[positions], cache.sin[positions]), (cos[positions], sin[positions])

    def open_at(self, context: Context) -> Tensor:
        """Take up a text of which nothing is read; the states to be filled."""
        self._make_room(context, 0)
        self.context = context
        return self.cache.store

    def _make_room(self, context: Context, rows_read: int) -> None:
        rows = len(context.buffer) + DRAFT_ROWS
        if self.cache.make_room(rows, rows_read, self.model.norm.weight) and self.model.config.kv_layers:
            self._theirs = self.rotary(torch.arange(rows, device=self.device))


def target_rotary(stack: Any) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The target's own rotary positions, as a function from positions to cos and sin ``[rows, head size]``."""

    def rotary(positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = stack.rotary_emb(stack.norm.weight, position_ids=positions[None])
        return cos[0], sin[0]

    return rotary
