"""Findings: what results say of the claims of their paper, a sentence each, computed from their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from specviz.views.prompts import ALL_TASKS, NAMES

from .comparison import COLUMN, PLACE, SEPARATOR, Claim, PaperComparison, is_number, order
from .drawing import amount
from .quantities import Profile
from .results import Results, columns_of, points, profile_of

RELATIONS = {"<": "below", ">": "above", "=": "level with"}
TRENDS = {"<": "rises", ">": "falls", "=": "stays level"}
SIGNS = {"<": " < ", ">": " > ", "=": " ≈ "}


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim. ``text``: our numbers as a sentence; ``subject``: what is compared; ``values``: ours;
    ``paper_values``: the paper's (of a drawing, their order in words), ``source``: their place in it; ``alike``: both
    stand in one order.
    """

    text: str
    subject: str
    values: str
    paper_values: str
    source: str
    alike: bool


def findings(results: Results, comparison: PaperComparison | None) -> list[Finding]:
    """The claims of a paper in these results, without those for which they have no runs."""
    entries = []
    for claim in comparison.claims.values() if comparison else ():
        try:
            entries.append(_finding(results, claim))
        except ValueError:
            continue
    return entries


def summary(results: Results, comparison: PaperComparison | None) -> dict[str, Any]:
    """Results in short: the sentence of their first claim, and how many of the ``claims`` are ``alike``."""
    entries = findings(results, comparison)
    text = entries[0].text if entries else _extremes(results)
    return {"text": text, "claims": len(entries), "alike": sum(finding.alike for finding in entries)}


def verdict(entries: Sequence[Finding]) -> str:
    """As in "1 of 4 comparisons comes out as in the paper"; nothing where there is none."""
    alike, count = sum(finding.alike for finding in entries), len(entries)
    if not count:
        return ""
    if alike in (0, count):
        subjects = {1: "Comes", 2: "Both comparisons come"}.get(count, f"All {count} comparisons come")
        return f"{subjects} out {'as in' if alike else 'unlike'} the paper"
    return f"{alike} of {count} comparisons {'comes' if alike == 1 else 'come'} out as in the paper"


def _finding(results: Results, claim: Claim) -> Finding:
    """Raises ValueError for a number that no run has."""
    numbers, texts = claim.numbers(results), claim.texts(results)
    selectors = [selector.split(SEPARATOR) for selector in claim.ours]
    shared = [part for part in selectors[0] if all(part in selector for selector in selectors)]
    metric = claim.metric or next(part.removeprefix(COLUMN) for part in selectors[0] if part.startswith(COLUMN))
    quantity, part = results.quantity(metric.partition(":")[0]), metric.partition(":")[2]
    label = ", ".join([quantity.label, *([part] if part else []), *(_name(results, p, metric) for p in shared)])
    names = [", ".join(_name(results, p, metric) for p in selector if p not in shared) for selector in selectors]
    values = [f"{text} %" if quantity.unit == "share" else text for text in texts]
    signs, paper_signs = order(numbers, claim.level), claim.paper_order
    level = [n for n, selector in enumerate(selectors) if len(selector) == 1 and is_number(selector[0])]
    is_axis = _is_axis(results, selectors, shared)
    if len(values) == 2 and level == [1]:
        text = f"{label}: {values[0]} with {names[0]}, {RELATIONS[signs]} {values[1]}."
        subject = f"{label}: {names[0]} and {values[1]}"
    elif is_axis:
        axis, ends = names[0].rpartition(" = ")[0], [name.rpartition(" = ")[2] for name in names]
        places = [names[0], *ends[1:]]
        text = f"{label}: {', '.join(f'{v} at {place}' for v, place in zip(values, places, strict=True))}."
        subject = f"{label}: {axis} = {', '.join(ends)}"
    else:
        ranking = sorted(range(len(names)), key=lambda n: -numbers[n])
        joint = "; " if any("," in name for name in names) else ", "
        text = f"{label}: {joint.join(f'{values[n]} with {names[n]}' for n in ranking)}."
        subject = f"{label}: {joint.join(names)}"
    if not isinstance(claim.paper, str):
        paper = _chain([f"{number:,g}" for number in claim.paper], paper_signs)
    elif is_axis:
        paper = ", then ".join(TRENDS[sign] for sign, _ in groupby(paper_signs))
    else:
        pairs = zip(names, paper_signs, names[1:], strict=False)
        paper = "; ".join(f"{first} {RELATIONS[sign]} {second}" for first, sign, second in pairs)
    return Finding(text, subject, _chain(values, signs), paper, claim.where, signs == paper_signs)


