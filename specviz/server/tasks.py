"""Long work that a page asks for, in the background: a few tasks at once, the last ones kept when they are over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from decoders.errors import UserError
from specviz.words import sentence

from .forms import Missing
from .runner import QueueFull

log = logging.getLogger(__name__)

MAX_TASKS = 8  # tasks of a page, those that go on included


@dataclass(eq=False, kw_only=True)
class Task:
    """A task of an owner: "queued", "running", "done", "stopped", or "failed" with an ``error``."""

    id: str
    owner: str
    state: str = "queued"
    error: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)

    @property
    def goes_on(self) -> bool:
        return self.state in ("queued", "running")


T = TypeVar("T", bound=Task)


class Tasks(Generic[T]):
    """The tasks of a page, of which ``at_once`` are done at a time, in their order, and ``most`` are kept. ``name`` is
    what the work is called in the log, ``gone`` says of a task that it is not kept any more.
    """

    def __init__(self, name: str, end_message: str, *, at_once: int = 1, limit: int = MAX_TASKS) -> None:
        self.name, self.end_message, self.at_once, self.limit = name, end_message, at_once, limit
        self._tasks: dict[str, T] = {}
        self._change, self._closing = threading.Condition(), False

    def close(self) -> None:
        """Stop all, and take no more."""
        self._closing = True
        for task in self.all():
            self.stop(task)

    def all(self) -> list[T]:
        """The tasks that are kept, the oldest first."""
        with self._change:
            return list(self._tasks.values())

    def get(self, key: str) -> T | None:
        """A task by its id; None where it is not kept (any more)."""
        with self._change:
            return self._tasks.get(key)

    def find(self, key: str, owner: str | None = None) -> T:
        """A task by its id, with ``owner`` one of that owner. Raises Missing."""
        task = self.get(key)
        if task is None or owner not in (None, task.owner):
            raise Missing(self.end_message)
        return task

    def stop(self, task: T) -> None:
        """Stop a task; one that waits is over at once."""
        task.cancel.set()
        with self._change:
            if task.state == "queued":
                self._end(task, "stopped")

    def cancel(self, key: str, owner: str) -> bool:
        """Stop a task of ``owner`` by its id; what is done is kept. False where there is none."""
        try:
            self.stop(self.find(key, owner))
        except Missing:
            return False
        return True

    def begin(self, task: T, work: Callable[[T], bool], check: Callable[[Sequence[T]], None]) -> None:
        """Queue a task. ``work`` returns whether it was done to its end, or stopped; ``check`` raises where no more may
        go on beside those that it is given. Raises UserError as the server goes down.
        """
        with self._change:
            if self._closing:
                raise UserError("the server is going down")
            check(self._going())
            self._tasks[task.id] = task
            self._trim()
        threading.Thread(target=self._work, args=(task, work), name=self.name, daemon=True).start()

    def _going(self) -> list[T]:
        return [task for task in self._tasks.values() if task.goes_on]

    def _trim(self) -> None:
        over = [key for key, task in self._tasks.items() if not task.goes_on]
        for key in over[: max(0, len(self._tasks) - self.limit)]:
            del self._tasks[key]

    def _end(self, task: T, state: str) -> None:
        task.state = state
        self._trim()
        self._change.notify_all()

    def _work(self, task: T, work: Callable[[T], bool]) -> None:
        with self._change:
            self._change.wait_for(lambda: not task.goes_on or task in self._going()[: self.at_once])
            if not task.goes_on:  # it was stopped meanwhile
                return
            task.state = "running"
        try:
            state = "done" if work(task) else "stopped"
        except QueueFull:
            state = "stopped"
        except Exception as problem:
            if not isinstance(problem, ValueError):
                log.exception("%s: task %s failed", self.name, task.id)
            state, task.error = "failed", sentence(problem)
        with self._change:
            self._end(task, state)
