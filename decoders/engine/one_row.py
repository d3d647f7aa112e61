"""How long the target takes for one row in a run's contexts: what a draft forward is measured in (Leviathan §3)."""

from __future__ import annotations

import statistics
import time

import numpy as np

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.model.target import Session

PLACES = 5


def one_row_ms(session: Session) -> float:
    """Mean over places spread evenly over the output of a finished run: the median of three one-row forwards there,
    behind one that is not timed. In milliseconds.
    """
    first, last = session.prompt_length, session.length
    if session.target.shape.rotary_switch is not None:
        first = last  # such a run is not looked at again
    places = np.unique(np.linspace(first, last, PLACES).astype(int)).tolist()
    return statistics.fmean(_at(session, length) for length in places)


def _at(session: Session, length: int) -> float:
    if length == session.length:
        return _median(session)
    with session.at(length, Needs()) as part:
        return _median(part)


def _median(session: Session) -> float:
    draft, taken = Draft.empty(session.context.root, "one row is timed"), []
    for _ in range(4):
        started = time.perf_counter()
        int(session.score(draft).logits[0].argmax())  # waits for the device
        taken.append((time.perf_counter() - started) * 1e3)
    return statistics.median(taken[1:])
