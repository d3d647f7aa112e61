"""Findings: what results say of the claims of their paper, a sentence each, computed from their rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from math import floor, log10
from typing import Any

from decoders.errors import capital
from specviz.views.prompts import ALL_TASKS
from specviz.words import enumeration, plural

from .comparison import ALL_RUNS, COLUMN, SEPARATOR, Claim, Difference, PaperComparison, is_number, order
from .drawing import amounts
from .experiment import CATEGORY
from .quantities import Profile
from .results import Results, columns_of, points, profile_of
from .wording import (
    RELATIONS,
    TRENDS,
    Phrase,
    axis_phrase,
    is_plural,
    level_sentence,
    noun_of,
    number_with_unit,
    phrase,
    sentence,
    trend,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim. ``text``: our numbers as a sentence; ``paper``: the paper's, or the order that it draws, as a sentence
    without its end; ``source``: their place in it; ``alike``: both stand in one order; ``within_spread``: our order
    rests on a difference that is no larger than its standard error; ``both_orders``: the paper has both, so that none
    is ruled; ``spread``: the difference nearest to that, with its standard error, as a sentence.
    """

    text: str
    paper: str
    source: str
    alike: bool
    within_spread: bool = False
    both_orders: bool = False
    spread: str = ""

    @property
    def mark(self) -> str:
        return "–" if self.both_orders else "≈" if self.within_spread else "✓" if self.alike else "✗"

    @property
    def notes(self) -> str:
        """The spread, and what the paper has."""
        return f"{self.spread} {'; '.join(filter(None, [self.paper, self.source]))}.".lstrip()


def findings(results: Results, comparison: PaperComparison | None) -> list[Finding]:
    """The claims of a paper in these results, without those for which they have no runs."""
    return [finding for _, finding in _claims_with_findings(results, comparison)]


def main_claim(results: Results, comparison: PaperComparison | None) -> tuple[Claim, Finding] | None:
    """The claim that ``summary`` tells: the first one whose mark is that of all together."""
    pairs = [*_claims_with_findings(results, comparison)]
    marks = [finding.mark for _, finding in pairs]
    mark = next((mark for mark in "✓✗≈–" if mark in marks), "")
    return next((pair for pair in pairs if pair[1].mark == mark), None)


def _claims_with_findings(results: Results, comparison: PaperComparison | None) -> Iterator[tuple[Claim, Finding]]:
    for claim in comparison.claims.values() if comparison else ():
        with suppress(ValueError):
            yield claim, _finding(results, claim)


def summary(results: Results, comparison: PaperComparison | None) -> dict[str, Any]:
    """Results in short: the sentence of their main claim, its ``mark`` and the ``paper``'s sentence; how many of the
    ``claims`` are ``alike``, and how many stay ``open``, within the spread.
    """
    count, alike, open_count = _counts(findings(results, comparison))
    counts = {"claims": count, "alike": alike, "open": open_count}
    if pair := main_claim(results, comparison):
        return {"text": pair[1].text, "mark": pair[1].mark, "paper": f"{pair[1].paper}.", **counts}
    return {"text": _extremes(results), **counts}


def _counts(entries: Sequence[Finding]) -> tuple[int, int, int]:
    """Counts of claims that are ruled, of those that come out alike, and of those within the spread, which come out
    neither way.
    """
    marks = [finding.mark for finding in entries]
    return len(marks) - marks.count("–"), marks.count("✓"), marks.count("≈")


