"""Conversations that a model writes itself, many at once: its answers, with the user's turns put in between.

A row never waits for the others: where its answer ends, its next user's turn is fed token by token beside the others'
answers, so that the cache has no holes. Rows that are done leave the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from decoders.model.shape import token_ids
from decoders.training.frozen import FrozenTarget

FEWEST = 8  # of a batch's rows, one in so many: where fewer are left, their answers are cut
SHRINK = 0.8  # rows that are done leave the batch where so many are left


@dataclass
class Conversation:
    """A conversation under way. ``following``: what to feed after each answer but the last, as token ids, from what
    ends the user's next turn's predecessor to where the answer begins. ``answers``: what the model wrote so far.
    """

    prompt: list[int]
    following: list[list[int]]
    temperature: float = 0.0  # 0: greedy
    answers: list[list[int]] = field(default_factory=list)
    cut: bool = False  # the last answer was stopped before its end
    done: bool = False
    _feed: list[int] = field(default_factory=list)

    def take(self, token: int, ends: set[int], most: int) -> int:
        """What is fed next, where the model says ``token``."""
        if self.done:
            return token
        if self._feed:
            fed = self._feed.pop(0)
            if not self._feed:
                self.answers.append([])
            return fed
        answer = self.answers[-1]
        if token in ends:
            turn = len(self.answers)
            if turn > len(self.following):
                self.done = True
                return token
            self._feed = list(self.following[turn - 1])
            return self.take(token, ends, most)
        answer.append(token)
        self.cut = self.done = len(answer) >= most
        return token


class Writer:
    """A chat model (Llama, Mistral, Qwen2, Qwen3) that answers many prompts at once."""

    def __init__(self, model: Any) -> None:
        self.target, self.device = FrozenTarget(model), model.device
        self.ends = set(token_ids(model.generation_config.eos_token_id))

    @torch.inference_mode()
    def write(self, rows: Sequence[Conversation], most: int, seed: int) -> int:
        """Write all answers of these conversations, each at most ``most`` tokens; gives the tokens written."""
        generator = torch.Generator(self.device).manual_seed(seed)
        width = max(len(row.prompt) for row in rows)
        room = width + max((1 + len(row.following)) * most + sum(map(len, row.following)) for row in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        padding = torch.tensor([width - len(row.prompt) for row in rows])
        for i, row in enumerate(rows):
            ids[i, int(padding[i]) :] = torch.tensor(row.prompt)
            row.answers.append([])
        batch = _Batch(self.target, len(rows), room, padding.to(self.device))
        live, x, written = list(rows), batch.read(ids.to(self.device)), 0
        while True:
            logits = self.target.head(x)
            temperatures = torch.tensor([row.temperature for row in live], device=self.device)
            said = logits.argmax(-1)
            if bool((temperatures > 0).any()):
                chances = (logits / temperatures.clamp_min(0.05)[:, None]).softmax(-1)
                said = torch.where(temperatures > 0, chances.multinomial(1, generator=generator)[:, 0], said)
            fed = [row.take(token, self.ends, most) for row, token in zip(live, said.tolist(), strict=True)]
            left = [i for i, row in enumerate(live) if not row.done]
            written += len(live)
            if not left or len(left) * FEWEST < len(rows):
                break
            if len(left) <= SHRINK * len(live):
                batch.keep(torch.tensor(left, device=self.device))
                live, fed = [live[i] for i in left], [fed[i] for i in left]
            x = batch.step(torch.tensor(fed, device=self.device))
        for row in live:
            row.cut |= not row.done
        return written


class _Batch:
    """Keys and values of rows that are padded at the left, and one token more of each at a time."""

    def __init__(self, target: FrozenTarget, rows: int, room: int, padding: Int[Tensor, "rows"]) -> None:
        self.target, self.padding, shape = target, padding, target.shape
        self.length, self.room, device = 0, room, padding.device
        size = (rows, shape.kv_heads, room, shape.head_dim)
        self.kvs = [
            tuple(torch.zeros(size, dtype=target.dtype, device=device) for _ in range(2)) for _ in target.layers
        ]
        blind = torch.arange(room, device=device) < padding[:, None]
        self.mask = torch.zeros(rows, room, dtype=target.dtype, device=device).masked_fill_(blind, -torch.inf)

    def read(self, ids: Int[Tensor, "rows width"]) -> Float[Tensor, "rows hidden"]:
        """The last states of the prompts."""
        at = torch.arange(ids.shape[1], device=ids.device)
        sees = (at[:, None] >= at) & (at >= self.padding[:, None, None]) | (at[:, None] == at)
        return self._run(ids, (at - self.padding[:, None]).clamp_min(0), sees[:, None])

    def step(self, tokens: Int[Tensor, "rows"]) -> Float[Tensor, "rows hidden"]:
        """The states after one more token of each row."""
        return self._run(tokens[:, None], (self.length - self.padding)[:, None], None)

    def keep(self, rows: Int[Tensor, "kept"]) -> None:
        """Go on with these rows alone."""
        self.kvs = [(k[rows], v[rows]) for k, v in self.kvs]
        self.padding, self.mask = self.padding[rows], self.mask[rows]

    def _run(self, ids: Tensor, positions: Tensor, sees: Tensor | None) -> Float[Tensor, "rows hidden"]:
        target, shape, count = self.target, self.target.shape, ids.shape[1]
        start, stop = self.length, self.length + count
        cos, sin = (angle[positions][:, None] for angle in target.angles(self.room))
        x = F.embedding(ids, target.embedding).float()
        for layer, (keys, values) in zip(target.layers, self.kvs, strict=True):
            q, keys[:, :, start:stop], values[:, :, start:stop] = target.project(x, layer, cos, sin)
            k, v = keys[:, :, :stop], values[:, :, :stop]
            if sees is None:  # the queries of a group stand as rows of their one key head
                mask = self.mask[:, None, None, :stop]
                grouped = q.view(len(q), shape.kv_heads, -1, shape.head_dim)
                out = F.scaled_dot_product_attention(grouped, k, v, mask).view_as(q)
            else:
                out = F.scaled_dot_product_attention(q, k, v, sees, enable_gqa=shape.heads != shape.kv_heads)
            x = target.written(x, out, layer)
        self.length = stop
        return target.normed(x[:, -1])
