"""Claims of a paper beside a recipe's example result, with the numbers of both, and a sentence on what they leave out.

``assets/lab/compared.toml`` has a table per recipe: any number of claims, by name, and a ``sentence`` that repeats none
of them (``findings`` says these)::

    [glide-fig6]
    sentence = "On one core every row is paid for."
    ms = {metric = "draft_ms", ours = ["GLIDE", "GLIDE, beam 4"], paper = [5.3, 10.9], where = "table 3"}

``ours`` names the runs of each number: a line, a task or prompt, a parameter's value (``k=8``) and a column (``of
routes:none``) or a place of a profile (``at 2``), joined by `` @ ``. ``paper`` holds its numbers of the same quantity
in the same order, or, where it draws or says them, their order as signs ("<" rises, ">" falls, "=" level);
``settings`` names its own settings where they are not ours. ``contrary`` holds its numbers of another model or data
set (``contrary_where``) in another order: then none is ruled. Numbers that lie at most ``level`` (a share) apart are
level. A claim with ``exact = true`` counts and has no spread.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from specviz.groups import group

from .experiment import CATEGORY, Row, text_of
from .quantities import COUNT, TOTAL, amounts_of, pool
from .results import Results

FILE = "compared.toml"
SEPARATOR, ALL_RUNS, COLUMN, PLACE = " @ ", "all", "of ", "at "


@dataclass(frozen=True, slots=True)
class Difference:
    """Two of our numbers, one less the other. ``error`` is its standard error, runs (or measured places) drawn: of the
    two numbers of a run where both sides did it, or of one against a plain number; else the sum of both sides' own,
    which are the whiskers of a picture.
    """

    value: float
    error: float
    count: int  # runs or places
    prompts: int
    is_paired: bool

    @property
    def errors(self) -> float:
        """The value in standard errors.

        >>> Difference(-1.0, 2.0, 4, 4, True).errors
        0.5
        """
        return abs(self.value) / self.error

    @property
    def is_within_spread(self) -> bool:
        """True where the value is no larger than its error, as both are shown, with two digits."""
        return self.errors < 1.05


@dataclass(frozen=True, slots=True)
class Claim:
    """Our numbers beside the paper's; ``decimals`` of ours in the sentence (shares are percentages without)."""

    ours: tuple[str, ...]
    paper: tuple[float, ...] | str
    where: str
    metric: str = ""
    exact: bool = False
    level: float = 0.0
    decimals: int = 2
    settings: tuple[str, ...] = ()
    contrary: tuple[float, ...] = ()
    contrary_where: str = ""

    @property
    def paper_order(self) -> str:
        """The order of the paper's numbers, a sign for each after the first."""
        return self.paper if isinstance(self.paper, str) else order(self.paper, self.level)

    def numbers(self, results: Results) -> list[float]:
        """Ours, computed from the rows. Raises ValueError for a number that no run has."""
        return [_number(results, selector, self.metric)[0] for selector in self.ours]

    def along(self, results: Results) -> Claim:
        """This claim with all measured places of its axis from its first to its last; itself where it has no axis."""
        selectors = [[part for part in ours.split(SEPARATOR) if part != ALL_RUNS] for ours in self.ours]
        differing = [[part for part in parts if any(part not in other for other in selectors)] for parts in selectors]
        ends = [parts[0] for parts in (differing[0], differing[-1]) if len(parts) == 1]
        if len(ends) < 2:
            return self
        place, equals, _ = ends[0].partition("=")
        axis_values = next((axis["values"] for axis in results.about["axes"] if axis["param"] == place), [])
        places = [f"{place}{equals}{text_of(value)}" for value in axis_values]
        if ends[0].startswith(PLACE):
            keys = (key.partition("/") for row in results.rows for key in row if key.startswith(f"{self.metric}:"))
            part = ends[0].partition("/")[2]
            numbers = {head.removeprefix(f"{self.metric}:") for head, _, _ in keys}
            places = [f"{PLACE}{at}/{part}".rstrip("/") for at in sorted(numbers, key=_as_number)]
        if not {*ends} <= {*places}:
            return self
        first, last = map(places.index, ends)
        places = places[first : last + 1] or places[last : first + 1][::-1]
        ours = [SEPARATOR.join(place if part == ends[0] else part for part in selectors[0]) for place in places]
        return replace(self, ours=tuple(selector for selector in ours if _is_measured(results, selector, self.metric)))

    def differences(self, results: Results) -> list[Difference | None]:
        """Of each number and the next; None where one run of each side is known, or none."""
        sides = [_number(results, selector, self.metric) for selector in self.ours]
        return [_difference(second, first) for first, second in itertools.pairwise(sides)]

    def least_certain(self, results: Results) -> tuple[int, Difference] | None:
        """The place and the difference, of those that the order of our numbers rests on, with the largest standard
        error beside it; of level numbers the largest difference. None where nothing is known of the spread.
        """
        signs = order(self.numbers(results), self.level)
        pairs = zip(signs, self.differences(results), strict=True)
        entries = [(n, sign, difference) for n, (sign, difference) in enumerate(pairs) if difference]
        ordered_entries = [entry for entry in entries if entry[1] != "="]
        key = (lambda entry: entry[2].errors) if ordered_entries else (lambda entry: -abs(entry[2].value))
        place, _, difference = min(ordered_entries or entries, key=key, default=(0, "", None))
        return difference and (place, difference)

    def same_prompts(self, results: Results) -> int:
        """Prompts on each of which our numbers are the same; 0 where they differ on any."""
        sides = [_number(results, selector, self.metric) for selector in self.ours]
        value, parts = sides[0]
        is_same = all(
            number == value and all(rival_parts.get(key, 0) == part for key, part in parts.items())
            for number, rival_parts in sides
        )
        return len({prompt for prompt, _ in parts}) if is_same else 0

    def texts(self, results: Results) -> list[str]:
        """Ours as the sentence shows them; what would round to nothing with its first digits."""
        share = self.metric and results.quantity(self.metric.partition(":")[0]).unit == "share"
        factor, decimals = (100, self.decimals if self.decimals != 2 else 0) if share else (1, self.decimals)
        numbers = [factor * number for number in self.numbers(results)]
        return [
            f"{number:,.{decimals}f}" if not number or abs(number) >= 0.5 * 10**-decimals else f"{number:.2g}"
            for number in numbers
        ]


