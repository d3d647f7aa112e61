"""What if: steps of recorded runs drafted again; asked for on the page Inspect, so it has no tab of its own."""

from __future__ import annotations

from specviz.server.desk import Page

from . import routes
from .service import WhatIfs

PAGE = Page("whatif", service=WhatIfs, routes=routes.add)
