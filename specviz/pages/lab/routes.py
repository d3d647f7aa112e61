"""The routes of the page Lab."""

from __future__ import annotations

import json

from fastapi import FastAPI, Response

from specviz.experiments.tables import described, written
from specviz.server.bodies import Id
from specviz.server.http import Owner, answer, attachment, no_other, problem
from specviz.shell.assets import plotly

from .asked import Asked
from .service import Lab

KINDS = {  # format → how its files' names end, and their type
    "csv": ("csv", "text/csv; charset=utf-8"), "json": ("json", "application/json"), "zip": ("zip", "application/zip"),
    "table": ("table.csv", "text/csv; charset=utf-8"), "tex": ("tex", "application/x-tex; charset=utf-8"),
    "md": ("md", "text/markdown; charset=utf-8"),
}  # fmt: skip
TABLES = {"table": "csv", "tex": "tex", "md": "md"}


def add(app: FastAPI, lab: Lab) -> None:
    """What there is to run, experiments that are asked for, and their results."""

    @app.get("/api/lab")
    def catalog(owner: Owner) -> Response:
        return answer({**lab.catalog(owner), "plotly": plotly()})

    @app.post("/api/lab/estimate")
    def estimate(asked: Asked) -> Response:
        return answer(lab.estimate(asked))

    @app.post("/api/lab/start")
    def start(asked: Asked, owner: Owner) -> Response:
        return answer(lab.start(asked, owner))

    @app.post("/api/lab/cancel")
    def cancel(id: Id, owner: Owner) -> Response:
        return answer({"done": lab.cancel(id, owner)})

    @app.post("/api/lab/remove")
    def remove(id: Id, owner: Owner) -> Response:
        return answer({"done": lab.remove(id, owner)})

    no_other(app, "/api/lab/{what}", "The lab cannot {what}: it can estimate, start, cancel and remove.")

    @app.get("/api/lab/results/{key}")
    def results(key: str, have: int = -1, metrics: str = "") -> Response:
        return answer(lab.shown(key, [m for m in metrics.split(",") if m] or None, have))

    @app.get("/api/lab/results/{key}/download")
    def download(key: str, format: str = "csv", metrics: str = "") -> Response:
        """Every run as csv, json or zip; a batch's tables as table, tex or md."""
        if format not in KINDS:
            return problem(422, f"The format {format[:40]!r} is unknown: use one of {', '.join(KINDS)}.")
        results = lab.results(key)
        suffix, media = KINDS[format]
        if format in TABLES:
            if not results.about.get("repeats"):
                return problem(422, "These results are drawn, not tabled: their runs can be had as csv, json or zip.")
            data = written(results, TABLES[format], [m for m in metrics.split(",") if m] or None).encode()
        elif format == "csv":
            data = results.to_csv().encode()
        elif format == "json":
            data = json.dumps(described(results), ensure_ascii=False).encode()
        else:
            data = results.zipped()
        return attachment(data, media, f"{results.about['name']}-{key}.{suffix}")
