"""Which engine is the faster one for a size of forward: measured while nothing runs, never inside a step of a run, and
noted in the cache folder.

A step of a size that nothing is noted of runs eagerly, and the size is remembered. When a run is over, a thread of its
own has what is missing compiled; then, as soon as nothing was asked of the target for a while, it runs such sizes both
ways in turn. A run that begins meanwhile waits for one forward at most, before its clock starts. Every process tries
the sizes it meets once more, and the shortest times of all count: what was noted on a busy machine is corrected.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import threading
from collections.abc import Callable
from typing import Any

import torch

from decoders.folders import cache_folder, write_json

from .activity import ACTIVITY

NOTES = "engines.json"  # in the cache folder: what was measured
PAIRS = 5  # forwards of each kind, in turn
CLEAR = 0.97  # of eager's time: what a static forward takes at most to be used

Pair = tuple[Callable[[], Any], Callable[[], Any]]  # a static and an eager forward of one size


class Trials:
    """The trials of one target's engines. ``notes``: size → shortest milliseconds of a static and an eager forward;
    ``key``: what times depend on besides the size.
    """

    def __init__(self, engines: Any, key: str) -> None:
        self.engines, self.key = engines, key
        self.notes = _noted(key)
        self.wanted: dict[str, Callable[[], Pair | None]] = {}
        self.tried = set[str]()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def faster(self, size: str, pair: Callable[[], Pair | None]) -> bool:
        """Whether a static forward of a size is faster; False where that is not known. ``pair`` makes what is tried; it
        gives None where static ones cannot be used.
        """
        if size not in self.tried:
            self.wanted.setdefault(size, pair)
        static_ms, eager_ms = self.notes.get(size, (1.0, 0.0))
        return static_ms <= CLEAR * eager_ms

    def begin(self) -> None:
        """Have what is missing compiled and what is wanted measured, by a thread that waits until nothing runs."""
        ACTIVITY.told()
        if self._thread is None and (self.wanted or not self.engines.complete()):
            self._thread = threading.Thread(target=self._work, name="engine trials", daemon=True)
            atexit.register(self.end)
            self._thread.start()

    def end(self) -> None:
        """Measure nothing more."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(10)

    def _work(self) -> None:
        try:
            while self.engines.prepare(self._ending, urgent=False) and self.wanted and not self._ending.is_set():
                size = min(self.wanted, key=lambda name: (len(name), name))
                times = self._times(self.wanted[size])
                self.tried.add(size)
                del self.wanted[size]
                if times is not None:
                    self._note(size, *times)
        finally:
            self._thread = None
            atexit.unregister(self.end)

    def _note(self, size: str, *times: float) -> None:
        """Keep the shorter ones of these milliseconds and those noted before."""
        notes = _noted(self.key)
        before = notes.get(size, times)
        self.notes[size] = notes[size] = (round(min(times[0], before[0]), 3), round(min(times[1], before[1]), 3))
        with contextlib.suppress(OSError):  # where nothing can be written, they are kept for this process
            write_json(cache_folder() / NOTES, {**_all_notes(), self.key: notes})

    def _times(self, pair: Callable[[], Pair | None]) -> tuple[float, float] | None:
        """Shortest milliseconds of static and of eager forwards; None where the trials were given up."""
        made: list[Pair | None] = []
        if self._alone(lambda: made.append(pair())) is None or made[0] is None:
            return None
        times: tuple[list[float], list[float]] = [], []
        for turn in range(PAIRS + 1):
            for forward, taken in zip(made[0], times, strict=True):
                if (seconds := self._alone(forward)) is None:
                    return None
                if turn:  # the first of a size prepares
                    taken.append(seconds * 1e3)
        return min(times[0]), min(times[1])

    @torch.inference_mode()
    def _alone(self, forward: Callable[[], Any]) -> float | None:
        return ACTIVITY.alone(forward, self.engines.target.lock, self._ending)


def _all_notes() -> dict[str, Any]:
    try:
        notes = json.loads((cache_folder() / NOTES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def _noted(key: str) -> dict[str, tuple[float, float]]:
    """What was measured before; what cannot be read counts for nothing."""
    try:
        return {name: (float(static_ms), float(eager_ms)) for name, (static_ms, eager_ms) in _all_notes()[key].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
