"""Runs in the background: one worker thread per device, or per backend of a pool, and a queue."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import math
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from cachetools import FIFOCache

from decoders.errors import UserError
from decoders.method.kept import owned_by
from specviz.places import new_id
from specviz.words import sentence
from specviz.workers.supervisor import LOSSES

from .job import Build, Job, RunLike
from .library import Library
from .limits import Rules, Window, caller
from .pool import LINE, SEAT, NotBegun, SeatPool
from .store import TraceStore

log = logging.getLogger(__name__)

MAX_WAITING = 32
ABANDONED_S = 4.0  # a reload of the page takes less
TIDY_S = 10.0
MAX_UNSTARTED = 200  # runs that never began, of which the reason is kept
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


class QueueFull(RuntimeError):
    """Too many runs wait already, or came from one user; after ``retry_s`` seconds it may be asked for again."""

    def __init__(self, text: str, retry_s: float = 10.0) -> None:
        super().__init__(text)
        self.retry_s = max(1, math.ceil(retry_s))


class Runner:
    """One worker thread per device; runs on one device wait for each other, other work (``on_worker``) for all runs.
    The line ``pool.LINE`` has a thread for each backend instead: whichever is free takes the next run that it may do.

    A run that fails ends with ``stop="error"`` and a sentence; the worker goes on with the next one.
    """

    def __init__(
        self, store: TraceStore, library: Library | None = None, *, max_waiting: int = MAX_WAITING,
        pool: SeatPool | None = None,
    ) -> None:  # fmt: skip
        self.store, self.library, self.max_waiting, self.pool = store, library, max_waiting, pool
        if library is not None:
            library.belongs_to(store)
        self._waiting: dict[str, deque[Job]] = {}
        self._other_work: dict[str, deque[_OtherWork]] = {}
        self._workers: set[str] = set()
        self._running_jobs: dict[str, Job] = {}
        self._other_count = 0  # how much other work goes on
        self._jobs: dict[str, Job] = {}
        self._unstarted_jobs: FIFOCache[str, dict[str, Any]] = FIFOCache(MAX_UNSTARTED)
        self._change = threading.Condition()
        self._closing = False
        self._tidy_time = 0.0
        self.keep_to(Rules())
        if pool is not None:
            pool.changed = lambda name, reason: self._look_again()

    def keep_to(self, rules: Rules) -> None:
        """Let no user have more than ``rules`` allow."""
        self.rules = rules
        self._rate = Window(rules.runs)

    def begin(self) -> None:
        """Have the backends of a pool opened, as soon as it is told how."""
        if self.pool is not None:
            with self._change:
                self._start_worker(LINE)

    def submit(
        self, build: Build, *, title: str = "", owner: str = "", session: str = "", device: str = "cpu", seat: str = ""
    ) -> Job:
        """Queue a run. Raises QueueFull with a sentence: the queue is full, or its owner has had enough for now."""
        requester = caller.get() or owner
        job = Job(new_id(), title, build, owner, session, requester, seat)
        with self._change:
            if self._closing:
                raise QueueFull("The server is going down.")
            line = self._waiting.setdefault(device, deque())
            if len(line) >= self.max_waiting:
                raise QueueFull(
                    f"{len(line)} runs are waiting already, which is the most this server takes: try again later."
                )
            self._admit(requester)
            line.append(job)
            self._jobs[job.id] = job
            self._start_worker(device)
            self._tell_positions(device)
            self._change.notify_all()
        return job

    async def over(self, job: Job) -> None:
        """Wait for a run's end; whoever no longer waits for it ends it."""
        try:
            while not job.finished.is_set():
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self.cancel(job)
            raise

    def _admit(self, requester: str) -> None:
        job_count = sum(j.limit_key == requester for j in self._jobs.values()) if requester else 0
        if job_count >= self.rules.waiting:
            raise QueueFull(
                f"{job_count} of your runs wait or go on, and {self.rules.waiting} may at a time: "
                "wait until one is over, or stop one."
            )
        if wait := self._rate.take(requester):
            raise QueueFull(
                f"You started {self.rules.runs} runs within a minute, which is the most: wait {max(1, round(wait))} s "
                "and try again.",
                wait,
            )

    def on_worker(self, work: Callable[[], Any], *, device: str = "cpu", seat: str = "") -> Any:
        """Do ``work`` by the device's worker when no run waits for it: a step of something long. It is done in the
        caller's context: for the owner that is set here (``decoders.method.kept``).

        Raises QueueFull when the server goes down before it is done.
        """
        future: Future[Any] = Future()
        with self._change:
            if self._closing:
                raise QueueFull("The server is going down.")
            self._other_work.setdefault(device, deque()).append(_OtherWork(future, _in_context(work), seat))
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
            for seat in self._seats(device):
                threading.Thread(target=self._work, args=(device, seat), name=f"runs on {seat}", daemon=True).start()

    def _seats(self, device: str) -> Sequence[str]:
        """The takers of runs from a line: the device itself, or the backends."""
        return list(self.pool.seats) if self.pool is not None and device == LINE else [device]

    def waiting(self) -> dict[str, int]:
        """For each backend how many runs wait for it and no other."""
        with self._change:
            return Counter(job.seat for job in self._waiting.get(LINE, ()) if job.seat)

    def job(self, key: str) -> Job | None:
        """A run that waits or goes on (not one that is over)."""
        with self._change:
            return self._jobs.get(key)

    def jobs_of_owner(self, keys: Sequence[str], owner: str) -> list[Job]:
        """The runs that wait or go on and are ``owner``'s."""
        with self._change:
            return [job for key in keys if (job := self._jobs.get(key)) is not None and job.owner == owner]

    def last_event(self, key: str) -> dict[str, Any] | None:
        """The last event of a run that ended before it began, for whoever asks later; None where there is none."""
        with self._change:
            return self._unstarted_jobs.get(key)

    def active(self, owner: str) -> list[Job]:
        with self._change:
            return [j for j in self._jobs.values() if j.owner == owner]

    def load(self) -> dict[str, int]:
        """Numbers of runs that go on, and that wait."""
        with self._change:
            running = sum(j.state == "running" for j in self._jobs.values())
            return {"running": running, "waiting": len(self._jobs) - running}

    def busy(self) -> bool:
        """True where a run or other work waits or goes on."""
        with self._change:
            return bool(self._jobs or self._running_jobs or self._other_count) or any(self._other_work.values())

    def is_wanted(self) -> bool:
        """True where a run or other work waits: something long had better make way."""
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
        busy = [
            (current_job := self._running_jobs.get(seat)) is not None and current_job.state == "running"
            for seat in self._seats(device)
        ]
        runs_ahead = int(all(busy))
        for job in self._waiting.get(device, ()):
            if job.ahead != runs_ahead:
                job.ahead = runs_ahead
                job.feed.publish({"state": "queued", "ahead": runs_ahead})
            runs_ahead += 1

    def _look_again(self) -> None:
        """A backend was lost: its thread opens it again, and what had to be done there may be done anywhere."""
        pool = self.pool
        assert pool is not None
        with self._change:
            for item in (*self._waiting.get(LINE, ()), *self._other_work.get(LINE, ())):
                if item.seat and not pool.is_open(item.seat):
                    item.seat = ""
            self._change.notify_all()

    def _nobody(self, device: str) -> None:
        """No backend is left: what waits is told so."""
        with self._change:
            reason = self.pool.reason if self.pool is not None else ""
            if not reason or self._closing:
                return
            jobs, tasks = list(self._waiting[device]), list(self._other_work[device])
            self._waiting[device].clear()
            self._other_work[device].clear()
            for job in jobs:
                self._end_unstarted(job, "error", reason)
        for task in tasks:
            task.future.set_exception(UserError(reason))

    def _end_unstarted(self, job: Job, stop: str = "cancelled", error: str = "Cancelled before it started.") -> None:
        job.state, job.build = "done", _over
        job.error = error
        event = {"done": True, "stop": stop, "error": error, "started": False}
        with self._change:
            self._unstarted_jobs[job.id] = event
            self._jobs.pop(job.id, None)
        job.feed.publish(event, last=True)
        job.finished.set()

    def _work(self, device: str, seat: str) -> None:
        pool = self.pool if device == LINE else None
        SEAT.set(seat)
        while pool is None or pool.prepare(seat):
            if not self._work_once(device, seat):
                return
        self._look_again()
        self._nobody(device)

    def _work_once(self, device: str, seat: str) -> bool:
        """Do the next run, or other work; False when the server goes down. Nothing of it is held on to: a run's model
        may be exchanged for another one while nothing runs.
        """
        line, other_work, pool = self._waiting[device], self._other_work[device], self.pool if device == LINE else None
        with self._change:
            while not ((job := _first(line, seat)) or (task := _first(other_work, seat)) or self._closing):
                if pool is not None and not pool.is_open(seat):
                    return True
                self._change.wait()
            if self._closing:
                for pending_task in other_work:
                    pending_task.future.cancel()
                return False
            if job is not None:
                task = None
                line.remove(job)
                self._running_jobs[seat] = job
                job.state = "running"
                self._tell_positions(device)
            else:
                assert task is not None
                other_work.remove(task)
                self._other_count += 1
        if task is not None:
            try:
                task.future.set_result(task.work())
            except BaseException as problem:  # it belongs to whoever waits for the result
                task.future.set_exception(problem)
            finally:
                with self._change:
                    self._other_count -= 1
            return True
        assert job is not None
        try:
            with owned_by(job.owner):
                self._run(job, device)
            self._tidy()
        except BaseException:  # the worker outlives whatever a run does
            log.exception("run %s broke the worker's loop", job.id)
            with self._change:
                if job.id in self._jobs:
                    text = "The run ended in an unexpected way; the server's log says more."
                    self._end_unstarted(job, "error", text)
        finally:
            with self._change:
                self._running_jobs.pop(seat, None)
        return True

    def _tidy(self) -> None:
        """Give the memory that runs have freed back to the system, now and then: the allocator of glibc keeps it."""
        if TRIM is not None and time.monotonic() - self._tidy_time > TIDY_S:
            self._tidy_time = time.monotonic()
            TRIM(0)

    def _put_back(self, job: Job, build: Build, device: str) -> None:
        """A run that did not begin, as its backend was lost: another one does it."""
        with self._change:
            job.losses += 1
            job.build, job.state, job.seat, job.ahead = build, "queued", "", -1
            if job.cancel.is_set():
                self._end_unstarted(job)
            elif job.losses >= LOSSES:
                self._end_unstarted(job, "error", f"{LOSSES} backends were lost before this run began: try another.")
            else:
                self._waiting[device].appendleft(job)
                self._change.notify_all()

    def _run(self, job: Job, device: str) -> None:
        trace, journal, error = None, None, ""
        try:
            build, job.build = job.build, _over
            try:
                run = build(job.cancel)
            except NotBegun:
                self._put_back(job, build, device)
                return
            del build
            trace = run.trace
            trace.run.update(id=job.id, title=job.title or trace.run.get("title", ""))
            journal = self.library.start(trace, job.owner) if self.library is not None else None
            job.begin(trace)
            if (decoding := getattr(run, "decoding", None)) is not None:
                decoding.on_read = job.tell_read
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
        save_problem = ""
        if self.library is not None:
            self.library.finish(trace, journal)
            save_problem = "" if job.id in self.library else self.library.problem
        with self._change:
            job.state = "done"
            self._jobs.pop(job.id, None)
        job.error = str(trace.run.get("error") or "")
        event = {"done": True, "stop": trace.run["stop"], "error": job.error, "started": True, "unsaved": save_problem}
        job.feed.publish(event, last=True)
        job.finished.set()


def _over(_: threading.Event) -> RunLike:
    """In place of a job's own way to begin, once that was done: it holds the run's model."""
    raise RuntimeError("this run began already")


@dataclass(eq=False)
class _OtherWork:
    """Other work than a run, its ``future``, and the backend that has to do it ("": any)."""

    future: Future[Any]
    work: Callable[[], Any]
    seat: str = ""


Waits = TypeVar("Waits", Job, _OtherWork)


def _first(line: deque[Waits], seat: str) -> Waits | None:
    """The first of a line that a backend (or a device) may do."""
    return next((item for item in line if item.seat in ("", seat)), None)


def _in_context(work: Callable[[], Any]) -> Callable[[], Any]:
    """``work`` in the caller's context, but for the backend: that is the thread's that does it."""
    context = copy_context()

    def do() -> Any:
        context.run(SEAT.set, SEAT.get())
        return context.run(work)

    return do
