"""The routes of redrafting: what another method would have drafted at a step."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from specviz.server.desk import Desk
from specviz.server.http import answer, asked, owner_of, problem, refused, session_of
from specviz.server.store import UnknownTrace


def add(app: FastAPI, desk: Desk) -> None:
    """Whether a run's steps can be drafted again, one of them drafted, a run that goes on from there."""
    whatif = desk.whatif

    @app.get("/api/whatif/{key}")
    def able(key: str) -> Response:
        try:
            return answer({"reason": whatif.reason(key)})
        except UnknownTrace as error:
            return problem(404, str(error))

    @app.post("/api/whatif/{key}/{what}")
    async def ask(key: str, what: str, request: Request) -> Response:
        try:
            given = await asked(request)
            if what == "draft":
                return answer(await run_in_threadpool(whatif.ask, key, given))
            if what == "continue":
                whose = {"owner": owner_of(request), "session": session_of(given)}
                job = await run_in_threadpool(lambda: whatif.go_on(key, given, **whose))
                return answer({"id": job.id, "title": job.title})
            return problem(404, f"A step cannot be asked to {what[:40]!r}: it can draft and continue.")
        except UnknownTrace as error:
            return problem(404, str(error))
        except (ValueError, RecursionError) as error:
            return refused(error)
