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
import time
from collections.abc import Callable
from typing import Any

import torch

from decoders.draft.needs import Needs
from decoders.folders import cache_folder, write_json

from .capture import Captured
from .static import Bucket

NOTES = "engines.json"  # in the cache folder: what was measured
PAIRS = 5  # forwards of each kind, in turn
CLEAR = 0.97  # of eager's time: what a static forward takes at most to be used
IDLE_S = 1.0  # nothing was asked of the target for so long: it is idle


def tried_size(bucket: Bucket) -> Bucket:
    """What stands for a bucket: its rows, and keys to a power of two.

    >>> tried_size(Bucket(8, 384)), tried_size(Bucket(1, 128))
    (Bucket(rows=8, keys=512), Bucket(rows=1, keys=256))
    """
    return Bucket(bucket.rows, max(256, 1 << (bucket.keys - 1).bit_length()))


class Trials:
    """The trials of one target's engines. ``notes``: size → shortest milliseconds of a static and an eager forward;
    ``key``: what times depend on besides the size.
    """

    def __init__(self, engines: Any, key: str) -> None:
        self.engines, self.key = engines, key
        self.notes = _noted(key)
        self.wanted = set[Bucket]()
        self.tried = set[Bucket]()
        self._active = 0.0  # when something was last asked of the target
        self._turn = threading.Lock()  # held while a trial's forward runs
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def faster(self, bucket: Bucket) -> bool:
        """Whether a static forward is faster; False where that is not known."""
        size = tried_size(bucket)
        if size not in self.tried:
            self.wanted.add(size)
        static_ms, eager_ms = self.notes.get(_name(size), (1.0, 0.0))
        return static_ms <= CLEAR * eager_ms

    def active(self) -> None:
        """The target is at work, or was until now."""
        self._active = time.perf_counter()

    def awake(self) -> None:
        """The target is at work from now on. Returns when no forward of a trial runs any more."""
        self.active()
        with self._turn:
            pass

    def begin(self) -> None:
        """Have what is missing compiled and what is wanted measured, by a thread that waits until nothing runs."""
        self.active()
        if self._thread is None and (self.wanted or not self.engines.ready()):
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
            if self.engines.prepare(self._ending, urgent=False):
                while self.wanted and self.engines.static is not None:
                    size = min(self.wanted, key=lambda size: (size.keys, size.rows))
                    if (times := self._times(size)) is None:
                        return
                    self._note(size, *times)
        finally:
            self._thread = None
            atexit.unregister(self.end)

    def _note(self, size: Bucket, *times: float) -> None:
        """Keep the shorter ones of these milliseconds and those noted before."""
        name, notes = _name(size), _noted(self.key)
        before = notes.get(name, times)
        self.notes[name] = notes[name] = (round(min(times[0], before[0]), 3), round(min(times[1], before[1]), 3))
        self.tried.add(size)
        self.wanted.discard(size)
        with contextlib.suppress(OSError):  # where nothing can be written, they are kept for this process
            write_json(cache_folder() / NOTES, {**_all_notes(), self.key: notes})

    def _times(self, size: Bucket) -> tuple[float, float] | None:
        """Shortest milliseconds of static and of eager forwards; None where the trials were given up."""
        from .engines import example

        engines, target = self.engines, self.engines.target
        bucket, rows = example(target, size.rows, min(size.keys, target.context_length + size.rows))

        def eager() -> None:
            engines.eager(rows, Needs(), Captured())

        def static() -> None:
            engines.static.run(bucket, rows, Needs(), Captured())

        if self._alone(engines.check) is None or engines.static is None:
            return None
        times: dict[Callable[[], Any], list[float]] = {eager: [], static: []}
        for pair in range(PAIRS + 1):
            for forward, taken in times.items():
                if (seconds := self._alone(forward)) is None:
                    return None
                if pair:  # the first of a size prepares
                    taken.append(seconds)
        return min(times[static]) * 1e3, min(times[eager]) * 1e3

    def _alone(self, forward: Callable[[], Any]) -> float | None:
        """Call it once the target is idle: the seconds it took. None where the trials end before that."""
        lock = self.engines.target.lock
        while not self._ending.wait(max(0.0, self._active + IDLE_S - time.perf_counter())):
            with self._turn:
                if time.perf_counter() - self._active < IDLE_S:
                    continue
                if not lock.acquire(blocking=False):
                    self._active = time.perf_counter()
                    continue
                try:
                    started = time.perf_counter()
                    with torch.inference_mode():
                        forward()
                    return time.perf_counter() - started
                finally:
                    lock.release()
        return None


def _name(size: Bucket) -> str:
    return f"{size.rows}x{size.keys}"


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
