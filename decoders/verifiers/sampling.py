"""From logits to choices: one target token per visited node, greedy or sampled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from decoders.errors import UserError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the target chooses. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 are off; ``seed`` fixes every
    draw.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 10:
            raise UserError(f"temperature={self.temperature!r} is out of range: a number from 0 (greedy) to 10")
        if self.top_k < 0 or self.top_k != int(self.top_k):
            raise UserError(f"top_k={self.top_k!r} is not allowed: a whole number, 0 for off")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p!r} is out of range: above 0, at most 1 (off)")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def drawn_token(distribution: Float[Tensor, "vocab"], point: float) -> int:
    """The token that a uniform number in [0, 1] stands for, by inverting the distribution.

    >>> drawn_token(torch.tensor([0.5, 0.0, 0.5]), 0.6)
    2
    """
    cumulative = distribution.double().cumsum(0)
    index = int(torch.searchsorted(cumulative, point * float(cumulative[-1]), right=True))
    return index if index < len(cumulative) else int(distribution.nonzero()[-1])  # rounding at the end


class Chooser:
    """Draws the target's token after a node.

    A sampled run draws one uniform number per emitted token and inverts the distribution, so plain decoding and any
    lossless method emit the same tokens from the same seed.
    """

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.random = np.random.default_rng(sampling.seed)
        warpers = LogitsProcessorList()
        if not sampling.greedy:
            if sampling.temperature != 1:
                warpers.append(TemperatureLogitsWarper(float(sampling.temperature)))
            if sampling.top_k:
                warpers.append(TopKLogitsWarper(int(sampling.top_k)))
            if sampling.top_p < 1:
                warpers.append(TopPLogitsWarper(float(sampling.top_p)))
        self.warpers = warpers

    def probabilities(self, logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        """The distribution tokens are drawn from (temperature, top-k and top-p applied)."""
        return torch.softmax(self.warpers(None, logits), -1)  # type: ignore[arg-type]

    def choices(self, logits: Float[Tensor, "nodes vocab"]) -> Choices:
        """Choices for the nodes of one draft, drawn as nodes are visited."""
        return Choices(self, logits)


class Choices:
    """The target's token after each visited node of one draft."""

    def __init__(self, chooser: Chooser, logits: Float[Tensor, "nodes vocab"]) -> None:
        self.chooser, self.logits = chooser, logits
        self.best: list[int] | None = logits.argmax(-1).tolist() if chooser.sampling.greedy else None

    def after(self, node: int) -> int:
        """The target's own next token after ``node``; ask once per visited node."""
        if self.best is not None:
            return self.best[node]
        distribution = self.chooser.probabilities(self.logits[node : node + 1])[0]
        return drawn_token(distribution, float(self.chooser.random.random()))
