"""Contract of heads that can be trained: a kind of head says its network, what it reads of the target, and its loss.

Its card hands it down (``decoders.method.part.Training.lesson``). Whatever trains heads makes their lessons, and says
how a guess is judged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.model.files.shape import ModelShape

from .borrowing import Borrowing

LEAST_SPREAD = 1e-3  # of a dimension, beside the median: one that never changes is not divided by 0


@dataclass(frozen=True)
class Lesson(ABC):
    """A batch as a head sees it: ``ids`` (rows, length) and what is kept of the target, by name (``states``, and
    ``hidden.LAYER`` of the layers that its kind reads).

    ``rows`` and ``at`` are the positions that are learnt from: the state there guesses the token ``distance`` + 1
    places further on, for each distance from 1; ``weights`` [positions, distances] says what that counts (0: not of the
    same answer any more). ``recipe`` has the settings of the training.
    """

    network: Borrowing
    ids: Int[Tensor, "rows length"]
    stored_states: dict[str, Tensor]
    rows: Int[Tensor, " positions"]
    at: Int[Tensor, " positions"]
    weights: Float[Tensor, "positions distances"]
    recipe: Any

    @property
    def states(self) -> Float[Tensor, "rows length hidden"]:
        """The target's last states, after its norm."""
        return self.stored_states["states"]

    @cached_property
    def features(self) -> Float[Tensor, "rows length read"]:
        """The target's states that the network reads, joined."""
        return torch.cat(
            [self.stored_states.get(f"hidden.{layer}", self.states) for layer in self.network.config.features], -1
        )

    def targets_behind(self, places: int) -> Int[Tensor, " positions"]:
        """The positions so many places further on, inside the text."""
        return (self.at + places).clamp_max(self.ids.shape[1] - 1)

    @abstractmethod
    def loss(self, distance: int, states: Float[Tensor, "positions hidden"]) -> Float[Tensor, ""]:
        """The weighted mean loss of what the target's head says of ``states``, at this distance."""


class HeadKind(ABC):
    """Task of a kind of head (``decoders.method.part.Training.lesson``); its parts store numbers as ``dtype``."""

    dtype = torch.float16

    @abstractmethod
    def network(self, shape: ModelShape, recipe: Any, seed: int) -> Borrowing:
        """A new head for a target of this shape; ``config`` says its own. Raises UserError for what is not possible."""

    def layers(self, shape: ModelShape) -> tuple[int, ...]:
        """Hidden states that it reads besides the last one: each the input of that layer."""
        return ()

    def begin(self, network: Any, model: Any) -> None:
        """Copy from the target into a new head: by default nothing."""
        return

    def fit(self, network: Any, states: Callable[[], Float[Tensor, "positions hidden"]]) -> None:
        """Fit a new head to the target's last states of some text: by default it takes their mean and spread,
        where it is scaled.
        """
        if getattr(network.config, "scaled", False):
            spread, center = torch.std_mean(states().float(), 0)
            network.center.copy_(center)
            network.spread.copy_(spread.clamp_min(LEAST_SPREAD * spread.median()))

    @abstractmethod
    def distances(self, recipe: Any) -> int:
        """Number of tokens ahead for which its guesses are learnt and validated."""

    @abstractmethod
    def guesses(self, lesson: Lesson) -> Iterator[Float[Tensor, "positions hidden"]]:
        """The target head's inputs for its guesses at the lesson's positions, distance by distance, each given the
        text before the token.
        """

    def loss(self, lesson: Lesson) -> Float[Tensor, ""]:
        """Loss to minimise: by default the sum over distances of the loss of ``guesses``."""
        losses = [lesson.loss(distance, guess) for distance, guess in enumerate(self.guesses(lesson), 1)]
        return torch.stack(losses).sum()
