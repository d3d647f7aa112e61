"""Workers that are processes of this machine, and end with the one that started them; with GPUs, the visible ones are
dealt out in turn.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait

from decoders.errors import UserError

from .executors import LOOK_S, Call, Host, Hosting, Opener, WorkerExecutor
from .kinds import WorkerKind

CONTEXT = multiprocessing.get_context("spawn")  # a forked torch may hang, and a forked CUDA does not work
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # read when torch is imported
STARTING = threading.Lock()  # the environment is one for all threads
PATIENCE_S = 5.0  # for a process that says nothing more to end


class ProcessWorker(WorkerExecutor):
    """A worker that is a process, with a pipe for its calls and messages."""

    def __init__(self, name: str, number: int, hosting: Hosting) -> None:
        super().__init__(name)
        self._sending = threading.Lock()
        self._link, far_end = CONTEXT.Pipe()
        gpu = number if hosting.gpus else None
        self._process = CONTEXT.Process(target=_serve, args=(far_end, hosting, gpu), name=name, daemon=True)
        with STARTING, _threads(hosting.threads):
            self._process.start()
        far_end.close()
        self._thread.start()

    def _follow(self) -> str:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._hear(*self._link.recv())
        if not wait([self._process.sentinel], PATIENCE_S):
            self._process.kill()
        while (code := self._process.exitcode) is None:  # another thread may be about to be told it
            time.sleep(LOOK_S)
        with self._sending:
            self._link.close()
        return end_in_words(code)

    def _send(self, call: Call) -> None:
        with self._sending, contextlib.suppress(OSError):  # it ended, which ``_follow`` tells
            self._link.send(call)

    def _end(self) -> None:
        self._process.kill()


class Processes(Opener):
    """Opens processes of this machine."""

    def open(self, name: str, number: int, hosting: Hosting) -> ProcessWorker:
        return ProcessWorker(name, number, hosting)


PROCESSES = WorkerKind(
    "processes", "processes of this machine", lambda workers: Processes(), backends="local", is_here=True
)


def _serve(link: Connection, hosting: Hosting, gpu: int | None) -> None:
    """A worker's process; with the number of a ``gpu`` it sees that one alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the driver, who ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if gpu is not None:
        _see_one_gpu(gpu)
    sending = threading.Lock()

    def send(message: object) -> None:
        with sending:
            link.send(message)

    host = Host(send)

    def read() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                host.take(link.recv())
        host.take(None)

    threading.Thread(target=read, name="calls", daemon=True).start()
    with contextlib.suppress(OSError):  # nobody listens any longer
        host.serve(hosting)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Processes that are started here read how many threads they may have when they import torch."""
    old_values = {variable: os.environ.get(variable) for variable in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(count)))
    try:
        yield
    finally:
        for variable, value in old_values.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value


def worker_device(kind: str, device_name: str | None, *, is_scheduled: bool = False) -> tuple[str, float]:
    """The device of each worker's model, as ``load_target`` takes it, and how many GPUs it gets of its own, by the
    ``kind`` of device that the driver has and the one that the user ``device_name`` for. A GPU that is named is all
    workers'. ``is_scheduled``: a scheduler deals GPUs out, which knows them by its own numbers.

    >>> worker_device("cuda", None), worker_device("cuda", "cuda:1"), worker_device("cpu", None)
    (('cuda', 1.0), ('cuda:1', 0.0), ('cpu', 0.0))

    Raises UserError for a GPU that is named where a scheduler deals them out.
    """
    if kind != "cuda":
        return kind, 0.0
    if device_name is None or not device_name.startswith("cuda:"):
        return "cuda", 1.0
    if is_scheduled:
        raise UserError(
            f"--device {device_name} names a GPU of this machine, and a scheduler deals them out: give cuda"
        )
    return device_name, 0.0


def end_in_words(code: int | None) -> str:
    """A process's end in words.

    >>> end_in_words(-9), end_in_words(3)
    ('its process ended (killed by SIGKILL)', 'its process ended (exit code 3)')
    """
    cause = f"exit code {code}"
    if code is not None and code < 0:
        signal_names = {number.value: number.name for number in signal.Signals}
        cause = f"killed by {signal_names.get(-code, f'signal {-code}')}"
    return f"its process ended ({cause})"


def _end_with_parent() -> None:
    """Nobody reads the results of a driver that was killed, and a GPU is not to be kept busy for it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _see_one_gpu(number: int) -> None:
    """Let this process see one of the visible GPUs, before torch is imported."""
    visible = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if not visible:
        import torch

        visible = [str(place) for place in range(torch.cuda.device_count())]  # counted without opening one
    if visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[number % len(visible)]
