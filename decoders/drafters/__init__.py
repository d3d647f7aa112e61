"""The registry of drafting methods. One method, one file: a module here that defines ``METHOD`` is found by itself, and
so are annexes' and plug-ins (``decoders.method.plugins``), when methods are first asked for. Verifiers are registered
beside them: ``METHOD@VERIFIER`` is a method whose drafts another verifier judges.
"""

from __future__ import annotations

import importlib
import logging
import pkgutil
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from decoders import extra
from decoders.draft.params import make_params
from decoders.errors import UserError
from decoders.method.guard import guard, guarded_verifier
from decoders.method.method import Method, under
from decoders.method.part import register_kind
from decoders.method.plugins import Plugin, Unusable, file_source, load, sources
from decoders.method.registry import REGISTRY as _methods
from decoders.method.registry import Methods
from decoders.names import UNDER
from decoders.verifiers.registry import forget_verifier, register_verifier, registered_verifiers
from decoders.verifiers.verifier import VerifierCard

log = logging.getLogger(__name__)
_places: dict[str, str] = {}  # of the plug-ins' methods: where each stands
_verifier_places: dict[str, str] = {}


class _Plugins:
    """This process's methods and plug-ins: read once, when methods are first asked for; not when this package is
    imported, which an annex's module may do before its own card stands.
    """

    def __init__(self) -> None:
        self.read, self.lock = False, threading.RLock()  # a plug-in may ask for methods while it is imported
        self.problems: list[str] = []


_plugins = _Plugins()


def register(method: Method) -> Method:
    """Add a method (or replace the one of the same name) for this process: app, CLI, benchmarks and contract tests
    see it.
    """
    _read()
    return _add(method)


def _add(method: Method) -> Method:
    _methods[method.name] = method
    if method.part is not None:
        register_kind(method.part.kind)
    return method


def register_plugin(plugin: Plugin) -> None:
    """Add a plug-in's methods, guarded; they replace those that stood at the same place. Raises Unusable, and adds
    none, where one has a name that is taken.
    """
    _read()
    old_methods = _free(plugin, "method", plugin.methods, _methods, _places)
    old_verifiers = _free(plugin, "verifier", plugin.verifiers, registered_verifiers(), _verifier_places)
    for name in old_verifiers:
        del _verifier_places[name]
        forget_verifier(name)
    for card in plugin.verifiers:
        _verifier_places[card.name] = plugin.place
        register_verifier(guarded_verifier(card, plugin.place, plugin.own))
    for name in old_methods:
        del _methods[name], _places[name]
    for method in plugin.methods:
        _places[method.name] = plugin.place
        _add(guard(method, plugin.place, plugin.own))


def _free(
    plugin: Plugin,
    noun: str,
    cards: Sequence[Method | VerifierCard],
    known_names: Collection[str],
    places: dict[str, str],
) -> set[str]:
    """Names that the plug-in's place had before. Raises Unusable where a card's is another's."""
    old_names, names = {name for name, place in places.items() if place == plugin.place}, [card.name for card in cards]
    for name in names:
        if (name in known_names and name not in old_names) or names.count(name) > 1:
            owner = places.get(name, "specviz itself" if name in known_names else plugin.place)
            raise Unusable(
                f"plug-in {plugin.place} is left out: its {noun} is called {name!r}, and so is one of {owner}: rename "
                "one of them"
            )
    return old_names


def add_plugin(path: Path) -> Plugin:
    """Read a file as a plug-in, anew where it was read before. Raises Unusable."""
    _read()
    plugin = load(file_source(path))
    register_plugin(plugin)
    return plugin


def methods() -> dict[str, Method]:
    """All registered methods by name, plain decoding first, plug-ins' last."""
    _read()
    return Methods(_methods)


def plugin_problems() -> tuple[str, ...]:
    """A sentence for every annex or plug-in that was left out."""
    _read()
    return (*extra.problems(), *_plugins.problems)


def plugin_place(name: str) -> str | None:
    """The place of the plug-in that brought a method; None for a method of specviz's own."""
    _read()
    return _places.get(name)


def find_method(name: str) -> Method:
    """The method called ``name``; UserError lists those that exist, and says which plug-ins were left out."""
    _read()
    base, mark, judge = name.partition(UNDER)
    if mark and base in _methods:
        return under(_methods[base], find_verifier(judge))
    return _entry("method", name, _methods)


def verifiers() -> dict[str, VerifierCard]:
    """All registered verifiers by name, lossless ones first, plug-ins' last."""
    _read()
    return registered_verifiers()


def find_verifier(name: str) -> VerifierCard:
    """The verifier called ``name``; UserError lists those that exist, and says which plug-ins were left out."""
    return _entry("verifier", name, verifiers())


def _entry(noun: str, name: str, cards: Mapping[str, Any]) -> Any:
    if name not in cards:
        left_out = "".join(f"; {problem}" for problem in plugin_problems())
        raise UserError(f"there is no {noun} {name!r}: choose one of {', '.join(cards)}{left_out}")
    return cards[name]


def verifier_place(name: str) -> str | None:
    """The place of the plug-in that brought a verifier; None for one of specviz's own."""
    _read()
    return _verifier_places.get(name)


def select_method(method: str | Method, params: Mapping[str, Any] | Any = None) -> tuple[Method, Any]:
    """A method by its name, or itself, with its parameters from names and values (None: the defaults), or themselves.

    Raises UserError for an unknown method, ValueError for an unknown parameter or a value out of range.
    """
    _read()
    entry = find_method(method) if isinstance(method, str) else method
    return entry, params if isinstance(params, entry.params) else make_params(entry.params, params or {})


def _discover() -> None:
    """The methods of this package and of the annexes, and the annexes' verifiers."""
    modules = [vars(importlib.import_module(f"{__name__}.{info.name}")) for info in pkgutil.iter_modules(__path__)]
    entries = [module["METHOD"] for module in modules if "METHOD" in module]
    entries += [method for module in modules for method in module.get("METHODS", ())]
    entries += [method for _, method in extra.cards("methods", "METHOD", "METHODS")]
    for method in sorted(entries, key=lambda m: (m.name != "plain", m.order, m.name)):
        _add(method)
    for _, card in extra.cards("verifiers", "VERIFIER", "VERIFIERS"):
        register_verifier(card)


def _read() -> None:
    with _plugins.lock:
        if _plugins.read:
            return
        _plugins.read = True
        try:
            _discover()
        except BaseException:
            _plugins.read = False
            raise
        for source in sources():
            try:
                register_plugin(load(source))
            except Unusable as problem:
                _plugins.problems.append(str(problem))
                log.warning("%s", problem)