@dataclass(frozen=True, slots=True)
class PaperComparison:
    """A recipe's sentence, and its claims by name."""

    sentence: str
    claims: Mapping[str, Claim]


@cache
def comparisons(folder: Path) -> Mapping[str, PaperComparison]:
    """The comparisons of the results in a folder, by recipe; none where it has no file of them."""
    path = folder / FILE
    document = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: _read(entry) for name, entry in document.items()}


def _read(entry: dict[str, Any]) -> PaperComparison:
    claims = {name: _claim(fields) for name, fields in entry.items() if name != "sentence"}
    return PaperComparison(entry.get("sentence", ""), claims)


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


Key = tuple[str, int]  # a prompt, and which of its measurements
Side = tuple[float, Mapping[Key, float]]  # one of our numbers, and the part that each run has in its error


def _difference(first: Side, second: Side) -> Difference | None:
    """First less second. None where fewer than two runs of a side are known, or all are copies of one."""
    (value, parts), (rival, rival_parts) = first, second
    shared = parts.keys() & rival_parts.keys()
    is_paired = len(shared) > 1
    if is_paired or not rival_parts or not parts:
        keys = sorted(parts.keys() | rival_parts.keys())
        samples = [[parts.get(key, 0.0) - rival_parts.get(key, 0.0) for key in keys]]
    else:
        samples = [[*parts.values()], [*rival_parts.values()]]
    if min(map(len, samples)) < 2:
        return None
    error = sum((len(sample) / (len(sample) - 1) * sum(part**2 for part in sample)) ** 0.5 for sample in samples)
    is_known = error > 1e-12 * (abs(value) + abs(rival))
    prompts = len({prompt for prompt, _ in (parts.keys() | rival_parts.keys() if is_paired else parts or rival_parts)})
    return Difference(value - rival, error, len(samples[0]), prompts, is_paired) if is_known else None


