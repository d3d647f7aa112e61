"""Opens backends, asks them, opens those again that were lost, and gives up those that cannot be opened.

Each backend has a thread of its user's, which waits in ``prepare`` until it is open, and asks it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decoders.errors import UserError

from .backends import Backend, BackendLost, Hosting
from .work import WorkerRefused

log = logging.getLogger(__name__)

LOSSES = 3  # backends that a piece of work may cost, and times that one may fail to open in a row
PAUSE_S = 0.5  # after a backend could not be opened; twice that after the next time
STARTING, FREE, BUSY, LOST_STATE, FAILED = "starting", "free", "busy", "lost", "failed"


@dataclass
class Seat:
    """A backend as it stands: ``state``, and why it was ``LOST_STATE`` or ``FAILED``. ``times`` counts its openings."""

    backend: Backend
    state: str = STARTING
    reason: str = ""
    times: int = 0
    failures: int = 0

    @property
    def is_open(self) -> bool:
        return self.state in (FREE, BUSY)


class Supervisor:
    """Backends by their names. ``changed`` is called when one was lost (its name, and why), from any thread."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.seats = {backend.name: Seat(backend) for backend in backends}
        self.changed: Callable[[str, str], None] = lambda name, reason: None
        self._hosting: Hosting | None = None
        self._begun, self._closing = threading.Event(), threading.Event()
        self._lock = threading.RLock()
        for seat in self.seats.values():
            seat.backend.on_lost = lambda reason, seat=seat: self._lose(seat, reason)

    def begin(self, hosting: Hosting) -> None:
        """Have the backends opened, by the threads that wait in ``prepare``."""
        self._hosting = hosting
        self._begun.set()

    def close(self, threads: Sequence[threading.Thread] = ()) -> None:
        """End all backends, and wait for the ``threads`` that open them."""
        self._closing.set()
        self._begun.set()
        backends = [seat.backend for seat in self.seats.values()]
        for backend in backends:
            backend.close()
        while any(thread.is_alive() for thread in threads):  # one may be about to open its backend
            time.sleep(0.05)
            for backend in backends:
                backend.close()
        for backend in backends:
            backend.leave()

    @property
    def reason(self) -> str:
        """Why nothing can be run, in a sentence; "" where a backend can, or will."""
        states = list(self.seats.values())
        if any(seat.state != FAILED for seat in states):
            return ""
        return f"No backend could be started: {states[0].reason}."

    def prepare(self, name: str) -> bool:
        """Open a backend unless it is open; waits for that. False where it is given up, or all are closed."""
        seat = self.seats[name]
        while not self._closing.is_set():
            if seat.is_open:
                return True
            self._begun.wait()
            if self._closing.is_set():
                break
            assert self._hosting is not None
            try:
                seat.backend.open(self._hosting)
            except (WorkerRefused, UserError) as refusal:
                self._give_up(seat, str(refusal))
                return False
            except BackendLost as loss:
                seat.failures += 1
                log.warning("%s could not be started: %s", name, loss)
                if seat.failures >= LOSSES:
                    self._give_up(seat, str(loss))
                    return False
                self._closing.wait(PAUSE_S * 2 ** (seat.failures - 1))
            else:
                with self._lock:
                    seat.state, seat.reason, seat.failures = FREE, "", 0
                    seat.times += 1
        if self._closing.is_set():  # it may have been opened while the others were closed
            seat.backend.close()
        return False

    def ask(self, name: str, question: Mapping[str, Any], cancel: threading.Event) -> Iterator[Mapping[str, Any]]:
        """An open backend's answers as they come; it is ``BUSY`` meanwhile. Raises BackendLost, UserError."""
        seat = self.seats[name]
        seat.state = BUSY
        try:
            yield from seat.backend.ask(question, cancel)
        except BackendLost as loss:
            self._lose(seat, str(loss))
            raise
        finally:
            with self._lock:
                if seat.state == BUSY:
                    seat.state = FREE

    def _give_up(self, seat: Seat, reason: str) -> None:
        if not self._closing.is_set():
            log.error("%s is given up: %s", seat.backend.name, reason)
        seat.state, seat.reason = FAILED, reason.rstrip(".")

    def _lose(self, seat: Seat, reason: str) -> None:
        with self._lock:
            if self._closing.is_set() or not seat.is_open:
                return
            seat.state, seat.reason = LOST_STATE, reason
        log.warning("%s was lost (%s) and is started again", seat.backend.name, reason)
        self.changed(seat.backend.name, reason)
