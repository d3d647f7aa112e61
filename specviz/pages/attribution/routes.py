"""The routes of the page Attribution."""

from __future__ import annotations

from fastapi import FastAPI, Response

from specviz.server.bodies import Id
from specviz.server.http import Owner, answer, attachment, no_other, problem
from specviz.shell.assets import plotly

from .scoring import Rows
from .service import Attribution, Question


def add(app: FastAPI, attribution: Attribution) -> None:
    """Links of runs, runs to attribute an answer, scores of known quotes."""
    scorings = attribution.scorings

    @app.get("/api/attribution")
    def catalog() -> Response:
        return answer({**attribution.catalog(), "plotly": plotly()})

    @app.get("/api/attribution/runs/{key}")
    def shown(key: str, owner: Owner) -> Response:
        return answer(attribution.shown(key, owner))

    @app.get("/api/attribution/runs/{key}/download")
    def download(
        key: str, format: str = "html", min_run: int = 2, counted: str = "whole", others: str = ""
    ) -> Response:
        if counted not in ("whole", "drafted"):
            return problem(422, f"Counted are “whole” or “drafted”, not {counted[:40]!r}.")
        more = [one for one in others.split(",") if one][:8]
        return attachment(*attribution.download(key, format, min_run, counted == "whole", more))

    @app.post("/api/attribution/start")
    def start(asked: Question, owner: Owner) -> Response:
        return answer(attribution.start(asked, owner))

    @app.post("/api/attribution/score")
    def score(asked: Rows, owner: Owner) -> Response:
        return answer(scorings.score(asked, owner))

    @app.post("/api/attribution/stop")
    def stop(id: Id, owner: Owner) -> Response:
        return answer({"done": scorings.stop(id, owner)})

    no_other(app, "/api/attribution/{what}", "Attribution cannot {what}: it can start, score and stop.")

    @app.get("/api/attribution/scores/{key}")
    def scores(key: str, answers: bool = False) -> Response:
        return answer(scorings.state(key, answers))
