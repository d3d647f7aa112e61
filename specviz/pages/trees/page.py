"""Page "Trees": PPD's trees by size and prompt budget, and what they are worth on this machine."""

from __future__ import annotations

from specviz.server.desk import Page

from . import routes
from .service import Trees

PAGE = Page("trees", "Trees", 60, Trees, routes.add)
