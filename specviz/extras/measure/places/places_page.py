"""The tab "Places" of Inspect: a run replayed place by place in the background, one run after another; the last replays
are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field

from decoders.errors import UserError, capital
from decoders.names import BASELINE, UNDER
from specviz.pages.whatif.reading import to_text
from specviz.places import new_id
from specviz.server.bodies import Body, Id, needs
from specviz.server.desk import Desk, Service, get, post
from specviz.server.http import Owner, problem
from specviz.server.tasks import Tasks

from ..stage_tasks import StagedTask
from . import replaying

MOST_WAITING, MOST_METHODS = 3, 6
EXPIRY = "this replay is not kept any more: replay the run again"
PUBLIC = "No run is replayed on a public server: run specviz on a computer of your own."
USUAL = ("pld+h", "suffix")  # copiers, which replay in seconds


class ReplayRequest(Body):
    """The methods that are put at every place of a run."""

    methods: Annotated[
        list[str], Field(min_length=1, max_length=MOST_METHODS), needs(f"choose one to {MOST_METHODS} methods")
    ]


@dataclass(eq=False, kw_only=True)
class Replay(StagedTask):
    """A replay of a ``run`` by ``methods``."""

    run: str
    methods: list[str]

    def card(self) -> dict[str, Any]:
        names = ("id", "run", "methods", "state", "done", "total", "words", "error", "report")
        return {name: getattr(self, name) for name in names}


class Places(Service):
    """Replays of runs, and the methods to choose from."""

    name, order = "places", 57
    cannot = "A run's places cannot"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._tasks = Tasks[Replay]("replay a run's places", EXPIRY)

    def close(self) -> None:
        """Stop what goes on."""
        self._tasks.close()

    @get("run/{key}")
    def catalog(self, key: str, owner: Owner) -> dict[str, Any]:
        """The ``reason`` why a run cannot be replayed ("" where it can), the ``methods`` with the ``chosen`` ones, and
        the owner's newest ``replay`` of it. Raises UnknownTrace.
        """
        replays = [task for task in self._tasks.all() if (task.owner, task.run) == (owner, key)]
        reason = self._reason(key)
        names = {} if reason else self._methods()
        run = {} if reason else self.desk.trace(key).run["method"]
        own_methods = str(run.get("params", {}).get("drafters", run.get("name", ""))).replace(" ", "").split(",")
        return {
            "reason": reason,
            "methods": [{"name": name, "title": title} for name, title in names.items()],
            "chosen": [name for name in dict.fromkeys([*own_methods, *USUAL]) if name in names],
            "replay": replays[-1].card() if replays else None,
        }

    @post("run/{key}")
    def start(self, key: str, request: ReplayRequest, owner: Owner) -> dict[str, Any] | Response:
        """Queue a replay; its card. Raises UserError for a run or methods that cannot be replayed; UnknownTrace."""
        if self.desk.rules.public:
            return problem(403, PUBLIC)
        if reason := self._reason(key):
            raise UserError(reason)
        trace, names = self.desk.trace(key), self._methods()
        for name in request.methods:
            if name not in names:
                raise UserError(f"{name[:60]!r} cannot be put at a run's places here: choose of {', '.join(names)}")
        target = self.desk.target_of(trace.run)
        task = Replay(id=new_id(), owner=owner, run=key, methods=[*dict.fromkeys(request.methods)])
        self._tasks.begin(task, lambda task: self._replay(task, target), _check_room)
        return task.card()

    @get("of/{id}")
    def of(self, id: str, owner: Owner) -> dict[str, Any]:
        """A replay as far as it is, with its report where it is over. Raises Missing."""
        return self._tasks.find(id, owner).card()

    @post("stop")
    def stop(self, id: Id, owner: Owner) -> dict[str, Any]:
        """Stop a replay at its next stage; its card. Raises Missing."""
        task = self._tasks.find(id, owner)
        self._tasks.stop(task)
        return task.card()

    def _reason(self, key: str) -> str:
        if self.desk.rules.public:
            return PUBLIC
        if reason := self.desk.services["whatif"].reason(key):
            return reason
        from decoders.study.look.places import replay_fault

        fault = replay_fault(self.desk.trace(key).run)
        return fault and f"{capital(fault)}."

    def _methods(self) -> dict[str, str]:
        """Titles of the methods that can be tried; those that turn out to learn are told in the report."""
        target = self.desk.loader.target
        return {
            name: method.title for name, method in self.desk.methods().items()
            if target is not None and method.lossless and method.prompt is None and name != BASELINE
            and UNDER not in name and not method.joins(method.params()) and not method.missing(target)
        }  # fmt: skip

    def _replay(self, task: Replay, target: Any) -> bool:
        from decoders.study.look.run_settings import own_params

        trace = self.desk.trace(task.run)
        own_name = str(trace.run["method"]["name"])
        own_values = own_params(trace, self.desk.methods()[own_name]) if own_name in task.methods else None
        question: dict[str, Any] = {
            "key": task.id, "trace": to_text(trace),
            "methods": [[name, own_values if name == own_name else None] for name in task.methods],
        }  # fmt: skip
        return task.work(self.desk, target, question, replaying.advance, replaying.forget)


def _check_room(going: Sequence[Replay]) -> None:
    if len(going) >= MOST_WAITING:
        raise UserError(f"{MOST_WAITING} runs are being replayed or wait: try again when one is over")
