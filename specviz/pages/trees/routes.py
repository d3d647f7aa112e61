"""The routes of the page Trees."""

from __future__ import annotations

from fastapi import FastAPI, Response

from specviz.server.http import answer, problem
from specviz.shell.assets import plotly

from .service import Trees


def add(app: FastAPI, trees: Trees) -> None:
    """What the page Trees draws, and a measurement of this machine."""

    @app.get("/api/trees")
    def shown() -> Response:
        return answer({**trees.shown(), "plotly": plotly()})

    @app.get("/api/trees/latency")
    def latency() -> Response:
        return answer(trees.latency())

    @app.post("/api/trees/measure")
    def measure() -> Response:
        if trees.desk.rules.public:
            return problem(403, "Nothing is measured on a public server: run specviz on a computer of your own.")
        return answer(trees.measure())
