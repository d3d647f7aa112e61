"""Long work that a page asks for, in the background: a few tasks at once, the last ones kept when they are over."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from specviz.words import sentence

from .forms import Missing
from .runner import QueueFull

log = logging.getLogger(__name__)

KEPT = 8  # tasks of a page, those that go on included


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
    """The tasks of a page, of which ``at_once`` are done at a time and ``most`` are kept. ``name`` is what the work is
    called in the log, ``gone`` says of a task that it is not kept any more.
    """

    def __init__(self, name: str, gone: str, *, at_once: int = 1, most: int = KEPT) -> None:
        self.name, self.gone, self.most = name, gone, most
        self._tasks: OrderedDict[str, T] = OrderedDict()
        self._change, self._turn = threading.Lock(), threading.Semaphore(at_once)

    def close(self) -> None:
        """Stop all."""
        for task in self.all():
            task.cancel.set()

    def all(self) -> list[T]:
        """Those that are kept, the oldest first."""
        with self._change:
            return list(self._tasks.values())

    def find(self, key: str, owner: str | None = None) -> T:
        """A task by its id, with ``owner`` one of that owner. Raises Missing."""
        with self._change:
            task = self._tasks.get(key)
        if task is None or owner not in (None, task.owner):
            raise Missing(self.gone)
        return task

    def begin(self, task: T, work: Callable[[T], bool], check: Callable[[Sequence[T]], None]) -> None:
        """Queue a task. ``work`` returns whether it was done to its end, or stopped; ``check`` raises where no more may
        go on beside those that it is given.
        """
        with self._change:
            check([one for one in self._tasks.values() if one.goes_on])
            over = [key for key, one in self._tasks.items() if not one.goes_on]
            for key in over[: max(0, len(self._tasks) + 1 - self.most)]:
                del self._tasks[key]
            self._tasks[task.id] = task
        threading.Thread(target=self._work, args=(task, work), name=self.name, daemon=True).start()

    def _work(self, task: T, work: Callable[[T], bool]) -> None:
        try:
            with self._turn:
                task.state = "running"
                task.state = "done" if work(task) else "stopped"
        except QueueFull:
            task.state = "stopped"
        except Exception as problem:
            if not isinstance(problem, ValueError):
                log.exception("%s: task %s failed", self.name, task.id)
            task.error, task.state = sentence(problem), "failed"
