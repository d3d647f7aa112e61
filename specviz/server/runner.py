"""Runs in the background: one worker thread per device, a queue, and a live feed for any number of watchers."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import math
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from decoders.trace.report import payload
from decoders.trace.tables import SCHEMA
from decoders.trace.trace import Trace

from .library import Library
from .limits import Rules, Window, caller
from .store import TraceStore, new_id, packed

log = logging.getLogger(__name__)

FEED_BYTES = 8 << 20  # kept per running run; whoever falls further behind fetches the whole trace again
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


class Feed:
    """Numbered events of one run: kept for a while, read by any number of watchers at their own pace.

    A watcher is only a position in the list, so a slow or a vanished one costs nothing.

    >>> feed = Feed()
    >>> feed.publish({"state": "running"})
    0
    >>> feed.after(-1)
    (['{"seq":0,"state":"running"}'], 0)
    """

    def __init__(self, max_bytes: int = FEED_BYTES) -> None:
        self.max_bytes = max_bytes
        self.seq = -1
        self.closed = False
        self._events: deque[tuple[int, str]] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._wakers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def publish(self, event: Mapping[str, Any], *, last: bool = False) -> int:
        """Add an event; returns its number."""
        with self._lock:
            self.seq += 1
            text = json.dumps({"seq": self.seq, **event}, separators=(",", ":"), ensure_ascii=False)
            self._events.append((self.seq, text))
            self._size += len(text)
            while len(self._events) > 1 and self._size > self.max_bytes:
                self._size -= len(self._events.popleft()[1])
            self.closed = self.closed or last
            wakers = list(self._wakers)
        for loop, event_ in wakers:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the server is going down
                loop.call_soon_threadsafe(event_.set)
        return self.seq

    def after(self, seq: int) -> tuple[list[str] | None, int]:
        """Events numbered above ``seq`` and the last number; None for the events where some were dropped already."""
        with self._lock:
            if self._events and seq + 1 < self._events[0][0]:
                return None, self.seq
            return [text for number, text in self._events if number > seq], self.seq

    @property
    def watchers(self) -> int:
        return len(self._wakers)

    async def watch(self, after: int = -1, *, heartbeat_s: float = 15.0) -> AsyncGenerator[str | None, None]:
        """Events as they come, until the run is over; None every ``heartbeat_s`` in which nothing happens."""
        waker = (asyncio.get_running_loop(), asyncio.Event())
        self._wakers.add(waker)
        try:
            while True:
                waker[1].clear()
                closed = self.closed
                events, last = self.after(after)
                if events is None:  # fell behind
                    yield json.dumps({"seq": last, "reload": True})
                    events = []
                for text in events:
                    yield text
                after = last
                if closed:
                    return
                try:
                    await asyncio.wait_for(waker[1].wait(), heartbeat_s)
                except TimeoutError:
                    yield None
        finally:
            self._wakers.discard(waker)


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
    """One worker thread per device; runs on one device wait for each other, errands (``between``) for all runs.

    A run that fails ends with ``stop="error"`` and a sentence; the worker goes on with the next one.
    """

    def __init__(self, store: TraceStore, library: Library | None = None, *, max_waiting: int = MAX_WAITING) -> None:
        self.store, self.library, self.max_waiting = store, library, max_waiting
        self._waiting: dict[str, deque[Job]] = {}
        self._errands: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._workers: set[str] = set()
        self._now: dict[str, Job] = {}
        self._jobs: dict[str, Job] = {}
        self._unstarted: OrderedDict[str, dict[str, Any]] = OrderedDict()
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

    def between(self, work: Callable[[], Any], *, device: str = "cpu") -> Any:
        """What ``work`` returns, done by the device's worker when no run waits for it: a step of something long.

        Raises QueueFull when the server goes down before it is done.
        """
        future: Future[Any] = Future()
        with self._change:
            if self._closing:
                raise QueueFull("The server is going down.")
            self._errands.setdefault(device, deque()).append((future, work))
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
            self._errands.setdefault(device, deque())
            threading.Thread(target=self._work, args=(device,), name=f"runs on {device}", daemon=True).start()

    def job(self, key: str) -> Job | None:
        """A run that waits or goes on (not one that is over)."""
        with self._change:
            return self._jobs.get(key)

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
        """Whether a run or an errand waits: something long had better make way."""
        with self._change:
            return any(self._waiting.values()) or any(self._errands.values())

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
        job.state = "done"
        job.error = error
        event = {"done": True, "stop": stop, "error": error, "started": False}
        with self._change:
            self._unstarted[job.id] = event
            while len(self._unstarted) > MAX_UNSTARTED:
                self._unstarted.popitem(last=False)
            self._jobs.pop(job.id, None)
        job.feed.publish(event, last=True)
        job.finished.set()

    def _work(self, device: str) -> None:
        line, errands = self._waiting[device], self._errands[device]
        while True:
            with self._change:
                while not line and not errands and not self._closing:
                    self._change.wait()
                if self._closing:
                    for future, _ in errands:
                        future.cancel()
                    return
                if line:
                    job, errand = line.popleft(), None
                    self._now[device] = job
                    job.state = "running"
                    self._tell_positions(device)
                else:
                    job, errand = None, errands.popleft()
            if errand is not None:
                _settle(*errand)
                continue
            assert job is not None
            try:
                self._run(job)
                self._tidy()
            except BaseException:  # the worker outlives whatever a run does
                log.exception("run %s broke the worker's loop", job.id)
                with self._change:
                    if job.id in self._jobs:
                        text = "The run ended in an unexpected way; the server's log says more."
                        self._end_unstarted(job, "error", text)

    def _tidy(self) -> None:
        """Give the memory that runs have freed back to the system, now and then: the allocator of glibc keeps it."""
        if TRIM is not None and time.monotonic() - self._tidied > TIDY_S:
            self._tidied = time.monotonic()
            TRIM(0)

    def _run(self, job: Job) -> None:
        trace, journal, error = None, None, ""
        try:
            run = job.build(job.cancel)
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
        if self.library is not None:
            self.library.finish(trace, journal)
        with self._change:
            job.state = "done"
            self._jobs.pop(job.id, None)
        job.error = str(trace.run.get("error") or "")
        job.feed.publish({"done": True, "stop": trace.run["stop"], "error": job.error, "started": True}, last=True)
        job.finished.set()


def _settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as problem:  # it belongs to whoever waits for the result
        future.set_exception(problem)


def sentence(problem: BaseException) -> str:
    """What went wrong, in one line fit to be shown."""
    name = type(problem).__name__
    if name == "OutOfMemoryError" or isinstance(problem, MemoryError) or "out of memory" in str(problem).lower():
        return "The device ran out of memory: use a shorter prompt, fewer new tokens, or a smaller draft."
    text = " ".join(str(problem).split())[:400]
    if isinstance(problem, ValueError) and text:
        first = text.split()[0]
        text = text[0].upper() + text[1:] if first.isalpha() else text  # a file name stays as it is
        return text + ("" if text[-1] in ".!?" else ".")
    return f"The run stopped on an internal error ({name}{': ' + text if text else ''})."


class Loader:
    """Loads the target in the background, and says in one line how that goes.

    ``state`` is none (nothing to load: viewing only), loading, ready or failed.
    """

    def __init__(self, load: Callable[[], Any] | None, *, reason: str = "", name: str = "") -> None:
        self.name = name
        self.target: Any = None
        self.state = "loading" if load else "none"
        self.text = "loading the model" if load else reason
        self._load = load
        self._done = threading.Event()
        if load is None:
            self._done.set()

    def start(self) -> None:
        if self._load is not None:
            threading.Thread(target=self._work, name="load the model", daemon=True).start()

    def _work(self) -> None:
        assert self._load is not None
        began = time.perf_counter()
        try:
            self.target = self._load()
        except ImportError as problem:
            self.state = "none"
            missing = problem.name or "a package"
            self.text = (
                f"Recorded runs only: {missing} is not installed. Install the project's requirements to run methods."
            )
        except Exception as problem:
            if not isinstance(problem, ValueError | OSError):
                log.exception("the model could not be loaded")
            self.state = "failed"
            self.text = f"{sentence(problem)} Recorded runs still open; restart with --model to use another model."
        else:
            self.state = "ready"
            self.text = describe(self.target.info)
            log.info("model ready after %.1f s: %s", time.perf_counter() - began, self.text)
        self._done.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until loading is over; whether it is."""
        return self._done.wait(timeout_s)

    def info(self) -> dict[str, Any]:
        """What the page's pill shows."""
        target = self.target.info if self.target is not None else {}
        return {"state": self.state, "text": self.text, "name": target.get("name") or self.name, "info": target}


def describe(info: Mapping[str, Any]) -> str:
    """A model in one line.

    >>> describe({"name": "demo", "parameters": 5_300_000, "dtype": "float32", "device": "cpu"})
    'demo · 5.3M parameters · float32 · cpu'
    """
    count = info.get("parameters")
    size = ""
    if isinstance(count, int | float) and count > 0:
        value, unit = (count / 1e9, "B") if count >= 1e9 else (count / 1e6, "M") if count >= 1e6 else (count / 1e3, "k")
        size = f"{value:.3g}{unit} parameters"
    return " · ".join(str(part) for part in (info.get("name"), size, info.get("dtype"), info.get("device")) if part)
