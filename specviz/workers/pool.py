"""Workers of a sweep behind four calls: start, give, wait, close. The loop in ``sweep`` knows nothing else of them.
``SupervisedWorkers`` are those on backends, of whatever kind; a cluster's tasks are in ``slurm_array``.

A worker tells Ready when it may be given units (at first, after each share, and when it was started again after a
loss), Done after each unit, Lost when it died, and Cannot where the whole sweep has to stop.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from specviz.words import sentence

from .backends import Answers, Backend, BackendLost, Hosting, Question
from .supervisor import FAILED, LOSSES, Supervisor
from .work import Outcome, SweepJob, Unit, Worker


@dataclass(frozen=True, slots=True)
class Ready:
    """It may be given units; ``times`` counts its openings."""

    worker: str
    times: int = 0


@dataclass(frozen=True, slots=True)
class WorkDone:
    worker: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """It died: what it was given and has not told as done has to be done again."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cannot:
    """It refused the job (or could not even begin), and so would every other."""

    worker: str
    reason: str


Answer: TypeAlias = Ready | WorkDone | WorkerLost | Cannot


class WorkerPool(ABC):
    """``count`` workers for a job. ``together``: how many of the units left a worker is best given at once."""

    def __init__(self, job: SweepJob, count: int) -> None:
        self.job, self.names = job, tuple(f"worker {number}" for number in range(1, count + 1))

    def concurrency(self, unit_count: int) -> int:
        return 1

    @abstractmethod
    def start(self) -> None:
        """Begin to start the workers; each tells Ready later. Raises UserError where there can be none."""

    @abstractmethod
    def give(self, worker: str, units: Sequence[Unit]) -> None:
        """Have a worker that told Ready do units, one after another."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Answer]:
        """Messages of workers, as soon as one sends any; after so many seconds nothing."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, in mid-unit too: nothing that they write is ever half."""


class SupervisedWorkers(WorkerPool):
    """A worker on each backend: a thread opens it, gives it units one by one, and opens it again after a loss."""

    def __init__(self, job: SweepJob, backends: Sequence[Backend]) -> None:
        super().__init__(job, len(backends))
        self._supervisor = Supervisor(backends)
        self._supervisor.changed = lambda name, reason: self._shares[name].put((-1, reason))
        self._shares = {name: queue.SimpleQueue[tuple[int, Sequence[Unit] | str]]() for name in self.names}
        self._answers = queue.SimpleQueue[Answer]()
        self._ready_openings = dict.fromkeys(self.names, 0)  # the opening that a worker's last Ready was of
        self._threads = [threading.Thread(target=self._work, args=(name,), daemon=True) for name in self.names]
        self._over = threading.Event()

    def start(self) -> None:
        job = self.job
        self._supervisor.begin(Hosting(_open, {"job": job}, job.threads, job.gpus, "a worker"))
        for thread in self._threads:
            thread.start()

    def give(self, worker: str, units: Sequence[Unit]) -> None:
        self._shares[worker].put((self._ready_openings[worker], units))

    def wait(self, seconds: float) -> list[Answer]:
        try:
            answers = [self._answers.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._answers.empty():
            answers.append(self._answers.get())
        self._ready_openings |= {answer.worker: answer.times for answer in answers if isinstance(answer, Ready)}
        return answers

    def close(self) -> None:
        self._over.set()
        for shares in self._shares.values():
            shares.put((-1, "it was closed"))
        self._supervisor.close(self._threads)

    def _work(self, name: str) -> None:
        """A thread's work: what its backend does is told, until the sweep is over or cannot go on."""
        seat = self._supervisor.seats[name]
        try:
            while not self._over.is_set() and self._supervisor.prepare(name):
                try:
                    self._do_share(name, seat.times)
                except BackendLost as loss:
                    self._answers.put(WorkerLost(name, str(loss)))
        except Exception as problem:
            self._answers.put(Cannot(name, f"a worker broke: {sentence(problem)}"))
        if seat.state == FAILED:
            begun = f"no worker can begin: {name} ended {LOSSES} times before its first unit, "
            self._answers.put(Cannot(name, (begun if seat.failures >= LOSSES else "") + seat.reason))

    def _do_share(self, name: str, times: int) -> None:
        """Have an open backend do what it is given next. Raises Gone when it is lost, or the sweep over."""
        self._answers.put(Ready(name, times))
        while True:
            start_count, share = self._shares[name].get()
            if isinstance(share, str):
                if self._over.is_set() or not self._supervisor.seats[name].is_open:
                    raise BackendLost(share)
            elif start_count == times:
                break  # else it was for the one before, which was lost: it is handed out again
        for unit in share:
            (answer,) = self._supervisor.ask(name, {"key": unit.key, "payload": unit.payload}, self._over)
            self._answers.put(WorkDone(name, Outcome(**answer)))


def _open(about: Mapping[str, Any]) -> Answers:
    """A worker behind a backend's questions: each is a unit, and answered once, by its Outcome."""
    worker = Worker(about["job"])

    def answers(question: Question, cancel: threading.Event) -> Iterator[Mapping[str, Any]]:
        yield asdict(worker.do(Unit(question["key"], question["payload"])))

    return answers
