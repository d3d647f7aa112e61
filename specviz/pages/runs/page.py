"""Page "Runs": everything that can be opened again."""

from __future__ import annotations

from specviz.server.desk import Page
from specviz.shell.parts import part

from . import routes
from .service import Runs

PAGE = Page("runs", "Runs", 70, Runs, routes.add, lambda _: part("table", "sv-runs", "runs/page"))
