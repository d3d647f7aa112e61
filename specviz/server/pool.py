"""The backends behind the app: runs are spread over them, and whoever holds state stays with the one that holds it.

The runner has a thread for each backend (its seat), which opens the backend, hands it runs, and opens it again when it
was lost. Here is what is known of each, and what is asked of the one that the thread belongs to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache

from decoders.errors import UserError
from specviz.workers.backends import AT_ONCE, Backend, Gone, Hosting
from specviz.workers.work import Refused

from .hosted import Followed, Work, name_of

log = logging.getLogger(__name__)

LINE = "backends"  # the runner's line for all of them
LOSSES = 3  # backends that a run may cost before it begins, and times that one may fail to open in a row
MOST_HOMES = 20_000
STARTING, FREE, BUSY, LOST, FAILED = "starting", "free", "busy", "lost", "failed"
SEAT: ContextVar[str] = ContextVar("the backend whose thread this is", default="")


class NotBegun(Exception):
    """The backend was lost before a run began: another one is to do it."""


@dataclass
class Seat:
    """A backend as it stands: ``state``, and why it was ``LOST`` or ``FAILED``. ``times`` counts its openings."""

    backend: Backend
    state: str = STARTING
    reason: str = ""
    times: int = 0
    failures: int = 0


class Pool:
    """Backends by their names. ``changed`` is called when one was lost, from any thread."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.seats = {backend.name: Seat(backend) for backend in backends}
        self.changed: Callable[[], None] = lambda: None
        self._hosting: Hosting | None = None
        self._begun, self._closing = threading.Event(), threading.Event()
        self._homes: LRUCache[str, tuple[str, int]] = LRUCache(MOST_HOMES)
        self._lock = threading.RLock()
        for seat in self.seats.values():
            seat.backend.lost = lambda reason, seat=seat: self._lost(seat, reason)

    def begin(self, hosting: Hosting) -> None:
        """Have the backends opened, by the threads that wait in ``prepare``."""
        self._hosting = hosting
        self._begun.set()

    def close(self) -> None:
        """End all backends."""
        self._closing.set()
        self._begun.set()
        for seat in self.seats.values():
            seat.backend.close()
        for seat in self.seats.values():
            seat.backend.leave()

    def told(self) -> list[dict[str, Any]]:
        """What the page shows of each."""
        return [{"name": name, "state": seat.state, "text": seat.reason} for name, seat in self.seats.items()]

    @property
    def reason(self) -> str:
        """Why nothing can be run, in a sentence; "" where a backend can, or will."""
        states = list(self.seats.values())
        if any(seat.state != FAILED for seat in states):
            return ""
        return f"No backend could be started: {states[0].reason}."

    # --- a seat's thread ---

    def prepare(self, name: str) -> bool:
        """Open a backend unless it is open; waits for that. False where it is given up, or the server goes down."""
        seat, pause = self.seats[name], 0.5
        while not self._closing.is_set():
            if seat.state in (FREE, BUSY):
                return True
            self._begun.wait()
            if self._closing.is_set():
                break
            assert self._hosting is not None
            try:
                seat.backend.open(self._hosting)
            except (Refused, UserError) as refusal:
                self._give_up(seat, str(refusal))
                return False
            except Gone as gone:
                seat.failures += 1
                log.warning("%s could not be started: %s", name, gone)
                if seat.failures >= LOSSES:
                    self._give_up(seat, str(gone))
                    return False
                self._closing.wait(pause)
                pause *= 2
            else:
                with self._lock:
                    seat.state, seat.reason, seat.failures = FREE, "", 0
                    seat.times += 1
        if self._closing.is_set():  # it may have been opened while the others were closed
            seat.backend.close()
        return False

    def _give_up(self, seat: Seat, reason: str) -> None:
        if not self._closing.is_set():
            log.error("%s is given up: %s", seat.backend.name, reason)
        seat.state, seat.reason = FAILED, reason.rstrip(".")

    def _lost(self, seat: Seat, reason: str) -> None:
        with self._lock:
            if self._closing.is_set() or seat.state not in (FREE, BUSY):
                return
            seat.state, seat.reason = LOST, reason
        log.warning("%s was lost (%s) and is started again", seat.backend.name, reason)
        self.changed()

    def is_open(self, name: str) -> bool:
        return self.seats[name].state in (FREE, BUSY)

    def run(self, asked: Mapping[str, Any], owner: str, cancel: threading.Event) -> Followed:
        """Begin a run on this thread's backend. Raises NotBegun where that is lost before it began."""
        seat = self.seats[SEAT.get()]
        told = self._asked(seat, {"run": asked, "owner": owner}, cancel)
        try:
            return _OnBackend(told, seat.backend.name)
        except Gone as gone:
            raise NotBegun(str(gone)) from None

    def ask(self, work: Work, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What a function of a module returns, done by this thread's backend. Raises UserError where that is lost."""
        return self._one(self.seats[SEAT.get()], {"work": name_of(work), "asked": asked})

    def _asked(
        self, seat: Seat, question: Mapping[str, Any], cancel: threading.Event
    ) -> Iterator[Mapping[str, Any]]:
        seat.state = BUSY
        try:
            yield from seat.backend.ask(question, cancel)
        except Gone as gone:
            self._lost(seat, str(gone))
            raise
        finally:
            with self._lock:
                if seat.state == BUSY:
                    seat.state = FREE

    def _one(self, seat: Seat, question: Mapping[str, Any]) -> dict[str, Any]:
        cancel = threading.Event()
        told = seat.backend.ask(question, cancel) if AT_ONCE in question else self._asked(seat, question, cancel)
        try:
            return dict(list(told)[-1])
        except Gone as gone:
            raise UserError(f"{seat.backend.name} was lost: {gone}. It is started again; ask again") from None

    # --- where state is ---

    def home(self, key: str, waiting: Mapping[str, int] | None = None) -> str:
        """The backend that holds what is kept under a key; with how many runs are ``waiting`` for each, one is chosen
        where none does. "" where there is none.
        """
        with self._lock:
            name, times = self._homes.get(key, ("", 0))
            if name and self.seats[name].times == times and self.is_open(name):
                return name
            self._homes.pop(key, None)
            if waiting is None:
                return ""
            name = self.least(waiting)
            if name:
                self._homes[key] = (name, self.seats[name].times)
            return name

    def least(self, waiting: Mapping[str, int]) -> str:
        """A free backend, else the one for which the fewest runs wait; "" where none is open."""
        homes = [name for name, _ in self._homes.values()]
        order = {name: (seat.state == BUSY, waiting.get(name, 0), homes.count(name))
                 for name, seat in self.seats.items() if seat.state in (FREE, BUSY)}  # fmt: skip
        return min(order, key=lambda name: order[name], default="")

    def at_once(self, name: str, work: Work, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What a function returns that only looks at a backend's state, also while a run goes on there."""
        return self._one(self.seats[name], {"work": name_of(work), "asked": asked, AT_ONCE: True})


class _OnBackend(Followed):
    """A run on a backend. Raises UserError where that is lost, with what became of its steps."""

    def __init__(self, told: Iterator[Mapping[str, Any]], name: str) -> None:
        super().__init__(told)
        self._name = self.trace.run["backend"] = name

    def __iter__(self) -> Iterator[Mapping[str, Mapping[str, list[Any]]]]:
        try:
            yield from super().__iter__()
        except Gone as gone:
            steps = self.trace.rows("steps")
            raise UserError(lost_in_mid_run(self._name, str(gone), steps)) from None


def lost_in_mid_run(name: str, reason: str, steps: int) -> str:
    """
    >>> lost_in_mid_run("backend 2", "its process ended (exit code 1)", 1)
    'backend 2 was lost: its process ended (exit code 1). The step it had finished is kept; run this again'
    """
    kept = "No step was done"
    if steps:
        kept = "The step it had finished is kept" if steps == 1 else f"The {steps:,} steps it had finished are kept"
    return f"{name} was lost: {reason}. {kept}; run this again"
