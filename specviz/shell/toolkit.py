"""Gradio, for every module that needs it (``from specviz.shell.toolkit import gr``)."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")


@contextmanager
def without_interface_files() -> Iterator[None]:
    """Classes defined meanwhile have no source file to be found. Gradio parses that of each of its components and
    writes an interface file beside it, at every import: half of the time until the page answers.
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
    from gradio import events, route_utils, themes

__all__ = ["events", "gr", "route_utils", "themes"]
