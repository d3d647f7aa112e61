"""A run replayed place by place where the model is, a stage at a time: by the app, or by a backend of it.

Functions of a ``Holder`` and plain JSON; between two stages runs of others are made.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.trace.trace import Trace
from specviz.pages.whatif.reading import to_trace
from specviz.server.backend_host import Holder

from .. import stages
from ..stages import Stage

if TYPE_CHECKING:
    from decoders import Draft, Target

MEMORY = "places"
LOST = "the model was exchanged, or its backend lost, while the run was replayed: replay it again"
STAGE_S = 0.5  # a stage ends behind the first place after so long
ROWS = (4, 8, 16, 32, 64)


def advance(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """Do the next stage of the replay ``key``: ``Stage``'s fields, or the {"report"} behind the last one. The first
    stage has the run's ``trace`` and the ``methods`` with their parameters.

    Raises UserError where the replay is not held here (any more), and where no method has places.
    """
    begin = None
    if "trace" in request:
        begin = partial(replay, holder.target, to_trace(request["trace"]), request["methods"])
    return stages.advance(holder, MEMORY, request["key"], begin, LOST)


def forget(holder: Holder, request: Mapping[str, Any]) -> dict[str, Any]:
    """Let go of a replay that was stopped."""
    return stages.forget(holder, MEMORY, request["key"])


def replay(
    target: Target, trace: Trace, methods: Sequence[tuple[str, Mapping[str, Any] | None]]
) -> Generator[Stage, None, dict[str, Any]]:
    """The run's ``Strip`` with these methods, and the frontier of their rows, in stages."""
    from decoders.study.look.places import PlaceReplay, frontier, strip_of

    places = PlaceReplay(target, trace)
    drafts: dict[str, dict[int, Draft]] = {}
    missing: dict[str, str] = {}
    position, count, stage_start = 0, len(places.text), time.perf_counter()
    total = len(methods) * count + len(ROWS)
    for number, (name, params) in enumerate(methods, 1):
        yield Stage(position, total, name)
        try:
            for length, draft in places.drafts(name, params):
                drafts.setdefault(name, {})[length] = draft
                position += 1
                if time.perf_counter() - stage_start > STAGE_S:
                    yield Stage(position, total, name)
                    stage_start = time.perf_counter()
        except UserError as problem:
            drafts.pop(name, None)
            missing[name] = str(problem)
        position = number * count
    if not drafts:
        raise UserError("; ".join(missing.values()))
    lines: dict[str, list[float]] = {}
    for rows in ROWS:
        yield Stage(position, total, "rows")
        for name, values in frontier(places, drafts, (rows,)).items():
            lines.setdefault(name, []).extend(values)
        position += 1
    return {**strip_of(places, drafts, missing).to_json(), "frontier": {"rows": ROWS, "lines": lines}}
