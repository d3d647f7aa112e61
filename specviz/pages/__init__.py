"""The pages, one folder each: ``NAME/NAME_page.py`` says what a page is and does its work, the other files help it.

They are found, not listed: a folder beside this file with such a module is a page, and so are those of the annexes.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from typing import TYPE_CHECKING

from decoders.extra import entries_of

if TYPE_CHECKING:
    from specviz.server.desk import Service


def pages() -> tuple[type[Service], ...]:
    """Every page, in the order of the tabs."""
    from specviz.server.desk import Service  # FastAPI takes half a second, which readers of runs need not wait for

    folders = [folder.name for folder in pkgutil.iter_modules(__path__) if folder.ispkg]
    names = [f"{__name__}.{name}.{name}_page" for name in folders]
    modules = [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]
    modules += (module for _, module in entries_of("pages"))
    parts = [part for module in modules for part in vars(module).values()]
    services = {
        part for part in parts if isinstance(part, type) and issubclass(part, Service) and hasattr(part, "name")
    }
    return tuple(sorted(services, key=lambda page: page.order))
