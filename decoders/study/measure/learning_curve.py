"""Held-out acceptance of a trained part over the tokens it saw, and what it would take to accept more.

A straight line over the logarithm of tokens is drawn through the validations of a training's log. Beyond its last point
it is a guess: on one pass over little text slopes fall as training goes on, which the range below says in part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import log2, sqrt
from statistics import linear_regression
from typing import Any

MIN_DOUBLINGS = 0.25  # doublings of tokens
POSITIONS = 9300  # held-out positions of a validation, at least, where a log does not say how many


def first_acceptance(line: Mapping[str, Any]) -> float | None:
    """Held-out acceptance of the first drafted token in a line of a training's log: of draft models β, of heads and
    prompt tokens the share of first guesses that are the target's own.

    >>> first_acceptance({"top1": [0.25, 0.1]}), first_acceptance({"acceptance": 0.5}), first_acceptance({"step": 1})
    (0.25, 0.5, None)
    """
    return line.get("acceptance", (line.get("top1") or [None])[0])


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """``points`` (tokens seen, acceptance), and what a ``doubling`` of tokens brings: the slope of the least squares'
    line, and from ``low`` to ``high`` those between each point and the next that is ``MIN_DOUBLINGS`` from it (between
    nearer ones chance is all), two standard errors of both shares further.
    """

    points: tuple[tuple[float, float], ...]
    doubling: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def learning_curve(log: Sequence[Mapping[str, Any]]) -> LearningCurve | None:
    """The curve of a training's log; None where fewer than two of its lines say tokens and acceptance."""
    read = [(line.get("tokens"), first_acceptance(line)) for line in log]
    points = sorted({float(tokens): float(share) for tokens, share in read if tokens and share is not None}.items())
    if len(points) < 2:
        return None
    places, shares = [log2(tokens) for tokens, _ in points], [share for _, share in points]
    slope = linear_regression(places, shares).slope
    lows, highs = [], []
    log_points = list(zip(places, shares, strict=True))
    neighbours = [
        (point, far[0])
        for point in log_points
        if (far := [later_point for later_point in log_points if later_point[0] - point[0] >= MIN_DOUBLINGS])
    ]
    for (x, a), (y, b) in neighbours or [(log_points[0], log_points[-1])]:
        error = 2 * sqrt((a * (1 - a) + b * (1 - b)) / POSITIONS) / (y - x)
        lows.append((b - a) / (y - x) - error)
        highs.append((b - a) / (y - x) + error)
    return LearningCurve(tuple(points), slope, min(lows), max(highs))
