"""Backends: workers that a server or a sweep keeps, each with what it opened once, and asks one question after another.

A question is plain JSON; so is each of its answers, of which there may be many: the steps of a run. They cross to the
backend and back as text, never as objects. This file has the backend's own side (``Host``), what all kinds of backends
share (``Backend``), and processes of this machine; Ray's actors are in ``ray_actors``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from decoders.errors import UserError
from specviz.words import sentence

from .processes import CONTEXT, end, end_in_words, settle, start_process
from .work import WorkerRefused, open_model

log = logging.getLogger(__name__)

LOOK_S = 0.02  # between looks at whether a question was cancelled
KEY = 8  # characters that name a question on a link
BEAT, BEAT_S = b"\0" * KEY, 1.0  # a sign of life, and the seconds between two
SILENT_S = 30.0  # without a sign of life: a backend is taken for hung
OPENING_S = 180.0  # the same while it opens: reading torch from a slow disk gives none
STOP_S = 60.0  # for a question that was stopped to end
AT_ONCE = "at_once"  # a question that is answered beside the one under way: it asks for nothing but the memory's state

Question: TypeAlias = Mapping[str, Any]
Answers: TypeAlias = Callable[[Question, threading.Event], Iterator[Mapping[str, Any]]]


class BackendLost(Exception):
    """A backend is lost, and all that it held; the reason is told as the middle of a sentence."""


@dataclass(frozen=True, slots=True)
class Hosting:
    """The part that all backends of a server, or of a sweep, share. ``open`` is a function of a module: from ``about``
    it makes what answers questions, a model's loading included, or raises Refused. ``threads`` are CPU threads of each;
    ``gpus`` those of each that a scheduler is asked for. ``what`` each is called where it could not begin.
    """

    open: Callable[[Mapping[str, Any]], Answers]
    about: Mapping[str, Any]
    threads: int = 1
    gpus: float = 0.0
    title: str = "a backend"


class Host:
    """A backend's own side: opened once, it does one thing at a time, questions ``AT_ONCE`` apart."""

    def __init__(self, hosting: Hosting) -> None:
        self._answers = hosting.open({**hosting.about, "threads": hosting.threads})
        self._turn = threading.Lock()
        self._cancels: dict[str, threading.Event] = {}

    def answer(self, key: str, body: bytes) -> Iterator[bytes]:
        """The answers to a question, each as JSON: {"told": …}, then {"over"}, or {"failed": sentence}."""
        cancel = self._cancels.setdefault(key, threading.Event())
        try:
            question = json.loads(body)
            with contextlib.nullcontext() if question.get(AT_ONCE) else self._turn:
                for answer in self._answers(question, cancel):
                    yield encode({"told": answer})
            yield encode({"over": True})
        except Exception as problem:
            if not isinstance(problem, ValueError):
                log.exception("a question to a backend failed")
            yield encode({"failed": sentence(problem)})
        finally:
            self._cancels.pop(key, None)

    def stop(self, key: str) -> None:
        """Have the answer to a question end soon."""
        if (cancel := self._cancels.get(key)) is not None:
            cancel.set()


def encode(value: Mapping[str, Any]) -> bytes:
    """Plain JSON in ASCII: half a surrogate pair comes through, as does what is no number."""
    return json.dumps(value, separators=(",", ":")).encode()


