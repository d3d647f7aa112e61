"""Calls that may hang: made on a thread of their own, given up after a while."""

from __future__ import annotations

import ctypes
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Hung(Exception):
    """A call took longer than it may; the message says how long that is, and at which line the call was."""


class Stopped(BaseException):
    """Raised inside a call that was given up, so that a loop in it ends."""


class Caller:
    """Makes calls on one thread of its own, one after another, each for at most ``seconds``. ``own`` is the file or
    folder whose lines are named where a call hangs.

    A call that takes longer raises ``Hung`` here. Its thread is told to stop: a loop in Python ends; a call that blocks
    outside of Python (a socket, a sleep) stays behind until it returns, and the next call has a new thread.

    >>> Caller(5).call(max, 3, 4)
    4
    """

    def __init__(self, seconds: float, own: str = "") -> None:
        self.seconds, self.own = seconds, own
        self._work: SimpleQueue[Any] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """What the function returns; what it raises is raised here."""
        if self._thread is None:
            self._work = SimpleQueue()
            self._thread = threading.Thread(target=_serve, args=(self._work,), daemon=True, name="plug-in")
            self._thread.start()
        elif self._thread is threading.current_thread():
            return function(*arguments, **named)
        answer: list[Any] = []
        done = threading.Lock()
        done.acquire()
        self._work.put((copy_context(), function, arguments, named, answer, done))
        if not done.acquire(timeout=self.seconds):
            raise self._given_up()
        value, problem = answer
        if problem is not None:
            raise problem
        return value

    def _given_up(self) -> Hung:
        thread, self._thread = self._thread, None
        assert thread is not None and thread.ident is not None
        frame = sys._current_frames().get(thread.ident)
        place = place_of(traceback.extract_stack(frame), self.own) if frame is not None else ""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))
        self._work.put(None)
        return Hung(f"it takes longer than {self.seconds:g} s{place and ' (at '}{place}{place and ')'}")

    def __del__(self) -> None:
        self._work.put(None)


def _serve(queue: SimpleQueue[Any]) -> None:
    """Make the calls that come, until None does; a call that was given up ends the thread."""
    try:
        while (work := queue.get()) is not None:
            context, function, arguments, named, answer, done = work
            try:
                answer[:] = context.run(function, *arguments, **named), None
            except Stopped:
                return
            except BaseException as problem:
                answer[:] = None, problem
            done.release()
            del work, context, function, arguments, named, answer, done  # nothing is kept while it waits
    except Stopped:
        return


def place_of(lines: Iterable[traceback.FrameSummary], own: str) -> str:
    """The innermost line that stands in the file or folder ``own``: "line 12 of my_method.py"; "" where none does."""
    mine = [line for line in lines if own and line.filename.startswith(own)]
    return f"line {mine[-1].lineno} of {mine[-1].filename.replace(chr(92), '/').rpartition('/')[2]}" if mine else ""
