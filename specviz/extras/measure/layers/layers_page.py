"""The tab "Layers" of Inspect: a run's text read with each layer left out, in the background; the last results stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Response

from decoders.errors import UserError
from specviz.pages.whatif.reading import to_text
from specviz.places import new_id
from specviz.server.bodies import Id
from specviz.server.desk import Desk, Service, get, post
from specviz.server.http import Owner, problem
from specviz.server.tasks import Tasks

from ..stage_tasks import StagedTask
from . import skipping

MOST_WAITING = 3
EXPIRY = "this result is not kept any more: leave the layers out again"
PUBLIC = "No layer is left out on a public server: run specviz on a computer of your own."


@dataclass(eq=False, kw_only=True)
class Skips(StagedTask):
    """Layers left out on the text of a ``run``."""

    run: str

    def card(self) -> dict[str, Any]:
        names = ("id", "run", "state", "done", "total", "words", "error", "report")
        return {name: getattr(self, name) for name in names}


class Layers(Service):
    """Layers left out, by run."""

    name, order = "layers", 59
    cannot = "A run's layers cannot"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._tasks = Tasks[Skips]("leave layers out", EXPIRY)

    def close(self) -> None:
        """Stop what goes on."""
        self._tasks.close()

    @get("run/{key}")
    def catalog(self, key: str, owner: Owner) -> dict[str, Any]:
        """The ``reason`` why a run's text cannot be read so ("" where it can), and the owner's newest ``task`` on it.
        Raises UnknownTrace.
        """
        tasks = [task for task in self._tasks.all() if (task.owner, task.run) == (owner, key)]
        return {"reason": self._reason(key), "task": tasks[-1].card() if tasks else None}

    @post("run/{key}")
    def start(self, key: str, owner: Owner) -> dict[str, Any] | Response:
        """Queue the work; its card. Raises UserError for a run that cannot be read; UnknownTrace."""
        if self.desk.rules.public:
            return problem(403, PUBLIC)
        if reason := self._reason(key):
            raise UserError(reason)
        target = self.desk.target_of(self.desk.trace(key).run)
        task = Skips(id=new_id(), owner=owner, run=key)
        self._tasks.begin(task, lambda task: self._skip(task, target), _check_room)
        return task.card()

    @get("of/{id}")
    def of(self, id: str, owner: Owner) -> dict[str, Any]:
        """The work as far as it is, with its report where it is over. Raises Missing."""
        return self._tasks.find(id, owner).card()

    @post("stop")
    def stop(self, id: Id, owner: Owner) -> dict[str, Any]:
        """Stop the work at its next layer; its card. Raises Missing."""
        task = self._tasks.find(id, owner)
        self._tasks.stop(task)
        return task.card()

    def _reason(self, key: str) -> str:
        return PUBLIC if self.desk.rules.public else self.desk.services["whatif"].reason(key)

    def _skip(self, task: Skips, target: Any) -> bool:
        question = {"key": task.id, "trace": to_text(self.desk.trace(task.run))}
        return task.work(self.desk, target, question, skipping.advance, skipping.forget)


def _check_room(going: Any) -> None:
    if len(going) >= MOST_WAITING:
        raise UserError(f"{MOST_WAITING} texts are being read or wait: try again when one is over")
