"""MTP layers at work on a run: they read the text behind the target, and draft from its last state."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.draft_models.draft_run import common_prefix, pieces_of
from decoders.model.state.memory import Context
from decoders.model.state.transfer import Mark, rows_of, send
from specviz.extras.heads.eagle_trees import Expansion, Growing, grow_behind

from .mtp_head import MtpHead

DRAFT_ROWS = 1024  # cache rows behind those of the text: the nodes that a draft goes on from


class LayerRows:
    """Keys and values of one MTP layer, row after row, as transformers' attention asks for them."""

    def __init__(self) -> None:
        self.stored_pair: tuple[Tensor, ...] | None = None  # keys, values
        self.capacity = self.start = 0

    def make_room(self, rows: int) -> None:
        """Have room for so many rows; those that are there stay."""
        if rows <= self.capacity:
            return
        self.capacity = rows
        if self.stored_pair is not None:
            self.stored_pair = tuple(F.pad(tensor, (0, 0, 0, rows - tensor.shape[2])) for tensor in self.stored_pair)

    def update(self, keys: Tensor, values: Tensor, *others: Any, **more: Any) -> tuple[Tensor, Tensor]:
        """New rows from ``start`` on; gives all up to there."""
        if self.stored_pair is None:
            self.stored_pair = tuple(
                tensor.new_zeros((*tensor.shape[:2], self.capacity, tensor.shape[3])) for tensor in (keys, values)
            )
        stop = self.start + keys.shape[2]
        for store, new in zip(self.stored_pair, (keys, values), strict=True):
            store[:, :, self.start : stop] = new
        return self.stored_pair[0][:, :, :stop], self.stored_pair[1][:, :, :stop]


