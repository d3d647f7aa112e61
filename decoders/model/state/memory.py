"""A drafter's view of a run: the tokens so far and, per processed position, the states that it asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.needs import Needs, heads_by_layer
from decoders.prompt.grammar import Matcher
from decoders.prompt.prompt import Pool, Segment

from ..files.shape import ModelShape
from .cache import TreeCache
from .capture import Capture
from .transfer import rows_of


@dataclass(slots=True)
class Memory:
    """Per-position rows of one run, append-only; positions [0, processed) are filled.

    ``hidden[layer]`` [capacity, hidden]; ``queries[layer]`` [heads, capacity, head_dim]: after rotary, scaled;
    ``top_ids`` and ``top_logprobs`` [capacity, k]: the target's likeliest tokens *after* a position. ``sinks``: the
    score per head that stands beside those of the keys, in layers that have one.
    """

    hidden: dict[int, Float[Tensor, "capacity hidden"]] = field(default_factory=dict)
    queries: dict[int, Float[Tensor, "heads capacity head_dim"]] = field(default_factory=dict)
    top_ids: Int[Tensor, "capacity k"] | None = None
    top_logprobs: Float[Tensor, "capacity k"] | None = None
    sinks: dict[int, Float[Tensor, " heads"]] = field(default_factory=dict)

    def seen_by(self, needs: Needs, captured: Needs) -> Memory:
        """The part of this memory, which was written for ``captured``, that a drafter with ``needs`` would have kept.

        Raises ValueError where something was not kept.
        """
        if not captured.covers(needs):
            raise ValueError(f"this memory was kept for {captured}; {needs} asks for more")
        all_heads, queries = heads_by_layer(captured.heads), {}
        for layer, heads in heads_by_layer(needs.heads).items():
            rows = self.queries[layer]
            queries[layer] = (
                rows if heads == all_heads[layer] else rows_of(rows, [all_heads[layer].index(h) for h in heads])
            )
        hidden = {layer: states for layer, states in self.hidden.items() if layer in needs.layers}
        view = Memory(hidden, queries, sinks=self.sinks)
        if needs.top_tokens:
            assert self.top_ids is not None and self.top_logprobs is not None
            view.top_ids = self.top_ids[:, : needs.top_tokens]
            view.top_logprobs = self.top_logprobs[:, : needs.top_tokens]
        return view

    def write(self, start: int, capacity: int, captured: Capture, top: tuple[Tensor, Tensor] | None) -> None:
        """Keep what a forward let through, and its ``top`` (log-probabilities, ids), from position ``start`` on."""
        for layer, states in captured.hidden.items():
            self.hidden[layer] = _write(self.hidden.get(layer), states, 0, start, capacity)
        for layer, queries in captured.queries.items():
            self.queries[layer] = _write(self.queries.get(layer), queries, 1, start, capacity)
        self.sinks.update(captured.sinks)
        if top is not None:
            self.top_logprobs = _write(self.top_logprobs, top[0], 0, start, capacity)
            self.top_ids = _write(self.top_ids, top[1], 0, start, capacity)

    def bytes(self, processed: int | None = None) -> int:
        """Bytes of the rows of the first ``processed`` positions, or of all that it has room for."""
        of_rows = [*self.hidden.values(), *(rows for rows in (self.top_ids, self.top_logprobs) if rows is not None)]
        total = 0
        for values, dim in [*((rows, 0) for rows in of_rows), *((queries, 1) for queries in self.queries.values())]:
            room = values.shape[dim]
            total += values.numel() // room * (room if processed is None else processed) * values.element_size()
        return total


def _write(store: Tensor | None, rows: Tensor, dim: int, start: int, capacity: int) -> Tensor:
    """``rows`` in the store from ``start`` on along ``dim``; one of ``capacity`` is made where there is none yet."""
    if store is None:
        store = rows.new_zeros((*rows.shape[:dim], capacity, *rows.shape[dim + 1 :]))
    store.narrow(dim, start, rows.shape[dim]).copy_(rows)
    return store


class ReadingStopped(Exception):
    """A run was cancelled while a network of its drafter read the prompt."""


@dataclass(frozen=True, slots=True)
class Context:
    """A run up to one point. ``tokens[-1]`` is the root: emitted, not yet processed; positions before it are processed.

    Everything is append-only, so ``cut`` gives the context as it was at any earlier point. ``pool``: the text that
    drafts may be taken from, if the prompt brings one or has a context. ``cancelled`` is asked between two pieces of a
    prompt that a network of the drafter reads. ``grammar`` is the one that the answer must keep to.
    """

    buffer: np.ndarray
    length: int
    prompt_length: int
    segments: tuple[Segment, ...]
    memory: Memory
    cache: TreeCache
    needs: Needs
    shape: ModelShape
    pool: Pool | None = None
    cancelled: Callable[[], bool] | None = None
    grammar: Matcher | None = None

    @property
    def tokens(self) -> np.ndarray:
        """Token ids ``[length]``, prompt and output, the root last. A view: do not write."""
        return self.buffer[: self.length]

    @property
    def root(self) -> int:
        return int(self.buffer[self.length - 1])

    @property
    def device(self) -> torch.device:
        """The target's device."""
        return torch.device("cpu") if self.cache.store is None else self.cache.store.device

    @property
    def is_cancelled(self) -> bool:
        """True where the run was cancelled while its prompt is read."""
        return self.cancelled is not None and self.cancelled()

    @property
    def root_position(self) -> int:
        return self.length - 1

    def cut(self, length: int) -> Context:
        """This run as it was when ``length`` tokens were committed (the last of them the root)."""
        if not 1 <= length <= self.length:
            raise ValueError(
                f"a context of {self.length} tokens cannot be cut at {length}; allowed: 1 to {self.length}"
            )
        return replace(self, length=length)

    def hidden_at(self, layer: int) -> Float[Tensor, "processed hidden"]:
        """Hidden states of the processed positions (0 … length − 2) at one of the layers in ``needs``."""
        assert layer in self.needs.layers, f"this drafter reads the layers {self.needs.layers}, not {layer}"
        states = self.memory.hidden.get(layer)
        return torch.zeros((0, 1)) if states is None else states[: self.length - 1]

    @property
    def hidden(self) -> Float[Tensor, "processed hidden"]:
        """``hidden_at`` the one layer that the drafter reads."""
        (layer,) = self.needs.layers
        return self.hidden_at(layer)

    @property
    def top_ids(self) -> Int[Tensor, "processed k"]:
        assert self.memory.top_ids is not None, "this drafter did not ask for top tokens"
        return self.memory.top_ids[: self.length - 1]

    @property
    def top_logprobs(self) -> Float[Tensor, "processed k"]:
        assert self.memory.top_logprobs is not None, "this drafter did not ask for top tokens"
        return self.memory.top_logprobs[: self.length - 1]

    def keys(self, layer: int) -> Float[Tensor, "kv_heads processed head_dim"]:
        """The target's cached keys of a layer, after rotary."""
        return self.cache.keys(layer)[:, : self.length - 1]

    def values(self, layer: int) -> Float[Tensor, "kv_heads processed head_dim"]:
        return self.cache.values(layer)[:, : self.length - 1]

    def attention(
        self, row: int | None = None, heads: Sequence[tuple[int, int]] | None = None
    ) -> Float[Tensor, "heads keys"]:
        """Attention rows of the drafter's heads (needs.heads, sorted, or the given subset) from position ``row`` to
        0 … row.

        ``row`` defaults to the last processed position. Computed on call from the kept queries and the cached keys;
        equal to what eager attention would have returned.
        """
        row = self.length - 2 if row is None else row
        by_layer = heads_by_layer(self.needs.heads if heads is None else tuple(heads))
        all_heads = heads_by_layer(self.needs.heads)
        rows = []
        for layer, chosen_heads in by_layer.items():
            query = self.memory.queries[layer][:, row]
            if chosen_heads != all_heads[layer]:
                query = rows_of(query, [all_heads[layer].index(h) for h in chosen_heads])
            keys = self.cache.keys(layer)
            window = self.shape.layer_windows[layer]
            first = 0 if window is None else max(0, row + 1 - window)
            group = self.shape.heads // keys.shape[0]
            if chosen_heads == list(range(group * keys.shape[0])):  # every head: no gather
                folded_query = query.view(keys.shape[0], group, -1).float()
                scores = (folded_query @ keys[:, first : row + 1].float().transpose(1, 2)).flatten(0, 1)
            else:  # head by head: gathering the keys would copy them all
                pairs = zip(chosen_heads, query.float(), strict=True)
                scores = torch.stack([keys[h // group, first : row + 1].float() @ q for h, q in pairs])
            if softcap := self.shape.attention_softcap:
                scores = softcap * torch.tanh(scores / softcap)
            if (sinks := self.memory.sinks.get(layer)) is None:
                weights = scores.softmax(-1)
            else:
                weights = torch.cat([scores, rows_of(sinks, chosen_heads)[:, None]], -1).softmax(-1)[:, :-1]
            rows.append(torch.nn.functional.pad(weights, (first, 0)) if first else weights)
        return torch.cat(rows)
