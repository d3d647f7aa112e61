"""Two runs of one prompt, step by step: where one had drafted tokens accepted that the other wrote by itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from decoders.errors import UserError
from decoders.trace.baseline import asked_prompt
from decoders.trace.metrics import first_difference
from decoders.trace.trace import Trace
from specviz.figures.words import rows_of

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
    """``{"agreed", "tokens", "gains"}``: output tokens that both runs share from the start on, how many each wrote, and
    for each run the steps (``Gain``) in which it accepted what the other did not.

    Raises UserError for runs of different prompts.
    """
    if asked_prompt(a) != asked_prompt(b):
        raise UserError("these runs are of different prompts: choose two runs of one prompt")
    agreed = first_difference(a.output_ids, b.output_ids)
    return {
        "agreed": agreed,
        "tokens": [len(a.output_ids), len(b.output_ids)],
        "gains": [[asdict(gain) for gain in _gains(*pair, agreed)] for pair in ((a, b), (b, a))],
    }


def _gains(one: Trace, other: Trace, agreed: int) -> Iterator[Gain]:
    first = one.run["prompt_length"]
    kinds, steps_of = (np.asarray(one.tables["tokens"][name][first:]) for name in ("kind", "step"))
    behind = other.run["prompt_length"]
    theirs, their_steps = (np.asarray(other.tables["tokens"][name][behind:]) for name in ("kind", "step"))
    accepted = (kinds[:agreed] == "accepted").nonzero()[0]
    for step in np.unique(steps_of[accepted]):
        places = accepted[steps_of[accepted] == step]
        missed = places[theirs[places] != "accepted"]
        if not len(missed):
            continue
        start, stop = int(places[0]), int(places[-1]) + 1
        text = one.text(one.output_ids[start:stop])
        at = int(their_steps[missed[0]])
        table = other.tables["steps"]
        yield Gain(
            int(step), start, stop, text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…", len(missed), at,
            len(np.unique(their_steps[missed])), table["drafted"][at], table["accepted"][at],
            _rejected_tokens(other, at), other.text([other.output_ids[int(missed[0])]]), table["reason"][at],
        )  # fmt: skip


def _rejected_tokens(trace: Trace, step: int) -> tuple[str, ...]:
    """The first tokens that were rejected in a step, in tree order: those that stood where the run left its draft."""
    rejected = [node["token"] for node in rows_of(trace, "nodes", step) if node["status"] == "rejected"]
    return tuple(trace.text([token]) for token in rejected[:MOST_OFFERS])
