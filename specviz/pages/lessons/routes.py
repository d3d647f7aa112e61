"""The routes of the page Lessons."""

from __future__ import annotations

from fastapi import FastAPI, Response

from specviz.server.http import answer

from .service import Lessons


def add(app: FastAPI, lessons: Lessons) -> None:
    """Lessons as cards, one lesson with everything filled in, and the runs they are about."""

    @app.get("/api/lessons")
    def listing() -> Response:
        return answer(lessons.listing())

    @app.get("/api/lessons/runs/{name}")
    def run(name: str) -> Response:
        return answer(lessons.run(name))

    @app.get("/api/lessons/{key}")
    def lesson(key: str) -> Response:
        return answer(lessons.lesson(key))
