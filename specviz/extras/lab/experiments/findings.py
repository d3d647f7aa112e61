"""Findings: what results say of the claims of their paper, a sentence each, computed from their rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from math import floor, log10
from typing import Any

from decoders.errors import capital
from specviz.views.prompts import ALL_TASKS, NAMES
from specviz.words import plural

from .comparison import COLUMN, PLACE, SEPARATOR, Claim, Difference, PaperComparison, is_number, order
from .drawing import amount
from .experiment import CATEGORY
from .quantities import Profile, part_name
from .results import Results, columns_of, points, profile_of

RELATIONS = {"<": "below", ">": "above", "=": "level with"}
TRENDS = {"<": "rises", ">": "falls", "=": "stays level"}
UNITS = {"share": " %", "×": "×", "": "", "ρ": ""}
PLAIN = "Plain decoding"  # a line
COUNTS = {3: "the three", 4: "the four", 5: "the five"}  # compared lines
SIGNS = {"<": " < ", ">": " > ", "=": " ≈ "}


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim. ``text``: our numbers as a sentence; ``subject``: what is compared; ``values``: ours;
    ``paper_values``: the paper's (of a drawing, their order in words), ``paper_text``: the same with the names of
    compared lines, ``source``: their place in it; ``alike``: both stand in one order; ``within_spread``: our order
    rests on a difference that is no larger than its standard error;
    ``spread``: the difference nearest to that, with its standard error, as a sentence (of level numbers nothing).
    """

    text: str
    subject: str
    values: str
    paper_values: str
    paper_text: str
    source: str
    alike: bool
    within_spread: bool = False
    spread: str = ""


def findings(results: Results, comparison: PaperComparison | None) -> list[Finding]:
    """The claims of a paper in these results, without those for which they have no runs."""
    return [finding for _, finding in _claims_with_findings(results, comparison)]


def first_claim(results: Results, comparison: PaperComparison | None) -> Claim | None:
    """The claim that ``summary`` tells."""
    return next((claim for claim, _ in _claims_with_findings(results, comparison)), None)


def _claims_with_findings(results: Results, comparison: PaperComparison | None) -> Iterator[tuple[Claim, Finding]]:
    for claim in comparison.claims.values() if comparison else ():
        with suppress(ValueError):
            yield claim, _finding(results, claim)


def summary(results: Results, comparison: PaperComparison | None) -> dict[str, Any]:
    """Results in short: the sentence of their first claim, how many of the ``claims`` are ``alike``, and how many stay
    ``open``, within the spread.
    """
    entries = findings(results, comparison)
    text = entries[0].text if entries else _extremes(results)
    alike, open_count = _counts(entries)
    return {"text": text, "claims": len(entries), "alike": alike, "open": open_count}


def _counts(entries: Sequence[Finding]) -> tuple[int, int]:
    """Counts of claims that come out alike, and of those within the spread, which come out neither way."""
    open_count = sum(finding.within_spread for finding in entries)
    return sum(finding.alike and not finding.within_spread for finding in entries), open_count


def verdict(entries: Sequence[Finding]) -> str:
    """As in "1 of 4 comparisons comes out in the paper's order"; nothing where there is none."""
    (alike, open_count), count = _counts(entries), len(entries)
    if not count:
        return ""
    if open_count == count:
        subjects = {1: "the difference is not", 2: "neither difference is"}
        subject = subjects.get(count, f"none of the {count} differences is")
        return f"Undecided: {subject} known to be larger than its spread"
    if open_count:
        unlike = count - alike - open_count
        parts = [f"{alike} in the paper's order"] * (alike > 0)
        parts += [f"{unlike} in another{'' if alike else ' order than the paper'}"] * (unlike > 0)
        return f"Of {count} comparisons {', '.join(parts)}, {open_count} undecided"
    if alike in (0, count):
        subjects = {1: "Comes", 2: "Both comparisons come"}.get(count, f"All {count} comparisons come")
        order_words = "the paper's order" if alike else "another order than the paper"
        return f"{subjects} out in {order_words}"
    return f"{alike} of {count} comparisons {'comes' if alike == 1 else 'come'} out in the paper's order"


