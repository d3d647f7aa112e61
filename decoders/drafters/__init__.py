"""The registry of drafting methods. One method, one file: a module here that defines ``METHOD`` is found by itself, and
so are plug-ins (``decoders.method.plugins``), when methods are first asked for.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from decoders.draft.params import make_params
from decoders.errors import UserError
from decoders.method.guard import guarded
from decoders.method.method import Method
from decoders.method.part import register_kind
from decoders.method.plugins import Plugin, Unusable, file_source, load, sources

log = logging.getLogger(__name__)

_methods: dict[str, Method] = {}
_places: dict[str, str] = {}  # of the plug-ins' methods: where each stands


class _Plugins:
    """Those of this process: read once, when methods are first asked for."""

    def __init__(self) -> None:
        self.read, self.lock = False, threading.RLock()  # a plug-in may ask for methods while it is imported
        self.problems: list[str] = []


_plugins = _Plugins()


def register(method: Method) -> Method:
    """Add a method (or replace the one of the same name) for this process: app, CLI, benchmarks and contract tests
    see it.
    """
    _methods[method.name] = method
    if method.part is not None:
        register_kind(method.part.kind)
    return method


def register_plugin(plugin: Plugin) -> None:
    """Add a plug-in's methods, guarded; they replace those that stood at the same place. Raises Unusable, and adds
    none, where one has a name that is taken.
    """
    names = [method.name for method in plugin.methods]
    earlier = {name for name, place in _places.items() if place == plugin.place}
    for name in names:
        if (name in _methods and name not in earlier) or names.count(name) > 1:
            other = _places.get(name, "specviz itself" if name in _methods else plugin.place)
            raise Unusable(
                f"plug-in {plugin.place} is left out: its method is called {name!r}, and so is one of {other}: rename "
                "one of them"
            )
    for name in earlier:
        del _methods[name], _places[name]
    for method in plugin.methods:
        _places[method.name] = plugin.place
        register(guarded(method, plugin.place, plugin.own))


def add_plugin(path: Path) -> Plugin:
    """Read a file as a plug-in, anew where it was read before. Raises Unusable."""
    _read_plugins()
    plugin = load(file_source(path))
    register_plugin(plugin)
    return plugin


def methods() -> dict[str, Method]:
    """All registered methods by name, plain decoding first, plug-ins' last."""
    _read_plugins()
    return dict(_methods)


def plugin_problems() -> tuple[str, ...]:
    """A sentence for every plug-in that was left out."""
    _read_plugins()
    return tuple(_plugins.problems)


def plugin_place(name: str) -> str | None:
    """Where the plug-in stands that brought a method; None for a method of specviz's own."""
    _read_plugins()
    return _places.get(name)


def find_method(name: str) -> Method:
    """The method called ``name``; UserError lists those that exist, and says which plug-ins were left out."""
    _read_plugins()
    if name not in _methods:
        left_out = "".join(f"; {problem}" for problem in _plugins.problems)
        raise UserError(f"there is no method {name!r}: choose one of {', '.join(_methods)}{left_out}")
    return _methods[name]


def chosen(method: str | Method, params: Mapping[str, Any] | Any = None) -> tuple[Method, Any]:
    """A method by its name, or itself, with its parameters from names and values (None: the defaults), or themselves.

    Raises UserError for an unknown method, ValueError for an unknown parameter or a value out of range.
    """
    entry = find_method(method) if isinstance(method, str) else method
    return entry, params if isinstance(params, entry.params) else make_params(entry.params, params or {})


def _discover() -> None:
    modules = [vars(importlib.import_module(f"{__name__}.{info.name}")) for info in pkgutil.iter_modules(__path__)]
    entries = [module["METHOD"] for module in modules if "METHOD" in module]
    entries += [method for module in modules for method in module.get("METHODS", ())]
    for method in sorted(entries, key=lambda m: (m.name != "plain", m.order, m.name)):
        register(method)


def _read_plugins() -> None:
    with _plugins.lock:
        if _plugins.read:
            return
        _plugins.read = True
        for source in sources():
            try:
                register_plugin(load(source))
            except Unusable as problem:
                _plugins.problems.append(str(problem))
                log.warning("%s", problem)


_discover()
