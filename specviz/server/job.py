"""One run of a server: what waits, goes on or is over, and what those who watch it get of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from decoders.trace.report import payload
from decoders.trace.run import RunRecord
from decoders.trace.tables import SCHEMA
from decoders.trace.trace import Trace

from .feed import EventFeed
from .store import pack


class RunLike(Protocol):
    """The runner's view of ``decoders.Run``: an iterator of deltas, and the trace they add up to."""

    trace: Trace

    def __iter__(self) -> Iterator[Mapping[str, Mapping[str, list[Any]]]]: ...


Build = Callable[[threading.Event], RunLike]


@dataclass(eq=False)
class Job:
    """A run that waits, goes on or is over. ``owner`` is a user or a browser, ``session`` one open page of it; ``seat``
    names the backend that has to do it, "" where any may.
    """

    id: str
    title: str
    build: Build
    owner: str = ""
    session: str = ""
    limit_key: str = ""  # whose limits count
    seat: str = ""
    losses: int = 0  # backends that were lost before it began
    state: str = "queued"  # queued, running, done
    cancel: threading.Event = field(default_factory=threading.Event)
    feed: EventFeed = field(default_factory=EventFeed)
    finished: threading.Event = field(default_factory=threading.Event)
    error: str = ""
    ahead: int = -1  # runs before it, as last told
    _copy: Trace | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def snapshot(self) -> bytes:
        """Compressed JSON of what is decoded so far; ``live`` = {state, seq, ahead}: events up to ``seq`` are in it."""
        with self._lock:
            document = payload(self._copy) if self._copy else {"schema": SCHEMA, "run": self._waiting()}
            live = {"state": self.state, "seq": self.feed.seq, "ahead": max(0, self.ahead)}
            return pack({**document, "live": live}, level=3)

    def so_far(self) -> Trace | None:
        """Copy of what is decoded by now; None before the run begins."""
        with self._lock:
            return copy_of(self._copy) if self._copy else None

    def _waiting(self) -> dict[str, Any]:
        return {"id": self.id, "title": self.title, "complete": False, "error": self.error}

    def begin(self, trace: Trace) -> None:
        with self._lock:
            self._copy = copy_of(trace)
            self.feed.publish({"state": "running"})

    def tell_read(self, rows: int, of: int) -> None:
        """Publish how many of a long prompt's tokens are read."""
        self.feed.publish({"read": [rows, of]})

    def add(self, delta: Mapping[str, Mapping[str, list[Any]]], trace: Trace) -> None:
        """Publish one step; if the trace grew by more than the delta says, watchers are told to fetch it all."""
        with self._lock:
            assert self._copy is not None
            self._copy.extend(delta)
            update: dict[str, Any] = {k: v for k, v in trace.run.items() if self._copy.run.get(k) != v}
            self._copy.run.update(RunRecord(**update))
            if all(self._copy.rows(name) == trace.rows(name) for name in trace.tables):
                self.feed.publish({"delta": delta, "run": update})
            else:
                self._copy = copy_of(trace)
                self.feed.publish({"reload": True})


def copy_of(trace: Trace) -> Trace:
    """A trace that stays as it is while another one grows."""
    tables = {name: {c: list(values) for c, values in table.items()} for name, table in trace.tables.items()}
    return Trace(trace.run.copy(), tables)
