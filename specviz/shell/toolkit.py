"""Gradio, for every module that needs it (``from specviz.shell.toolkit import gr``)."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")


@contextmanager
def without_interface_files() -> Iterator[None]:
    """Classes defined meanwhile have no source file to be found. Gradio parses that of each of its components and
    writes an interface file beside it, at every import, which takes as long as all the rest of it.
    """
    getfile = inspect.getfile

    def hidden(found: Any) -> str:
        if isinstance(found, type) and found.__module__.startswith("gradio."):
            raise OSError("not looked for")
        return getfile(found)

    inspect.getfile = hidden
    try:
        yield
    finally:
        inspect.getfile = getfile


with without_interface_files():
    import gradio as gr
    from gradio import events, route_utils, routes, themes
    from gradio.utils import get_upload_folder

_building: ContextVar[bool] = ContextVar("building", default=False)
_create_app = routes.App.create_app


@wraps(_create_app)
def _create_when_built(*args: Any, **keywords: Any) -> Any:
    return None if _building.get() else _create_app(*args, **keywords)


routes.App.create_app = staticmethod(_create_when_built)


@contextmanager
def building() -> Iterator[None]:
    """A page is built meanwhile, and no application is made of it yet. Gradio makes one when it begins, ends and gets
    its queue, and only the one that is made when it is mounted answers.
    """
    token = _building.set(True)
    try:
        yield
    finally:
        _building.reset(token)


def upload_folder() -> Path:
    """The folder in which Gradio keeps what was uploaded, for an hour."""
    return Path(get_upload_folder())


__all__ = ["building", "events", "gr", "route_utils", "themes", "upload_folder"]
