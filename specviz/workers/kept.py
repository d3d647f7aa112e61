"""Workers of a sweep that are backends, of whatever kind: each opens the job once, and is asked one unit after another.

A thread for each opens its backend, and opens it again when it was lost.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from decoders.errors import UserError
from specviz.words import sentence

from .backends import Answers, Backend, Gone, Hosting, Question
from .pool import Answer, Cannot, Done, Lost, Pool, Ready
from .work import Job, Outcome, Refused, Unit, Worker


class Kept(Pool):
    """A worker on each backend, as many as are wanted."""

    def __init__(self, job: Job, backends: Sequence[Backend]) -> None:
        super().__init__(job, len(backends))
        self._hosting = Hosting(_open, {"job": job}, job.threads, job.gpus, "a worker")
        self._backends = dict(zip(self.names, backends, strict=True))
        self._shares = {name: queue.SimpleQueue[Sequence[Unit] | str]() for name in self.names}  # or why it was lost
        self._told = queue.SimpleQueue[Answer]()
        self._threads = [threading.Thread(target=self._keep, args=(name,), daemon=True) for name in self.names]
        self._over = threading.Event()
        for name, backend in self._backends.items():
            backend.lost = self._shares[name].put

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def give(self, worker: str, units: Sequence[Unit]) -> None:
        self._shares[worker].put(units)

    def wait(self, seconds: float) -> list[Answer]:
        try:
            answers = [self._told.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._told.empty():
            answers.append(self._told.get())
        return answers

    def close(self) -> None:
        self._over.set()
        for shares in self._shares.values():
            shares.put("it was closed")
        for thread, backend in zip(self._threads, self._backends.values(), strict=True):
            backend.close()
            while thread.is_alive():  # it may be about to open it
                thread.join(0.1)
                backend.close()
        for backend in self._backends.values():
            backend.leave()

    def _keep(self, name: str) -> None:
        """A thread's work: what its backend does is told, until the sweep is over or cannot go on."""
        while not self._over.is_set():
            try:
                self._work(name)
            except Gone as gone:
                self._told.put(Lost(name, str(gone)))
            except (Refused, UserError) as refusal:
                return self._told.put(Cannot(name, str(refusal)))
            except Exception as problem:
                return self._told.put(Cannot(name, f"a worker broke: {sentence(problem)}"))

    def _work(self, name: str) -> None:
        """Open the backend and have it do what is given. Raises Gone when it is lost, or the sweep over."""
        backend, shares = self._backends[name], self._shares[name]
        backend.open(self._hosting)
        while not shares.empty():
            shares.get()  # of the one that was lost
        while not self._over.is_set():
            self._told.put(Ready(name))
            if isinstance(share := shares.get(), str):
                raise Gone(share)
            for unit in share:
                (told,) = backend.ask({"key": unit.key, "payload": unit.payload}, self._over)
                self._told.put(Done(name, Outcome(**told)))


def _open(about: Mapping[str, Any]) -> Answers:
    """A worker behind a backend's questions: each is a unit, and answered once, by its Outcome."""
    worker = Worker(about["job"])

    def answers(question: Question, cancel: threading.Event) -> Iterator[Mapping[str, Any]]:
        yield asdict(worker.do(Unit(question["key"], question["payload"])))

    return answers
