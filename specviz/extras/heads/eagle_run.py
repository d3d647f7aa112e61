"""An EAGLE head at work on a run: its own keys and values of committed pairs, and behind them a draft under way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.draft_models.draft_graphs import DraftGraphs
from decoders.draft_models.draft_run import common_prefix, forwards_of
from decoders.draft_models.own_cache import FixedRows, OwnCache
from decoders.model.engines.engines import Engines
from decoders.model.state.memory import Context
from decoders.model.state.transfer import Mark, mark, rows_of, send

from .eagle_head import EagleHead
from .eagle_trees import Expansion, Growing, grow_behind

DRAFT_ROWS = 1024  # cache rows behind the committed pairs: a frontier per level of a tree


class FixedEagle:
    """A head's draft in fixed sizes, to be captured: the pairs that are caught up with, then a tree behind them."""

    def __init__(self, head: EagleHead, rows: FixedRows) -> None:
        self.head, self.rows = head, rows
        self.levels = list[Tensor]()  # states: of the root, then of each level's rows
        self.sees = torch.zeros(1, 0, dtype=torch.bool, device=rows.places.device)
        self.drafted = 0

    def grow(
        self, features: Float[Tensor, "rows read"], tokens: Int[Tensor, " rows"], have: Int[Tensor, "1"],
        count: Int[Tensor, "1"], expansion: Expansion,
    ) -> Growing:  # fmt: skip
        """The tree behind ``have`` pairs and the first ``count`` of these."""
        slots = have + torch.arange(len(tokens), device=have.device)
        self.base, state = have + count, self.head.read(features)
        states, logits = self._forward(state, tokens, slots, slots, self.rows.chain(slots))
        self.levels = [states.index_select(0, count - 1)]
        first = logits.index_select(0, count - 1)[0]
        return expansion.expand(Growing(first, self.extend, self.head, timed=False))

    def extend(self, tokens: Int[Tensor, " rows"], parents: Int[Tensor, " rows"]) -> Float[Tensor, "rows drafted"]:
        """As ``EagleRun.extend``."""
        count = len(tokens)
        diagonal = torch.eye(count, dtype=torch.bool, device=tokens.device)
        self.sees = torch.cat([self.sees.index_select(0, parents), diagonal], 1)
        slots = self.base + self.drafted + torch.arange(count, device=tokens.device)
        place = self.base + (len(self.levels) - 1)
        state = self.levels[-1].index_select(0, parents)
        states, logits = self._forward(state, tokens, slots, place, self.rows.tree(self.base, self.sees))
        self.levels.append(states)
        self.drafted += count
        return logits

    def _forward(self, state: Tensor, tokens: Tensor, slots: Tensor, positions: Tensor, mask: Tensor) -> Any:
        cos, sin = self.rows.turns(positions)
        states = self.head(state[None], tokens[None], cos, sin, mask, self.rows.remember(slots))[0]
        return states, self.head.say(states).float()


