"""Annexes and plug-ins: each says what it brings in one object, an ``Extra``. What it names is imported when it is
asked for: without the annex nothing else notices.

They are found in packages that are handed down (``look_in``) and by the entry points of the group ``specviz.extra``: an
``Extra``, or a package with a folder per annex, each of which has its ``EXTRA`` in ``extra.py``.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from .errors import first_line

GROUP = "specviz.extra"
"""The entry points of packages that bring an ``Extra``."""
log = logging.getLogger(__name__)
_packages: list[str] = []  # of annexes, handed down
_problems: dict[str, str] = {}  # place → the reason why it was left out


@dataclass(frozen=True, slots=True)
class Command:
    """A command of ``specviz``: the module with its DESCRIPTION, ``add(parser)`` and ``run(args)``, the group of
    ``specviz --help`` in which it stands (use, measure, share, build), and its line there.

    ``predecessor``: a command of the group behind which it stands (default: the last). ``first_line``: its line among
    the commands that people need first, where it is one of them.
    """

    module: str
    group: str
    about: str
    predecessor: str = ""
    first_line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """An annex or a plug-in, and what it brings. Modules are named as in an import: those that begin with a dot are of
    the package in which the object stands.
    """

    name: str = field(metadata={"about": "the folder's name, or the plug-in's"})
    about: str = field(metadata={"about": "what it is for, in a sentence"})
    uses: tuple[str, ...] = field(default=(), metadata={"about": "other annexes that it imports"})
    optional: tuple[str, ...] = field(
        default=(), metadata={"about": "other annexes that it imports only where they are there"}
    )
    methods: tuple[Any, ...] = field(
        default=(), metadata={"about": "`decoders.Method` cards, or modules with a `METHOD` or `METHODS`"}
    )
    verifiers: tuple[Any, ...] = field(
        default=(), metadata={"about": "`decoders.VerifierCard` cards, or modules with a `VERIFIER` or `VERIFIERS`"}
    )
    importers: tuple[Any, ...] = field(
        default=(), metadata={"about": "importers of servers' logs, or modules with an `IMPORTER`"}
    )
    engines: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "about": "engine (`--engine`) → the module that runs a target's forwards; the module has "
            "`forward_of(target)`, which returns a `decoders.model.engines.static.StaticForward`, or a "
            "sentence that says why there is none"
        },
    )
    weights: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "about": "weights of fewer bits (`--weights`) → the module that puts a model's layers on them; the module "
            "has `fits(device, dtype)`, `round_model(model, shape, weights, name, engine, activations)`, which returns "
            "`decoders.model.engines.fewer_bits.RoundedWeights`, and `rounded_bytes(weights, count, head, tables, "
            "engine, itemsize)`"
        },
    )
    commands: Mapping[str, Command] = field(
        default_factory=dict,
        metadata={
            "about": "name → `Command(module, group, about)`; the module has `DESCRIPTION`, `add(parser)` and "
            "`run(args)`; `predecessor` and `first_line` give it a place in the lists"
        },
    )
    pages: tuple[Any, ...] = field(
        default=(), metadata={"about": "modules with a `Service`: a tab, and what is asked below `/api/NAME`"}
    )
    workers: tuple[Any, ...] = field(
        default=(),
        metadata={"about": "kinds of workers (`specviz.workers.kinds.WorkerKind`), or modules with `WORKERS`"},
    )
    peers: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "about": "module → the program that `specviz bench --peers` measures beside generate(), in words; "
            "the module has `PAIRS` (method, peer, name of their ratio) and `peers_of(setup)`, which returns peers and "
            "a sentence for each that cannot take part"
        },
    )
    app: tuple[Any, ...] = field(
        default=(),
        metadata={
            "about": "modules with `add(parser)`, which adds options to `specviz app`, and `mount(app, desk, args)`, "
            "which adds routes and returns an async context manager for the server's life, or None"
        },
    )
    widgets: tuple[Any, ...] = field(
        default=(), metadata={"about": "modules with `widget(trace, step, height)`, which `trace.widget()` returns"}
    )
    web: str = field(
        default="", metadata={"about": "a folder of ES modules and style sheets, one folder per room, as `assets/web`"}
    )
    recipes: str = field(
        default="",
        metadata={"about": "a folder of recipes of experiments: TOML files, and the Python modules that they name"},
    )
    settings: Mapping[str, str] = field(
        default_factory=dict, metadata={"about": "environment variable → what it sets, in a sentence"}
    )
    package: str = field(default="", metadata={"about": "where it was found; filled in"})

    @property
    def folder(self) -> Path:
        """The folder of its package."""
        spec = importlib.util.find_spec(self.package)
        assert spec is not None and spec.origin is not None, self.package
        return Path(spec.origin).parent

    def module(self, name: str) -> ModuleType:
        """A module that it names."""
        return import_module(importlib.util.resolve_name(name, self.package))


def look_in(package: str) -> None:
    """Find the annexes of a package: one per folder in its folder ``extras``."""
    if f"{package}.extras" not in _packages:
        _packages.append(f"{package}.extras")
        extras.cache_clear()


@cache
def extras() -> Mapping[str, Extra]:
    """Annexes and plug-ins by name: those of the packages first, each in alphabetical order."""
    by_name: dict[str, Extra] = {}
    entries = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
    places = {entry.value: f"package {entry.dist.name if entry.dist else entry.value}" for entry in entries}
    for value in dict.fromkeys([*_packages, *places]):
        try:
            for extra in _extras_of(value):
                if extra.name in by_name and by_name[extra.name].package != extra.package:
                    raise ValueError(f"its name {extra.name!r} is that of {by_name[extra.name].package}: rename it")
                by_name[extra.name] = extra
        except Exception as problem:
            leave_out(places.get(value, value), problem)
    return MappingProxyType(by_name)


def _extras_of(value: str) -> Iterator[Extra]:
    """The objects that an entry point's value ("package", "package.module:NAME") leads to."""
    name, _, attribute = value.partition(":")
    try:
        module = import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name == name and name.endswith(".extras"):
            return  # the folder of all annexes was deleted
        raise
    if attribute:
        yield replace(getattr(module, attribute), package=module.__package__ or name)
        return
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        annex = f"{name}.{info.name}"
        if info.ispkg and importlib.util.find_spec(f"{annex}.extra"):
            yield replace(import_module(f"{annex}.extra").EXTRA, package=annex)


