"""The page "Inspect": a prompt, a method, and what it did, step by step."""

from __future__ import annotations

from specviz.server.desk import Service

from .form import build


class Inspect(Service):
    """Its form asks the desk; it has nothing of its own."""

    name, title, order = "inspect", "Inspect", 10
    form = staticmethod(build)
