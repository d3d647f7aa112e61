"""Tasks of a page whose work is done in ``stages``, and the service that queues, follows and stops them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from decoders.errors import UserError
from specviz.server.bodies import Id
from specviz.server.desk import Service, post
from specviz.server.http import Owner
from specviz.server.tasks import Task, Tasks

if TYPE_CHECKING:
    from specviz.server.desk import Desk

MOST_WAITING = 3
LOOK_S = 0.1  # how often a task that waits for its turn looks whether it was stopped
Question = dict[str, Any]
Work = Callable[..., Any]


class Turn:
    """Staged work of one page at a time: that of the others waits, and says for which ``page``."""

    def __init__(self) -> None:
        self._lock, self.page = threading.Lock(), ""

    @contextlib.contextmanager
    def take(self, task: StagedTask, page: str) -> Iterator[None]:
        """Take the turn for a task of ``page``, unless it is stopped while it waits."""
        while not (has_turn := self._lock.acquire(timeout=LOOK_S)) and not task.cancel.is_set():
            task.waits = self.page
        task.waits = ""
        try:
            if has_turn:
                self.page = page
            yield
        finally:
            if has_turn:
                self.page = ""
                self._lock.release()


@dataclass(eq=False, kw_only=True)
class StagedTask(Task):
    """A task's progress (``done`` of ``total``, in ``words``), the page that it ``waits`` for, and its report: of one
    that goes on as far as it is known.
    """

    done: int = 0
    total: int = 0
    words: str = ""
    waits: str = ""
    report: dict[str, Any] | None = None

    def card(self) -> dict[str, Any]:
        """The task as a page shows it."""
        names = ("id", "state", "done", "total", "words", "waits", "error")
        return {name: getattr(self, name) for name in names}

    def work(self, desk: Desk, target: Any, question: Question, advance: Work, forget: Work) -> bool:
        """Do stage after stage where the target is, the first with ``question``. False where the task was stopped."""
        while not self.cancel.is_set():
            stage = desk.work_on(target, advance, {"key": self.id, **question}, self.id)
            if "report" in stage:
                self.report, self.done, self.words = stage["report"], self.total, ""
                return True
            self.done, self.total, self.words = stage["done"], stage["total"], stage["words"]
            self.report = stage["partial"]
            question = {}
        desk.work_on(target, forget, {"key": self.id}, self.id)
        return False


T = TypeVar("T", bound=StagedTask)


class StagedService(Service, Generic[T]):
    """Staged tasks, one at a time. ``work`` names them in the log, ``expiry`` says that one is not kept any more, and
    ``busy`` what the others do that go on.
    """

    work: str
    expiry: str
    busy: str

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._tasks = Tasks[T](self.work, self.expiry)
        self._turn = Turn()

    def close(self) -> None:
        """Stop what goes on."""
        self._tasks.close()

    @post("stop")
    def stop(self, id: Id, owner: Owner) -> dict[str, Any]:
        """Stop a task, at its next stage where it goes on; its card. Raises Missing."""
        task = self._tasks.find(id, owner)
        self._tasks.stop(task)
        return task.card()

    def _queue(self, task: T, target: Any, question: Callable[[], Question], steps: tuple[Work, Work]) -> Question:
        """Queue a task whose first stage has a ``question``; ``steps`` advance the work and let go of it. Its card."""
        services = (service for service in self.desk.services.values() if isinstance(service, StagedService))
        turn = next(services, self)._turn  # one for all pages

        def work(task: T) -> bool:
            with turn.take(task, self.tool or self.name.capitalize()):
                return task.work(self.desk, target, question(), *steps)

        self._tasks.begin(task, work, self._check_room)
        return task.card()

    def _check_room(self, going: Sequence[T]) -> None:
        if len(going) >= MOST_WAITING:
            raise UserError(f"{MOST_WAITING} {self.busy} or wait: try again when one is over")
