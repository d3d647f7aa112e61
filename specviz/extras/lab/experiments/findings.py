"""Findings: what results say of the claims of their paper, a sentence each, computed from their rows."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from math import floor, log10
from typing import Any

from decoders.errors import capital
from specviz.views.prompts import ALL_TASKS
from specviz.words import plural

from .comparison import ALL_RUNS, COLUMN, SEPARATOR, Claim, Difference, PaperComparison, is_number, order
from .drawing import amounts
from .quantities import Profile
from .results import Results, columns_of, points, profile_of
from .wording import (
    RELATIONS,
    TRENDS,
    WORDS,
    Phrase,
    axis_phrase,
    is_plural,
    level_sentence,
    noun_of,
    number_with_unit,
    phrase,
    relations,
    sentence,
    trend,
)

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
    earlier_text, entries = "", list[Finding]()
    for _, finding in _claims_with_findings(results, comparison):
        notes = [note for note in WORDS["notes"].values() if note in earlier_text]  # each stands once
        text = functools.reduce(lambda text, note: text.removesuffix(f" {note}"), notes, finding.text)
        entries.append(replace(finding, text=text))
        earlier_text += text
    return entries


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
    if alike + open_count == count or not alike:  # one part of them has a verb of its own
        decided_count = count - open_count
        subjects = {1: "Comes", 2: "Both comparisons come"}.get(count, f"All {count} comparisons come")
        if open_count:
            subjects = f"{decided_count} of {count} comparisons {'comes' if decided_count == 1 else 'come'}"
        clause = f"{subjects} out in {_order_words(bool(alike))}"
    else:
        clause = f"{alike} of {count} comparisons {'comes' if alike == 1 else 'come'} out in {_order_words(True)}"
        clause += f", {count - alike - open_count} in another" * (open_count > 0)
    return clause + f", {open_count} {'is' if open_count == 1 else 'are'} undecided" * (open_count > 0)


def _order_words(is_paper_order: bool) -> str:
    return "the paper's order" if is_paper_order else "another order than the paper"


def claimed_metric(claim: Claim) -> str:
    """The metric that a claim is about, its own or its first column."""
    return claim.metric or next(
        part.removeprefix(COLUMN) for part in claim.ours[0].split(SEPARATOR) if part.startswith(COLUMN)
    )


def claim_phrases(results: Results, claim: Claim) -> list[Phrase]:
    """Phrases of the things that a claim compares, without the parts that all of them share."""
    _, rest = _parts(claim)
    return [phrase(results, parts, claimed_metric(claim)) for parts in rest if not is_number(SEPARATOR.join(parts))]


def level_of(claim: Claim) -> str:
    """The plain number that a claim's only number of ours stands beside, or nothing."""
    return claim.ours[1] if len(claim.ours) == 2 and is_number(claim.ours[1]) else ""


def claimed_noun(results: Results, claim: Claim) -> str:
    """The quantity of a claim, with the parts that all of it shares and that belong to the noun."""
    metric = claimed_metric(claim)
    noun = noun_of(results, metric if claim.metric else metric.partition(":")[0])
    shared = [phrase(results, [part], metric).text for part in _parts(claim)[0]]
    return " ".join([noun, *(text for text in shared if text.startswith("of "))])


def _parts(claim: Claim) -> tuple[list[str], list[list[str]]]:
    """The parts that all selectors of a claim share, and the other parts of each."""
    selectors = [[part for part in selector.split(SEPARATOR) if part != ALL_RUNS] for selector in claim.ours]
    shared = [part for part in selectors[0] if all(part in selector for selector in selectors)]
    return shared, [[part for part in selector if part not in shared] for selector in selectors]


