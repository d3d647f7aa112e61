"""The routes of redrafting: what another method would have drafted at a step."""

from __future__ import annotations

from fastapi import FastAPI

from specviz.desk import Desk


def add(app: FastAPI, desk: Desk) -> None:
    pass