def verdict(entries: Sequence[Finding]) -> str:
    """As in "1 of 4 comparisons comes out in the paper's order"; nothing where there is none."""
    count, alike, open_count = _counts(entries)
    if not count:
        return "The paper has both orders" if entries else ""
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
    quantity, shared = results.quantity(metric.partition(":")[0]), _parts(claim)[0]
    phrases, noun = claim_phrases(results, claim), claimed_noun(results, claim)
    values = [number_with_unit(text, quantity.unit, noun) for text in texts]
    signs, level = order(numbers, claim.level), level_of(claim)
    if level:
        clause = level_sentence(noun, phrases[0], texts, numbers, quantity.unit, quantity.key)
    else:
        source, sign = with_extremes(results, claim)
        clause = sentence(
            noun, claim_phrases(results, source), source.texts(results), source.numbers(results), quantity.unit,
            signs, sign,
        )  # fmt: skip
    contexts = [
        entry.at + _prompts_text(results, part)
        for part in shared if (entry := phrase(results, [part], metric)).text[:3] != "of "
    ]  # fmt: skip
    source = "" if claim.contrary else claim.where
    paper = _paper_order(claim, phrases, signs, values[1:]) if isinstance(claim.paper, str) else (
        _paper_numbers(claim, claim.paper, phrases, quantity.unit, noun)
    )  # fmt: skip
    is_open = {*signs, *claim.paper_order} != {"="} and not claim.exact
    spread, within_spread = "Too few measurements for a spread." if is_open else "", is_open
    if (prompts := claim.same_prompts(results)) > 1 and not claim.exact:
        spread, within_spread = f"It is the same on each of the {prompts} prompts.", False
    elif least_certain := claim.least_certain(results):
        place, difference = least_certain
        within_spread = is_open and difference.is_within_spread
        pair = f", of {values[place]} and {values[place + 1]}," if values[2:] else ""
        subject = f"The {'least certain ' * (bool(pair) and is_open)}difference{pair}"
        spread = f"{subject} is {_spread_text(difference, quantity.unit, noun, bool(level))}."
    text = f"{capital(', '.join([*contexts, clause]))}."
    alike = signs == claim.paper_order
    return Finding(text, f"The paper{paper}", source, alike, within_spread, bool(claim.contrary), spread)


def _prompts_text(results: Results, task: str) -> str:
    """The number of a task's prompts, where there are others."""
    prompts = {row.get("prompt") for row in results.rows}
    task_prompts = {row.get("prompt") for row in results.rows if row.get(CATEGORY) == task}
    return f" ({plural(len(task_prompts), 'prompt')})" if 0 < len(task_prompts) < len(prompts) else ""


def with_extremes(results: Results, claim: Claim) -> tuple[Claim, str]:
    """A claim along an axis, and the trend of all that was measured between its ends; where there is none, the claim
    has also the highest and the lowest of these, if its own numbers are not. Any other claim as it is.
    """
    if not all(entry.repeat for entry in claim_phrases(results, claim)):
        return claim, trend(claim.numbers(results))
    axis_claim = claim.along(results)
    numbers = [float(text.replace(",", "")) for text in axis_claim.texts(results)]  # as a reader sees them
    if (sign := trend(numbers)) or not {*claim.ours} <= {*axis_claim.ours}:
        return claim, sign
    places = {axis_claim.ours.index(selector) for selector in claim.ours}
    own_numbers = {numbers[place] for place in places}
    places |= {numbers.index(extreme) for extreme in (min(numbers), max(numbers)) if extreme not in own_numbers}
    return replace(claim, ours=tuple(axis_claim.ours[place] for place in sorted(places))), sign


def _paper_order(claim: Claim, phrases: Sequence[Phrase], signs: str, level: Sequence[str]) -> str:
    """The order that a paper draws or says."""
    paper = claim.paper_order
    if level_of(claim):
        words = f"{RELATIONS[paper[0]]} {level[0]}"
    elif all(entry.repeat for entry in phrases):
        words = f"it {', then '.join(TRENDS[sign] for sign, _ in groupby(paper))}"
    else:
        words = "level" if {*paper} == {"="} else "the same order" if paper == signs else "the other order"
        if {*signs} == {"="} != {*paper}:
            words = f"higher {phrases[0 if paper[0] == '>' else -1].at}"
    return f": {words}"


def _paper_numbers(claim: Claim, paper: Sequence[float], phrases: Sequence[Phrase], unit: str, noun: str) -> str:
    """The numbers that a paper prints, with what they are of; of two models or data sets where their orders differ."""
    settings = claim.settings or [entry.at for entry in phrases]

    def texts(numbers: Sequence[float]) -> Iterator[str]:
        shown_numbers = [100 * number if unit == "share" and max(numbers) <= 1 else number for number in numbers]
        decimals = max(len(f"{number:.8g}".partition(".")[2]) for number in shown_numbers)
        forms = [f"{number:,.{decimals}f}" if decimals < 3 else f"{number:g}" for number in shown_numbers]
        return (number_with_unit(form, unit, noun) for form in forms)

    pairs = zip(texts(paper), settings, strict=False)
    numbers = ", ".join(f"{number} {setting}" for number, setting in pairs)
    if not claim.contrary:
        return f": {numbers}"
    contrary = enumeration([*texts(claim.contrary)])
    return f" has both orders: {numbers} ({claim.where}); {contrary} ({claim.contrary_where})"


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
