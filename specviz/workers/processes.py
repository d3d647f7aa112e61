"""Workers that are processes of this machine: each opens the job once, and ends with the process that started it.

Not a ``ProcessPoolExecutor``: that breaks as a whole when one of its processes dies.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from specviz.words import sentence

from .pool import Answer, Cannot, Done, Lost, Pool, Ready
from .work import Job, Refused, Unit, Worker

CONTEXT = multiprocessing.get_context("spawn")  # a forked torch may hang, and a forked CUDA does not work
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # read when torch is imported
STARTING = threading.Lock()  # the environment is one for all threads
PATIENCE_S = 5.0  # for a process that was asked to end


@dataclass(slots=True)
class _Process:
    process: Any
    link: Connection


class Processes(Pool):
    """One process per worker. Where the job asks for GPUs, the visible ones are dealt out in turn."""

    def __init__(self, job: Job, count: int) -> None:
        super().__init__(job, count)
        self._running: dict[str, _Process] = {}

    def start(self) -> None:
        for name in self.names:
            self._begin(name)

    def _begin(self, name: str) -> None:
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(
            target=_serve, args=(theirs, self.job, self.names.index(name)), name=name, daemon=True
        )
        with STARTING, _threads(self.job.threads):
            process.start()
        theirs.close()
        self._running[name] = _Process(process, ours)

    def give(self, worker: str, units: Sequence[Unit]) -> None:
        with contextlib.suppress(OSError):  # it died: the next wait tells
            self._running[worker].link.send(list(units))

    def wait(self, seconds: float) -> list[Answer]:
        links = {running.link: name for name, running in self._running.items()}
        answers: list[Answer] = []
        for link in wait(list(links), seconds):
            name = links[link]  # pyright: ignore[reportArgumentType]
            try:
                answer = self._running[name].link.recv()
            except (EOFError, OSError):
                running = self._running.pop(name)
                running.process.join(PATIENCE_S)
                answers.append(Lost(name, f"its process ended ({_how(running.process.exitcode)})"))
                self._begin(name)
                continue
            answers.append(answer if isinstance(answer, Cannot) else Ready(name) if answer is None else
                           Done(name, answer))  # fmt: skip
        return answers

    def close(self) -> None:
        for running in self._running.values():
            running.link.close()
            running.process.terminate()
        for running in self._running.values():
            running.process.join(PATIENCE_S)
            if running.process.is_alive():
                running.process.kill()
                running.process.join()
            running.process.close()
        self._running.clear()


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Processes that are started here read how many threads they may have when they import torch."""
    before = {variable: os.environ.get(variable) for variable in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(count)))
    try:
        yield
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value


def _how(code: int | None) -> str:
    """A process's end in words.

    >>> _how(-9), _how(3)
    ('killed by SIGKILL', 'exit code 3')
    """
    if code is not None and code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"


def _serve(link: Connection, job: Job, number: int) -> None:
    """A worker's process: tells None when it is ready, then an Outcome for each unit, and None after each share."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the driver, who ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if job.gpus:
        _see_one_gpu(number)
    try:
        worker = Worker(job)
    except Refused as refusal:
        link.send(Cannot(CONTEXT.current_process().name, str(refusal)))
        return
    except Exception as problem:
        link.send(Cannot(CONTEXT.current_process().name, f"a worker could not begin: {sentence(problem)}"))
        return
    try:
        link.send(None)
        while True:
            for unit in link.recv():
                link.send(worker.do(unit))
            link.send(None)
    except (EOFError, OSError):
        pass  # the driver is gone; what is done is in the folder


def _end_with_parent() -> None:
    """Nobody reads the results of a driver that was killed, and a GPU is not to be kept busy for it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _see_one_gpu(number: int) -> None:
    """Let this process see one of the visible GPUs, before torch is imported."""
    visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    if not visible:
        import torch

        visible = [str(place) for place in range(torch.cuda.device_count())]  # counted without opening one
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[number % len(visible)]