def entries_of(hook: str) -> Iterator[tuple[Extra, Any]]:
    """Everything that annexes and plug-ins bring to a hook of ``Extra`` (``methods``, …), each with the ``Extra``:
    objects as they are, and modules, imported. What cannot be imported is left out, with a sentence (``problems``).
    """
    for extra in extras().values():
        for entry in getattr(extra, hook):
            try:
                part = extra.module(entry) if isinstance(entry, str) else entry
            except Exception as problem:
                leave_out(extra.package, problem)
                continue
            yield extra, part


def cards(hook: str, *names: str) -> Iterator[tuple[Extra, Any]]:
    """As ``entries_of``; of modules the objects under ``names``: a name in the plural holds several."""
    for extra, part in entries_of(hook):
        if not isinstance(part, ModuleType):
            yield extra, part
            continue
        for name in names:
            if hasattr(part, name):
                entries = getattr(part, name)
                yield from ((extra, entry) for entry in (entries if isinstance(entries, (tuple, list)) else [entries]))


def names_of(hook: str) -> tuple[str, ...]:
    """Names that annexes and plug-ins bring to a hook of names and modules (``engines``, …)."""
    return tuple(dict.fromkeys(name for extra in extras().values() for name in getattr(extra, hook)))


def module_of(hook: str, name: str) -> ModuleType | None:
    """The module behind a name of such a hook; None where it cannot be imported, which ``problems`` says."""
    for extra in extras().values():
        if module := getattr(extra, hook).get(name):
            try:
                return extra.module(module)
            except Exception as problem:
                leave_out(extra.package, problem)
    return None


def has_command(name: str) -> bool:
    """True where an annex or a plug-in brings this command: sentences name none that is not there."""
    return any(name in extra.commands for extra in extras().values())


def problems() -> tuple[str, ...]:
    """A sentence for each annex or plug-in, or part of one, that was left out."""
    return tuple(_problems.values())


def hooks() -> dict[str, str]:
    """Each field of ``Extra`` and what it takes, as docs/extras.md has them."""
    return {entry.name: entry.metadata["about"] for entry in fields(Extra)}


def leave_out(place: str, problem: Exception) -> None:
    """Say, with ``problems``, that what an annex or a plug-in brings is left out."""
    _problems[place] = f"{place} is left out: {type(problem).__name__}: {first_line(problem)}"
    log.warning("%s", _problems[place])
