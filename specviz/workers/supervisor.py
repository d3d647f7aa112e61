"""Opens workers, opens those anew that were lost, and gives up those that cannot be opened."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from decoders.errors import UserError

from .executors import Hosting, Opener, WorkerExecutor, WorkerLost, WorkerRefused

log = logging.getLogger(__name__)

LOSSES = 3  # workers that a piece of work may cost, and times that one may fail to open in a row
PAUSE_S = 0.5  # after a worker could not be opened; twice that after the next time
STARTING, FREE, BUSY, LOST_STATE, FAILED = "starting", "free", "busy", "lost", "failed"


@dataclass
class Seat:
    """A worker as it stands: ``state``, and why it was ``LOST_STATE`` or ``FAILED``. ``times`` counts its openings."""

    number: int
    worker: WorkerExecutor | None = None
    state: str = STARTING
    reason: str = ""
    times: int = 0
    failures: int = 0

    @property
    def is_open(self) -> bool:
        return self.state in (FREE, BUSY) and self.worker is not None and not self.worker.loss.done()


class Supervisor:
    """Workers by their names. ``changed`` is called when one was lost (its name, and why), from any thread."""

    def __init__(self, opener: Opener, names: Sequence[str]) -> None:
        self.seats = {name: Seat(number) for number, name in enumerate(names)}
        self.changed: Callable[[str, str], None] = lambda name, reason: None
        self._opener = opener
        self._hosting: Hosting | None = None
        self._begun, self._closing = threading.Event(), threading.Event()
        self._opening, self._lock = threading.Lock(), threading.RLock()

    def begin(self, hosting: Hosting) -> None:
        """Have the workers opened, by the threads that wait in ``prepare``."""
        self._hosting = hosting
        self._begun.set()

    def close(self) -> None:
        """End all workers, in the middle of their calls too."""
        self._closing.set()
        self._begun.set()
        with self._opening:
            workers = [seat.worker for seat in self.seats.values() if seat.worker is not None]
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.shutdown()
        self._opener.close()

    @property
    def reason(self) -> str:
        """The reason why nothing can be run, in a sentence; "" where a worker can, or will."""
        states = list(self.seats.values())
        if any(seat.state != FAILED for seat in states):
            return ""
        return f"No backend could be started: {states[0].reason}."

    def prepare(self, name: str) -> bool:
        """Open a worker unless it is open; waits for that. False where it is given up, or all are closed."""
        seat = self.seats[name]
        self._begun.wait()
        while not self._closing.is_set():
            if seat.is_open:
                return True
            try:
                if (worker := self._open(seat, name)) is None:
                    break
                worker.ready.result()
            except (WorkerRefused, UserError) as refusal:
                self._give_up(seat, name, str(refusal))
                break
            except WorkerLost as loss:
                if self._closing.is_set():
                    break
                seat.failures += 1
                log.warning("%s could not be started: %s", name, loss)
                if seat.failures >= LOSSES:
                    self._give_up(seat, name, str(loss))
                    break
                self._closing.wait(PAUSE_S * 2 ** (seat.failures - 1))
            else:
                with self._lock:
                    seat.state, seat.reason, seat.failures = FREE, "", 0
                    seat.times += 1
                worker.loss.add_done_callback(lambda loss, w=worker: self._on_loss(seat, w, loss.result()))
        return False

    @contextmanager
    def at_work(self, name: str) -> Iterator[WorkerExecutor]:
        """An open worker, which is ``BUSY`` meanwhile."""
        seat = self.seats[name]
        assert seat.worker is not None
        seat.state = BUSY
        try:
            yield seat.worker
        finally:
            with self._lock:
                if seat.state == BUSY:
                    seat.state = FREE

    def _open(self, seat: Seat, name: str) -> WorkerExecutor | None:
        """A new worker, not ready yet; None where all are closed."""
        assert self._hosting is not None
        with self._opening:
            if not self._closing.is_set():
                seat.worker = self._opener.open(name, seat.number, self._hosting)
                return seat.worker
        return None

    def _give_up(self, seat: Seat, name: str, reason: str) -> None:
        if not self._closing.is_set():
            log.error("%s is given up: %s", name, reason)
        seat.state, seat.reason = FAILED, reason.rstrip(".")

    def _on_loss(self, seat: Seat, worker: WorkerExecutor, reason: str) -> None:
        with self._lock:
            if self._closing.is_set() or seat.worker is not worker:
                return
            seat.state, seat.reason = LOST_STATE, reason
        log.warning("%s was lost (%s) and is started again", worker.name, reason)
        self.changed(worker.name, reason)
