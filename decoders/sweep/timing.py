"""Repeated measurements: medians with quartiles, and which of them were disturbed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from decoders.trace.speedup import WIDEST

from .plan import PLAIN, TRACED_SUFFIX, Row, Sample

TIMED_METRICS = ("tokens_per_s", "speedup")  # measured in every repeat
MAX_RETRIES = 2  # times a disturbed measurement is made again, each time with as many repeats as at first


@dataclass(frozen=True, slots=True)
class Timing:
    """One line on one prompt: the median of its repeats, their quartiles (None where there is one alone), and whether
    it says more than can be (``impossible``) or its repeats do not agree (``unsteady``).
    """

    median: float | None
    low: float | None
    high: float | None
    count: int
    impossible: bool = False
    unsteady: bool = False

    @property
    def is_disturbed(self) -> bool:
        return self.impossible or self.unsteady

    @classmethod
    def of(cls, values: Sequence[float], limit: float | None = None) -> Timing:
        """Of values of the same thing, which cannot be above ``limit``.

        >>> Timing.of([2.0, 2.0, 9.0])
        Timing(median=2.0, low=2.0, high=5.5, count=3, impossible=False, unsteady=True)
        >>> Timing.of([33.78], limit=8.0).impossible
        True
        """
        if len(values) < 2:
            low = high = None
            median = values[0] if values else None
        else:
            low, median, high = quantiles(values, n=4, method="inclusive")
        impossible = limit is not None and median is not None and median > limit
        unsteady = bool(median) and low is not None and high is not None and high - low > WIDEST * abs(median)
        return cls(median, low, high, len(values), impossible, unsteady)


Spot = tuple[object, int]  # a prompt's number and its user turn, from 1


def spot(row: Row) -> Spot:
    """The prompt and turn of a row."""
    return row.get("place"), int(float(row.get("turn") or 1))  # type: ignore[arg-type]


def timings(rows: Sequence[Row], key: str) -> Mapping[tuple[str, Spot], Timing]:
    """Every line on every turn of every prompt (``series``, ``spot``), by one metric."""
    values: dict[tuple[str, Spot], list[float]] = {}
    limits: dict[tuple[str, Spot], float] = {}
    for row in rows:
        of = row["series"], spot(row)
        values.setdefault(of, []).extend([] if row.get(key) is None else [float(row[key])])  # type: ignore[arg-type]
        if key == "speedup" and row.get("tokens_per_step") is not None:
            limits[of] = float(row["tokens_per_step"])  # type: ignore[arg-type]
    return {of: Timing.of(series, limits.get(of)) for of, series in values.items()}


def find_disturbed(samples: Sequence[Sample]) -> dict[int, set[str]]:
    """Contenders that are to be measured again, by the prompt's number: the speeds of their runs of it do not agree, or
    those of runs without recording against plain decoding's of the same round do not, or say more than can be.
    """
    plain = {(s.prompt, s.round): s.tokens_per_s for s in samples if s.name == PLAIN}
    speeds: dict[tuple[int, str], list[float]] = {}
    speedups: dict[tuple[int, str], list[float]] = {}
    limits: dict[tuple[int, str], float | None] = {}
    for sample in samples:
        if speed := sample.tokens_per_s:
            speeds.setdefault((sample.prompt, sample.name), []).append(speed)
            if not sample.name.endswith(TRACED_SUFFIX) and (plain_speed := plain.get((sample.prompt, sample.round))):
                speedups.setdefault((sample.prompt, sample.name), []).append(speed / plain_speed)
                limits[sample.prompt, sample.name] = sample.tokens_per_step
    reruns: dict[int, set[str]] = {}
    for values in (speeds, speedups):
        for of, series in values.items():
            if Timing.of(series, limits.get(of) if values is speedups else None).is_disturbed:
                reruns.setdefault(of[0], set()).add(of[1])
    return reruns
