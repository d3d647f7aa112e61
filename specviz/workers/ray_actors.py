"""Backends that are Ray actors, of this machine or of a cluster. The only file that imports Ray."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from decoders.errors import UserError, first_line

from .backends import BEAT_S, LOOK_S, Backend, Gone, Host, Hosting, Question, answered, encoded, silent
from .work import Refused, opened

TOGETHER = 8  # questions that an actor hears at a time: one is answered, others wait, are stopped, or ask for states
JOINING = threading.Lock()
STORE_BYTES = 80 << 20  # of Ray's object store, where we start Ray: what is large goes to a folder, not through it
ENDED = (RayError, SystemExit)  # a wait raises the second where Ray itself is ended meanwhile


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


class _Actor:
    """A backend's own side in an actor."""

    def __init__(self, hosting: Hosting) -> None:
        self.hosting = hosting
        self.host: Host | None = None

    def open(self) -> str:
        """Open what it holds; "" or why it is refused."""
        try:
            self.host = opened(lambda: Host(self.hosting), self.hosting.what)
        except Refused as refusal:
            return str(refusal)
        return ""

    def answer(self, key: str, asked: bytes) -> Iterator[bytes]:
        assert self.host is not None
        yield from self.host.answer(key, asked)

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
        self._mine = False  # Ray was started for it
        self._hung = ""  # why its last actor was ended

    def open(self, hosting: Hosting) -> None:
        self.close()
        self._hung = ""
        self._mine = joined(self._cores, self._address) or self._mine
        asked: Any = {"num_cpus": hosting.threads, "num_gpus": hosting.gpus, "max_concurrency": TOGETHER}
        self._actor = actor = ray.remote(**asked)(_Actor).remote(hosting)
        try:
            refusal = ray.get(actor.open.remote())
        except ENDED as problem:
            raise Gone(_why(problem)) from None
        if refusal:
            self.close()
            raise Refused(refusal)
        threading.Thread(target=self._watch, args=(actor,), name=f"{self.name} lives", daemon=True).start()

    def _watch(self, actor: Any) -> None:
        """Hear from it that it lives; lost is told once."""
        while self._actor is actor:
            try:
                ray.get(actor.lives.remote(), timeout=self.silent_s)
            except GetTimeoutError:
                return self._end(actor, silent(self.silent_s))
            except ENDED as problem:
                if self._actor is actor:
                    self.lost(_why(problem))
                return
            time.sleep(BEAT_S)

    def _end(self, actor: Any, reason: str) -> None:
        """End an actor that hangs: nothing is heard of it any more."""
        if self._actor is actor:
            self._hung, self._actor = reason, None
            ray.kill(actor)
            self.lost(reason)

    def ask(self, question: Question, cancel: threading.Event) -> Iterator[Mapping[str, Any]]:
        actor, key, stopped, over = self._actor, secrets.token_hex(8), 0.0, False
        if actor is None:
            raise Gone("it was closed")
        try:
            told = actor.answer.options(num_returns="streaming").remote(key, encoded(question))
            while True:
                if cancel.is_set() and not stopped:
                    stopped = time.monotonic()
                    actor.stop.remote(key)
                if stopped and time.monotonic() - stopped > self.stop_s:
                    self._end(actor, f"it did not stop within {self.stop_s:.0f} s")
                if self._actor is not actor:
                    over = True
                    raise Gone(self._hung or "it was closed")
                ready, _ = ray.wait([told], timeout=LOOK_S)
                if not ready:
                    continue
                answer = answered(ray.get(next(told)))  # pyright: ignore[reportArgumentType]
                if answer is None:
                    over = True
                    return
                yield answer
        except ENDED as problem:
            over = True
            raise Gone((self._actor is not actor and self._hung) or _why(problem)) from None
        except UserError:
            over = True
            raise
        finally:
            if not over:
                actor.stop.remote(key)

    def close(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)

    def leave(self) -> None:
        if self._mine:
            ray.shutdown()


def _why(problem: RayError | SystemExit) -> str:
    if isinstance(problem, SystemExit):
        return "Ray was ended"
    if isinstance(problem, RayActorError):
        return "its process or its node is gone"
    return f"Ray failed: {first_line(problem, 160)}"
