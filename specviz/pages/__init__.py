"""The pages, one folder each: ``page.py`` says what a page is, ``service.py`` does its work, ``routes.py`` is what the
browser asks for, ``form.py`` what its tab holds.

They are found, not listed: a folder beside this file that has a ``page.py`` is a page.
"""

from __future__ import annotations

import importlib.util
import pkgutil

from specviz.server.desk import Page


def pages() -> tuple[Page, ...]:
    """Every page, in the order of the tabs."""
    folders = [f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__) if found.ispkg]
    modules = [f"{folder}.page" for folder in folders if importlib.util.find_spec(f"{folder}.page")]
    return tuple(sorted((importlib.import_module(name).PAGE for name in modules), key=lambda page: page.order))
