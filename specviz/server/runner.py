"""Runs in the background: one worker thread per device, and a queue."""

from __future__ import annotations

import ctypes
import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from cachetools import FIFOCache

from decoders.method.kept import owned_by
from decoders.trace.report import payload
from decoders.trace.tables import SCHEMA
from decoders.trace.trace import Trace
from specviz.places import new_id
from specviz.words import sentence

from .feed import Feed
from .library import Library
from .limits import Rules, Window, caller
from .store import TraceStore, packed

log = logging.getLogger(__name__)

MAX_WAITING = 32
ABANDONED_S = 4.0  # a reload of the page takes less
TIDY_S = 10.0
MAX_UNSTARTED = 200  # runs that never began, of which the reason is kept
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


class RunLike(Protocol):
    """What the runner needs of ``decoders.Run``: an iterator of deltas, and the trace they add up to."""

    trace: Trace

    def __iter__(self) -> Iterator[Mapping[str, Mapping[str, list[Any]]]]: ...


Build = Callable[[threading.Event], RunLike]


class QueueFull(RuntimeError):
    """Too many runs wait already, or came from one user; after ``retry_s`` seconds it may be asked for again."""

    def __init__(self, text: str, retry_s: float = 10.0) -> None:
        super().__init__(text)
        self.retry_s = max(1, math.ceil(retry_s))


@dataclass(eq=False)
class Job:
    """A run that waits, goes on or is over. ``owner`` is a user or a browser, ``session`` one open page of it."""

    id: str
    title: str
    build: Build
    owner: str = ""
    session: str = ""
    who: str = ""  # whose limits count
    state: str = "queued"  # queued, running, done
    cancel: threading.Event = field(default_factory=threading.Event)
    feed: Feed = field(default_factory=Feed)
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
            return packed({**document, "live": live}, level=3)

    def _waiting(self) -> dict[str, Any]:
        return {"id": self.id, "title": self.title, "complete": False, "error": self.error}

    def begin(self, trace: Trace) -> None:
        with self._lock:
            self._copy = _copied(trace)
            self.feed.publish({"state": "running"})

    def add(self, delta: Mapping[str, Mapping[str, list[Any]]], trace: Trace) -> None:
        """Publish one step; if the trace grew by more than the delta says, watchers are told to fetch it all."""
        with self._lock:
            assert self._copy is not None
            self._copy.extend(delta)
            update = {k: v for k, v in trace.run.items() if self._copy.run.get(k) != v}
            self._copy.run.update(update)
            if all(self._copy.rows(name) == trace.rows(name) for name in trace.tables):
                self.feed.publish({"delta": delta, "run": update})
            else:
                self._copy = _copied(trace)
                self.feed.publish({"reload": True})


def _copied(trace: Trace) -> Trace:
    tables = {name: {c: list(values) for c, values in table.items()} for name, table in trace.tables.items()}
    return Trace(dict(trace.run), tables)


