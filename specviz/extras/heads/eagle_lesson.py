"""Training of EAGLE's heads: EAGLE-1's imitates the target's next state, EAGLE-3's goes on from its own.

Both begin near the identity: what they are given of the target's last state (EAGLE-3: of the highest one) goes through,
and attention and MLP add nothing yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.draft_models.lesson import HeadKind, Lesson
from decoders.model.files.shape import ModelShape

from .eagle_head import EagleConfig, EagleHead

NOISE, NOISE_LENGTH = 0.2, 512  # on the features: uniform in ±half of it, for a text of this length (EAGLE-1)
DECAY = 0.8  # of the loss per step on the head's own states (EAGLE-3)


class Unroll:
    """A head on a batch, step by step: after the first, which reads the target's states at every position, each goes on
    from its own at the lesson's positions alone, with the text's next token.

    Step s of a column sees the first step's keys up to its position, and its own of steps 1 to s: what a draft sees at
    depth s + 1 (EAGLE-3 §3.2, training-time test).
    """

    def __init__(self, lesson: Lesson, features: Float[Tensor, "rows length read"]) -> None:
        assert isinstance(lesson.network, EagleHead) and lesson.network.config.layers == 1
        self.lesson, self.head, self.ids = lesson, lesson.network, lesson.ids
        rows, length = self.ids.shape
        self.angles = self.head.config.rotary(2 * length, features)
        self.columns, self.column_rows = columns(lesson.rows, lesson.at, rows)
        self.step = 0
        memory = list[tuple[Tensor, Tensor]]()
        self.states = self._first(features, memory)
        self.text = memory[0]
        self.step_kvs = list[tuple[Tensor, Tensor]]()  # keys and values of the steps after it
        self.visible_mask = torch.arange(length, device=features.device) <= self.columns[..., None]

    def _first(self, features: Tensor, memory: list[tuple[Tensor, Tensor]]) -> Float[Tensor, "rows length hidden"]:
        def remember(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            memory.append((keys, values))
            return keys, values

        cos, sin = (angle[: self.ids.shape[1]] for angle in self.angles)
        tokens = F.pad(self.ids[:, 1:], (0, 1))
        return self.head(self.head.read(features), tokens, cos, sin, None, remember)

    @property
    def step_states(self) -> Float[Tensor, "positions hidden"]:
        """The step's states at the lesson's positions."""
        return self.states[self.lesson.rows, self.lesson.at] if self.step == 0 else self.states[self.column_rows]

    @property
    def guess(self) -> Float[Tensor, "positions hidden"]:
        """The output layer's input for these."""
        return self.head.stands_for(self.step_states)

    def steps(self, count: int) -> Iterator[int]:
        """Makes so many steps in all, one after the other; their numbers, from 0."""
        for step in range(count):
            if step:
                self.go_on()
            yield step

    def go_on(self) -> None:
        """One step further, from the states of the last one."""
        head, at, length = self.head, self.columns, self.ids.shape[1]
        layer: Any = head.layers[0]
        previous_states = (
            self.states if self.step else self.states.gather(1, at[..., None].expand(-1, -1, self.states.shape[2]))
        )
        self.step += 1
        tokens = self.ids.gather(1, (at + self.step + 1).clamp_max(length - 1))
        embedded = head.embedding(tokens).to(previous_states.dtype)
        read, residual = layer.into_attention(head.fuse(previous_states, embedded), embedded)
        cos, sin = (angle[at + self.step][:, None] for angle in self.angles)
        query, *key_value = layer.self_attn.project(read, cos, sin)
        self.step_kvs.append((key_value[0], key_value[1]))
        self.states = layer.out_of_attention(
            residual, attend_columns(query, *self.text, self.step_kvs, self.visible_mask)
        )


def attend_columns(
    query: Float[Tensor, "batch heads columns size"], keys: Float[Tensor, "batch kv_heads length size"],
    values: Float[Tensor, "batch kv_heads length size"], column_kvs: Sequence[tuple[Tensor, Tensor]],
    visible_mask: Bool[Tensor, "batch columns length"],
) -> Float[Tensor, "batch columns width"]:  # fmt: skip
    """Attention of columns over what each has ``visible_mask`` of a text, and over keys and values of its
    ``column_kvs`` (batch, kv_heads, columns, size): each looks at length + steps keys, and not at the other columns'.
    """
    query = query.unflatten(1, (keys.shape[1], -1)) * query.shape[-1] ** -0.5
    own_keys, own_values = (torch.stack(tensors, 3).to(query.dtype) for tensors in zip(*column_kvs, strict=True))
    group, count = query.shape[2:4]
    over = (query.flatten(2, 3) @ keys.to(query.dtype).mT).unflatten(2, (group, count))
    over = over.masked_fill(~visible_mask[:, None, None], -torch.inf)
    scores = torch.cat([over, torch.einsum("bkgcd,bkcsd->bkgcs", query, own_keys)], -1)
    text, own_weights = scores.float().softmax(-1).to(query.dtype).split([keys.shape[2], len(column_kvs)], -1)
    out = (text.flatten(2, 3) @ values.to(query.dtype)).unflatten(2, (group, count))
    return (out + torch.einsum("bkgcs,bkcsd->bkgcd", own_weights, own_values)).flatten(1, 2).transpose(1, 2).flatten(2)


