"""A worker as an executor: ``concurrent.futures``' interface to one process that holds something open, such as a model.

``submit(function, …)`` has the worker call ``function(opened, …)``, where ``opened`` is what it opened at its start.
Calls are done one at a time. A worker that is lost breaks its own executor and no other; ``supervisor`` opens another.

Not a ``ProcessPoolExecutor``: that gives no answer before a call's end, cannot stop a call, and does not say why its
process ended.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from decoders.errors import UserError, first_line
from specviz.words import sentence

log = logging.getLogger(__name__)

LOOK_S = 0.02  # between looks at whether a call was cancelled
STOP_S = 60.0  # for a call that was stopped to end
# kinds of calls: answered once; a generator, told when to stop by an event as its last argument; one that does not wait
# for others, as it only looks at what the worker remembers
WHOLE, STREAM, AT_ONCE = "whole", "stream", "at once"
PART, OVER, FAULT, REFUSED = "part", "over", "fault", "refused"  # kinds of messages

Message: TypeAlias = tuple[int, str, Any]  # a call's number, its kind, and what it brings


class Call(NamedTuple):
    """A call as it is sent to a worker; without a function: stop the call of that number."""

    number: int
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kind: str = WHOLE


class WorkerLost(futures.BrokenExecutor):
    """A worker is lost, and all that it held; the reason is the middle of a sentence."""


class WorkerRefused(Exception):
    """A worker that must not work: it has another code, another model, or does not see the results folder."""


@dataclass(frozen=True, slots=True)
class Hosting:
    """The part that all workers of a server or of a sweep share. ``open`` is a function of a module: from ``about`` it
    makes what calls are given, a model's loading included, or raises WorkerRefused. ``threads`` are the CPU threads of
    each; ``gpus`` those of each that a scheduler is asked for. ``title`` names a worker where it could not begin.
    """

    open: Callable[[Any], Any]
    about: Any
    threads: int = 1
    gpus: float = 0.0
    title: str = "a backend"


class Host:
    """A worker's own side, which tells its messages by ``send``."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._waiting = queue.SimpleQueue[Call | None]()
        self._cancels: dict[int, threading.Event] = {}
        self._state: Any = None

    def take(self, call: Call | None) -> None:
        """Hear a call from the driver; None: there are no more."""
        if call is None:
            self._waiting.put(None)
        elif call.function is None:
            if (cancel := self._cancels.get(call.number)) is not None:
                cancel.set()
        else:
            self._cancels[call.number] = threading.Event()
            act = self._do if call.kind == AT_ONCE else self._waiting.put
            act(call)

    def serve(self, hosting: Hosting) -> None:
        """Open what calls are given, and do calls until there are no more."""
        try:
            self._state = hosting.open(hosting.about)
        except Exception as problem:
            text = "" if isinstance(problem, WorkerRefused) else f"{hosting.title} could not begin: "
            self._send((0, REFUSED, text + (sentence(problem) if text else str(problem))))
            return
        self._send((0, OVER, None))
        while (call := self._waiting.get()) is not None:
            self._do(call)

    def _do(self, call: Call) -> None:
        number, function, args, kind = call
        assert function is not None
        try:
            if kind == STREAM:
                for part in function(self._state, *args, self._cancels[number]):
                    self._send((number, PART, part))
                self._send((number, OVER, None))
            else:
                self._send((number, OVER, function(self._state, *args)))
        except Exception as problem:
            if not isinstance(problem, ValueError):
                log.exception("a worker's call failed")
            self._send((number, FAULT, sentence(problem)))
        finally:
            del self._cancels[number]