class Runner:
    """One worker thread per device; runs on one device wait for each other, other work (``on_worker``) for all runs.

    A run that fails ends with ``stop="error"`` and a sentence; the worker goes on with the next one.
    """

    def __init__(self, store: TraceStore, library: Library | None = None, *, max_waiting: int = MAX_WAITING) -> None:
        self.store, self.library, self.max_waiting = store, library, max_waiting
        self._waiting: dict[str, deque[Job]] = {}
        self._other_work: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._workers: set[str] = set()
        self._now: dict[str, Job] = {}
        self._jobs: dict[str, Job] = {}
        self._unstarted: FIFOCache[str, dict[str, Any]] = FIFOCache(MAX_UNSTARTED)
        self._change = threading.Condition()
        self._closing = False
        self._tidied = 0.0
        self.keep_to(Rules())

    def keep_to(self, rules: Rules) -> None:
        """Let no user have more than ``rules`` allow."""
        self.rules = rules
        self._rate = Window(rules.runs)

    def submit(self, build: Build, *, title: str = "", owner: str = "", session: str = "", device: str = "cpu") -> Job:
        """Queue a run. Raises QueueFull with a sentence: the queue is full, or its owner has had enough for now."""
        who = caller.get() or owner
        job = Job(new_id(), title, build, owner, session, who)
        with self._change:
            if self._closing:
                raise QueueFull("The server is going down.")
            line = self._waiting.setdefault(device, deque())
            if len(line) >= self.max_waiting:
                raise QueueFull(
                    f"{len(line)} runs are waiting already, which is the most this server takes: try again later."
                )
            self._admit(who)
            line.append(job)
            self._jobs[job.id] = job
            self._start_worker(device)
            self._tell_positions(device)
            self._change.notify_all()
        return job

    def _admit(self, who: str) -> None:
        mine = sum(j.who == who for j in self._jobs.values()) if who else 0
        if mine >= self.rules.waiting:
            raise QueueFull(
                f"{mine} of your runs wait or go on, and {self.rules.waiting} may at a time: "
                "wait until one is over, or stop one."
            )
        if wait := self._rate.take(who):
            raise QueueFull(
                f"You started {self.rules.runs} runs within a minute, which is the most: wait {max(1, round(wait))} s "
                "and try again.",
                wait,
            )

    def on_worker(self, work: Callable[[], Any], *, device: str = "cpu") -> Any:
        """What ``work`` returns, done by the device's worker when no run waits for it: a step of something long. It is
        done in the caller's context: for the owner that is set here (``decoders.method.kept``).

        Raises QueueFull when the server goes down before it is done.
        """
        future: Future[Any] = Future()
        with self._change:
            if self._closing:
                raise QueueFull("The server is going down.")
            self._other_work.setdefault(device, deque()).append((future, partial(copy_context().run, work)))
            self._start_worker(device)
            self._change.notify_all()
        try:
            return future.result()
        except CancelledError:
            raise QueueFull("The server is going down.") from None

    def _start_worker(self, device: str) -> None:
        if device not in self._workers:
            self._workers.add(device)
            self._waiting.setdefault(device, deque())
            self._other_work.setdefault(device, deque())
            threading.Thread(target=self._work, args=(device,), name=f"runs on {device}", daemon=True).start()

    def job(self, key: str) -> Job | None:
        """A run that waits or goes on (not one that is over)."""
        with self._change:
            return self._jobs.get(key)

    def owned(self, keys: Sequence[str], owner: str) -> list[Job]:
        """Those of the runs that wait or go on and are ``owner``'s."""
        with self._change:
            return [job for key in keys if (job := self._jobs.get(key)) is not None and job.owner == owner]

    def unstarted(self, key: str) -> dict[str, Any] | None:
        """The last event of a run that ended before it began, for whoever asks later; None where there is none."""
        with self._change:
            return self._unstarted.get(key)

    def active(self, owner: str) -> list[Job]:
        with self._change:
            return [j for j in self._jobs.values() if j.owner == owner]

    def load(self) -> dict[str, int]:
        """How many runs go on, and how many wait."""
        with self._change:
            running = sum(j.state == "running" for j in self._jobs.values())
            return {"running": running, "waiting": len(self._jobs) - running}

    def wanted(self) -> bool:
        """Whether a run or other work waits: something long had better make way."""
        with self._change:
            return any(self._waiting.values()) or any(self._other_work.values())

    def cancel(self, job: Job) -> None:
        """Stop a run between two steps; one that waits never starts."""
        job.cancel.set()
        with self._change:
            for device, line in self._waiting.items():
                if job in line:
                    line.remove(job)
                    self._end_unstarted(job)
                    self._tell_positions(device)

    def leave(self, session: str, *, after_s: float = ABANDONED_S) -> None:
        """The page was closed: its runs end soon, unless somebody watches them by then (a reload, a shared link)."""

        def look() -> None:
            with self._change:
                jobs = [j for j in self._jobs.values() if session and j.session == session]
            for job in jobs:
                if not job.feed.watchers:
                    self.cancel(job)

        timer = threading.Timer(after_s, look)
        timer.daemon = True
        timer.start()

    def close(self, wait_s: float = 2.0) -> None:
        """Stop everything; what is decoded so far is kept."""
        with self._change:
            self._closing = True
            jobs = list(self._jobs.values())
            self._change.notify_all()
        for job in jobs:
            self.cancel(job)
        end = time.monotonic() + wait_s
        for job in jobs:
            job.finished.wait(max(0.0, end - time.monotonic()))

    def _tell_positions(self, device: str) -> None:
        now = self._now.get(device)
        ahead = int(now is not None and now.state == "running")
        for job in self._waiting.get(device, ()):
            if job.ahead != ahead:
                job.ahead = ahead
                job.feed.publish({"state": "queued", "ahead": ahead})
            ahead += 1

    def _end_unstarted(self, job: Job, stop: str = "cancelled", error: str = "Cancelled before it started.") -> None:
        job.state, job.build = "done", _over
        job.error = error
        event = {"done": True, "stop": stop, "error": error, "started": False}
        with self._change:
            self._unstarted[job.id] = event
            self._jobs.pop(job.id, None)
        job.feed.publish(event, last=True)
        job.finished.set()

    def _work(self, device: str) -> None:
        while self._work_once(device):
            pass

    def _work_once(self, device: str) -> bool:
        """Do the next run, or other work; False when the server goes down. Nothing of it is held on to: a run's model
        may be exchanged for another one while nothing runs.
        """
        line, other_work = self._waiting[device], self._other_work[device]
        with self._change:
            while not line and not other_work and not self._closing:
                self._change.wait()
            if self._closing:
                for future, _ in other_work:
                    future.cancel()
                return False
            if line:
                job, other = line.popleft(), None
                self._now[device] = job
                job.state = "running"
                self._tell_positions(device)
            else:
                job, other = None, other_work.popleft()
        if other is not None:
            _settle(*other)
            return True
        assert job is not None
        try:
            with owned_by(job.owner):
                self._run(job)
            self._tidy()
        except BaseException:  # the worker outlives whatever a run does
            log.exception("run %s broke the worker's loop", job.id)
            with self._change:
                if job.id in self._jobs:
                    text = "The run ended in an unexpected way; the server's log says more."
                    self._end_unstarted(job, "error", text)
        finally:
            with self._change:
                self._now.pop(device, None)
        return True

    def _tidy(self) -> None:
        """Give the memory that runs have freed back to the system, now and then: the allocator of glibc keeps it."""
        if TRIM is not None and time.monotonic() - self._tidied > TIDY_S:
            self._tidied = time.monotonic()
            TRIM(0)

    def _run(self, job: Job) -> None:
        trace, journal, error = None, None, ""
        try:
            build, job.build = job.build, _over
            run = build(job.cancel)
            del build
            trace = run.trace
            trace.run.update(id=job.id, title=job.title or trace.run.get("title", ""))
            journal = self.library.start(trace, job.owner) if self.library is not None else None
            job.begin(trace)
            for delta in run:
                if journal is not None:
                    journal.append(delta)
                job.add(delta, trace)
        except Exception as problem:
            error = sentence(problem)
            if not isinstance(problem, ValueError):
                log.exception("run %s failed", job.id)
        if trace is None:
            self._end_unstarted(job, "error", error or "The run could not be started.")
            return
        if error:
            trace.run.update(stop="error", error=error)
        trace.run["complete"] = True
        trace.run.setdefault("stop", "")
        self.store.put(trace, owner=job.owner)
        unsaved = ""
        if self.library is not None:
            self.library.finish(trace, journal)
            unsaved = "" if job.id in self.library else self.library.problem
        with self._change:
            job.state = "done"
            self._jobs.pop(job.id, None)
        job.error = str(trace.run.get("error") or "")
        event = {"done": True, "stop": trace.run["stop"], "error": job.error, "started": True, "unsaved": unsaved}
        job.feed.publish(event, last=True)
        job.finished.set()


def _over(_: threading.Event) -> RunLike:
    """In place of a job's own way to begin, once that was done: it holds the run's model."""
    raise RuntimeError("this run began already")


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as problem:  # it belongs to whoever waits for the result
        future.set_exception(problem)
