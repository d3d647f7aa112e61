"""Page "Lessons": guided tours over recorded runs."""

from __future__ import annotations

from specviz.server.desk import Page
from specviz.shell.parts import part

from . import routes
from .service import Lessons

PAGE = Page("lessons", "Lessons", 40, Lessons, routes.add, lambda _: part("lessons", "sv-lessons", "lesson/page"))