def claimed_metric(claim: Claim) -> str:
    """The metric that a claim is about, its own or its first column."""
    return claim.metric or next(
        part.removeprefix(COLUMN) for part in claim.ours[0].split(SEPARATOR) if part.startswith(COLUMN)
    )


def compared_names(results: Results, claim: Claim) -> list[str]:
    """The names of what a claim compares, without what all of it shares."""
    _, rest = _parts(claim)
    return [", ".join(_name(results, part, claimed_metric(claim)) for part in parts) for parts in rest]


def _parts(claim: Claim) -> tuple[list[str], list[list[str]]]:
    """The parts that all selectors of a claim share, and the other parts of each."""
    selectors = [selector.split(SEPARATOR) for selector in claim.ours]
    shared = [part for part in selectors[0] if all(part in selector for selector in selectors)]
    return shared, [[part for part in selector if part not in shared] for selector in selectors]


def _finding(results: Results, claim: Claim) -> Finding:
    """Raises ValueError for a number that no run has."""
    numbers, texts = claim.numbers(results), claim.texts(results)
    selectors = [selector.split(SEPARATOR) for selector in claim.ours]
    (shared, rest), metric, names = _parts(claim), claimed_metric(claim), compared_names(results, claim)
    quantity, part = results.quantity(metric.partition(":")[0]), metric.partition(":")[2]
    label = ", ".join([quantity.label, *([part] if part else []), *(_name(results, p, metric) for p in shared)])
    values = [f"{text} %" if quantity.unit == "share" else text for text in texts]
    signs, paper_signs = order(numbers, claim.level), claim.paper_order
    is_level = len(selectors) == 2 and len(selectors[1]) == 1 and is_number(selectors[1][0])
    is_axis = _is_axis(results, rest)
    if is_level:
        subject = f"{label}: {names[0]} and {values[1]}"
    elif is_axis:
        axis, ends = names[0].rpartition(" = ")[0], [name.rpartition(" = ")[2] for name in names]
        subject = f"{label}: {axis} = {', '.join(ends)}"
    else:
        subject = f"{label}: {('; ' if any(',' in name for name in names) else ', ').join(names)}"
    if not isinstance(claim.paper, str):
        numbers_cited = [f"{number:,g}" for number in claim.paper]
        paper = paper_text = _chain(numbers_cited, paper_signs)
        if not (is_axis or is_level):
            pairs = zip(names, numbers_cited, strict=True)
            paper_text = _chain([f"{name} ({number})" for name, number in pairs], paper_signs)
    elif is_axis:
        paper = paper_text = ", then ".join(TRENDS[sign] for sign, _ in groupby(paper_signs))
    else:
        relations = zip(names, paper_signs, names[1:], strict=False)
        paper = paper_text = "; ".join(f"{first} {RELATIONS[sign]} {second}" for first, sign, second in relations)
    context = [f"{_preposition(results, p)} {_name(results, p, metric)}{' prompts' * (p in NAMES)}" for p in shared]
    is_in_label = quantity.unit.replace("/", " per ") in quantity.label.lower()
    unit = "" if is_in_label else UNITS.get(quantity.unit, f" {quantity.unit}")
    noun = f"{_lower(quantity.label)} ({part_name(part)})" if part else _lower(quantity.label)
    if quantity.unit in ("ms", "hours") and "time" not in noun:
        noun += " time"
    sentence = _sentence(
        noun, [f"“{name}”" if ", " in name else name for name in names], [f"{text}{unit}" for text in texts], numbers,
        [_preposition(results, parts[0]) if parts else "" for parts in rest], is_level,
    )  # fmt: skip
    text = capital(", ".join([*context, sentence])) + "."
    unknown = {*signs} != {"="} and not claim.exact
    spread, within_spread = "Too few measurements for a spread." if unknown else "", unknown
    if least_certain := claim.least_certain(results):
        place, difference = least_certain
        within_spread = difference.is_within_spread
        pair = " and ".join(values[place : place + 2])
        heading = f"Least certain difference ({pair})" if values[2:] else "Difference"
        spread = f"{heading}, {_spread_text(difference, quantity.unit, is_level)}."
        if abs(difference.value - difference.total) > difference.error / 2:
            spread += " The numbers above pool all prompts."
    values_text, is_alike = _chain(values, signs), signs == paper_signs
    return Finding(text, subject, values_text, paper, paper_text, claim.where, is_alike, within_spread, spread)