def columns(
    rows: Int[Tensor, " positions"], at: Int[Tensor, " positions"], count: int
) -> tuple[Int[Tensor, "rows columns"], Bool[Tensor, "rows columns"]]:
    """Positions, which come row by row, as a table of ``count`` rows filled up with 0; and where it is not filled up.

    >>> columns(torch.tensor([0, 2, 2]), torch.tensor([5, 1, 3]), 3)[0].tolist()
    [[5, 0], [0, 0], [1, 3]]
    """
    counts = torch.bincount(rows, minlength=count)
    mask = torch.arange(int(counts.max()), device=rows.device) < counts[:, None]
    table = torch.zeros(mask.shape, dtype=at.dtype, device=at.device)
    table[mask] = at
    return table, mask


def decay(losses: Sequence[Float[Tensor, ""]]) -> Float[Tensor, ""]:
    """The sum of the losses of steps on a head's own states, each ``DECAY`` of what the one before counts."""
    return torch.stack([DECAY**step * loss for step, loss in enumerate(losses)]).sum()


class Eagle(HeadKind):
    """EAGLE-1's and -2's head: SmoothL1 between its state and the target's next one, and a tenth of the divergence of
    what the target's head makes of both (Li et al. 2024a, §4.2), with noise on the features.

    Other than in the paper, states are taken in units of their spread, about their mean, and so are their distance and
    the noise. Nothing in front of the head's attention evens them out, and where one dimension is 30 times as large as
    the others in every state, each change of a weight that reads it moves all that the head makes.
    """

    third = False

    def network(self, shape: ModelShape, recipe: Any, seed: int) -> EagleHead:
        config = EagleConfig.of(
            shape, third=self.third, mlp=recipe.mlp or None, draft_vocab=recipe.draft_vocab, scaled=not self.third
        )
        head = EagleHead(config, seed)
        with torch.no_grad():
            layer: Any = head.layers[0]
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
            head.fc.weight[:, -config.hidden :] = torch.eye(config.hidden)
            if self.third:
                head.fc.weight[:, : -config.hidden].zero_()
        return head

    def begin(self, network: Any, model: Any) -> None:
        """Tokens begin half as strong as scaled states: an embedding is much smaller than these, and what the layer
        hardly sees it learns late. They are turned about, so that none stands for itself in the target's head.
        """
        width = network.config.hidden
        generator = torch.Generator().manual_seed(width)
        rotation = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
        strength = model.get_input_embeddings().weight.float().pow(2).mean().rsqrt()
        with torch.no_grad():
            network.fc.weight[:, :width] = rotation.to(network.fc.weight) * strength / 2

    def distances(self, recipe: Any) -> int:
        return recipe.unroll

    def guesses(self, lesson: Lesson) -> Iterator[Float[Tensor, "positions hidden"]]:
        unroll = Unroll(lesson, lesson.features)
        for _ in unroll.steps(lesson.weights.shape[1]):
            yield unroll.guess

    def loss(self, lesson: Lesson) -> Float[Tensor, ""]:
        head: Any = lesson.network
        features = lesson.features
        noise = (torch.rand_like(features) - 0.5) * NOISE * NOISE_LENGTH / features.shape[1]
        unroll = Unroll(lesson, features + (noise * head.spread if head.config.scaled else noise))
        losses = list[Tensor]()
        for step in unroll.steps(lesson.weights.shape[1] if lesson.recipe.own_states else 1):
            truth = head.read(lesson.states[lesson.rows, lesson.targets_behind(step + 1)])
            weights = lesson.weights[:, step]
            distances = F.smooth_l1_loss(unroll.step_states.float(), truth.float(), reduction="none").mean(-1)
            feature_loss = (distances * weights).sum() / weights.sum().clamp_min(1e-9)
            guess_loss = lesson.recipe.agreement * lesson.loss(step + 1, unroll.guess)
            losses.append(feature_loss + guess_loss)
        return decay(losses)


class Eagle3(Eagle):
    """EAGLE-3's head: no state is imitated; the divergences of ``unroll`` steps count .8ˢ each, over the draft
    vocabulary. (The released code leaves positions out whose first choice is outside of it.)
    """

    third = True

    def layers(self, shape: ModelShape) -> tuple[int, ...]:
        return tuple(layer for layer in EagleConfig.of(shape, third=True).features if layer < shape.layers)

    def begin(self, network: Any, model: Any) -> None:
        """Its norm begins as the target's last one, behind which the target's head stands."""
        with torch.no_grad():
            network.norm.weight.copy_(model.base_model.norm.weight)

    def loss(self, lesson: Lesson) -> Float[Tensor, ""]:
        return decay([lesson.loss(distance, guess) for distance, guess in enumerate(self.guesses(lesson), 1)])
