"""The lab's routes."""

from __future__ import annotations

import json

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from specviz import shell as ui
from specviz.experiments.tables import described, written
from specviz.server.desk import Desk
from specviz.server.http import answer, asked, owner_of, problem, refused
from specviz.server.runner import sentence

KINDS = {  # format → how its files' names end, and their type
    "csv": ("csv", "text/csv; charset=utf-8"), "json": ("json", "application/json"), "zip": ("zip", "application/zip"),
    "table": ("table.csv", "text/csv; charset=utf-8"), "tex": ("tex", "application/x-tex; charset=utf-8"),
    "md": ("md", "text/markdown; charset=utf-8"),
}  # fmt: skip
TABLES = {"table": "csv", "tex": "tex", "md": "md"}


def add(app: FastAPI, desk: Desk) -> None:
    """The lab's JSON."""
    lab = desk.lab

    @app.get("/api/lab")
    def catalog(request: Request) -> Response:
        return answer({**lab.catalog(owner_of(request)), "plotly": ui.plotly()})

    @app.post("/api/lab/{what}")
    async def ask(what: str, request: Request) -> Response:
        try:
            given = await asked(request)
            if what == "estimate":
                return answer(await run_in_threadpool(lab.estimate, given))
            if what == "start":
                return answer(await run_in_threadpool(lab.start, given, owner_of(request)))
            if what in ("cancel", "remove"):
                act = lab.cancel if what == "cancel" else lab.remove
                return answer({"done": await run_in_threadpool(act, str(given.get("id")), owner_of(request))})
            return problem(404, f"The lab cannot {what[:40]!r}: it can estimate, start, cancel and remove.")
        except (ValueError, RecursionError) as error:
            return refused(error)

    @app.get("/api/lab/results/{key}")
    def results(key: str, have: int = -1, metrics: str = "") -> Response:
        try:
            return answer(lab.shown(key, [m for m in metrics.split(",") if m] or None, have))
        except ValueError as error:
            return problem(404, sentence(error))

    @app.get("/api/lab/results/{key}/download")
    def download(key: str, format: str = "csv", metrics: str = "") -> Response:
        """Every run as csv, json or zip; a batch's tables as table, tex or md."""
        if format not in KINDS:
            return problem(422, f"The format {format[:40]!r} is unknown: use one of {', '.join(KINDS)}.")
        try:
            found = lab.results(key)
        except ValueError as error:
            return problem(404, sentence(error))
        suffix, media = KINDS[format]
        if format in TABLES:
            if not found.about.get("repeats"):
                return problem(422, "These results are drawn, not tabled: their runs can be had as csv, json or zip.")
            try:
                data = written(found, TABLES[format], [m for m in metrics.split(",") if m] or None).encode()
            except ValueError as error:
                return problem(422, sentence(error))
        elif format == "csv":
            data = found.to_csv().encode()
        elif format == "json":
            data = json.dumps(described(found), ensure_ascii=False).encode()
        else:
            data = found.zipped()
        name = f"{found.about['name']}-{key}.{suffix}"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(data, media_type=media, headers=headers)
