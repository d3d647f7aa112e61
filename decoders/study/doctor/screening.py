"""Screening of controls: many are tried at a few places, and those that help there at all places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .controls import Control, ControlOutcome
from .forced_drafts import Text

SCREEN_TEXTS, SCREEN_PLACES, SCREEN_DEPTH, SCREEN_SURE = 6, 36, 3, 2.0  # at which many controls are tried first
MOST_CONFIRMED = 8  # controls that are then tried at all places
SCREEN_GAIN = 0.05  # nats: half of what counts at all places


def few_places(texts: Sequence[Text]) -> list[Text]:
    """A few places of a few texts, evenly, at which many controls are tried."""
    chosen = [texts[place] for place in _evenly(len(texts), SCREEN_TEXTS)]
    few = list[Text]()
    for text in chosen:
        rows = _evenly(len(text.places), -(-SCREEN_PLACES // len(chosen)))
        few.append(replace(text, places=tuple(text.places[row] for row in rows), logits=text.logits[rows]))
    return few


def _evenly(count: int, most: int) -> list[int]:
    """At most so many of ``count`` places, evenly.

    >>> _evenly(9, 3), _evenly(2, 3)
    ([1, 4, 7], [0, 1])
    """
    chosen = min(count, most)
    return [int((place + 0.5) * count / chosen) for place in range(chosen)]


def promising(screened: Sequence[tuple[Control, ControlOutcome]]) -> list[Control]:
    """The controls that helped at a few places: the best two of each cause, the best causes first."""
    ranked = sorted(screened, key=lambda pair: -pair[1].gain)
    chosen = list[Control]()
    for control, outcome in ranked:
        alike = sum(other.cause == control.cause for other in chosen)
        if outcome.gain >= SCREEN_GAIN and outcome.z >= SCREEN_SURE and alike < 2:
            chosen.append(control)
    return chosen[:MOST_CONFIRMED]


def best_of_rest(
    screened: Sequence[tuple[Control, ControlOutcome]], confirmed: Sequence[Control]
) -> list[ControlOutcome]:
    """Of the controls that were tried at a few places alone, the best of each cause."""
    best = dict[str, list[ControlOutcome]]()
    for control, outcome in screened:
        if all(control is not other for other in confirmed):
            best.setdefault(outcome.cause, []).append(outcome)
    return [replace(max(outcomes, key=lambda one: one.gain), tried=len(outcomes)) for outcomes in best.values()]
