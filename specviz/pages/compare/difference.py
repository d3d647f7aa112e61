"""Two runs of one prompt, step by step: where one had drafted tokens accepted that the other wrote by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from decoders.errors import UserError
from decoders.trace.baseline import asked_prompt
from decoders.trace.metrics import first_difference
from decoders.trace.trace import Trace
from specviz.views.step_words import rows_of
from specviz.words import plural

from .outcome import lane_title

LONGEST_TEXT, MOST_OFFERS = 120, 3  # characters of an accepted stretch, rejected tokens named beside it


@dataclass(frozen=True, slots=True)
class Gain:
    """A step in which one run accepted drafted tokens that the other run did not.

    Steps count from 0, output tokens too: [start, stop) was accepted, ``missed`` of them the other run wrote without a
    draft, in ``other_steps`` steps from ``other_step`` on. There it drafted ``drafted`` tokens and accepted
    ``other_accepted``; ``offered`` are the tokens that were rejected where it left the text, ``reason`` says why
    nothing was drafted.
    """

    step: int
    start: int
    stop: int
    text: str
    missed: int
    other_step: int
    other_steps: int
    drafted: int
    other_accepted: int
    offered: tuple[str, ...]
    wrote: str
    reason: str


def difference(a: Trace, b: Trace) -> dict[str, Any]:
    """``{"agreed", "tokens", "gains", "sentence"}``: output tokens that both runs share from the start on, how many
    each wrote, for each run the steps (``Gain``) in which it accepted what the other did not, and who accepts more.

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
    """The run that accepts more, and what the other run did there."""
    if names[0] == names[1]:
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    counts = [sum(gain.missed for gain in run_gains) for run_gains in gains]
    first = 0 if counts[0] >= counts[1] else 1
    name, other_name = names[first], names[1 - first]
    if not counts[first]:
        return f"{names[0]} and {names[1]} accepted the same drafted tokens."
    other_side = f", {other_name} {counts[1 - first]} the other way round" if counts[1 - first] else ""
    reasons = Counter[str]()
    for gain in gains[first]:
        reasons[_cause(gain)] += gain.missed
    causes = ", ".join(f"{count} where {cause}" for cause, count in reasons.most_common())
    return (
        f"{name} accepts more: {plural(counts[first], 'token')} that {other_name} had to write "
        f"itself{other_side}: {causes}."
    )


def _cause(gain: Gain) -> str:
    """The reason why the other run wrote a token itself, in words that follow "where"."""
    if not gain.drafted:
        return "it drafted nothing"
    if gain.other_accepted < gain.drafted:
        return "its draft was refused"
    return "its draft had ended"


def _gains(trace: Trace, other_trace: Trace, agreement: int) -> Iterator[Gain]:
    first = trace.run["prompt_length"]
    kinds, steps_of = (np.asarray(trace.tables["tokens"][name][first:]) for name in ("kind", "step"))
    other_start = other_trace.run["prompt_length"]
    other_kinds, their_steps = (
        np.asarray(other_trace.tables["tokens"][name][other_start:]) for name in ("kind", "step")
    )
    accepted = (kinds[:agreement] == "accepted").nonzero()[0]
    for step in np.unique(steps_of[accepted]):
        places = accepted[steps_of[accepted] == step]
        misses = places[other_kinds[places] != "accepted"]
        if not len(misses):
            continue
        start, stop = int(places[0]), int(places[-1]) + 1
        text = trace.text(trace.output_ids[start:stop])
        at = int(their_steps[misses[0]])
        table = other_trace.tables["steps"]
        yield Gain(
            int(step), start, stop, text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…", len(misses), at,
            len(np.unique(their_steps[misses])), table["drafted"][at], table["accepted"][at],
            _rejected_tokens(other_trace, at), other_trace.text([other_trace.output_ids[int(misses[0])]]),
            table["reason"][at],
        )  # fmt: skip


def _rejected_tokens(trace: Trace, step: int) -> tuple[str, ...]:
    """The first tokens that were rejected in a step, in tree order: those that stood where the run left its draft."""
    rejected_tokens = [node["token"] for node in rows_of(trace, "nodes", step) if node["status"] == "rejected"]
    return tuple(trace.text([token]) for token in rejected_tokens[:MOST_OFFERS])
