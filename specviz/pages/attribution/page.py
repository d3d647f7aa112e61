"""Page "Attribution": what an answer was copied from."""

from __future__ import annotations

from specviz.server.desk import Page

from . import routes
from .service import Attribution

PAGE = Page("attribution", "Attribution", 30, Attribution, routes.add)
