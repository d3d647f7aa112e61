"""`specviz train ppd`: prompt tokens for a frozen target, distilled from its own distributions (PPD §3.3).

Groups of prompt tokens are inserted after many positions of each document at once; each group sees the text before it
and itself. Only the embeddings are trained, and what an ablation of appendix D adds to them.

A line of the log (and of ``training["log"]`` in the part) has ``ranks`` [m][10], the acceptance table that trees are
designed from: per distance, how often the guess of each rank was the target's first choice, on held-out documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.errors import UserError
from decoders.model.files.shape import ModelShape
from decoders.prompt_tokens.tokens import PromptConfig, PromptTokens, visibility
from decoders.prompt_tokens.trees import RANKS

from .batches import IGNORED, Batch
from .data import TrainingSource
from .frozen_target import FrozenTarget, KeyPlaces, TextStates, refusal
from .learning import (
    HeadDivergence,
    Optimisers,
    adamw,
    cosine_factor,
    distributions,
    position_weights,
    rank_of,
    rows_at_once,
)  # fmt: skip
from .loop import PartRun
from .recipes import HEADS, ONE_STAGE, TWO_STAGES
from .recipes import PromptTokenRecipe as Recipe
from .states import Shelf

CHUNK_ROWS = 48  # rows of insertion points of one document that run together, about
FIRST_STAGE = 0.5  # of the budget; in PPD appendix D.4 it is 2 epochs, followed by it does not say how many
SECOND_RATE = 0.1  # of the learning rate, in the second stage; the paper says smaller, its code's multiplier is this


def config_of(recipe: Recipe, shape: ModelShape) -> PromptConfig:
    """The prompt tokens that a recipe makes for a target of this shape. Raises UserError for a target that none
    can be trained for, and for settings that are not possible or make no difference.
    """
    if reason := refusal(shape):
        raise UserError(reason)
    if recipe.head not in HEADS:
        raise UserError(f"head={recipe.head!r} is not allowed: one of {', '.join(HEADS)}")
    try:
        return PromptConfig.of(
            shape, tokens=recipe.tokens, vectors=recipe.vectors, mask=recipe.mask, learned=recipe.learned,
            prefix=recipe.prefix, exits=recipe.exits, head=recipe.head != HEADS[0],
        )  # fmt: skip
    except ValueError as error:
        raise UserError(str(error)) from None


@dataclass(frozen=True)
class Points:
    """Insertion points in chunks: point s of chunk c follows position ``at[c, s]`` of document ``batch[c]``, and its
    guess at distance i + 1 weighs ``weights[c, s, i]`` (all 0: filling).
    """

    batch: Int[Tensor, " chunks"]
    at: Int[Tensor, "chunks points"]
    weights: Float[Tensor, "chunks points distances"]

    @property
    def mask(self) -> Bool[Tensor, "chunks points"]:
        return self.weights[..., 0] > 0

    @property
    def rows(self) -> Int[Tensor, "used 1"]:
        """The document of each point in use."""
        return self.batch[:, None].expand_as(self.mask)[self.mask][:, None]


def label_weights(
    batch: Batch, weights: Float[Tensor, "rows length"], distances: int
) -> Float[Tensor, "rows length distances"]:
    """Weights of guesses at each distance if prompt tokens are inserted after a position.

    ``weights`` belong to tokens, as ``position_weights`` gives them: an insertion after position p weighs what token
    p + 1 does. Its guess at distance i is of token p + i + 1, and counts only if that one belongs to the same answer
    (or prompt) as token p + 1.
    """
    rows, length = batch.ids.shape
    kinds = torch.cat([batch.kinds, torch.full((rows, distances + 1), IGNORED)], 1)
    following = torch.cat([weights, weights.new_zeros(rows, 1)], 1)[:, 1:]
    first, out = kinds[:, 1 : length + 1], []
    same_answer = first != IGNORED
    for distance in range(1, distances + 1):
        same_answer = same_answer & (kinds[:, distance + 1 : distance + 1 + length] == first)
        out.append(following * same_answer)
    return torch.stack(out, -1)


def next_labels(
    feed: Iterator[Batch], recipe: Any, distances: int, seed: int, step: int
) -> tuple[Batch, Float[Tensor, "rows length distances"]]:
    """The next batch with anything to learn, and the weights of guesses in it: of seed and step alone."""
    while True:
        batch = next(feed)
        counts = position_weights(batch, recipe.prompt_share, recipe.prompt_weight, seed, step)
        weights = label_weights(batch, counts, distances)
        if bool((weights[..., 0] > 0).any()):
            return batch, weights


def rank_shares(
    hits: Float[Tensor, "distances ranks"], count: Float[Tensor, " distances"]
) -> dict[str, list[float] | list[list[float]]]:
    """Shares of ``count`` guesses per distance that hit by each rank, by the first, and by one of the first 5."""
    ranks = (hits / count.clamp_min(1)[:, None]).tolist()
    return {
        **{f"top{top_k}": [round(sum(row[:top_k]), 4) for row in ranks] for top_k in (1, 5)},
        "ranks": [[round(share, 4) for share in row] for row in ranks],
    }


def choose_points(
    weights: Float[Tensor, "rows length distances"], limit: int, chunk: int, generator: torch.Generator
) -> Points:
    """At most ``limit`` of the positions whose nearest guess counts, at random, in chunks of ``chunk`` points of one
    document each.
    """
    places = (weights[..., 0] > 0).nonzero()
    if len(places) > limit:
        places = places[torch.randperm(len(places), generator=generator)[:limit].sort().values]
    batch, at, chunk_weights = [], [], []
    for row in places[:, 0].unique().tolist():
        row_places = places[places[:, 0] == row, 1]
        filling = -len(row_places) % chunk
        mine_weights = F.pad(weights[row, row_places], (0, 0, 0, filling))
        batch += [row] * ((len(row_places) + filling) // chunk)
        at.append(F.pad(row_places, (0, filling), value=int(row_places[-1])).view(-1, chunk))
        chunk_weights.append(mine_weights.view(-1, chunk, weights.shape[-1]))
    return Points(torch.tensor(batch), torch.cat(at), torch.cat(chunk_weights))


def divergence(
    labels: Float[Tensor, "told vocab"], index: Int[Tensor, " points"], guesses: Float[Tensor, "points vocab"]
) -> Float[Tensor, " points"]:
    """KL(label ‖ guess) of logits, in nats; point i has label ``index[i]``.

    >>> labels, guesses = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.9, 0.1]]).log()
    >>> round(float(divergence(labels, torch.tensor([0]), guesses)), 3)
    0.511
    """
    log_p = labels.log_softmax(-1)
    p = log_p.exp()
    certainty = (p * log_p).sum(-1)
    return certainty[index] - (p[index] * guesses.log_softmax(-1)).sum(-1)


class PromptTokenTraining(PartRun):
    """A training run of prompt tokens, in the frozen target."""

    stored, shuffled = "prompts", "prompt batches"
    counted = ("step", "tokens", "points", "seconds")
    dtype = torch.float32

    def __init__(
        self, kind: str, folder: Path, model: Any, name: str, source: TrainingSource, recipe: Recipe, seed: int,
        shelf: Shelf | None = None,
    ) -> None:  # fmt: skip
        self.config = config_of(recipe, ModelShape.of(model.config))
        super().__init__(kind, folder, model, name, source, recipe, seed)
        self.target = FrozenTarget(model, fast=recipe.fast, dtype=torch.bfloat16 if recipe.half else None)
        layers = range(ModelShape.of(model.config).layers)
        self.states = shelf.open(model, layers) if shelf is not None and recipe.half else None
        self.trained = self.prompts = initial(self.config, self.target, seed)
        self.optimisers = Optimisers(adamw(self.prompts.parameters(), recipe.rate))
        self.kl = torch.compile(divergence, dynamic=True) if recipe.fast else divergence
        m, n = recipe.tokens, recipe.vectors
        self.chunk = max(1, CHUNK_ROWS // self.config.rows)  # points
        group = torch.from_numpy(visibility(self.config))
        prefix_mask = torch.eye(m, dtype=torch.bool).repeat_interleave(n, 0).repeat_interleave(recipe.prefix, 1)
        group_mask = torch.block_diag(*[group] * self.chunk).bool()
        self.own_mask = torch.cat([prefix_mask.repeat(self.chunk, 1), group_mask], 1).to(self.device)
        self.offsets = torch.arange(1, m + 1).repeat_interleave(n).to(self.device)
        self.points = 0

    @property
    def facts(self) -> dict[str, Any]:
        return {"training_tokens": self.tokens, "points": self.points}

    def second(self, share: float) -> bool:
        """True once the second stage has begun, in which a head is learnt."""
        return self.recipe.head == TWO_STAGES and share >= FIRST_STAGE

    def factor(self, share: float) -> float:
        """A cosine over the budget, or over each of two stages."""
        if self.recipe.head != TWO_STAGES:
            return cosine_factor(self.step, share, 1)
        if not self.second(share):
            return cosine_factor(self.step, share / FIRST_STAGE, 1)
        return SECOND_RATE * cosine_factor(self.step, (share - FIRST_STAGE) / (1 - FIRST_STAGE), 1)

    # --- learning

    def read(self, batch: Batch) -> TextStates:
        """The target's states of a batch's text."""
        if self.states is None:
            return self.target.read(batch.ids.to(self.device))
        kvs, states = self.states.of(batch)
        return TextStates(kvs, states, {})

    def look(
        self, text: TextStates, points: Points
    ) -> tuple[Float[Tensor, "used distances hidden"], Int[Tensor, " told"], Int[Tensor, "used distances"]]:
        """The states that the head reads of the prompt tokens at the points in use, the text's positions (rows joined)
        behind which the target's own distributions are labels, and which of these belongs to each guess.
        """
        mask, m, n = points.mask, self.recipe.tokens, self.recipe.vectors
        chunks, chunk_size = points.at.shape
        x = self.prompts.embeddings.flatten(0, 1).expand(chunks, chunk_size, -1, -1).flatten(1, 2)
        parents = points.at[..., None].expand(-1, -1, len(self.offsets))
        places = KeyPlaces(points.batch, parents.flatten(1), (parents + self.offsets).flatten(1))
        states = self.target.look(x, text, places, self.own_mask, self.prompts.prefix, self.prompts.joining)
        states = states.unflatten(1, (chunk_size, -1))[mask].unflatten(1, (m, n))
        # a head is linear: it commutes with the sum over vectors
        if self.prompts.weights is None:
            head_inputs = states.mean(2)
        else:
            head_inputs = torch.einsum("pmnh,n->pmh", states, self.prompts.weights)
        length = text.states.shape[1]
        spots = points.at[mask][:, None] + torch.arange(1, m + 1, device=self.device)
        spots = points.rows * length + spots.clamp_max(length - 1)
        return head_inputs, *spots.unique(return_inverse=True)

    def guess(
        self, ids: Int[Tensor, "rows length"], points: Points, text: TextStates | None = None
    ) -> tuple[Float[Tensor, "used distances vocab"], Float[Tensor, "told vocab"], Int[Tensor, "used distances"]]:
        """The prompt tokens' logits at the points in use, the target's own logits where they are labels, and which of
        these belongs to each guess.
        """
        text = self.target.read(ids) if text is None else text
        head_inputs, label_places, index = self.look(text, points)
        with torch.no_grad():
            labels = self.target.head(text.states.flatten(0, 1)[label_places])
        return self.target.head(head_inputs, self.prompts.head), labels, index

    def losses(
        self, ids: Tensor, points: Points, hard: bool, text: TextStates | None = None
    ) -> Float[Tensor, "used distances"]:
        """The loss per point in use and distance; with ``hard`` labels, by the text's own tokens."""
        guesses, labels, index = self.guess(ids, points, text)
        if not hard:
            return self.kl(labels, index.flatten(), guesses.flatten(0, 1)).view(index.shape)
        positions = points.at[points.mask][:, None] + 1 + torch.arange(1, self.recipe.tokens + 1, device=ids.device)
        target_ids = ids[points.rows, positions.clamp_max(ids.shape[1] - 1)]
        return F.cross_entropy(guesses.transpose(1, 2), target_ids, reduction="none")

    def shares(self, points: Points) -> Float[Tensor, "used distances"]:
        """The weight of each loss in Σ αⁱ⁻¹ · mean loss at distance i ÷ m (PPD eq. 1)."""
        weights = points.weights[points.mask]
        decay = self.recipe.alpha ** torch.arange(self.recipe.tokens, device=weights.device)
        return weights / weights.sum(0).clamp_min(1e-9) * decay / self.recipe.tokens

    def forward(self, share: float) -> tuple[Batch, Tensor, Tensor]:
        batch, weights = next_labels(self.feed, self.recipe, self.recipe.tokens, self.seed, self.step)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.step)
        limit = max(1, self.recipe.rows // self.config.rows)
        points = _move(choose_points(weights, limit, self.chunk, generator), self.device)
        if self.prompts.head is not None:
            self.prompts.head.requires_grad_(self.recipe.head == ONE_STAGE or self.second(share))
        self.points += int(points.mask.sum())
        loss = self._loss(batch, self.read(batch), points)
        return batch, loss, loss

    def _loss(self, batch: Batch, text: TextStates, points: Points) -> Float[Tensor, ""]:
        head = self.target.own_head
        if self.recipe.hard_labels or self.prompts.head is not None or head.bias is not None:
            losses = self.losses(batch.ids.to(self.device), points, self.recipe.hard_labels, text)
            return (losses * self.shares(points)).sum()
        head_inputs, label_places, index = self.look(text, points)
        p, entropy, _ = distributions(self.target.head, text.states.flatten(0, 1)[label_places], self.target.dtype)
        shares = self.shares(points).flatten()
        states = head_inputs.flatten(0, 1)
        return cast(Tensor, HeadDivergence.apply(states, head.weight, p, entropy, index.flatten(), shares))

    @torch.no_grad()
    def validate(self) -> dict[str, Any]:
        """After every position of held-out answers: mean loss (KL from the target's distributions) and, per distance,
        how often the target's first choice, given the text, was the guess of each rank, the first, one of the first 5.
        """
        m = self.recipe.tokens
        total, count, hits = torch.zeros(m), torch.zeros(m), torch.zeros(m, RANKS)
        for batch in self.held_out:
            weights = label_weights(batch, position_weights(batch, 0.0, 0.0, 0, 0), m)
            if not bool((weights[..., 0] > 0).any()):
                continue
            all_points = choose_points(weights, weights.numel(), self.chunk, torch.Generator())
            text = self.read(batch)
            step = max(1, self.recipe.rows // (self.config.rows * self.chunk))
            for start in range(0, len(all_points.batch), step):
                part = slice(start, start + step)
                points = _move(
                    Points(all_points.batch[part], all_points.at[part], all_points.weights[part]), self.device
                )
                losses, rank = self._compare(text, points)
                weight_mask = points.weights[points.mask] > 0
                for i in range(m):
                    counted_rows = weight_mask[:, i]
                    total[i] += losses[counted_rows, i].sum().cpu()
                    count[i] += counted_rows.sum().cpu()
                    hits[i] += torch.bincount(rank[counted_rows, i].clamp_max(RANKS), minlength=RANKS + 1)[:RANKS].cpu()
        decay = self.recipe.alpha ** torch.arange(m)
        return {
            "held_out_loss": round(float((total / count.clamp_min(1) * decay).sum() / m), 4),
            **rank_shares(hits, count),
            "points_per_second": round(self.pace.tokens_per_second * self.points / max(1, self.tokens)),
        }

    def _compare(
        self, text: TextStates, points: Points
    ) -> tuple[Float[Tensor, "used distances"], Int[Tensor, "used distances"]]:
        """KL(target ‖ guess) of each guess, and the rank it gives the target's first choice; a few rows at a time."""
        head_inputs, label_places, index = self.look(text, points)
        p, entropy, first = distributions(self.target.head, text.states.flatten(0, 1)[label_places], torch.float32)
        losses, ranks, batch_rows = list[Tensor](), list[Tensor](), rows_at_once(self.device)
        for part_states, part_index in zip(
            head_inputs.flatten(0, 1).split(batch_rows), index.flatten().split(batch_rows), strict=True
        ):
            logits = self.target.head(part_states, self.prompts.head)
            losses.append(logits.logsumexp(-1) - (p[part_index] * logits).sum(-1) - entropy[part_index])
            ranks.append(rank_of(logits, first[part_index]))
        return torch.cat(losses).view(index.shape), torch.cat(ranks).view(index.shape)


@torch.no_grad()
def initial(config: PromptConfig, target: FrozenTarget, seed: int) -> PromptTokens:
    """Prompt tokens before training: embeddings of ordinary tokens, drawn by the seed. A prefix token has what such a
    token alone, at position 0, would leave in the cache; a head is the target's.
    """
    table = target.embedding
    prompt_tokens = PromptTokens(config).to(table.device)
    generator = torch.Generator().manual_seed(seed)
    token_ids = torch.randint(len(table), (config.tokens, config.vectors), generator=generator)
    prompt_tokens.embeddings.copy_(table[token_ids.to(table.device)].float())
    if prompt_tokens.prefix is not None:
        ids = torch.randint(len(table), (config.tokens * config.prefix, 1), generator=generator)
        for layer, kv in enumerate(target.read(ids.to(table.device)).kvs):
            for parameter, cache_part in zip(prompt_tokens.prefix, kv, strict=True):
                parameter[layer] = cache_part[:, :, 0].transpose(0, 1)
    if prompt_tokens.head is not None:
        prompt_tokens.head.copy_(target.own_head.weight)
    return prompt_tokens


def _move(points: Points, device: torch.device) -> Points:
    return Points(points.batch.to(device), points.at.to(device), points.weights.to(device))
