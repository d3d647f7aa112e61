"""Page "Compare": methods side by side on one prompt."""

from __future__ import annotations

from specviz.server.desk import Page

from . import routes
from .service import Compare

PAGE = Page("compare", "Compare", 20, Compare, routes.add)
