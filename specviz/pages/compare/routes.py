"""The routes of the page Compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Response

from specviz.places import is_id
from specviz.server.bodies import Body, PageSession
from specviz.server.http import Owner, answer, no_other, problem
from specviz.shell.assets import plotly

from .service import MAX_LANES, Compare, Comparison


class Lanes(Body):
    """Runs of a comparison, and the open page that they belong to from now on."""

    ids: list[str]
    session: PageSession = None


def add(app: FastAPI, compare: Compare) -> None:
    """What the page Compare asks for: examples, lanes that run, their numbers, and the check against plain decoding."""

    @app.get("/api/compare")
    def shown() -> Response:
        return answer({**compare.shown(), "plotly": plotly()})

    @app.post("/api/compare/start")
    def start(asked: Comparison, owner: Owner) -> Response:
        return answer(compare.start(asked, owner))

    @app.post("/api/compare/stop")
    def stop(asked: Lanes, owner: Owner) -> Response:
        return answer({"done": compare.stop(asked.ids, owner)})

    @app.post("/api/compare/adopt")
    def adopt(asked: Lanes, owner: Owner) -> Response:
        return answer({"done": compare.adopt(asked.ids, asked.session or "", owner)})

    no_other(app, "/api/compare/{what}", "A comparison cannot {what}: it can start, stop and adopt.")

    def of_runs(read: Callable[[list[str]], dict[str, Any]], runs: str) -> Response:
        keys = [key for key in runs.split(",") if key]
        if not all(map(is_id, keys)) or not 0 < len(keys) <= MAX_LANES + 1:
            return problem(422, f"Runs are given by their ids with commas between them, {MAX_LANES + 1} at most.")
        return answer(read(keys))

    @app.get("/api/compare/numbers")
    def numbers(runs: str = "") -> Response:
        return of_runs(compare.numbers, runs)

    @app.get("/api/compare/stretches")
    def stretches(runs: str = "") -> Response:
        return of_runs(compare.stretches, runs)

    @app.get("/api/compare/lens")
    def lens(runs: str = "") -> Response:
        return of_runs(compare.lens, runs)
