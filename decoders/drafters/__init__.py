"""The registry of drafting methods. One method, one file: a module here that defines ``METHOD`` is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from decoders.draft.params import make_params
from decoders.errors import UserError
from decoders.method.method import Method

_methods: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Add a method (or replace the one of the same name) for this process: app, CLI, benchmarks and contract tests
    see it.
    """
    _methods[method.name] = method
    return method


def methods() -> dict[str, Method]:
    """All registered methods by name, plain decoding first."""
    return dict(_methods)


def find_method(name: str) -> Method:
    """The method called ``name``; UserError lists those that exist."""
    if name not in _methods:
        raise UserError(f"there is no method {name!r}: choose one of {', '.join(_methods)}")
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


_discover()
