"""Workers that are Ray's actors, of this machine or of a cluster. Only this file knows Ray, and imports it late."""

from __future__ import annotations

import copy
import logging
import os
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from decoders.errors import UserError, first_line
from specviz.workers.executors import Call, Host, Hosting, Message, Opener, WorkerExecutor
from specviz.workers.kinds import WorkerKind, Workers

STORE_BYTES = 80 << 20  # of Ray's object store, where we start Ray: what is large goes to a folder, not through it
SERVE = "serve"  # the concurrency group of the thread that tells; another hears calls, in the order of their sending


class RayWorkers(Opener):
    """Opens actors on a Ray cluster: the one at ``address`` (or ``RAY_ADDRESS``), else one of this machine, which is
    started with so many cores, and ended with the workers.
    """

    def __init__(self, cores: int, address: str = "") -> None:
        self._cores, self._address = cores, address
        self._owns_cluster = False
        self._thread = ThreadPoolExecutor(1)  # Ray's own processes end with the thread that started them

    def open(self, name: str, number: int, hosting: Hosting) -> RayWorker:
        self._thread.submit(self._join_cluster).result()
        return RayWorker(name, hosting)

    def close(self) -> None:
        import ray

        if self._owns_cluster:
            ray.shutdown()
        self._thread.shutdown()

    def _join_cluster(self) -> None:
        import ray

        if ray.is_initialized():
            return
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address:
            settings |= {"address": self._address}
        elif not os.environ.get("RAY_ADDRESS"):  # which names a cluster, too
            os.environ.setdefault("RAY_worker_niceness", "0")  # as processes have it; Ray's own is 15
            settings |= {"num_cpus": self._cores, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        try:
            ray.init(**settings)
        except Exception as problem:
            place = f" at {self._address}" if self._address else ""
            raise UserError(f"Ray{place} cannot be reached: {first_line(problem, 200)}") from None
        self._owns_cluster = True


class _Actor:
    """A worker's own side in an actor."""

    def __init__(self) -> None:
        self._messages = queue.SimpleQueue[Message | None]()
        self._host = Host(self._send)

    def _send(self, message: Message) -> None:
        """Have a message sent as it is now: the run that it is about goes on before Ray takes it."""
        self._messages.put(copy.deepcopy(message))

    def serve(self, hosting: Hosting) -> Iterator[Message]:
        """All that the worker tells, as long as it lives."""

        def work() -> None:
            try:
                self._host.serve(hosting)
            finally:
                self._messages.put(None)

        threading.Thread(target=work, name="calls", daemon=True).start()
        while (message := self._messages.get()) is not None:
            yield message

    def take(self, call: Call) -> None:
        self._host.take(call)


class RayWorker(WorkerExecutor):
    """A worker in an actor, for which Ray finds a node."""

    def __init__(self, name: str, hosting: Hosting) -> None:
        import ray

        super().__init__(name)
        options: Any = {"num_cpus": hosting.threads, "num_gpus": hosting.gpus, "concurrency_groups": {SERVE: 1}}
        self._hosting = hosting
        self._actor: Any = ray.remote(**options)(_Actor).remote()
        self._thread.start()

    def _follow(self) -> str:
        import ray
        from ray.exceptions import RayActorError, RayError

        try:
            stream = self._actor.serve.options(num_returns="streaming", concurrency_group=SERVE)
            for message in stream.remote(self._hosting):
                self._hear(*ray.get(message))
        except RayActorError:
            return "its process or its node is gone"
        except RayError as problem:
            return f"Ray failed: {first_line(problem, 160)}"
        except SystemExit:  # raised by a wait where Ray itself is ended meanwhile
            return "Ray was ended"
        return "it ended"

    def _send(self, call: Call) -> None:
        self._actor.take.remote(call)

    def _end(self) -> None:
        import ray

        if ray.is_initialized():
            ray.kill(self._actor)


def opener(workers: Workers) -> RayWorkers:
    return RayWorkers(workers.count * workers.threads_each, workers.address)


WORKERS = WorkerKind(
    "ray", "Ray's actors, of this machine or a cluster", opener, package="ray",
    address="of a Ray cluster: auto, host:6379 or ray://host:10001",
)  # fmt: skip
