"""Page "Inspect": a prompt, a method, and what it did, step by step."""

from __future__ import annotations

from specviz.server.desk import Page

from . import form

PAGE = Page("inspect", "Inspect", 10, form=form.build)
