"""An EAGLE head at work on a run: its own keys and values of committed pairs, and behind them a draft under way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.model.memory import Context
from decoders.model.transfer import sent

from .eagle_head import EagleHead
from .network import READ_ROWS, common_prefix

DRAFT_ROWS = 1024  # cache rows behind the committed pairs: a frontier per level of a tree


class EagleRun:
    """A head that reads a text, pair by pair, and drafts behind it.

    Pair j is the target's state at position j with the token at j + 1; the last one has the root. What a pair leads to
    depends on the text up to its token alone, so any cut of a run is picked up where it departs from what was read.
    Only committed pairs are kept: accepted tokens are read again, with the target's own states in place of the head's.
    """

    def __init__(self, head: EagleHead) -> None:
        self.head, self.config = head, head.config
        self.limit = 1 << 30
        self.tokens = np.zeros(0, dtype=np.int64)
        self.base = self.drafted = 0  # committed pairs, rows of the draft under way
        self.sees = np.zeros((0, 0), dtype=bool)
        self.store: Tensor | None = None
        self.states = torch.zeros(0, 0)  # of the root, then of each row of the draft
        self._rotary = (torch.zeros(0, 0), torch.zeros(0, 0))

    @property
    def device(self) -> torch.device:
        return self.head.fc.weight.device

    @torch.inference_mode()
    def read(self, context: Context) -> Float[Tensor, "drafted"]:
        """Logits after the root, having caught up with the context. It needs a processed token in front of the root."""
        pairs = context.root_position
        assert pairs > 0, "there is no state of the target before its first forward"
        have = min(max(0, common_prefix(self.tokens, context.tokens) - 1), pairs - 1)
        self._make_room(context, have)
        self.tokens, self.base, self.drafted = context.tokens.copy(), pairs, 0
        self.sees = np.zeros((0, 0), dtype=bool)
        for start in range(have, pairs, READ_ROWS):
            stop = min(start + READ_ROWS, pairs)
            features = torch.cat([context.hidden_at(layer)[start:stop] for layer in self.config.features], -1)
            (tokens,) = sent(self.device, self.tokens[start + 1 : stop + 1])
            mask = None
            if start and stop - start > 1:
                mask = torch.ones(stop - start, stop, dtype=torch.bool, device=self.device).tril(start)
            state = self.head.read(features[None].to(self.head.fc.weight.dtype))
            states = self._run(state, tokens, start, slice(start, stop), mask)
        self.states = states[-1:]
        return self.head.say(self.states)[0].float()

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int], parents: Sequence[int]) -> Float[Tensor, "rows drafted"]:
        """Logits after more draft tokens. ``parents`` count the rows of this draft, the root 0, others as they came."""
        count, before = len(tokens), self.drafted
        sees = np.zeros((before + count, before + count), dtype=bool)
        sees[:before, :before] = self.sees
        for row, parent in enumerate(parents, before):
            if parent:
                sees[row] = sees[parent - 1]
            sees[row, row] = True
        depths = sees[before:].sum(1)
        self.sees, self.drafted = sees, before + count
        positions = depths + (self.base - 1)
        ids, above, places, own = sent(self.device, np.asarray(tokens), np.asarray(parents), positions, sees[before:])
        mask = torch.ones((count, self.base + before + count), dtype=torch.bool, device=self.device)
        mask[:, self.base :] = own
        states = self._run(self.states[above][None], ids, self.base + before, places, mask)
        self.states = torch.cat([self.states, states])
        return self.head.say(states).float()

    def _run(
        self, state: Float[Tensor, "1 rows state"], tokens: Int[Tensor, "rows"], start: int,
        positions: slice | Int[Tensor, "rows"], mask: Tensor | None,
    ) -> Float[Tensor, "rows hidden"]:  # fmt: skip
        """Pairs through the head; their keys and values go to cache rows ``start`` on."""
        assert self.store is not None
        store, stop = self.store, start + len(tokens)

        def remember(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            store[layer, 0, :, :, start:stop], store[layer, 1, :, :, start:stop] = keys, values
            return store[layer, 0, :, :, :stop], store[layer, 1, :, :, :stop]

        cos, sin = self._rotary
        return self.head(state, tokens[None], cos[positions], sin[positions], mask, remember)[0]

    def _make_room(self, context: Context, pairs_read: int) -> None:
        rows = len(context.buffer) + DRAFT_ROWS
        if self.store is not None and self.store.shape[4] >= rows:
            return
        config, weight = self.config, self.head.fc.weight
        shape = (config.layers, 2, 1, config.kv_heads, rows, config.head_dim)
        store = torch.zeros(shape, dtype=weight.dtype, device=weight.device)
        if self.store is not None:
            store[..., :pairs_read, :] = self.store[..., :pairs_read, :]
        self.store = store
        self._rotary = config.rotary(rows, weight)
