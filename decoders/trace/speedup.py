"""The expected gain of drafting, from how often a drafted token stands and what drafting and verifying cost.

>>> round(expected_tokens(0.8, 4), 2), round(expected_speedup(0.648, 0.067, 5), 2)  # the second: GLIDE table 1
(3.36, 1.97)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


def expected_tokens(acceptance: float, gamma: int) -> float:
    """Tokens per step where each of ``gamma`` drafted tokens stands with this probability, the target's own included
    (Leviathan, equation 1): (1 − α^(γ+1)) ÷ (1 − α).
    """
    if acceptance >= 1:
        return gamma + 1.0
    return (1 - acceptance ** (gamma + 1)) / (1 - acceptance)


def expected_speedup(acceptance: float, cost: float, gamma: int, verify: float = 1.0) -> float:
    """Expected speedup over plain decoding (Leviathan, theorem 3.8, whose verify forward costs as much as one of one
    row): expected tokens ÷ (γ·c + L(γ+1) ÷ L(1)).

    ``cost`` is a draft forward's time ÷ a target forward's of one row, ``verify`` the last quotient.
    """
    return expected_tokens(acceptance, gamma) / (gamma * cost + verify)


def row_line(rows: Sequence[int], ms: Sequence[float], at: int | np.ndarray) -> np.ndarray:
    """Straight lines between measured points, beyond them the last slope, never falling."""
    slope = (ms[-1] - ms[-2]) / (rows[-1] - rows[-2]) if len(rows) > 1 else 0.0
    return np.interp(at, rows, ms) + max(0.0, slope) * np.maximum(at - np.int64(rows[-1]), 0)


WIDEST = 0.25  # (upper − lower quartile) ÷ median from which a measurement counts as disturbed
MOST_ROWS = 1_000_000  # of a forward


@dataclass(frozen=True, slots=True)
class RowTimes:
    """L(n): milliseconds of a target forward by its rows, straight lines between the points, the last slope beyond.

    Raises ValueError for rows that do not rise from 1, and for rows or times that no device has.
    """

    rows: tuple[int, ...]
    ms: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.rows, self.rows[1:], strict=False))
        if len(self.rows) != len(self.ms) or not self.rows or self.rows[0] != 1 or not rising:
            raise ValueError("L(n) begins with 1 row, and its rows rise: write it as 1:30, 8:34, 32:52")
        if self.rows[-1] > MOST_ROWS:
            raise ValueError(f"L(n) goes up to {MOST_ROWS:,} rows: write it as 1:30, 8:34, 32:52")
        if not all(1e-6 <= t <= 1e9 for t in self.ms):
            raise ValueError("the times of L(n) are milliseconds, from 1e-6 to 1e9: write it as 1:30, 8:34, 32:52")

    @classmethod
    def read(cls, text: str) -> RowTimes:
        """From what a person types, rows:ms with commas between them.

        Raises ValueError with the form that is needed.

        >>> RowTimes.read("1:30, 8: 34").relative(4)
        1.0571428571428572
        """
        try:
            pairs = [part.split(":") for part in text.replace(";", ",").split(",") if part.strip()]
            rows, ms = tuple(int(n) for n, _ in pairs), tuple(float(t) for _, t in pairs)
        except ValueError:
            raise ValueError(f"L(n) was given as {text[:60]!r}: write rows:ms, as in 1:30, 8:34, 32:52") from None
        return cls(rows, ms)

    def at(self, rows: int) -> float:
        return float(row_line(self.rows, self.ms, rows))

    def relative(self, rows: int) -> float:
        """L(n) ÷ L(1)."""
        return self.at(rows) / self.ms[0]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of one draft length: expected tokens per step, a step's time in one-row forwards, and their quotient."""

    gamma: int
    tokens: float
    cost: float
    speedup: float


def forecasts(
    acceptance: float, cost: float, gammas: Sequence[int], verify: Callable[[int], float] = lambda rows: 1.0
) -> list[Forecast]:
    """For each draft length γ; ``verify`` gives L(n) ÷ L(1) of so many rows (γ drafted ones and the root)."""
    table = []
    for gamma in gammas:
        time, tokens = gamma * cost + verify(gamma + 1), expected_tokens(acceptance, gamma)
        table.append(Forecast(gamma, tokens, time, tokens / time))
    return table
