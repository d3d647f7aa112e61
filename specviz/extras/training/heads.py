"""`specviz train`: heads beside a frozen target, whose states are kept on disk.

What is common to them stands here: the documents, the positions that are learnt from, the target's own distributions as
labels, validation, the part. A kind of head says the rest in one entry (``decoders.draft_models.lesson.HeadKind``): its
network, what it reads of the target, its loss.

A line of the log has ``ranks`` [distances][10]: how often the target's first choice, given the text, was a head's guess
of each rank, on held-out answers: trees are designed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft_models.lesson import HeadKind, Lesson
from decoders.errors import UserError
from decoders.method.part import training_of
from decoders.model.files.shape import ModelShape
from decoders.prompt_tokens.trees import RANKS

from .batches import IGNORED, Batch
from .borrowing import BorrowingRun
from .data import TrainingSource
from .learning import (
    HeadDivergence,
    Optimisers,
    adamw,
    distributions,
    muon_and_adamw,
    position_weights,
    rank_of,
    rows_at_once,
)  # fmt: skip
from .prompt_tokens import label_weights, next_labels, rank_shares
from .recipes import HeadRecipe as Recipe
from .states import States

FIT_BATCHES = 4  # batches whose states a new head is fitted to
VALIDATION_ROWS = 2048  # positions validated at once


@dataclass(frozen=True)
class DivergenceLesson(Lesson):
    """A lesson whose guesses are judged by the target's own distributions or, ``hard``, by the text's own tokens."""

    recipe: Recipe = Recipe()  # noqa: RUF009, it is frozen
    hard: bool = False
    dtype: torch.dtype = torch.float32  # of products with the head

    @cached_property
    def head(self) -> Float[Tensor, "drafted hidden"]:
        """The target's head, its rows of the tokens that can be drafted, in the dtype of matrix products."""
        return self.network.head.weight.detach().to(self.dtype)

    @cached_property
    @torch.no_grad()
    def _target_probs(
        self,
    ) -> tuple[Float[Tensor, "told drafted"], Float[Tensor, " told"], Int[Tensor, "positions distances"]]:
        """The target's probabilities of the tokens that can be drafted, where any guess is compared with them, and
        their entropies; and which of these rows belongs to each guess. With hard labels, all of it lies on the text's
        own token (nowhere where that cannot be drafted).
        """
        length, distances = self.ids.shape[1], self.weights.shape[1]
        spots = torch.stack([self.rows * length + self.targets_behind(d + 1) for d in range(distances)], 1)
        unique_spots, index = spots.unique(return_inverse=True)
        if self.hard:
            label_places = places_of(
                self.ids.flatten()[(unique_spots + 1).clamp_max(self.ids.numel() - 1)], self.network.drafted
            )
            p = torch.zeros(len(unique_spots), len(self.head), dtype=self.dtype, device=unique_spots.device)
            p[torch.arange(len(unique_spots), device=unique_spots.device), label_places.clamp_min(0)] = (
                label_places >= 0
            ).to(self.dtype)
            return p, p.new_zeros(len(unique_spots), dtype=torch.float32), index
        states = self.states.flatten(0, 1)[unique_spots].to(self.dtype)
        p, entropy, _ = distributions(lambda block: torch.nn.functional.linear(block, self.head), states, self.dtype)
        return p, entropy, index

    def loss(self, distance: int, states: Float[Tensor, "positions hidden"]) -> Float[Tensor, ""]:
        """KL(target ‖ head) over the tokens that can be drafted or, with hard labels, the cross-entropy of the text's
        own token; the weighted mean of ``states``, at this distance.
        """
        target_probs, entropy, indices = self._target_probs
        weights, index = self.weights[:, distance - 1], indices[:, distance - 1]
        if self.hard:  # a label that cannot be drafted counts nothing
            weights = weights * (target_probs.sum(-1) > 0)[index]
        weights = weights / weights.sum().clamp_min(1e-9)
        return cast(Tensor, HeadDivergence.apply(states.float(), self.head, target_probs, entropy, index, weights))


def places_of(tokens: Int[Tensor, "*rows"], drafted: Int[Tensor, " drafted"] | None) -> Int[Tensor, "*rows"]:
    """Places of tokens among those that can be drafted (None: all can); -1 for others.

    >>> places_of(torch.tensor([5, 7, 9]), torch.tensor([5, 9])).tolist()
    [0, -1, 1]
    """
    if drafted is None:
        return tokens
    places = torch.searchsorted(drafted, tokens.to(drafted.dtype)).clamp_max(len(drafted) - 1)
    return torch.where(drafted[places] == tokens, places, -1)


