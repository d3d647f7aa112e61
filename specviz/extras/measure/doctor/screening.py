"""Screening of controls: many are tried at a few places, and those that help there at all places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .controls import Control, ControlOutcome
from .forced_drafts import ReadText

SCREEN_TEXTS, SCREEN_PLACES, SCREEN_DEPTH, SCREEN_SURE = 6, 36, 3, 2.0  # at which many controls are tried first
MOST_CONFIRMED = 8  # controls that are then tried at all places
SCREEN_GAIN = 0.05  # nats: half of what counts at all places


def few_places(texts: Sequence[ReadText]) -> list[ReadText]:
    """A few places of a few texts, evenly, at which many controls are tried."""
    selection = [texts[place] for place in _evenly(len(texts), SCREEN_TEXTS)]
    excerpts = list[ReadText]()
    for text in selection:
        rows = _evenly(len(text.places), -(-SCREEN_PLACES // len(selection)))
        excerpts.append(replace(text, places=tuple(text.places[row] for row in rows), logits=text.logits[rows]))
    return excerpts


def _evenly(count: int, limit: int) -> list[int]:
    """At most so many of ``count`` places, evenly.

    >>> _evenly(9, 3), _evenly(2, 3)
    ([1, 4, 7], [0, 1])
    """
    size = min(count, limit)
    return [int((place + 0.5) * count / size) for place in range(size)]


def promising(screenings: Sequence[tuple[Control, ControlOutcome]]) -> list[Control]:
    """The controls that helped at a few places: the best two of each cause, the best causes first."""
    ranking = sorted(screenings, key=lambda pair: -pair[1].gain)
    shortlist = list[Control]()
    for control, outcome in ranking:
        alike = sum(rival.cause == control.cause for rival in shortlist)
        if outcome.gain >= SCREEN_GAIN and outcome.z >= SCREEN_SURE and alike < 2:
            shortlist.append(control)
    return shortlist[:MOST_CONFIRMED]


def best_of_rest(
    screenings: Sequence[tuple[Control, ControlOutcome]], finalists: Sequence[Control]
) -> list[ControlOutcome]:
    """Of the controls that were tried at a few places alone, the best of each cause."""
    best = dict[str, list[ControlOutcome]]()
    for control, outcome in screenings:
        if all(control is not rival for rival in finalists):
            best.setdefault(outcome.cause, []).append(outcome)
    return [replace(max(outcomes, key=lambda result: result.gain), tried=len(outcomes)) for outcomes in best.values()]