def _spread_text(difference: Difference, unit: str, is_level: bool) -> str:
    """
    >>> _spread_text(Difference(-0.0406, -0.0406, 0.0187, 4, True), "share", False)
    'the mean over pairs of the same 4 prompts: 4.1 ± 1.9 points'
    """
    value, error = (100 * number if unit == "share" else number for number in (abs(difference.value), difference.error))
    form = f",.{max(0, 1 - floor(log10(error)))}f"  # two digits of the error
    end = " points" if unit == "share" else UNITS.get(unit, f" {unit}")
    prompts = plural(difference.count, "prompt")
    basis = f"the mean over pairs of the same {prompts}" if difference.is_paired else f"the mean over {prompts}"
    basis = basis if difference.is_paired or is_level else "of different prompts, both whiskers added"
    return f"{basis}: {value:{form}} ± {error:{form}}{end}"


def _sentence(
    label: str, names: Sequence[str], values: Sequence[str], numbers: Sequence[float], prepositions: Sequence[str],
    is_level: bool,
) -> str:  # fmt: skip
    """Our numbers as a person says them.

    >>> _sentence("speedup", ["PLD", "PLD+"], ["2.1×", "2.4×"], [2.1, 2.4], ["with", "with"], False)
    'PLD+ has a higher speedup (2.4×) than PLD (2.1×)'
    >>> _sentence("tokens per step", ["K = 2", "K = 8"], ["2.7", "3.2"], [2.7, 3.2], ["at", "at"], False)
    'tokens per step rise from 2.7 at K = 2 to 3.2 at 8'
    """
    is_plural = _is_plural(label)
    at = [f"{preposition} {name}".strip() for preposition, name in zip(prepositions, names, strict=True)]
    if is_level:
        relation = RELATIONS[order(numbers)]
        if label == "speedup" and numbers[1] == 1:
            relation = "faster than" if numbers[0] > 1 else "slower than"
            return f"{at[0]}, decoding is {relation} plain decoding: {values[0]}"
        return f"{label} {'are' if is_plural else 'is'} {values[0]} {at[0]}, {relation} {values[1]}"
    if {*prepositions} == {"at"}:  # one axis: its name is said once
        axis = names[0][: names[0].rfind(" ") + 1]
        at = [at[0], *(f"at {name.removeprefix(axis)}" for name in names[1:])]
        if len({*values}) == 1:
            places = " or ".join([at[0], *(place.removeprefix("at ") for place in at[1:])])
            return f"{label} {'stay' if is_plural else 'stays'} at {values[0]} {places}"
        trend = {*order(numbers)}
        if len(trend) == 1 and "=" not in trend and all(is_number(name.rpartition(" ")[2]) for name in names):
            verb = TRENDS[trend.pop()].removesuffix("s" if is_plural else "")
            return f"{label} {verb} from {values[0]} {at[0]} to {values[-1]} {at[-1]}"
    pairs = sorted(zip(values, names, at, numbers, strict=True), key=lambda pair: -pair[3])
    if {*prepositions} in ({"with"}, {"on"}):
        if len({*values}) == 1:
            return f"{_all_of([name for _, name, *_ in pairs], 'and')} have the same {label}: {values[0]}"
        if len(pairs) == 2:
            (value, name, *_), (rival_value, rival, *_) = pairs
            relation = "more" if is_plural else "a higher"
            label = f"{label[:-1]}, {value})" if label.endswith(")") else f"{label} ({value})"
            return f"{name} has {relation} {label} than {rival} ({rival_value})"
        rest = _all_of([f"{value} {place}" for value, _, place, _ in pairs[1:]], "and")
        most = f"the {'most' if is_plural else 'highest'} {label} of {COUNTS.get(len(pairs), 'those compared')}"
        return f"{pairs[0][1]} has {most}: {pairs[0][0]}, against {rest}"
    places = zip(values, at, strict=True) if {*prepositions} == {"at"} else ((pair[0], pair[2]) for pair in pairs)
    return f"{label} {'are' if is_plural else 'is'} {_all_of([' '.join(place) for place in places], 'and')}"


