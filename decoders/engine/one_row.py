"""The target's time for one row in a run's contexts: the unit in which a draft forward is measured (Leviathan §3)."""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.model.target_model.target import Session, Target

from .row_costs import forward_times

PLACES = 5
SHARE = 0.02  # of the time that runs take: so much goes into measuring it anew


@dataclass(frozen=True, slots=True)
class RowTime:
    """Milliseconds of a one-row forward, and where they are from: the ``run`` (its id) behind which they were measured,
    when, on which engine and in contexts of how many tokens.
    """

    ms: float
    run: str
    measured: str
    engine: str
    context: tuple[int, int]


class OneRow:
    """A target's time for one row, kept with it: measured in the run that asks, and anew once the runs since then took
    so long that it costs them ``SHARE``. Other lengths (to a power of two) and engines are measured apart.
    """

    def __init__(self) -> None:
        self._decoded_ms = 0.0
        self._measured: dict[Any, tuple[RowTime, float]] = {}  # and of how much decoding the next is due

    @classmethod
    def of(cls, target: Target) -> OneRow:
        return target.companions.setdefault("one row", cls())

    def time(self, session: Session, decode_ms: float, run: str = "") -> RowTime:
        """Of a finished run with this id, whose steps took ``decode_ms``."""
        size, (engine, static) = (session.length - 1).bit_length(), session.target.engines.state
        kind = size, session.target.engines.state
        self._decoded_ms += decode_ms
        if kind not in self._measured or self._decoded_ms >= self._measured[kind][1]:
            start_time = time.perf_counter()
            ms = one_row_ms(session)
            elapsed_ms = (time.perf_counter() - start_time) * 1e3
            timestamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            words = f"{engine}, static forwards ready" if static and engine != "eager" else engine
            row_time = RowTime(ms, run, timestamp, words, ((1 << size >> 1) + 1, 1 << size))
            self._measured[kind] = row_time, self._decoded_ms + elapsed_ms / SHARE
        return self._measured[kind][0]


def one_row_ms(session: Session) -> float:
    """Mean over places spread evenly over the output of a finished run: of three one-row forwards there, behind one
    that is not timed. In milliseconds. (A mean, as it divides one: c is the draft forwards' mean ÷ this.)
    """
    first, last = session.prompt_length, session.length
    if session.target.shape.rotary_switch is not None:
        first = last  # such a run is not looked at again
    places = np.unique(np.linspace(first, last, PLACES).astype(int)).tolist()
    return statistics.fmean(_at(session, length) for length in places)


def _at(session: Session, length: int) -> float:
    with nullcontext(session) if length == session.length else session.at(length, Needs()) as part:
        return statistics.fmean(forward_times(part, Draft.empty(part.context.root, "one row is timed"), 3))