def _finding(results: Results, claim: Claim) -> Finding:
    """Raises ValueError for a number that no run has."""
    numbers, texts, metric = claim.numbers(results), claim.texts(results), claimed_metric(claim)
    quantity, part = results.quantity(metric.partition(":")[0]), metric.partition(":")[2]
    shared, phrases, noun = _parts(claim)[0], claim_phrases(results, claim), claimed_noun(results, claim)
    values = [number_with_unit(text, quantity.unit, noun) for text in texts]
    signs, paper_signs, level = order(numbers, claim.level), claim.paper_order, level_of(claim)
    if level:
        clause = level_sentence(noun, phrases[0], texts, numbers, quantity.unit, quantity.key)
    else:
        is_axis = all(entry.repeat for entry in phrases)
        source, sign = _with_extremes(results, claim) if is_axis else (claim, trend(numbers))
        clause = sentence(
            noun, claim_phrases(results, source), source.texts(results), source.numbers(results), quantity.unit,
            signs, sign,
        )  # fmt: skip
    contexts = [entry.at for entry in (phrase(results, [part], metric) for part in shared) if entry.text[:3] != "of "]
    text = f"{capital(', '.join([*contexts, clause]))}."
    if note := WORDS["notes"].get(quantity.key):
        text += f" {note}"
    names = [*(entry.name for entry in phrases), *([values[1]] if level else [])]
    label = ", ".join([quantity.label, *([phrase(results, [f"{COLUMN}{metric}"], metric).name] if part else [])])
    subject = f"{', '.join([label, *(phrase(results, [p], metric).name for p in shared)])}: {'; '.join(names)}"
    paper_values = _of_paper(claim, phrases, values, quantity.unit)
    unknown = {*signs} != {"="} and not claim.exact
    spread, within_spread = "Too few measurements for a spread." if unknown else "", unknown
    if least_certain := claim.least_certain(results):
        place, difference = least_certain
        within_spread = difference.is_within_spread
        subject_text = (
            f"The least certain difference, of {values[place]} and {values[place + 1]}," if values[2:] else ""
        )
        spread = f"{subject_text or 'The difference'} is {_spread_text(difference, quantity.unit, noun, bool(level))}."
    return Finding(
        text, subject, _chain(values, signs), paper_values[0], paper_values[1], claim.where, signs == paper_signs,
        within_spread, spread,
    )  # fmt: skip


def _with_extremes(results: Results, claim: Claim) -> tuple[Claim, str]:
    """A claim along an axis, and the trend of all that was measured between its ends; where there is none, the claim
    has also the highest and the lowest of these, if its own numbers are not.
    """
    axis_claim = claim.along(results)
    numbers = [float(text.replace(",", "")) for text in axis_claim.texts(results)]  # as a reader sees them
    if (sign := trend(numbers)) or not {*claim.ours} <= {*axis_claim.ours}:
        return claim, sign
    places = {axis_claim.ours.index(selector) for selector in claim.ours}
    own_numbers = {numbers[place] for place in places}
    places |= {numbers.index(extreme) for extreme in (min(numbers), max(numbers)) if extreme not in own_numbers}
    return replace(claim, ours=tuple(axis_claim.ours[place] for place in sorted(places))), sign


def _of_paper(claim: Claim, phrases: Sequence[Phrase], values: Sequence[str], unit: str) -> tuple[str, str]:
    """The paper's numbers, or the order that it draws: in short, and as a part of a sentence."""
    signs, is_axis = claim.paper_order, all(entry.repeat for entry in phrases)
    if isinstance(claim.paper, str):
        trends = ", then ".join(TRENDS[sign] for sign, _ in groupby(signs))
        level = f"{RELATIONS[signs[0]]} {values[1]}"
        text = level if level_of(claim) else trends if is_axis else relations(phrases, signs)
        return text, text
    is_share = unit == "share" and max(claim.paper) <= 1
    numbers = [f"{100 * number:g} %" if is_share else f"{number:,g}" for number in claim.paper]
    pairs = zip(numbers, [entry.at for entry in phrases], strict=False)
    return _chain(numbers, signs), ", ".join(f"{number} {place}" for number, place in pairs)


