"""Whether this process is at work for somebody: what it does by itself (compiling, trials) makes way."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

IDLE_S = 1.0  # nothing was asked of a target for so long: the process is idle


class Activity:
    """When this process was last at work, and whether it is now. Trials take turns with that work."""

    def __init__(self) -> None:
        self._latest = 0.0  # when something was last asked of a target
        self._working = 0  # how much goes on that says when it ends
        self._change = threading.Condition()
        self._turn = threading.Lock()  # held while a trial's forward runs

    def told(self) -> None:
        """A target is at work, or was until now."""
        now, before = time.perf_counter(), self._latest
        self._latest = now
        if now - before >= IDLE_S:
            with self._change:
                self._change.notify_all()

    def begins(self) -> None:
        """A target is at work from now on. Returns when no forward of a trial runs any more."""
        self.told()
        with self._turn:
            pass

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """From its begin to its end, whatever happens between."""
        with self._change:
            self._working += 1
            self._change.notify_all()
        try:
            yield
        finally:
            with self._change:
                self._working -= 1
                self._latest = time.perf_counter()
                self._change.notify_all()

    def rest(self) -> float:
        """Seconds until this process is idle, if nothing is asked of it; 0 where it is."""
        return IDLE_S if self._working else max(0.0, self._latest + IDLE_S - time.perf_counter())

    def wait(self, *, idle: bool, most: float) -> bool:
        """Until this process is idle (or at work), or ``most`` seconds went by; whether it is so."""
        end = time.perf_counter() + most
        with self._change:
            while (rest := self.rest()) > 0 if idle else not self.rest():
                left = end - time.perf_counter()
                if left <= 0:
                    return False
                self._change.wait(min(left, rest) if idle else left)
        return True

    def alone(self, forward: Callable[[], Any], lock: threading.Lock, ending: threading.Event) -> float | None:
        """Call it under ``lock`` once nothing runs: the seconds it took. None where ``ending`` is set before that."""
        while not ending.wait(self.rest()):
            with self._turn:
                if self.rest():
                    continue
                if not lock.acquire(blocking=False):
                    self.told()
                    continue
                try:
                    started = time.perf_counter()
                    forward()
                    return time.perf_counter() - started
                finally:
                    lock.release()
        return None


ACTIVITY = Activity()
