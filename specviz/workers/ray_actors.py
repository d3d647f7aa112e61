"""Backends that are Ray actors, of this machine or of a cluster. The only file that imports Ray."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from decoders.errors import UserError, first_line

from .backends import BEAT_S, Backend, BackendLost, Host, Hosting
from .work import WorkerRefused, open_model

MAX_CONCURRENCY = (
    8  # questions that an actor hears at a time: one is answered, others wait, are stopped, or ask for states
)
JOINING = threading.Lock()
STORE_BYTES = 80 << 20  # of Ray's object store, where we start Ray: what is large goes to a folder, not through it
END_ERRORS = (RayError, SystemExit)  # a wait raises the second where Ray itself is ended meanwhile


def join_cluster(cores: int, address: str = "") -> bool:
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
            place = f" at {address}" if address else ""
            raise UserError(f"Ray{place} cannot be reached: {first_line(problem, 200)}") from None
        return True


class _Actor:
    """A backend's own side in an actor."""

    def __init__(self, hosting: Hosting) -> None:
        self.hosting = hosting
        self.host: Host | None = None

    def open(self) -> str:
        """Open what it holds; "" or why it is refused."""
        try:
            self.host = open_model(lambda: Host(self.hosting), self.hosting.title)
        except WorkerRefused as refusal:
            return str(refusal)
        return ""

    def answer(self, key: str, body: bytes) -> Iterator[bytes]:
        assert self.host is not None
        yield from self.host.answer(key, body)

    def stop(self, key: str) -> None:
        assert self.host is not None
        self.host.stop(key)

    def lives(self) -> None:
        """Told by being answered."""


class Actor(Backend):
    """A backend in an actor, which is made anew when it was lost: Ray finds a node for it."""

    def __init__(self, name: str, number: int, cores: int, address: str = "") -> None:
        super().__init__(name, number)
        self._cores, self._address = cores, address
        self._actor: Any = None
        self._owns_cluster = False  # Ray was started for it

    def _start(self, hosting: Hosting, life: object) -> None:
        self._owns_cluster = join_cluster(self._cores, self._address) or self._owns_cluster
        resources: Any = {"num_cpus": hosting.threads, "num_gpus": hosting.gpus, "max_concurrency": MAX_CONCURRENCY}
        self._actor = actor = ray.remote(**resources)(_Actor).remote(hosting)
        try:
            refusal = ray.get(actor.open.remote())
        except END_ERRORS as problem:
            raise BackendLost(_reason(problem)) from None
        if refusal:
            raise WorkerRefused(refusal)
        threading.Thread(target=self._beat, args=(actor, life), name=f"{self.name} beats", daemon=True).start()

    def _opening_s(self) -> float:
        return math.inf  # it may wait for a node

    def _beat(self, actor: Any, life: object) -> None:
        """Ask it whether it lives, again and again."""
        try:
            while self._life is life:
                ray.get(actor.lives.remote())
                self._beats += 1
                time.sleep(BEAT_S)
        except END_ERRORS as problem:
            self._lose(life, _reason(problem))

    def _send(self, key: str, body: bytes) -> None:
        if (actor := self._actor) is None:
            return
        if not body:
            actor.stop.remote(key)
            return
        about = (actor, key, body, self._life)
        threading.Thread(target=self._follow, args=about, name=f"{self.name} tells", daemon=True).start()

    def _follow(self, actor: Any, key: str, body: bytes, life: object) -> None:
        """Ask a question, and hear the answers."""
        try:
            for answer in actor.answer.options(num_returns="streaming").remote(key, body):
                self._hear(key, ray.get(answer))
        except END_ERRORS as problem:
            self._lose(life, _reason(problem))

    def _end(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)

    def leave(self) -> None:
        if self._owns_cluster:
            ray.shutdown()


def _reason(problem: RayError | SystemExit) -> str:
    if isinstance(problem, SystemExit):
        return "Ray was ended"
    if isinstance(problem, RayActorError):
        return "its process or its node is gone"
    return f"Ray failed: {first_line(problem, 160)}"