def _spread_text(difference: Difference, unit: str, noun: str, is_level: bool) -> str:
    """
    >>> _spread_text(Difference(-0.0406, 0.0187, 4, 4, True), "share", "quality", False)
    '4.1 ± 1.9 points (standard error over 4 prompts)'
    """
    value, error = (100 * number if unit == "share" else number for number in (abs(difference.value), difference.error))
    form = f",.{max(0, 1 - floor(log10(error)))}f"  # two digits of the error
    number = f"{value:{form}} ± {error:{form}}"
    number = f"{number} points" if unit == "share" else number_with_unit(number, unit, "")
    prompts = plural(difference.prompts, "prompt")
    if difference.count > difference.prompts:
        prompts = f"{plural(difference.count, 'place')} in {prompts}"
    is_sum = not (difference.is_paired or is_level)
    return f"{number} ({'standard errors of different prompts, added' if is_sum else f'standard error over {prompts}'})"


def _chain(values: Sequence[str], signs: str) -> str:
    """
    >>> _chain(["2", "3", "3"], "<=")
    '2 < 3 ≈ 3'
    """
    return values[0] + "".join(SIGNS[sign] + value for sign, value in zip(signs, values[1:], strict=True))


# --- results whose paper has no number to set beside them ---


def _extremes(results: Results) -> str:
    """The highest and the lowest value of the first metric that differs anywhere, else of the last."""
    for metric in results.about["metrics"]:
        quantity, noun = results.quantity(metric), noun_of(results, metric)
        shown_points = [point for point in points(results, [metric]) if point["x"] != ALL_TASKS]
        values: list[float | None]
        if isinstance(quantity, Profile):
            profiles = [profile_of(quantity, point) for point in shown_points]
            firsts = [(place, *next(iter(shares.items()))) for at in profiles for place, shares, _ in at[:1]]
            values = [value for *_, value in firsts]
            noun = noun_of(results, f"{metric}:{firsts[0][0]}/{firsts[0][1]}") if firsts else noun
        else:
            column = next(iter(columns_of(quantity, metric, results.columns)), "")
            values = [(point["values"].get(column) or {}).get("value") for point in shown_points]
        at = [(value, n) for n, value in enumerate(values) if value is not None]
        if len(at) > 1:
            highest, lowest = max(at, key=lambda entry: entry[0]), min(at)
            texts = [text.replace("%", "") for text in amounts([highest[0], lowest[0]], quantity.unit)]
            high, low = (number_with_unit(text, quantity.unit, noun) for text in texts)
            verb = "are" if is_plural(noun) else "is"
            if high == low and metric != results.about["metrics"][-1]:
                continue  # such as the number of prompts
            if high == low:
                return f"{capital(noun)} {verb} {high} for all."
            high_place, low_place = (_point_place(results, shown_points[n]) for _, n in (highest, lowest))
            return f"{capital(noun)} {verb} highest {high_place} ({high}) and lowest {low_place} ({low})."
    return ""


def _point_place(results: Results, point: Mapping[str, Any]) -> str:
    """A point in a sentence: its line, and its value along each axis."""
    about = results.about
    labels = {axis["param"]: axis["label"] for axis in about["axes"]}
    is_told = point["series"] and (len(about["lines"]) > 1 or (about["axes"] and about["x"] not in labels))
    entries = [phrase(results, [point["series"]], "")] if is_told else []
    if point["x"]:
        x = point["x"]
        entries.append(axis_phrase(labels[about["x"]], x) if about["x"] in labels else phrase(results, [x], ""))
    if point["y"]:
        entries.append(axis_phrase(about["axes"][1]["label"], point["y"]))
    places = sorted(dict.fromkeys(entry.at for entry in entries), key=lambda text: not text.startswith("on "))
    return " ".join([*places[:1], *(re.sub(r"^with ", "and ", text) for text in places[1:])])