class EagleRun:
    """A head that reads a text, pair by pair, and drafts behind it.

    Pair j is the target's state at position j with the token at j + 1; the last one has the root. What a pair leads to
    depends on the text up to its token alone, so any cut of a run is picked up where it departs from what was read.
    Only committed pairs are kept: accepted tokens are read again, with the target's own states in place of the head's.
    ``compiled`` are the head's compiled forwards (``CompiledEagle``), where there are any; ``engines`` those of the
    target: whole drafts are captured where its forwards are.
    """

    def __init__(self, head: EagleHead, compiled: Any = None, engines: Engines | None = None) -> None:
        config = head.config
        self.head, self.config, self.compiled = head, config, compiled
        self.graphs = DraftGraphs(engines, head, "a head")
        # of the weights' type and device: a packed weight is unpacked at every reading
        self.like = head.fc.weight.new_empty(0)
        self.tokens = np.zeros(0, dtype=np.int64)
        self.base = self.drafted = self.level = 0  # committed pairs; rows and levels of the draft under way
        self.sees = torch.zeros(1, 0, dtype=torch.bool)  # the draft's rows that those of its last level see
        self.places = list[int]()  # of the draft's rows: their positions
        self.levels: list[Tensor] = [torch.zeros(1, config.hidden)]  # states: of the root, then of each level's rows
        self.cache = OwnCache(config.layers, config.kv_heads, config.head_dim, config.rotary)

    @property
    def device(self) -> torch.device:
        return self.like.device

    @torch.inference_mode()
    def read(self, context: Context) -> Float[Tensor, " drafted"]:
        """Logits after the root, having caught up with the context. It needs a processed token in front of the root."""
        have, pairs = self._catch_up(context)
        states = logits = torch.zeros(0)
        for state, tokens, places, mask in self.pieces(have, pairs, context):
            states, logits = self.forward(state, tokens, places.start, places, mask, last_only=True)
        self.levels = [states]
        return logits[0]

    def pieces(self, have: int, pairs: int, context: Context) -> Iterator[tuple[Tensor, Tensor, slice, Tensor | None]]:
        """The forwards that read a text from pair ``have`` on: states and tokens of pairs, where they stand, and which
        sees which.
        """
        for start, stop, mask in forwards_of(have, pairs, context, self.device):
            features = torch.cat([context.hidden_at(layer)[start:stop] for layer in self.config.features], -1)
            (tokens,) = send(self.device, self.tokens[start + 1 : stop + 1])
            yield self.head.read(features.to(self.like.dtype)), tokens, slice(start, stop), mask

    def _pairs(self, context: Context) -> tuple[int, int]:
        """All pairs of a context, and those that were read before."""
        pairs = context.root_position
        assert pairs > 0, "there is no state of the target before its first forward"
        return pairs, min(max(0, common_prefix(self.tokens, context.tokens) - 1), pairs - 1)

    def _catch_up(self, context: Context) -> tuple[int, int]:
        """Begin behind a context: pairs that were read before, and all of them."""
        pairs, have = self._pairs(context)
        self.graphs.make_room(self.cache, len(context.buffer) + DRAFT_ROWS, have, self.like)
        self.tokens, self.base, self.drafted, self.level = context.tokens.copy(), pairs, 0, 0
        self.places = []
        self.sees = torch.zeros(1, 0, dtype=torch.bool, device=self.device)
        return have, pairs

    @torch.inference_mode()
    def draft(self, context: Context, expansion: Expansion) -> tuple[Growing, Mark]:
        """The tree that an expansion grows behind a context, and when the context was read: all by one graph where
        the target's forwards are captured.
        """
        if (growing := self._replay(context, expansion)) is not None:
            return growing, mark(self.device)
        return grow_behind(self, context, expansion)

    def _replay(self, context: Context, expansion: Expansion) -> Growing | None:
        """The tree by a captured draft; None where there is none for this head or a text of this length."""
        pairs, have = self._pairs(context)
        sizes = self.graphs.sizes(self.cache, have, pairs - have, expansion.rows, len(context.buffer) + DRAFT_ROWS)
        if sizes is None or self.cache.lease is None or self.config.windows:
            return None
        rows, keys = sizes
        features = torch.cat([context.hidden_at(layer)[have:pairs] for layer in self.config.features], -1)
        features = F.pad(features.to(self.like.dtype), (0, 0, 0, rows - (pairs - have)))
        tokens = np.zeros(rows, dtype=np.int64)
        tokens[: pairs - have] = context.tokens[have + 1 : pairs + 1]
        numbers = send(self.device, tokens, np.asarray([have]), np.asarray([pairs - have]))

        def grow(features: Tensor, tokens: Tensor, have: Tensor, count: Tensor) -> tuple[Growing, list[Tensor]]:
            fixed = FixedEagle(self.head, FixedRows(self.cache, keys))
            growing = fixed.grow(features, tokens, have, count, expansion)
            return growing.without_memory(), fixed.levels

        key = ("draft", rows, keys, expansion.key)
        result = self.graphs.replay(self.cache.lease.companions, key, grow, features, *numbers)
        if result is None:
            return None
        self._catch_up(context)
        growing, levels = result
        self.levels = list(torch.cat(levels).split([len(states) for states in levels]))  # of their own
        return growing.with_own_logits()

    @torch.inference_mode()
    def extend(self, tokens: Int[Tensor, " rows"], parents: Int[Tensor, " rows"]) -> Float[Tensor, "rows drafted"]:
        """Logits after the tokens of the draft's next level; ``parents`` are rows of its last one (the root's has one).
        Both are on the head's device, and nothing is read from it.
        """
        rows = len(tokens)
        diagonal = torch.eye(rows, dtype=torch.bool, device=self.device)
        self.sees = torch.cat([self.sees[parents], diagonal], 1)
        start, place = self.base + self.drafted, self.base + self.level
        self.places += [place] * rows
        mask = F.pad(self.sees, (self.base, 0), value=True)
        states, logits = self.forward(self.levels[-1][parents], tokens, start, slice(place, place + 1), mask)
        self.levels.append(states)
        self.drafted, self.level = self.drafted + rows, self.level + 1
        return logits

    def distances(self, positions: Sequence[int], keys: int) -> Int[Tensor, "places keys"] | None:
        """From each position back to those of the first ``keys`` rows of the cache; None where no layer asks."""
        if not self.config.windows:
            return None
        key_positions = np.asarray([*range(min(keys, self.base)), *self.places], dtype=np.int64)[:keys]
        (distances,) = send(self.device, np.asarray(positions, dtype=np.int64)[:, None] - key_positions)
        return distances

    def states_of(self, rows: Sequence[int]) -> Float[Tensor, "rows hidden"]:
        """States that the head made: row 0 is the root's, then come those of the levels."""
        return rows_of(torch.cat(self.levels), rows)

    def forward(
        self, state: Float[Tensor, "rows state"], tokens: Int[Tensor, " rows"], start: int, positions: slice,
        mask: Bool[Tensor, "rows keys"] | None, *, last_only: bool = False,
    ) -> tuple[Float[Tensor, "said hidden"], Float[Tensor, "said drafted"]]:  # fmt: skip
        """Pairs through the head, their keys and values to cache rows ``start`` on: states that they lead to and logits
        after them, all or of the last row alone.
        """
        cos, sin = self.cache.cos[positions], self.cache.sin[positions]
        if start and self.compiled is not None and self.compiled.takes(len(tokens)):
            states = self.compiled.run(state, tokens, start, cos, sin, mask, self.cache.store, last_only)
            return states, self.compiled.shortlist(self.head.stands_for(states))
        states = self.states_behind(state, tokens, start, range(positions.start, positions.stop), (cos, sin), mask)
        states = states[-1:] if last_only else states
        return states, self.head.say(states).float()

    def states_behind(
        self, state: Float[Tensor, "rows state"], tokens: Int[Tensor, " rows"], start: int, positions: Sequence[int],
        turns: tuple[Tensor, Tensor], mask: Bool[Tensor, "rows keys"] | None,
    ) -> Float[Tensor, "rows hidden"]:  # fmt: skip
        """The states that pairs lead to, of which keys and values go to cache rows ``start`` on; ``turns`` are cos and
        sin of their positions.
        """
        stop = start + len(tokens)
        distances = self.distances(positions, stop)
        return self.head(state[None], tokens[None], *turns, mask, self.cache.rows(start, stop), distances)[0]