class MtpRun:
    """MTP layers that read a text and draft behind it (transformers' ``MTPCandidateGenerator``, and trees).

    Layer k has a row for every token from position k + 1 on, made of the token and of layer k − 1's state one position
    before (for the first layer, the target's). The state that guesses the first token is that of the root in the first
    layer; the token after that is guessed by the next layer, which reads the drafted tokens too, or, where there is one
    layer alone, by this one again, from its own state: after its norm (``normed``), or as it is. Rows of accepted
    tokens are read again, with the target's states.
    """

    def __init__(self, head: MtpHead, rotary: Any, *, normed: bool = True) -> None:
        self.head, self.config, self.rotary, self.normed = head, head.config, rotary, normed
        # of the weights' type and device: a packed weight is unpacked at every reading
        self.like = head.layers[0].eh_proj.weight.new_empty(0)
        self.rows = [LayerRows() for _ in range(head.config.layers)]
        self.tokens = np.zeros(0, dtype=np.int64)
        self.root = 0  # position of the last token of the text
        self.states: list[Tensor] = []  # of all layers but the last: what the next one reads, by position
        self.drafted: list[Tensor] = []  # the draft so far: tokens of each level
        self.parents: list[Tensor] = []  # and rows of the level before
        self.level_states: list[Tensor] = []  # one layer: states of the root, then of each level

    @property
    def device(self) -> torch.device:
        return self.like.device

    @torch.inference_mode()
    def read(self, context: Context) -> Float[Tensor, " vocab"]:
        """Logits after the root, having caught up with the context. It needs a processed token in front of the root."""
        root, layers = context.root_position, self.config.layers
        assert root > 0, "there is no state of the target before its first forward"
        have = min(common_prefix(self.tokens, context.tokens) - 1, root - 1)  # the last position that stays
        self.tokens, self.root, self.drafted, self.parents = context.tokens.copy(), root, [], []
        while len(self.states) < layers - 1:
            self.states.append(self.like.new_zeros((0, self.config.hidden)))
        lower_states, last = context.hidden_at(self.config.features[0]), torch.zeros(0)
        for index, rows in enumerate(self.rows):
            rows.make_room(len(context.buffer) + DRAFT_ROWS)
            if index < layers - 1 and len(self.states[index]) < len(context.buffer):
                self.states[index] = F.pad(self.states[index], (0, 0, 0, len(context.buffer) - len(self.states[index])))
            first = max(have, index) + 1
            for start, stop in pieces_of(first, root + 1, context, self.like.device):
                tokens, positions = send(self.device, self.tokens[start:stop], np.arange(start, stop))
                past_rows, count = start - index - 1, stop - start
                mask = None
                if count > 1:
                    mask = torch.ones(count, past_rows + count, dtype=torch.bool, device=self.device).tril(past_rows)
                outputs = self._forward(
                    index, lower_states[start - 1 : stop - 1].to(self.like.dtype), tokens, positions, mask, past_rows
                )
                if index < layers - 1:
                    self.states[index][start:stop] = self._fed_back(index, outputs)
                last = outputs[-1:] if index == 0 else last
            lower_states = self.states[index] if index < layers - 1 else lower_states
        self.level_states = [self._fed_back(0, last)]
        return self.head.say(self.head.normalize(0, last)).float()[0]

    def draft(self, context: Context, expansion: Expansion) -> tuple[Growing, Mark]:
        """The tree that an expansion grows behind a context, and when the context was read."""
        return grow_behind(self, context, expansion)

    @torch.inference_mode()
    def extend(self, tokens: Int[Tensor, " rows"], parents: Int[Tensor, " rows"]) -> Float[Tensor, "rows vocab"]:
        """Logits after the tokens of the draft's next level; ``parents`` are rows of its last one (the root's has one).
        Both are on the head's device. With several layers there is one more for each level (else AssertionError).
        """
        self.drafted.append(tokens)
        self.parents.append(parents)
        depth = len(self.drafted)
        if self.config.layers == 1:
            return self._extend_path(tokens, parents)
        assert depth < self.config.layers, "each MTP layer drafts one token"
        return self._next_layer(depth)

    def _extend_path(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """One layer: the new rows alone, behind those of their ancestors."""
        sees = self._sees()[-len(tokens) :]
        start = self.root + sum(map(len, self.drafted[:-1]))  # the text has rows from position 1 on
        places = torch.full_like(tokens, self.root + len(self.drafted))
        mask = torch.cat([sees.new_ones(len(tokens), self.root), sees], 1)
        outputs = self._forward(0, self.level_states[-1][parents], tokens, places, mask, start)
        self.level_states.append(self._fed_back(0, outputs))
        return self.head.say(self.head.normalize(0, outputs)).float()

    def _next_layer(self, index: int) -> Tensor:
        """Layer ``index`` over all of the draft: its state at every node is the next layer's."""
        sizes = [len(level) for level in self.drafted]
        depths = np.repeat(np.arange(1, len(sizes) + 1), sizes)
        keep = np.flatnonzero(self.root + depths > index)  # a layer's rows begin behind its own number of tokens
        starts = [0, *accumulate(sizes, initial=1)]
        parent = torch.cat([rows + starts[level] for level, rows in enumerate(self.parents)])
        lower_states = self.level_states[
            -1
        ]  # of the layer before: the root's, and every node's of all levels but the last
        kept_nodes, positions = send(self.device, keep, self.root + depths[keep])
        sees, text = self._sees()[kept_nodes][:, kept_nodes], max(0, self.root - index)
        mask = torch.cat([sees.new_ones(len(keep), text), sees], 1)
        tokens = torch.cat(self.drafted)[kept_nodes]
        outputs = self._forward(index, lower_states[parent[kept_nodes]], tokens, positions, mask, text)
        next_states = self._fed_back(index, outputs)
        node_states = next_states.new_zeros((1 + int(depths.size), next_states.shape[1]))
        node_states[1 + kept_nodes] = next_states
        if index < self.config.layers - 1:
            node_states[0] = self.states[index][self.root] if self.root > index else node_states[0]
        self.level_states.append(node_states)
        return self.head.say(self.head.normalize(index, outputs[-sizes[-1] :])).float()

    def _sees(self) -> Bool[Tensor, "drafted drafted"]:
        """The rows of the draft that each of them sees: its ancestors and itself."""
        count = sum(map(len, self.drafted))
        sees = torch.eye(count, dtype=torch.bool, device=self.device)
        starts = np.cumsum([0, *map(len, self.drafted)])
        for level in range(1, len(self.drafted)):
            rows = slice(int(starts[level]), int(starts[level + 1]))
            sees[rows] |= sees[int(starts[level - 1]) + self.parents[level]]
        return sees

    def _forward(
        self, index: int, states: Tensor, tokens: Tensor, positions: Tensor, mask: Tensor | None, start: int
    ) -> Tensor:
        self.rows[index].start = start
        attention_mask = None if mask is None else mask[None, None]
        return self.head(index, states, tokens, positions, self.rotary, attention_mask, self.rows[index])

    def _fed_back(self, index: int, states: Tensor) -> Tensor:
        return self.head.normalize(index, states) if self.normed else states

    def states_of(self, rows: Sequence[int]) -> Float[Tensor, "rows hidden"]:
        """States that a single layer made: row 0 is the root's, then come those of the levels."""
        return rows_of(torch.cat(self.level_states), rows)
