"""The routes of redrafting: what another method would have drafted at a step."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Response
from pydantic import Field

from specviz.server.bodies import Body, PageSession, Params, needs
from specviz.server.http import Owner, answer, no_other

from .service import WhatIfs

Number = Annotated[
    int, Field(ge=0, lt=2**31), needs("steps and candidates are whole numbers from 0; given was {given}")
]


class Redraft(Body):
    """A step to draft again, by another method or on from another candidate."""

    step: Number
    method: str | None = None
    params: Params | None = None
    candidate: Number | None = None


class Continuation(Body):
    """A step that another method goes on from."""

    step: Number
    method: str
    params: Params | None = None
    session: PageSession = None


def add(app: FastAPI, whatif: WhatIfs) -> None:
    """Whether a run's steps can be drafted again, one of them drafted, a run that goes on from there."""

    @app.get("/api/whatif/{key}")
    def able(key: str) -> Response:
        return answer({"reason": whatif.reason(key)})

    @app.post("/api/whatif/{key}/draft")
    def draft(key: str, asked: Redraft) -> Response:
        return answer(whatif.redraft(key, asked.step, asked.method, asked.params, asked.candidate))

    @app.post("/api/whatif/{key}/continue")
    def go_on(key: str, asked: Continuation, owner: Owner) -> Response:
        whose = {"owner": owner, "session": asked.session or ""}
        job = whatif.go_on(key, asked.step, asked.method, asked.params, **whose)
        return answer({"id": job.id, "title": job.title})

    no_other(app, "/api/whatif/{key}/{what}", "A step cannot be asked to {what}: it can draft and continue.")
