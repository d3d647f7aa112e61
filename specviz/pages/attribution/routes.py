"""The routes of the page Attribution."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from specviz import shell as ui
from specviz.server.desk import Desk
from specviz.server.http import answer, asked, owner_of, problem, refused, session_of
from specviz.server.runner import sentence
from specviz.server.store import UnknownTrace


def add(app: FastAPI, desk: Desk) -> None:
    """Links of runs, runs to attribute an answer, scores of known quotes. What starts work is asked for as JSON."""
    attribution = desk.attribution

    @app.get("/api/attribution")
    def catalog() -> Response:
        return answer({**attribution.catalog(), "plotly": ui.plotly()})

    @app.get("/api/attribution/runs/{key}")
    def shown(key: str, request: Request) -> Response:
        try:
            return answer(attribution.shown(key, owner_of(request)))
        except UnknownTrace as error:
            return problem(404, str(error))

    @app.get("/api/attribution/runs/{key}/download")
    def download(
        key: str, format: str = "html", min_run: int = 2, counted: str = "whole", others: str = ""
    ) -> Response:
        try:
            if counted not in ("whole", "drafted"):
                return problem(422, f"Counted are “whole” or “drafted”, not {counted[:40]!r}.")
            more = [one for one in others.split(",") if one][:8]
            data, media, name = attribution.download(key, format, min_run, counted == "whole", more)
        except UnknownTrace as error:
            return problem(404, str(error))
        except ValueError as error:
            return problem(422, sentence(error))
        return Response(data, media_type=media, headers={"content-disposition": f'attachment; filename="{name}"'})

    @app.post("/api/attribution/{what}")
    async def ask(what: str, request: Request) -> Response:
        try:
            given = await asked(request)
            if what == "start":
                begun = await run_in_threadpool(attribution.start, given, owner_of(request), session_of(given))
                return answer(begun)
            if what == "score":
                return answer(await run_in_threadpool(attribution.score, given, owner_of(request)))
            if what == "stop":
                return answer({"done": attribution.stop(str(given.get("id")), owner_of(request))})
            return problem(404, f"Attribution cannot {what[:40]!r}: it can start, score and stop.")
        except UnknownTrace as error:
            return problem(404, str(error))
        except (ValueError, RecursionError) as error:
            return refused(error)

    @app.get("/api/attribution/scores/{key}")
    def scores(key: str, answers: bool = False) -> Response:
        try:
            return answer(attribution.scoring(key, answers))
        except ValueError as error:
            return problem(404, sentence(error))
