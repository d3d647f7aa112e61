"""Page "Runs": everything that can be opened again."""

from __future__ import annotations

from specviz.server.desk import Page

from . import form, routes
from .service import Runs

PAGE = Page("runs", "Runs", 70, Runs, routes.add, form.build)
