"""Tasks of a page whose work is done in ``stages``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specviz.server.tasks import Task

if TYPE_CHECKING:
    from specviz.server.desk import Desk


@dataclass(eq=False, kw_only=True)
class StagedTask(Task):
    """A task's progress (``done`` of ``total``, in ``words``), and the report of one that is over."""

    done: int = 0
    total: int = 0
    words: str = ""
    report: dict[str, Any] | None = None

    def work(
        self, desk: Desk, target: Any, question: dict[str, Any], advance: Callable[..., Any], forget: Callable[..., Any]
    ) -> bool:
        """Do stage after stage where the target is, the first with ``question``. False where the task was stopped."""
        while not self.cancel.is_set():
            stage = desk.work_on(target, advance, question, self.id)
            if "report" in stage:
                self.report, self.done, self.words = stage["report"], self.total, ""
                return True
            self.done, self.total, self.words = stage["done"], stage["total"], stage["words"]
            question = {"key": self.id}
        desk.work_on(target, forget, {"key": self.id}, self.id)
        return False