def _all_of(texts: Sequence[str], last: str) -> str:
    """
    >>> _all_of(["2", "3", "4"], "and")
    '2, 3 and 4'
    """
    return f" {last} ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _is_plural(label: str) -> bool:
    """
    >>> _is_plural("tokens per step"), _is_plural("loss while learning"), _is_plural("LDS")
    (True, False, False)
    """
    head = re.split(r" (?:per|by|in|of|that|while|\()", label)[0]
    return head.endswith("s") and not head.endswith("ss")


def _lower(label: str) -> str:
    """A label inside a sentence.

    >>> _lower("Tokens per step"), _lower("LDS")
    ('tokens per step', 'LDS')
    """
    return label if label[1:2].isupper() or label[1:2].isdigit() else label[:1].lower() + label[1:]


def _preposition(results: Results, part: str) -> str:
    """The word before a part of a claim's selector: with a line, on a task, at a value."""
    if part.startswith((COLUMN, "where ")):
        return "for" if part.startswith(COLUMN) else ""
    if part.startswith(PLACE) or part.partition("=")[0] in {axis["param"] for axis in results.about["axes"]}:
        return "at"
    return "on" if any(row.get(CATEGORY) == part for row in results.rows) else "with"


def _chain(values: Sequence[str], signs: str) -> str:
    """
    >>> _chain(["2", "3", "3"], "<=")
    '2 < 3 ≈ 3'
    """
    return values[0] + "".join(SIGNS[sign] + value for sign, value in zip(signs, values[1:], strict=True))


def _name(results: Results, part: str, metric: str) -> str:
    """A part of a claim's selector as a reader would say it."""
    if part.startswith(COLUMN):
        return part_name(part.partition(":")[2])
    if part.startswith(PLACE):
        quantity = results.quantity(metric.partition(":")[0])
        place_name = quantity.along.split(":")[0] if isinstance(quantity, Profile) else "at"
        return f"{place_name} {part.removeprefix(PLACE).replace('/', ', ')}"
    param, equals, value = part.partition("=")
    label = next((axis["label"] for axis in results.about["axes"] if axis["param"] == param), "")
    if equals and label:
        return f"{label.partition(',')[0].partition(' (')[0]} = {_group_digits(value)}"
    return str(NAMES.get(part, _lower(part) if part == PLAIN else part))


def _group_digits(text: str) -> str:
    return f"{int(text):,}" if text.isdigit() else text


def _is_axis(results: Results, rest: Sequence[Sequence[str]]) -> bool:
    """True where selectors differ in one parameter alone; ``rest``: of each what not all have."""
    params = {part.partition("=")[0] for parts in rest for part in parts}
    axes = {axis["param"] for axis in results.about["axes"]}
    return len(params) == 1 and params <= axes and all(len(parts) == 1 for parts in rest)


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
            high, low = (amount(value, quantity.unit).replace("%", " %") for value, _ in (highest, lowest))
            if high == low:
                return f"All have the same {_lower(label)}: {high}."
            high_place, low_place = (_place(results, shown_points[n]) for _, n in (highest, lowest))
            verb = "are" if _is_plural(_lower(label)) else "is"
            return f"{label} {verb} highest with {high_place} ({high}) and lowest with {low_place} ({low})."
    return ""


def _place(results: Results, point: Mapping[str, Any]) -> str:
    """Name of a point: its line, and its value along each axis."""
    about = results.about
    axis_label = {axis["param"]: axis["label"].partition(", ")[0] for axis in about["axes"]}.get(about["x"])
    x = f"{axis_label} = {point['x']}" if axis_label and point["x"] else str(NAMES.get(point["x"], point["x"]))
    y = f"{about['axes'][1]['label']} = {point['y']}" if point["y"] else ""
    line = point["series"] if axis_label is None or len(about["lines"]) > 1 else ""
    return ", ".join(dict.fromkeys(part for part in (line, x, y) if part))
