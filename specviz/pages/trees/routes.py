"""The routes of the page Trees."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from specviz import shell as ui
from specviz.server.desk import Desk
from specviz.server.http import answer, is_json, problem
from specviz.server.runner import sentence


def add(app: FastAPI, desk: Desk) -> None:
    """What the page Trees draws. A measurement is asked for as JSON: another site's form cannot send that."""
    trees = desk.trees

    @app.get("/api/trees")
    def shown() -> Response:
        return answer({**trees.shown(), "plotly": ui.plotly()})

    @app.get("/api/trees/latency")
    def latency() -> Response:
        return answer(trees.latency())

    @app.post("/api/trees/measure")
    def measure(request: Request) -> Response:
        if not is_json(request):
            return problem(422, "What is asked is sent as JSON.")
        if desk.rules.public:
            return problem(403, "Nothing is measured on a public server: run specviz on a computer of your own.")
        try:
            return answer(trees.measure())
        except ValueError as error:
            return problem(422, sentence(error))
