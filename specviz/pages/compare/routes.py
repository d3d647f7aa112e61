"""The routes of the page Compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from specviz import shell as ui
from specviz.server.desk import Desk
from specviz.server.http import answer, asked, owner_of, problem, refused
from specviz.server.store import UnknownTrace, is_id

from .service import MAX_LANES


def add(app: FastAPI, desk: Desk) -> None:
    """What the page Compare asks for: examples, lanes that run, their numbers, and the check against plain decoding."""
    compare = desk.compare

    @app.get("/api/compare")
    def shown() -> Response:
        return answer({**compare.shown(), "plotly": ui.plotly()})

    @app.post("/api/compare/{what}")
    async def ask(what: str, request: Request) -> Response:
        try:
            given = await asked(request)
            owner = owner_of(request)
            if what == "start":
                return answer(await run_in_threadpool(compare.start, given, owner))
            keys = given.get("ids")
            if not isinstance(keys, list):
                raise ValueError("the runs are given as a list of ids")
            if what == "stop":
                return answer({"done": await run_in_threadpool(compare.stop, keys, owner)})
            if what == "adopt":
                session = str(given.get("session") or "")[:100]
                return answer({"done": await run_in_threadpool(compare.adopt, keys, session, owner)})
            return problem(404, f"A comparison cannot {what[:40]!r}: it can start, stop and adopt.")
        except (ValueError, RecursionError) as error:
            return refused(error)

    def found(of: Callable[[list[str]], dict[str, Any]], runs: str) -> Response:
        keys = [key for key in runs.split(",") if key]
        if not all(map(is_id, keys)) or not 0 < len(keys) <= MAX_LANES + 1:
            return problem(422, f"Runs are given by their ids with commas between them, {MAX_LANES + 1} at most.")
        try:
            return answer(of(keys))
        except UnknownTrace as error:
            return problem(404, str(error))

    @app.get("/api/compare/numbers")
    def numbers(runs: str = "") -> Response:
        return found(compare.numbers, runs)

    @app.get("/api/compare/stretches")
    def stretches(runs: str = "") -> Response:
        return found(compare.stretches, runs)

    @app.get("/api/compare/lens")
    def lens(runs: str = "") -> Response:
        return found(compare.lens, runs)
