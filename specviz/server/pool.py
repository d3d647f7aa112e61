"""The backends behind the app: runs are spread over them, and whoever holds state stays with the one that holds it.

The runner has a thread for each backend (its seat), which opens the backend, hands it runs, and opens it again when it
was lost (``workers.supervisor``). Here is what is asked of the one that the thread belongs to, and where state is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cachetools import LRUCache

from decoders.errors import UserError
from specviz.workers.executors import AT_ONCE, Opener, WorkerLost
from specviz.workers.supervisor import BUSY, Supervisor

from .backend_host import RemoteRun, Work, decode

LINE = "backends"  # the runner's line for all of them
MOST_HOMES = 20_000
SEAT: ContextVar[str] = ContextVar("the backend whose thread this is", default="")


class NotBegun(Exception):
    """The backend was lost before a run began: another one is to do it."""


class SeatPool(Supervisor):
    """The app's backends, asked by the thread that each belongs to (``SEAT``)."""

    def __init__(self, opener: Opener, names: Sequence[str]) -> None:
        super().__init__(opener, names)
        self._homes: LRUCache[str, tuple[str, int]] = LRUCache(MOST_HOMES)

    def status(self) -> list[dict[str, Any]]:
        """The state of each backend, for the page."""
        return [{"name": name, "state": seat.state, "text": seat.reason} for name, seat in self.seats.items()]

    def is_open(self, name: str) -> bool:
        return self.seats[name].is_open

    def run(self, arguments: Mapping[str, Any], owner: str, cancel: threading.Event) -> RemoteRun:
        """Begin a run on this thread's backend. Raises NotBegun where that is lost before it began."""
        name = SEAT.get()
        try:
            return _OnBackend(self._decode(name, arguments, owner, cancel), name)
        except WorkerLost as loss:
            raise NotBegun(str(loss)) from None

    def _decode(
        self, name: str, arguments: Mapping[str, Any], owner: str, cancel: threading.Event
    ) -> Iterator[Mapping[str, Any]]:
        with self.at_work(name) as worker:
            yield from worker.stream(decode, arguments, owner, cancel=cancel)

    def work(self, work: Work, question: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function of a module by this thread's backend. Raises UserError where that is lost."""
        name = SEAT.get()
        with _told_when_lost(name), self.at_work(name) as worker:
            return worker.submit(work, question).result()

    def at_once(self, name: str, work: Work, question: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function that only looks at a backend's state, also while a run goes on there."""
        worker = self.seats[name].worker
        assert worker is not None
        with _told_when_lost(name):
            return worker.submit(work, question, kind=AT_ONCE).result()

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
                 for name, seat in self.seats.items() if seat.is_open}  # fmt: skip
        return min(order, key=lambda name: order[name], default="")


class _OnBackend(RemoteRun):
    """A run on a backend. Raises UserError where that is lost, with what became of its steps."""

    def __init__(self, messages: Iterator[Mapping[str, Any]], name: str) -> None:
        super().__init__(messages)
        self._name = self.trace.run["backend"] = name

    def __iter__(self) -> Iterator[Mapping[str, Mapping[str, list[Any]]]]:
        try:
            yield from super().__iter__()
        except WorkerLost as loss:
            steps = self.trace.rows("steps")
            raise UserError(lost_in_mid_run(self._name, str(loss), steps)) from None


@contextmanager
def _told_when_lost(name: str) -> Iterator[None]:
    try:
        yield
    except WorkerLost as loss:
        raise UserError(f"{name} was lost: {loss}. It is started again; ask again") from None


def lost_in_mid_run(name: str, reason: str, steps: int) -> str:
    """
    >>> lost_in_mid_run("backend 2", "its process ended (exit code 1)", 1)
    'backend 2 was lost: its process ended (exit code 1). The step it had finished is kept; run this again'
    """
    remark = "No step was done"
    if steps:
        remark = "The step it had finished is kept" if steps == 1 else f"The {steps:,} steps it had finished are kept"
    return f"{name} was lost: {reason}. {remark}; run this again"
