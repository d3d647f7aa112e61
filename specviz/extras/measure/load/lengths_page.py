"""Draft lengths of chosen runs, a view of their acceptance: other servers' policies, and the runs in batches."""

from __future__ import annotations

from typing import Any

from specviz.pages.acceptance.acceptance_page import require_runs
from specviz.server.bodies import Ids
from specviz.server.desk import Service, post


class LengthsView(Service):
    """Draft lengths on the page "Runs"."""

    name, order = "lengths", 56
    cannot = "Draft lengths cannot"

    @post("runs")
    def runs(self, ids: Ids) -> dict[str, Any]:
        """Of runs that are over, by method: other servers' draft lengths replayed, and the method in batches, where
        this machine's load was measured for the model in use.

        Raises Refusal where no run is chosen; UnknownTrace for one that is not there.
        """
        run_ids = require_runs(ids, "pool them by method")
        from decoders.study.measure.load import kept_load

        from .lengths import lengths_by_method

        target = self.desk.loader.target
        load = None if target is None else kept_load(target)
        return {"sets": lengths_by_method(map(self.desk.trace, run_ids), load), "measured": load is not None}
