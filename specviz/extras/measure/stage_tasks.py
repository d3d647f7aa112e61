"""Tasks of a page whose work is done in ``stages``, and the service that queues, follows and stops them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
Question = dict[str, Any]
Work = Callable[..., Any]


@dataclass(eq=False, kw_only=True)
class StagedTask(Task):
    """A task's progress (``done`` of ``total``, in ``words``), and the report of one that is over."""

    done: int = 0
    total: int = 0
    words: str = ""
    report: dict[str, Any] | None = None

    def card(self) -> dict[str, Any]:
        """The task as a page shows it."""
        names = ("id", "state", "done", "total", "words", "error")
        return {name: getattr(self, name) for name in names}

    def work(self, desk: Desk, target: Any, question: Question, advance: Work, forget: Work) -> bool:
        """Do stage after stage where the target is, the first with ``question``. False where the task was stopped."""
        while not self.cancel.is_set():
            stage = desk.work_on(target, advance, {"key": self.id, **question}, self.id)
            if "report" in stage:
                self.report, self.done, self.words = stage["report"], self.total, ""
                return True
            self.done, self.total, self.words = stage["done"], stage["total"], stage["words"]
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
        self._tasks.begin(task, lambda task: task.work(self.desk, target, question(), *steps), self._check_room)
        return task.card()

    def _check_room(self, going: Sequence[T]) -> None:
        if len(going) >= MOST_WAITING:
            raise UserError(f"{MOST_WAITING} {self.busy} or wait: try again when one is over")
