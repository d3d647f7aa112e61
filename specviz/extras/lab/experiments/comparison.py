"""Sentences that hold a recipe's example result beside its paper, with the numbers of both that each sentence rests on.

``assets/lab/compared.toml`` has a table per recipe: its ``sentence``, and any number of claims, by name::

    [glide-fig6]
    sentence = "Like the paper, four beams draft longer than the chain ({ms[1]} and {ms[0]} ms)."
    ms = {metric = "draft_ms", ours = ["GLIDE", "GLIDE, beam 4"], paper = [5.3, 10.9], where = "table 3"}

``{ms[0]}`` is the first of our numbers, computed from the result's rows. ``ours`` names the runs of each number: a
line, a task or prompt, a parameter's value (``k=8``) and a column (``of routes:none``) or a place of a profile (``at
2``), joined by `` @ ``. ``paper`` holds its numbers in the same order, or, where it draws or says them, their order as
signs ("<" rises, ">" falls, "=" level). Numbers that lie at most ``level`` (a share) apart are level. A claim with
``unlike = true`` says that our order is not the paper's.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .experiment import CATEGORY, Row
from .quantities import COUNT, TOTAL, number_of
from .results import Results

FILE = "compared.toml"
SEPARATOR, ALL_RUNS, COLUMN, PLACE = " @ ", "all", "of ", "at "


@dataclass(frozen=True, slots=True)
class Claim:
    """Our numbers beside the paper's; ``decimals`` of ours in the sentence (shares are percentages without)."""

    ours: tuple[str, ...]
    paper: tuple[float, ...] | str
    where: str
    metric: str = ""
    unlike: bool = False
    level: float = 0.0
    decimals: int = 2

    @property
    def paper_order(self) -> str:
        """The order of the paper's numbers, a sign for each after the first."""
        return self.paper if isinstance(self.paper, str) else order(self.paper, self.level)

    def numbers(self, results: Results) -> list[float]:
        """Ours, computed from the rows. Raises ValueError for a number that no run has."""
        return [_number(results, selector, self.metric) for selector in self.ours]

    def texts(self, results: Results) -> list[str]:
        """Ours as the sentence shows them."""
        share = self.metric and results.quantity(self.metric.partition(":")[0]).unit == "share"
        factor, decimals = (100, self.decimals if self.decimals != 2 else 0) if share else (1, self.decimals)
        return [f"{factor * number:,.{decimals}f}" for number in self.numbers(results)]


@dataclass(frozen=True, slots=True)
class PaperComparison:
    """A recipe's sentence, not yet filled in, and its claims by name."""

    sentence: str
    claims: Mapping[str, Claim]

    def text(self, results: Results) -> str:
        """The sentence with our numbers in it."""
        return self.sentence.format(**{name: claim.texts(results) for name, claim in self.claims.items()})


@cache
def comparisons(folder: Path) -> Mapping[str, PaperComparison]:
    """The comparisons of the results in a folder, by recipe; none where it has no file of them."""
    path = folder / FILE
    document = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: _read(entry) for name, entry in document.items()}


def _read(entry: dict[str, Any]) -> PaperComparison:
    claims = {name: _claim(fields) for name, fields in entry.items() if name != "sentence"}
    return PaperComparison(entry["sentence"], claims)


def _claim(fields: Mapping[str, Any]) -> Claim:
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
    return Claim(**values)


def order(numbers: Sequence[float], level: float = 0.0) -> str:
    """The sign between each number and the next: "<", ">", or "=" where they lie at most ``level`` (a share) apart.

    >>> order([1.0, 2.0, 2.0]), order([100, 98, 50], level=0.05)
    ('<=', '=>')
    """
    pairs = itertools.pairwise(numbers)
    return "".join("=" if abs(a - b) <= level * max(abs(a), abs(b)) else "<" if a < b else ">" for a, b in pairs)


def _number(results: Results, selector: str, metric: str) -> float:
    """One of our numbers, such as "PLD @ k=8"; a plain number stands for itself."""
    parts = [part for part in selector.split(SEPARATOR) if part != ALL_RUNS]
    if len(parts) == 1 and is_number(parts[0]):
        return float(parts[0])
    metric = next((part.removeprefix(COLUMN) for part in parts if part.startswith(COLUMN)), metric)
    place = next((part.removeprefix(PLACE) for part in parts if part.startswith(PLACE)), "")
    row_names = {part for part in parts if not part.startswith((COLUMN, PLACE))}
    rows = [row for row in results.rows if row.get("role") != "hidden" and row_names <= _names(row)]
    number = _at_place(rows, metric, place) if place else number_of(rows, metric)
    if number is None:
        raise ValueError(f"{results.about['name']}: no run has {metric} for {selector!r}")
    return number


def _names(row: Row) -> set[str]:
    """Names by which a claim selects a row: line, task, prompt and parameters."""
    params = {f"{key.removeprefix('param:')}={value}" for key, value in row.items() if key.startswith("param:")}
    return {str(row.get(key) or "") for key in ("series", CATEGORY, "prompt")} | params


def _at_place(rows: Sequence[Row], metric: str, place: str) -> float | None:
    """A profile at one place: a curve's ratio there, or ("2/rank 1") a part's share of all that was counted there."""
    at, _, part = place.partition("/")
    sums: dict[str, float] = {}
    for row in rows:
        for key, value in row.items():
            if key.startswith(f"{metric}:{at}/") and value is not None:
                sums[key.rpartition("/")[2]] = sums.get(key.rpartition("/")[2], 0.0) + value
    numerator, denominator = (sums.get(part, 0.0), sum(sums.values())) if part else (sums.get(TOTAL), sums.get(COUNT))
    return numerator / denominator if numerator is not None and denominator else None


def is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
