"""The library of runs: the list, and what its owner may do with them."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Response
from pydantic import Field

from specviz.server.bodies import Body, needs
from specviz.server.http import Owner, answer, no_other

from .service import Runs

Texts = Annotated[list[str], Field(max_length=500), needs("runs and tags are lists of at most 500 texts")]


class Chosen(Body):
    """Runs, by their ids."""

    ids: Texts


class Change(Chosen):
    """What changes of some runs; None leaves it as it is."""

    title: str | None = None
    keep: bool | None = None
    add: Texts | None = None
    drop: Texts | None = None


def add(app: FastAPI, runs: Runs) -> None:
    """The list, and changes of it."""

    @app.get("/api/runs")
    def listing(owner: Owner) -> Response:
        return answer({"runs": runs.listing(owner), "first": runs.desk.first, "room": runs.room()})

    @app.post("/api/runs/change")
    def change(asked: Change, owner: Owner) -> Response:
        tags = {"add": asked.add or (), "drop": asked.drop or ()}
        return answer({"done": runs.change(asked.ids, owner, title=asked.title, keep=asked.keep, **tags)})

    @app.post("/api/runs/delete")
    def delete(asked: Chosen, owner: Owner) -> Response:
        return answer({"done": runs.delete(asked.ids, owner)})

    @app.post("/api/runs/stop")
    def stop(asked: Chosen, owner: Owner) -> Response:
        return answer({"done": runs.stop(asked.ids, owner)})

    no_other(app, "/api/runs/{what}", "The library cannot {what}: it can change, delete and stop.")
