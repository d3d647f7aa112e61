"""The tab "Layers" of Inspect: a run's text read with each layer left out, in the background; the last results stay."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from specviz.places import new_id
from specviz.server.desk import get, post
from specviz.server.http import Owner
from specviz.words import plural

from ..run_work import RunTask, RunWork
from . import skipping


class Layers(RunWork[RunTask]):
    """Layers left out, by run."""

    name, order = "layers", 59
    cannot = "A run's layers cannot"
    work, busy = "leave layers out", "texts are being read"
    expiry = "this result is not kept any more: leave the layers out again"
    public = "No layer is left out on a public server: run specviz on a computer of your own."

    @get("run/{key}")
    def catalog(self, key: str, owner: Owner) -> dict[str, Any]:
        """The ``reason`` why a run's text cannot be read so ("" where it can), the ``cost`` of it, and the owner's
        newest ``task`` on it. Raises UnknownTrace.
        """
        reason = self._reason(key)
        return {"reason": reason, "cost": "" if reason else self._cost(key), "task": self._newest(key, owner)}

    def _cost(self, key: str) -> str:
        """Work in words; how long it takes is measured while it goes on."""
        trace = self.desk.trace(key)
        tokens, forwards = len(trace.tables["tokens"]["id"]) - 1, len(self.desk.target_of(trace.run).layers) + 1
        return f"{plural(forwards, 'forward')} of {plural(tokens, 'token')}"

    @post("run/{key}")
    def start(self, key: str, owner: Owner) -> dict[str, Any] | Response:
        """Queue the work; its card. Raises UserError for a run that cannot be read; UnknownTrace."""
        if refusal := self._refusal(key):
            return refusal
        return self._on_run(RunTask(id=new_id(), owner=owner, run=key), (skipping.advance, skipping.forget))