class WorkerExecutor(futures.Executor, ABC):
    """One worker. ``ready`` is done once it is open, ``loss`` (with the reason) once it is lost or closed. A kind of
    workers supplies ``_follow``, ``_send`` and ``_end``, and starts ``_thread``.
    """

    stop_s = STOP_S

    def __init__(self, name: str) -> None:
        self.name = name
        self.loss: Future[str] = Future()
        self._reason = ""
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[Future[Any], Callable[[Any], None]]] = {}
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name=f"{name} tells", daemon=True)
        _, self.ready = self._expect()

    @abstractmethod
    def _follow(self) -> str:
        """Pass its messages to ``_hear`` until it ends; the reason."""

    @abstractmethod
    def _send(self, call: Call) -> None:
        """Put a call to it. Raises nothing."""

    @abstractmethod
    def _end(self) -> None:
        """End it at once, in the middle of a call too."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, kind: str = WHOLE, **kwargs: Any) -> Future[Any]:
        """Have the worker call ``fn(opened, …)``. The future raises UserError where that fails. Raises WorkerLost."""
        number, future = self._expect()
        self._send(Call(number, partial(fn, **kwargs) if kwargs else fn, args, kind))
        return future

    def stream(self, fn: Callable[..., Any], /, *args: Any, cancel: threading.Event) -> Iterator[Any]:
        """Yield what the generator ``fn(opened, …, cancel)`` yields there, as it comes. A worker that goes on with it
        ``stop_s`` after ``cancel`` was set is ended. Raises WorkerLost, and UserError where it fails.
        """
        parts = queue.SimpleQueue[tuple[Any, ...]]()
        number, future = self._expect(lambda part: parts.put((part,)))
        future.add_done_callback(lambda _: parts.put(()))
        self._send(Call(number, fn, args, STREAM))
        stop_time = 0.0
        try:
            while True:
                if cancel.is_set() and not stop_time:
                    stop_time = time.monotonic()
                    self._send(Call(number))
                if stop_time and time.monotonic() - stop_time > self.stop_s:
                    self.kill(f"it did not stop within {self.stop_s:.0f} s")
                try:
                    part = parts.get(timeout=LOOK_S)
                except queue.Empty:
                    continue
                if not part:
                    future.result()
                    return
                yield part[0]
        finally:
            if not future.done():
                self._send(Call(number))

    def kill(self, reason: str = "it was closed") -> None:
        """End the worker at once, in the middle of a call too."""
        self._lose(reason)
        self._end()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the worker: after its calls where they are waited for, else at once."""
        if wait and not cancel_futures:
            futures.wait([future for future, _ in list(self._calls.values())])
        self.kill()
        if wait:
            self._thread.join()

    def _expect(self, hear: Callable[[Any], None] = lambda part: None) -> tuple[int, Future[Any]]:
        """A new call's number and its future. Raises WorkerLost."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # it cannot be cancelled: a call that waits may have begun by now
        with self._lock:
            if not self._reason:
                number = next(self._numbers)
                self._calls[number] = future, hear
                return number, future
        raise WorkerLost(self.loss.result())

    def _hear(self, number: int, kind: str, content: Any) -> None:
        with self._lock:
            expected = self._calls.get(number)
            if kind != PART:
                self._calls.pop(number, None)
        if expected is None:  # it was lost
            return
        future, hear = expected
        if kind == PART:
            hear(content)
        elif kind == OVER:
            future.set_result(content)
        else:
            future.set_exception((UserError if kind == FAULT else WorkerRefused)(content))

    def _listen(self) -> None:
        try:
            reason = self._follow()
        except Exception as problem:
            reason = f"what it told cannot be read ({first_line(problem, 160)})"
            self._end()
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        with self._lock:
            if self._reason:
                return
            self._reason = reason
            calls, self._calls = list(self._calls.values()), {}
        self.loss.set_result(reason)  # before the calls: whoever waits for one finds it lost
        for future, _ in calls:
            future.set_exception(WorkerLost(reason))


class Opener(ABC):
    """Opens the workers of a kind."""

    @abstractmethod
    def open(self, name: str, number: int, hosting: Hosting) -> WorkerExecutor:
        """Start a worker, which is not ready yet. Raises UserError where there can be none."""

    def close(self) -> None:  # noqa: B027
        """End what the workers shared; all of them are ended."""
