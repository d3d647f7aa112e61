"""Page "Lab": experiments of the papers and sweeps of one's own, run on real prompts and drawn."""

from __future__ import annotations

from specviz.server.desk import Page

from . import routes
from .service import Lab

PAGE = Page("lab", "Lab", 50, Lab, routes.add)