class HeadsRun(BorrowingRun):
    """A training run of heads."""

    stored, shuffled = "heads", "head batches"

    def __init__(
        self, kind: str, folder: Path, model: Any, name: str, source: TrainingSource, recipe: Recipe, seed: int, *,
        entry: HeadKind, states: Path | None = None,
    ) -> None:  # fmt: skip
        shape = ModelShape.of(model.config)
        if reason := shape.unlike_llama("heads cannot be trained for", "they can for"):
            raise UserError(reason)
        self.entry, self.distances, self.dtype = entry, entry.distances(recipe), entry.dtype
        network = entry.network(shape, recipe, seed).float().to(model.device)
        entry.begin(network, model)
        super().__init__(kind, folder, model, name, source, recipe, seed, network)
        place = folder / "states" if states is None else states
        self.states = States(model, (), place, layers=entry.layers(shape), half=recipe.half)
        self.optimisers = (
            muon_and_adamw(self.network, self.network, recipe.matrix_lr, recipe.rate, half=recipe.half)
            if recipe.muon else Optimisers(adamw(self.network.parameters(), recipe.rate))
        )  # fmt: skip

    @property
    def facts(self) -> dict[str, Any]:
        return {"tokens": self.tokens}

    def open(self, resume: bool) -> None:
        super().open(resume)
        if not self.step and self.origin is None:
            self.entry.fit(self.network, self._some_states)

    def _some_states(self) -> Float[Tensor, "positions hidden"]:
        """Of the first texts that are learnt from."""
        batches = self.batches(0)[:FIT_BATCHES]
        return torch.cat([self.states.read(batch)["states"][batch.kinds != IGNORED] for batch in batches])

    def lesson(
        self, batch: Batch, stored_states: dict[str, Tensor], weights: Float[Tensor, "rows length distances"],
        places: Int[Tensor, "positions 2"],
    ) -> DivergenceLesson:  # fmt: skip
        """The batch with these positions to learn from."""
        rows, at = places.T
        lesson_weights = weights[rows, at].to(self.device)
        rows, at = rows.to(self.device), at.to(self.device)
        dtype = torch.bfloat16 if self.recipe.half else torch.float32
        ids = batch.ids.to(self.device)
        return DivergenceLesson(
            self.network, ids, stored_states, rows, at, lesson_weights, self.recipe, self.recipe.hard_labels, dtype
        )

    def forward(self, progress: float) -> tuple[Batch, Tensor, Tensor]:
        batch, weights = next_labels(self.feed, self.recipe, self.distances, self.seed, self.step)
        places, seed = (weights[..., 0] > 0).nonzero(), self.seed * 1_000_003 + self.step
        picks = torch.randperm(len(places), generator=torch.Generator().manual_seed(seed))
        picks = picks[: self.recipe.positions].sort().values
        lesson = self.lesson(batch, self.states.read(batch), weights, places[picks])
        with self.half(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # of noise: a resumed run draws the same
            loss = self.entry.loss(lesson)
        return batch, loss, loss

    @cached_property
    @torch.no_grad()
    def first_choices(self) -> list[Int[Tensor, "rows length"]]:
        """Of the held-out batches: the target's first choice after every position, of all tokens."""
        head, out = self.model.get_output_embeddings(), []
        for batch in self.held_out:
            states = self.states.read(batch)["states"]
            with self.half():
                rows = [head(block).argmax(-1) for block in states.flatten(0, 1).split(VALIDATION_ROWS)]
            out.append(torch.cat(rows).view(states.shape[:2]))
        return out

    @torch.no_grad()
    def validate(self) -> dict[str, Any]:
        """After every position of held-out answers: KL from the target's distributions, summed over distances and, per
        distance, how often the target's first choice was the guess of each rank, the first, one of the first 5.
        """
        total, count = torch.zeros(self.distances), torch.zeros(self.distances)
        hits = torch.zeros(self.distances, RANKS)
        for batch, first in zip(self.held_out, self.first_choices, strict=True):
            weights = label_weights(batch, position_weights(batch, 0.0, 0.0, 0, 0), self.distances)
            stored_states = self.states.read(batch)
            for places in (weights[..., 0] > 0).nonzero().split(VALIDATION_ROWS):
                if not len(places):
                    continue
                lesson = self.lesson(batch, stored_states, weights, places)
                with self.half():
                    guesses = list(self.entry.guesses(lesson))
                for i, states in enumerate(guesses):
                    has_weight = lesson.weights[:, i] > 0
                    n = int(has_weight.sum())
                    best = places_of(first[lesson.rows, lesson.targets_behind(i + 1)], self.network.drafted)[has_weight]
                    total[i] += float(lesson.loss(i + 1, states)) * n
                    count[i] += n
                    rank = rank_tokens(states[has_weight], lesson.head, best).cpu()
                    hits[i] += torch.bincount(rank, minlength=RANKS + 1)[:RANKS]
        return {"held_out_loss": round(float((total / count.clamp_min(1)).sum()), 4), **rank_shares(hits, count)}


def rank_tokens(
    states: Float[Tensor, "rows hidden"], head: Float[Tensor, "drafted hidden"], targets: Int[Tensor, " rows"]
) -> Int[Tensor, " rows"]:
    """The rank of each wanted token (-1: none of the head's) among what the head says; ``RANKS`` where not less."""
    out, block_size = list[Tensor](), rows_at_once(states.device)
    for block, tokens in zip(states.to(head.dtype).split(block_size), targets.split(block_size), strict=True):
        logits = torch.nn.functional.linear(block, head).float()
        out.append(torch.where(tokens < 0, RANKS, rank_of(logits, tokens.clamp_min(0))).clamp_max(RANKS))
    return torch.cat(out) if out else targets


def run_of(entry: HeadKind, states: Path | None = None) -> Any:
    """Constructor of a ``HeadsRun`` of this entry, as commands begin every part."""
    return partial(HeadsRun, entry=entry, states=states)


def lesson_of(kind: str) -> HeadKind:
    """The lesson that a kind's card declares. Raises UserError where it declares none."""
    lesson = training_of(kind).lesson
    if not isinstance(lesson, HeadKind) and callable(lesson):
        lesson = lesson()
    if not isinstance(lesson, HeadKind):
        raise UserError(f"heads of the kind {kind} have no lesson ({lesson!r}): declare a HeadKind on the card")
    return lesson