def _number(results: Results, selector: str, metric: str) -> Side:
    """One of our numbers, such as "PLD @ k=8": Σ aᵢ ÷ Σ bᵢ over its runs, each of which has the part
    (aᵢ − R bᵢ) ÷ Σ b in its error; rounds of one prompt are one run. A plain number stands for itself.
    """
    parts = [part for part in selector.split(SEPARATOR) if part != ALL_RUNS]
    if len(parts) == 1 and is_number(parts[0]):
        return float(parts[0]), {}
    rows, amounts_of_rows = _select(results, parts, metric)
    by_run: dict[Key, list[Row]] = {}
    for prompt, prompt_rows in group((str(row.get("prompt")), row) for row in rows).items():
        for n, row in enumerate(prompt_rows):
            by_run.setdefault((prompt, 0 if row.get("round") is not None else n), []).append(row)
    totals = dict[Key, tuple[float, float]]()
    for key, run_rows in by_run.items():
        if pairs := amounts_of_rows(run_rows):
            totals[key] = (sum(amount for amount, _ in pairs), sum(divisor for _, divisor in pairs))
    total = sum(divisor for _, divisor in totals.values())
    if not total:
        raise ValueError(f"{results.about['name']}: no run has {metric} for {selector!r}")
    number = sum(amount for amount, _ in totals.values()) / total
    return number, {key: (amount - number * divisor) / total for key, (amount, divisor) in totals.items()}


def _select(
    results: Results, parts: Sequence[str], metric: str
) -> tuple[list[Row], Callable[[Sequence[Row]], list[tuple[float, float]]]]:
    """The rows that the parts of a selector name, and what gives the amounts and divisors of rows."""
    metric = next((part.removeprefix(COLUMN) for part in parts if part.startswith(COLUMN)), metric)
    place = next((part.removeprefix(PLACE) for part in parts if part.startswith(PLACE)), "")
    row_names = {part for part in parts if not part.startswith((COLUMN, PLACE))}
    rows = [row for row in results.rows if row.get("role") != "hidden" and row_names <= _names(row)]
    is_pooled = pool(rows, metric) is not None
    return rows, lambda of: _at_place(of, metric, place) if place else amounts_of(of, metric, is_pooled)


def _names(row: Row) -> set[str]:
    """Names by which a claim selects a row: line, task, prompt and parameters."""
    params = {f"{key.removeprefix('param:')}={value}" for key, value in row.items() if key.startswith("param:")}
    return {str(row.get(key) or "") for key in ("series", CATEGORY, "prompt")} | params


def _at_place(rows: Sequence[Row], metric: str, place: str) -> list[tuple[float, float]]:
    """A profile at one place: a curve's total and count there, or ("2/rank 1") a part and all that was counted."""
    at, _, part = place.partition("/")
    sums: dict[str, float] = {}
    for row in rows:
        for key, value in row.items():
            if key.startswith(f"{metric}:{at}/") and value is not None:
                sums[key.rpartition("/")[2]] = sums.get(key.rpartition("/")[2], 0.0) + value
    amount, divisor = (sums.get(part, 0.0), sum(sums.values())) if part else (sums.get(TOTAL), sums.get(COUNT))
    return [(amount, divisor)] if amount is not None and divisor else []


def _is_measured(results: Results, selector: str, metric: str) -> bool:
    try:
        return bool(_number(results, selector, metric))
    except ValueError:
        return False


def _as_number(text: str) -> float:
    return float(text) if is_number(text) else 0.0


def is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()
