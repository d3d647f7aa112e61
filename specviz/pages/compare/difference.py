"""Two runs of one prompt, step by step: where one had drafted tokens accepted that the other wrote by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from decoders.errors import UserError
from decoders.trace.baseline import asked_prompt
from decoders.trace.metrics import first_difference
from decoders.trace.trace import Trace
from specviz.words import enumeration, plural

from .outcome import lane_title

MOST_OFFERS = 3  # rejected tokens named beside an accepted stretch
CAUSES = {  # why a run wrote a token itself, in words that follow "it"
    "nothing": "had drafted nothing",
    "refused": "had drafted another token",
    "ended": "had come to the end of its draft",
}


@dataclass(frozen=True, slots=True)
class OtherStep:
    """A step of the other run, which drafted ``drafted`` tokens, accepted ``accepted`` and wrote ``wrote`` itself;
    ``rejected`` are those of its tokens in the place where it left its draft, ``reason`` says why nothing was
    drafted.
    """

    step: int
    drafted: int
    accepted: int
    rejected: tuple[str, ...]
    wrote: str
    reason: str


@dataclass(frozen=True, slots=True)
class Gain:
    """A step in which one run accepted drafted tokens that the other run did not.

    Steps count from 0, output tokens too: [start, stop) was accepted, ``missed`` of them the other run wrote without a
    draft, in its ``other_steps``, ``causes`` says how many why; ``pieces`` is the accepted text, each piece with
    whether the other run missed it.
    """

    step: int
    start: int
    stop: int
    pieces: tuple[tuple[str, bool], ...]
    missed: int
    causes: dict[str, int]
    other_steps: tuple[OtherStep, ...]


def difference(a: Trace, b: Trace) -> dict[str, Any]:
    """``{"agreed", "tokens", "gains", "sentence"}``: output tokens that both runs share from the start on, how many
    each wrote, for each run the steps (``Gain``) in which it accepted what the other did not, and who has more.

    Raises UserError for runs of different prompts.
    """
    if asked_prompt(a) != asked_prompt(b):
        raise UserError("these runs are of different prompts: choose two runs of one prompt")
    agreement = first_difference(a.output_ids, b.output_ids)
    gains = [[*_gains(*pair, agreement)] for pair in ((a, b), (b, a))]
    return {
        "agreed": agreement,
        "tokens": [len(a.output_ids), len(b.output_ids)],
        "gains": [[asdict(gain) for gain in run_gains] for run_gains in gains],
        "sentence": _sentence([lane_title(a), lane_title(b)], gains),
    }


def _sentence(names: Sequence[str], gains: Sequence[Sequence[Gain]]) -> str:
    """The run that has more accepted, and why the other run wrote these tokens itself."""
    if names[0] == names[1]:
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    counts = [sum(gain.missed for gain in run_gains) for run_gains in gains]
    first = 0 if counts[0] >= counts[1] else 1
    name, other_name = names[first], names[1 - first]
    if not counts[first]:
        return f"{names[0]} and {names[1]} accepted the same drafted tokens."
    reasons = sum((Counter(gain.causes) for gain in gains[first]), Counter[str]()).most_common()
    places = [f"at {count} " if len(reasons) > 1 else "there " for _, count in reasons]
    clauses = [f"{place}it {CAUSES[cause]}" for place, (cause, _) in zip(places, reasons, strict=True)]
    accepted = f"{plural(counts[first], 'token')} accepted that {other_name} wrote itself"
    sentence = f"{name} has {accepted}: {enumeration(clauses)}."
    return sentence + (f" The other way round: {plural(counts[1 - first], 'token')}." if counts[1 - first] else "")


def _left_drafts(trace: Trace) -> dict[int, list[int]]:
    """For each step, the drafted tokens in the place of the one that the target wrote, in tree order."""
    nodes = trace.tables["nodes"]
    columns = zip(nodes["step"], nodes["parent"], nodes["token"], nodes["status"], strict=True)
    drafts = dict[int, list[int]]()
    for step, rows in groupby(columns, itemgetter(0)):
        tree = [*rows]
        end = max(number for number, (*_, status) in enumerate(tree) if status in ("root", "accepted"))
        drafts[step] = [token for _, parent, token, _ in tree if parent == end]
    return drafts


def _gains(trace: Trace, other_trace: Trace, agreement: int) -> Iterator[Gain]:
    first = trace.run["prompt_length"]
    kinds, steps_of = (np.asarray(trace.tables["tokens"][name][first:]) for name in ("kind", "step"))
    other_start = other_trace.run["prompt_length"]
    other_kinds, their_steps = (
        np.asarray(other_trace.tables["tokens"][name][other_start:]) for name in ("kind", "step")
    )
    accepted = (kinds[:agreement] == "accepted").nonzero()[0]
    table, left_drafts = other_trace.tables["steps"], _left_drafts(other_trace)
    for step in np.unique(steps_of[accepted]):
        places = accepted[steps_of[accepted] == step]
        misses = places[other_kinds[places] != "accepted"]
        if not len(misses):
            continue
        start, stop = int(places[0]), int(places[-1]) + 1
        causes = Counter(
            ("refused" if left_drafts.get(number) else "ended") if table["drafted"][number] else "nothing"
            for number in their_steps[misses].tolist()
        )
        first_places = {number: place for place, number in reversed([*zip(misses, their_steps[misses], strict=True)])}
        other_steps = tuple(
            OtherStep(
                int(number), table["drafted"][number], table["accepted"][number],
                tuple(other_trace.text([token]) for token in left_drafts.get(number, ())[:MOST_OFFERS]),
                other_trace.text([other_trace.output_ids[int(place)]]), table["reason"][number],
            )
            for number, place in sorted(first_places.items())
        )  # fmt: skip
        pieces = _pieces(trace, range(start, stop), {*misses.tolist()})
        yield Gain(int(step), start, stop, pieces, len(misses), dict(causes), other_steps)


def _pieces(trace: Trace, places: range, misses: set[int]) -> tuple[tuple[str, bool], ...]:
    """An accepted stretch of the output, each piece with whether the other run missed its tokens."""
    runs = [[*run] for _, run in groupby(places, misses.__contains__)]
    return tuple((trace.text(trace.output_ids[run[0] : run[-1] + 1]), run[0] in misses) for run in runs)