class Backend(ABC):
    """One backend as its server sees it. It can be opened again after it was lost: with nothing of what it held.

    It is ended, and so lost, where it gives no sign of life for ``silent_s``, or a question that was stopped goes on
    for ``stop_s``. A kind of backends supplies ``_start``, ``_send`` and ``_end``; what its backend says comes in by
    ``_hear``, and that it ended by ``_lose``.
    """

    silent_s, stop_s = SILENT_S, STOP_S

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.on_lost: Callable[[str], None] = lambda reason: None  # called when it is lost, from any thread
        self._inboxes: dict[str, queue.SimpleQueue[bytes | None]] = {}
        self._reason = "it was not started"  # why nothing can be asked; "" while it is open
        self._hang_reason = ""  # why it was ended
        self._beats = 0  # signs of life
        self._life: object = None  # one opening of it

    @abstractmethod
    def _start(self, hosting: Hosting, life: object) -> None:
        """Start it and wait until it is ready; its threads go on as long as ``life`` is this. Raises Gone, Refused."""

    @abstractmethod
    def _send(self, key: str, body: bytes) -> None:
        """Put a question to it, or (with nothing) have the answer to it end soon. Raises nothing."""

    @abstractmethod
    def _end(self) -> None:
        """End it at once, in the middle of an answer too."""

    def open(self, hosting: Hosting) -> None:
        """Start it, and wait until it is ready. Raises Gone, and Refused where it must not work."""
        self.close()
        self._hang_reason, self._beats, self._life = "", 0, object()
        threading.Thread(target=self._watch, args=(self._life,), name=f"{self.name} lives", daemon=True).start()
        try:
            self._start(hosting, self._life)
        except BaseException:
            self.close()
            raise
        self._reason = ""

    def ask(self, question: Question, cancel: threading.Event) -> Iterator[Mapping[str, Any]]:
        """The answers, as they come. Raises Gone, and UserError where it fails."""
        key, inbox = secrets.token_hex(KEY // 2), queue.SimpleQueue[bytes | None]()
        self._inboxes[key], stop_time, over = inbox, 0.0, False
        try:
            if self._reason:
                raise BackendLost(self._reason)
            self._send(key, encode(question))
            while True:
                if cancel.is_set() and not stop_time:
                    stop_time = time.monotonic()
                    self._send(key, b"")
                if stop_time and time.monotonic() - stop_time > self.stop_s:
                    self._kill(f"it did not stop within {self.stop_s:.0f} s")
                try:
                    message = inbox.get(timeout=LOOK_S)
                except queue.Empty:
                    if self._reason:
                        raise BackendLost(self._reason) from None
                    continue
                if message is None:
                    raise BackendLost(self._reason)
                answer = json.loads(message)
                over = "told" not in answer
                if "failed" in answer:
                    raise UserError(answer["failed"])
                if over:
                    return
                yield answer["told"]
        finally:
            if not over:
                self._send(key, b"")
            del self._inboxes[key]

    def close(self) -> None:
        """End it, in the middle of an answer too."""
        self._life = None
        self._end_all("it was closed")
        self._end()

    def leave(self) -> None:  # noqa: B027
        """All backends are closed for good: end what they shared."""

    def _opening_s(self) -> float:
        """Seconds without a sign of life after which it is taken for hung while it opens."""
        return OPENING_S

    def _hear(self, key: str, message: bytes) -> None:
        """A sign of life; of a question that is asked, an answer."""
        self._beats += 1
        if (inbox := self._inboxes.get(key)) is not None:
            inbox.put(message)

    def _lose(self, life: object, reason: str) -> None:
        """It ended by itself, or was ended as it hung; that is told once."""
        if self._life is life:
            self._life = None
            self._end_all(self._hang_reason or reason)
            self.on_lost(self._reason)

    def _end_all(self, reason: str) -> None:
        self._reason = reason
        for inbox in list(self._inboxes.values()):
            inbox.put(None)

    def _kill(self, reason: str) -> None:
        """End it, as it hangs: whoever waits for it learns that."""
        if not self._hang_reason:
            self._hang_reason = reason
            self._end()

    def _watch(self, life: object) -> None:
        """End it where it gives no sign of life. Looks are counted, not seconds: whoever stops this process (Ctrl+Z)
        stops the backends too, and the signs come again no sooner than they are looked for.
        """
        looks, beats = 0, self._beats
        while self._life is life and not self._hang_reason:
            time.sleep(BEAT_S)
            looks, beats = (looks + 1 if beats == self._beats else 0), self._beats
            patience = self._opening_s() if self._reason else self.silent_s
            if looks * BEAT_S >= patience and self._life is life:
                self._kill(f"it gave no sign of life for {patience:.0f} s")


class Process(Backend):
    """A backend that is a process of this machine. With GPUs, the visible ones are dealt out in turn."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(name, number)
        self._process: Any = None
        self._link: Connection | None = None
        self._sending = threading.Lock()
        self._reaping = threading.Lock()  # two threads that wait for a process's end take its exit code from each other

    def _start(self, hosting: Hosting, life: object) -> None:
        link, far_end = CONTEXT.Pipe()
        self._process = process = start_process(self.name, hosting.threads, _serve, far_end, hosting, self.number)
        far_end.close()
        self._link = link
        try:
            while (message := link.recv_bytes()) == BEAT:
                self._beats += 1
        except (EOFError, OSError):
            raise BackendLost(self._hang_reason or self._end_of(process)) from None
        if refusal := json.loads(message).get("refused"):
            raise WorkerRefused(refusal)
        threading.Thread(target=self._read, args=(link, process, life), name=f"{self.name} tells", daemon=True).start()

    def _read(self, link: Connection, process: Any, life: object) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = link.recv_bytes()
                self._hear(message[:KEY].decode(), message[KEY:])
        if self._life is life:  # else it was closed
            self._lose(life, self._end_of(process))

    def _send(self, key: str, body: bytes) -> None:
        with self._sending, contextlib.suppress(OSError, AttributeError):  # it ended: the reader tells
            self._link.send_bytes(key.encode() + body)  # pyright: ignore[reportOptionalMemberAccess]

    def _end(self) -> None:
        if self._life is not None:  # whoever reads from it learns that
            with contextlib.suppress(AttributeError, ValueError):  # it was closed
                self._process.kill()
            return
        link, process, self._link, self._process = self._link, self._process, None, None
        if process is not None:
            with self._reaping:
                end([process])
        if link is not None:
            link.close()

    def _end_of(self, process: Any) -> str:
        """Why a process ended; that of a closed one is nobody's."""
        with self._reaping:
            if self._process is not process:
                return "it was closed"
            process.join(5)
            return end_in_words(process.exitcode)


def _serve(link: Connection, hosting: Hosting, number: int) -> None:
    """A backend's process. A message is a question's key with the question, or with nothing: stop it."""
    settle(number if hosting.gpus else None)
    sending = threading.Lock()

    def live() -> None:
        with contextlib.suppress(OSError):
            while True:
                with sending:
                    link.send_bytes(BEAT)
                time.sleep(BEAT_S)

    threading.Thread(target=live, name="signs of life", daemon=True).start()
    try:
        host = open_model(lambda: Host(hosting), hosting.title)
    except WorkerRefused as refusal:
        with sending:
            link.send_bytes(encode({"refused": str(refusal)}))
        return
    waiting = queue.SimpleQueue[tuple[str, bytes] | None]()

    def answer(key: str, body: bytes) -> None:
        for reply in host.answer(key, body):
            with sending:
                link.send_bytes(key.encode() + reply)

    def read() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = link.recv_bytes()
                key, body = message[:KEY].decode(), message[KEY:]
                if not body:
                    host.stop(key)
                elif json.loads(body).get(AT_ONCE):
                    answer(key, body)
                else:
                    waiting.put((key, body))
        waiting.put(None)

    with sending:
        link.send_bytes(encode({"ready": True}))
    threading.Thread(target=read, name="questions", daemon=True).start()
    with contextlib.suppress(OSError):
        while (body := waiting.get()) is not None:
            answer(*body)
