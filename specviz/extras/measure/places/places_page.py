"""The tab "Places" of Inspect: a run replayed place by place in the background, one run after another; the last replays
are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field

from decoders.errors import UserError, capital
from decoders.names import BASELINE, UNDER
from specviz.places import new_id
from specviz.server.bodies import Body, needs
from specviz.server.desk import get, post
from specviz.server.http import Owner

from ..run_work import RunTask, RunWork
from . import replaying

MOST_METHODS = 6
USUAL = ("pld+h", "suffix")  # copiers, which replay in seconds


class ReplayRequest(Body):
    """The methods that are put at every place of a run."""

    methods: Annotated[
        list[str], Field(min_length=1, max_length=MOST_METHODS), needs(f"choose one to {MOST_METHODS} methods")
    ]


@dataclass(eq=False, kw_only=True)
class Replay(RunTask):
    """A replay of a ``run`` by ``methods``."""

    methods: list[str]

    def card(self) -> dict[str, Any]:
        return {**super().card(), "methods": self.methods}


class Places(RunWork[Replay]):
    """Replays of runs, and the methods to choose from."""

    name, order = "places", 57
    cannot = "A run's places cannot"
    work, busy = "replay a run's places", "runs are being replayed"
    expiry = "this replay is not kept any more: replay the run again"
    public = "No run is replayed on a public server: run specviz on a computer of your own."

    @get("run/{key}")
    def catalog(self, key: str, owner: Owner) -> dict[str, Any]:
        """The ``reason`` why a run cannot be replayed ("" where it can), the ``methods`` with the ``chosen`` ones, and
        the owner's newest ``replay`` of it. Raises UnknownTrace.
        """
        reason = self._reason(key)
        names = {} if reason else self._methods()
        run = {} if reason else self.desk.trace(key).run["method"]
        own_methods = str(run.get("params", {}).get("drafters", run.get("name", ""))).replace(" ", "").split(",")
        return {
            "reason": reason,
            "methods": [{"name": name, "title": title} for name, title in names.items()],
            "chosen": [name for name in dict.fromkeys([*own_methods, *USUAL]) if name in names],
            "replay": self._newest(key, owner),
        }

    @post("run/{key}")
    def start(self, key: str, request: ReplayRequest, owner: Owner) -> dict[str, Any] | Response:
        """Queue a replay; its card. Raises UserError for a run or methods that cannot be replayed; UnknownTrace."""
        if refusal := self._refusal(key):
            return refusal
        names = self._methods()
        for name in request.methods:
            if name not in names:
                raise UserError(f"{name[:60]!r} cannot be put at a run's places here: choose of {', '.join(names)}")
        task = Replay(id=new_id(), owner=owner, run=key, methods=[*dict.fromkeys(request.methods)])
        return self._on_run(task, (replaying.advance, replaying.forget), lambda trace: self._join_params(task, trace))

    def _reason(self, key: str) -> str:
        if reason := super()._reason(key):
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

    def _join_params(self, task: Replay, trace: Any) -> dict[str, Any]:
        """The methods with their parameters: those of the run's own where it is one of them."""
        from decoders.study.look.run_settings import own_params

        own_name = str(trace.run["method"]["name"])
        own_values = own_params(trace, self.desk.methods()[own_name]) if own_name in task.methods else None
        return {"methods": [[name, own_values if name == own_name else None] for name in task.methods]}