def _chain(values: Sequence[str], signs: str) -> str:
    """
    >>> _chain(["2", "3", "3"], "<=")
    '2 < 3 ≈ 3'
    """
    return values[0] + "".join(SIGNS[sign] + value for sign, value in zip(signs, values[1:], strict=True))


def _name(results: Results, part: str, metric: str) -> str:
    """A part of a claim's selector as a reader would say it."""
    if part.startswith(COLUMN):
        return part.partition(":")[2]
    if part.startswith(PLACE):
        quantity = results.quantity(metric.partition(":")[0])
        place_name = quantity.along.split(":")[0] if isinstance(quantity, Profile) else "at"
        return f"{place_name} {part.removeprefix(PLACE).replace('/', ', ')}"
    param, equals, value = part.partition("=")
    label = next((axis["label"] for axis in results.about["axes"] if axis["param"] == param), "")
    return f"{label} = {value}" if equals and label else str(NAMES.get(part, part))


def _is_axis(results: Results, selectors: Sequence[Sequence[str]], shared: Sequence[str]) -> bool:
    """True where the selectors differ in one parameter alone."""
    differing = [[part for part in selector if part not in shared] for selector in selectors]
    params = {part.partition("=")[0] for selector in differing for part in selector}
    axes = {axis["param"] for axis in results.about["axes"]}
    return len(params) == 1 and params <= axes and all(len(selector) == 1 for selector in differing)


# --- results whose paper has no number to set beside them ---


def _extremes(results: Results) -> str:
    """The highest and the lowest value of the first metric."""
    for metric in results.about["metrics"]:
        quantity = results.quantity(metric)
        label = quantity.label
        shown_points = [point for point in points(results, [metric]) if point["x"] != ALL_TASKS]
        values: list[float | None]
        if isinstance(quantity, Profile):
            profiles = [profile_of(quantity, point) for point in shown_points]
            firsts = [(place, *next(iter(shares.items()))) for at in profiles for place, shares, _ in at[:1]]
            values = [value for *_, value in firsts]
            label += "".join(f", {quantity.along.split(':')[0]} {place}, {part}" for place, part, _ in firsts[:1])
        else:
            column = next(iter(columns_of(quantity, metric, results.columns)), "")
            values = [(point["values"].get(column) or {}).get("value") for point in shown_points]
        at = [(value, n) for n, value in enumerate(values) if value is not None]
        if len(at) > 1:
            highest, lowest = max(at, key=lambda entry: entry[0]), min(at)
            ends = [(amount(value, quantity.unit), _place(results, shown_points[n])) for value, n in (highest, lowest)]
            (high, high_place), (low, low_place) = ends
            return (
                f"{label}: {high} everywhere."
                if high == low
                else f"{label}: {high} with {high_place}; {low} with {low_place}."
            )
    return ""


def _place(results: Results, point: Mapping[str, Any]) -> str:
    """Name of a point: its line, and its value along each axis."""
    about = results.about
    axis_label = {axis["param"]: axis["label"] for axis in about["axes"]}.get(about["x"])
    x = f"{axis_label} = {point['x']}" if axis_label and point["x"] else str(NAMES.get(point["x"], point["x"]))
    y = f"{about['axes'][1]['label']} = {point['y']}" if point["y"] else ""
    line = point["series"] if axis_label is None or len(about["lines"]) > 1 else ""
    return ", ".join(dict.fromkeys(part for part in (line, x, y) if part))
