"""The library of runs: the list, and what its owner may do with them."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from specviz.server.desk import Desk
from specviz.server.http import answer, asked, owner_of, problem, refused

MAX_AT_ONCE = 500
TEXTS = ("add", "drop")


def add(app: FastAPI, desk: Desk) -> None:
    """The list, and changes of it; a change is sent as JSON."""

    @app.get("/api/runs")
    def runs(request: Request) -> Response:
        return answer({"runs": desk.runs(owner_of(request)), "first": desk.first, "room": desk.room()})

    @app.post("/api/runs/{what}")
    async def act(what: str, request: Request) -> Response:
        try:
            given = await asked(request)
            keys = _texts(given, "ids", needed=True)
            owner = owner_of(request)
            if what == "change":
                changes = _changes(given)
                return answer({"done": await run_in_threadpool(lambda: desk.change_runs(keys, owner, **changes))})
            if what == "delete":
                return answer({"done": await run_in_threadpool(desk.delete_runs, keys, owner)})
            if what == "stop":
                jobs = [job for key in keys if (job := desk.runner.job(key)) is not None and job.owner == owner]
                for job in jobs:
                    desk.runner.cancel(job)
                return answer({"done": [job.id for job in jobs]})
            return problem(404, f"The library cannot {what[:40]!r}: it can change, delete and stop.")
        except (ValueError, RecursionError) as error:
            return refused(error)


def _texts(given: dict[str, Any], name: str, *, needed: bool = False) -> list[str]:
    found = given.get(name)
    if found is None and not needed:
        return []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found) or len(found) > MAX_AT_ONCE:
        raise ValueError(f"{name} is a list of at most {MAX_AT_ONCE} texts")
    return found


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    title, keep = given.get("title"), given.get("keep")
    if not (title is None or isinstance(title, str)) or not (keep is None or isinstance(keep, bool)):
        raise ValueError("title is a text and keep is true or false")
    return {"title": title, "keep": keep} | {name: _texts(given, name) for name in TEXTS}
