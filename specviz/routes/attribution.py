"""The routes of the page Attribution."""

from __future__ import annotations

from fastapi import FastAPI

from specviz.desk import Desk


def add(app: FastAPI, desk: Desk) -> None:
    pass
