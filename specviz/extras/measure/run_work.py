"""Pages in Inspect whose work on the run shown is done in stages, in the background; the last results are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Response

from decoders.errors import UserError
from specviz.pages.whatif.reading import to_text
from specviz.server.desk import get
from specviz.server.http import Owner, problem

from .stage_tasks import Question, StagedService, StagedTask, Work


@dataclass(eq=False, kw_only=True)
class RunTask(StagedTask):
    """Staged work on a ``run``."""

    run: str

    def card(self) -> dict[str, Any]:
        return {**super().card(), "run": self.run, "report": self.report}


T = TypeVar("T", bound=RunTask)


class RunWork(StagedService[T]):
    """Tasks by run. ``public`` says why a public server does none."""

    public: str

    @get("of/{id}")
    def of(self, id: str, owner: Owner) -> dict[str, Any]:
        """A task as far as it is, with its report where it is over. Raises Missing."""
        return self._tasks.find(id, owner).card()

    def _newest(self, key: str, owner: str) -> dict[str, Any] | None:
        """The card of the owner's newest task on a run."""
        tasks = [task for task in self._tasks.all() if (task.owner, task.run) == (owner, key)]
        return tasks[-1].card() if tasks else None

    def _reason(self, key: str) -> str:
        """The reason why there is no work on a run; "" where there may be. Raises UnknownTrace."""
        return self.public if self.desk.rules.public else self.desk.services["whatif"].reason(key)

    def _refusal(self, key: str) -> Response | None:
        """The answer of a public server. Raises UserError for a run that cannot be worked on."""
        if self.desk.rules.public:
            return problem(403, self.public)
        if reason := self._reason(key):
            raise UserError(reason)
        return None

    def _on_run(self, task: T, steps: tuple[Work, Work], rest: Callable[[Any], Question] = lambda _: {}) -> Question:
        """Queue a task; its question is its run's ``trace`` and what ``rest`` asks of it. Its card."""
        trace = self.desk.trace(task.run)
        target = self.desk.target_of(trace.run)
        return self._queue(task, target, lambda: {"trace": to_text(trace), **rest(trace)}, steps)
