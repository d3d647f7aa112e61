"""The routes of the page Lessons."""

from __future__ import annotations

from fastapi import FastAPI, Response

from specviz.server.http import answer, problem

from .service import Lessons


def add(app: FastAPI, lessons: Lessons) -> None:
    """Lessons as cards, one lesson with everything filled in, and the runs they are about."""

    @app.get("/api/lessons")
    def listing() -> Response:
        return answer(lessons.listing())

    @app.get("/api/lessons/runs/{name}")
    def run(name: str) -> Response:
        try:
            return answer(lessons.run(name))
        except KeyError:
            return problem(404, f"There is no run called {name[:40]!r} beside the lessons or in the gallery.")

    @app.get("/api/lessons/{key}")
    def lesson(key: str) -> Response:
        try:
            return answer(lessons.lesson(key))
        except (KeyError, OSError):
            return problem(404, f"There is no lesson {key[:40]!r} here.")
