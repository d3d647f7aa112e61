"""Workers that are Ray actors, of this machine or of a cluster. Beside ``ray_backends`` the only file that imports Ray.

Ray starts an actor again when its process or its node is lost; the unit that it was at is given out again by the loop
in ``sweep``, which counts such losses. Not ``ray.util.ActorPool``: that drops an actor that died, and its unit.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from decoders.errors import UserError, first_line
from specviz.words import sentence

from .pool import Answer, Cannot, Done, Lost, Pool, Ready
from .work import Job, Outcome, Refused, Unit, Worker, opened

OPENINGS = 20  # failed starts of an actor after which it counts as lost once more
JOINING = threading.Lock()
STORE_BYTES = 80 << 20  # of Ray's object store, where we start Ray: results go to the folder, not through it


class _Actor:
    """A worker in an actor. It opens the job when it is first asked to, so that a refusal is an answer and no crash."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.worker: Worker | None = None

    def ready(self) -> str:
        """Open the job; "" or why it is refused."""
        try:
            if self.worker is None:
                self.worker = opened(lambda: Worker(self.job), "a worker")
        except Refused as refusal:
            return str(refusal)
        return ""

    def do(self, unit: Unit) -> Outcome:
        """Do a unit. Ray may have started this actor again since it told that it is ready."""
        refusal = self.ready()
        return Outcome(unit.key, stops=refusal) if refusal or self.worker is None else self.worker.do(unit)


@dataclass(slots=True)
class _Asked:
    """What an actor is at: a unit, or (None) opening the job."""

    worker: str
    unit: Unit | None


def joined(cores: int, address: str = "") -> bool:
    """Be part of a Ray cluster: the one at ``address`` (or ``RAY_ADDRESS``), else one of this machine, which is started
    with so many cores. Whether it was not so before. Raises UserError.
    """
    with JOINING:
        if ray.is_initialized():
            return False
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address:
            settings |= {"address": address}
        elif not os.environ.get("RAY_ADDRESS"):  # which names a cluster, too
            os.environ.setdefault("RAY_worker_niceness", "0")  # as processes have it; Ray's own is 15
            settings |= {"num_cpus": cores, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        try:
            ray.init(**settings)
        except Exception as problem:
            where = f" at {address}" if address else ""
            raise UserError(f"Ray{where} cannot be reached: {first_line(problem, 200)}") from None
        return True


class Actors(Pool):
    """One actor per worker. ``address``: of a cluster that runs (``auto``, ``host:6379`` or ``ray://host:10001``);
    without one, Ray is started on this machine, and ended with the sweep.
    """

    def __init__(self, job: Job, count: int, address: str = "") -> None:
        super().__init__(job, count)
        self._address, self._mine = address, False
        self._actors: dict[str, Any] = {}
        self._at_work: dict[Any, _Asked] = {}
        self._opened: set[str] = set()

    def start(self) -> None:
        self._mine = joined(len(self.names) * self.job.threads, self._address)
        kind = ray.remote(
            num_cpus=self.job.threads, num_gpus=self.job.gpus, max_restarts=-1, max_task_retries=0,
        )(_Actor)  # fmt: skip
        for name in self.names:
            self._actors[name] = kind.remote(self.job)  # sent with it, as an actor that is restarted needs it again
            self._open(name)

    def _open(self, name: str) -> None:
        """Ask for Ready. While Ray starts the actor again, or looks for a node for it, Ray asks again by itself: for
        ever, once the job could be opened at all.
        """
        retries = -1 if name in self._opened else OPENINGS
        self._at_work[self._actors[name].ready.options(max_task_retries=retries).remote()] = _Asked(name, None)

    def give(self, worker: str, units: Sequence[Unit]) -> None:
        (unit,) = units
        self._at_work[self._actors[worker].do.remote(unit)] = _Asked(worker, unit)

    def wait(self, seconds: float) -> list[Answer]:
        done, _ = ray.wait(list(self._at_work), num_returns=1, timeout=seconds)
        return [answer for reference in done for answer in self._answers(reference)]

    def _answers(self, reference: Any) -> list[Answer]:
        asked = self._at_work.pop(reference)
        name = asked.worker
        try:
            told: Any = ray.get(reference)
        except RayTaskError as problem:  # not a unit's own error, which the worker catches: ours, or Ray's
            return [Cannot(name, f"a worker broke: {sentence(problem.cause)}")]
        except RayActorError:  # Ray starts it again where it can
            self._open(name)
            return [Lost(name, "its process or its node is gone")]
        except RayError as problem:
            return [Cannot(name, f"Ray failed: {first_line(problem, 160)}")]
        if asked.unit is not None:
            return [Done(name, told), Ready(name)]
        if told:
            return [Cannot(name, told)]
        self._opened.add(name)
        return [Ready(name)]

    def close(self) -> None:
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()
        self._at_work.clear()
        if self._mine:
            ray.shutdown()
