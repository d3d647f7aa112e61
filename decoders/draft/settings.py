"""Settings of a run, as plain records that carry their controls."""

from __future__ import annotations

from dataclasses import dataclass

from decoders.errors import UserError

from .params import param

FIXED, AUTO = LENGTHS = ("fixed", "auto")


def length_param() -> str:
    """The field of a run's settings that says how much of its drafts is verified."""
    return param(
        FIXED, "Draft length",
        "fixed: all that the method drafts is verified, at its own length. auto: of each draft what pays on this "
        "machine, by what rows cost and how likely tokens stand; nothing where nothing pays. The output is the same.",
        choices=LENGTHS,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lengths:
    """The length of drafts."""

    length: str = length_param()


@dataclass(frozen=True, slots=True)
class Sampling:
    """The target's sampling. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 are off; ``seed`` fixes every
    draw.
    """

    temperature: float = param(0.0, "Temperature", "0 is greedy", low=0, high=10)
    top_k: int = param(0, "Top-k", "draw from the k likeliest tokens; 0 is off", low=0)
    top_p: float = param(1.0, "Top-p", "draw from the likeliest tokens of this mass; 1 is off", low=0, high=1)
    seed: int = param(0, "Seed", "of every draw", low=0)

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 10:
            raise UserError(f"temperature={self.temperature!r} is out of range: a number from 0 (greedy) to 10")
        if self.top_k < 0 or self.top_k != int(self.top_k):
            raise UserError(f"top_k={self.top_k!r} is not allowed: a whole number, 0 for off")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p!r} is out of range: above 0, at most 1 (off)")
        if self.seed < 0:
            raise UserError(f"seed={self.seed!r} is out of range: a whole number of at least 0")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0
