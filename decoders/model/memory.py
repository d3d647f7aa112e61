"""What a drafter sees: the tokens so far and, per processed position, what it asked the target to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.needs import Needs, covers, heads_by_layer
from decoders.prompt.prompt import Pool, Segment

from .cache import TreeCache


@dataclass(slots=True)
class Memory:
    """Per-position rows of one run, append-only; positions [0, processed) are filled.

    ``hidden`` [capacity, hidden] at the chosen layer; ``top_ids`` and ``top_logprobs`` [capacity, k]: the target's
    likeliest
    tokens *after* a position; ``queries[layer]`` [heads, capacity, head_dim]: after rotary, scaled. ``states[layer]``
    [capacity, hidden]: of further layers, where a session keeps them (``Needs.hidden_layers``).
    """

    hidden: Float[Tensor, "capacity hidden"] | None
    top_ids: Int[Tensor, "capacity k"] | None
    top_logprobs: Float[Tensor, "capacity k"] | None
    queries: dict[int, Float[Tensor, "heads capacity head_dim"]]
    states: dict[int, Float[Tensor, "capacity hidden"]] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> Memory:
        return cls(None, None, None, {})

    def seen_by(self, needs: Needs, kept: Needs) -> Memory:
        """What a drafter with ``needs`` would have kept, of this memory, which was written for ``kept``.

        Raises ValueError where something was not kept.
        """
        if not covers(kept, needs):
            raise ValueError(f"this memory was kept for {kept}; {needs} asks for more")
        hidden = None
        if needs.hidden_layer is not None:
            hidden = self.hidden if needs.hidden_layer == kept.hidden_layer else self.states[needs.hidden_layer]
        queries = {}
        every = heads_by_layer(kept.heads)
        for layer, heads in heads_by_layer(needs.heads).items():
            rows = self.queries[layer]
            queries[layer] = rows if heads == every[layer] else rows[[every[layer].index(head) for head in heads]]
        if not needs.top_tokens:
            return Memory(hidden, None, None, queries)
        assert self.top_ids is not None and self.top_logprobs is not None
        return Memory(
            hidden, self.top_ids[:, : needs.top_tokens], self.top_logprobs[:, : needs.top_tokens], queries
        )

    def write(
        self,
        start: int,
        capacity: int,
        rows: Tensor | None,
        hidden: Tensor | None,
        queries: dict[int, Tensor],
        top: tuple[Tensor, Tensor] | None,
        states: Mapping[int, Tensor] | None = None,
    ) -> None:
        """Keep ``rows`` (None: all) of a forward's captures from position ``start`` on."""

        def kept(values: Tensor, dim: int) -> Tensor:
            return values if rows is None else values.index_select(dim, rows)

        if hidden is not None:
            chosen = kept(hidden, 0)
            if self.hidden is None:
                self.hidden = chosen.new_zeros((capacity, chosen.shape[1]))
            self.hidden[start : start + len(chosen)] = chosen
        for layer, values in (states or {}).items():
            chosen = kept(values, 0)
            if layer not in self.states:
                self.states[layer] = chosen.new_zeros((capacity, chosen.shape[1]))
            self.states[layer][start : start + len(chosen)] = chosen
        for layer, values in queries.items():
            chosen = kept(values, 1)
            if layer not in self.queries:
                self.queries[layer] = chosen.new_zeros((chosen.shape[0], capacity, chosen.shape[2]))
            self.queries[layer][:, start : start + chosen.shape[1]] = chosen
        if top is not None:
            logprobs, ids = top
            if self.top_ids is None or self.top_logprobs is None:
                self.top_ids = ids.new_zeros((capacity, ids.shape[1]))
                self.top_logprobs = logprobs.new_zeros((capacity, ids.shape[1]))
            self.top_ids[start : start + len(ids)] = ids
            self.top_logprobs[start : start + len(ids)] = logprobs


@dataclass(frozen=True, slots=True)
class Context:
    """A run up to one point. ``tokens[-1]`` is the root: emitted, not yet processed; positions before it are processed.

    Everything is append-only, so ``cut`` gives the context as it was at any earlier point. ``pool``: the text that
    drafts may be taken from, if the prompt brings one or has a context.
    """

    buffer: np.ndarray
    length: int
    prompt_length: int
    segments: tuple[Segment, ...]
    memory: Memory
    cache: TreeCache
    needs: Needs
    heads: int
    windows: dict[int, int | None]
    softcap: float | None
    pool: Pool | None = None

    @property
    def tokens(self) -> np.ndarray:
        """Token ids ``[length]``, prompt and output, the root last. A view: do not write."""
        return self.buffer[: self.length]

    @property
    def root(self) -> int:
        return int(self.buffer[self.length - 1])

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

    @property
    def hidden(self) -> Float[Tensor, "processed hidden"]:
        """Hidden states of the processed positions (0 … length − 2) at the layer the drafter asked for."""
        if self.memory.hidden is None:
            return torch.zeros((0, 1))
        return self.memory.hidden[: self.length - 1]

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

        ``row`` defaults to the last processed position. Computed from the kept queries and the cached keys when
        asked for;
        equal to what eager attention would have returned.
        """
        row = self.length - 2 if row is None else row
        wanted = heads_by_layer(self.needs.heads if heads is None else tuple(heads))
        all_heads = heads_by_layer(self.needs.heads)
        rows = []
        for layer, chosen in wanted.items():
            query = self.memory.queries[layer][:, row]
            if chosen != all_heads[layer]:
                query = query[[all_heads[layer].index(h) for h in chosen]]
            keys = self.cache.keys(layer)
            window = self.windows.get(layer)
            first = 0 if window is None else max(0, row + 1 - window)
            group = self.heads // keys.shape[0]
            if chosen == list(range(len(chosen))) and len(chosen) == group * keys.shape[0]:  # every head: no gather
                folded = query.view(keys.shape[0], group, -1)
                scores = (folded.float() @ keys[:, first : row + 1].float().transpose(1, 2)).reshape(len(chosen), -1)
            else:  # head by head: gathering the keys would copy them all
                pairs = zip(chosen, query.float(), strict=True)
                rows_of = [keys[h // group, first : row + 1].float() @ q for h, q in pairs]
                scores = torch.stack(rows_of)
            if self.softcap:
                scores = self.softcap * torch.tanh(scores / self.softcap)
            weights = scores.softmax(-1)
            rows.append(torch.nn.functional.pad(weights, (first, 0)) if first else weights)
        return torch.cat(rows)
