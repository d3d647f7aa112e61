"""Methods and verifiers from outside: packages with an entry point ``specviz.methods`` or ``specviz.verifiers``, and
files.

A plug-in is code that the user installed or named; it is imported once, and one that cannot be used is left out with a
sentence that names it, while everything else goes on.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from decoders.draft.params import card_fault
from decoders.errors import UserError, first_line
from decoders.verifiers.registry import verifier_fault
from decoders.verifiers.verifier import VerifierCard

from .guard import place_of
from .method import Method
from .plugin_files import plugin_files

GROUP, VERIFIERS = "specviz.methods", "specviz.verifiers"
NAME = re.compile(r"[A-Za-z0-9][\w+.-]*")


@dataclass(frozen=True, slots=True)
class PluginSource:
    """The source of a plug-in: ``place`` as people read it, how it is imported, and the file or folder that its code
    stands in.
    """

    place: str
    open: Callable[[], Any]
    own: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plug-in's methods and verifiers; ``own`` is the file or folder that its code stands in."""

    place: str
    own: str
    methods: tuple[Method, ...]
    verifiers: tuple[VerifierCard, ...] = ()


class Unusable(UserError):
    """The reason why a plug-in was left out; the error behind it, if any, is the cause."""


def sources() -> Iterator[PluginSource]:
    """The installed packages' entry points, by name, then the files of ``SPECVIZ_PLUGINS``."""
    entries = (entry for group in (GROUP, VERIFIERS) for entry in importlib.metadata.entry_points(group=group))
    for entry in sorted(entries, key=lambda entry: (entry.name, entry.value)):
        package = entry.dist.name if entry.dist else entry.value
        yield PluginSource(f"package {package}, entry point {entry.name}", entry.load, partial(_code_of, entry))
    for path in plugin_files():
        yield file_source(path)


def file_source(path: Path) -> PluginSource:
    """A plug-in that is a file."""
    path = path.expanduser().resolve()
    return PluginSource(str(path), partial(_module, path), lambda: str(path))


def load(source: PluginSource) -> Plugin:
    """A plug-in's methods, looked at: named rightly, with parameters that make controls. Raises Unusable."""
    try:
        plugin = source.open()
        code_path = source.own()
        entries = tuple(_entries(plugin))
        judges = tuple(entry for entry in entries if isinstance(entry, VerifierCard))
        methods = tuple(entry for entry in entries if not isinstance(entry, VerifierCard))
        if not entries:
            raise Unusable("it defines no method: METHOD = Method(…) is wanted, or METHODS, a tuple; or a VERIFIER")
        for fault in (*map(verifier_fault, judges), *map(method_fault, methods)):
            if fault:
                raise Unusable(fault)
    except Unusable as problem:
        raise Unusable(f"plug-in {source.place} is left out: {problem}") from problem.__cause__
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as problem:  # SystemExit too
        raise Unusable(f"plug-in {source.place} is left out: {_failure(source, problem)}") from problem
    return Plugin(source.place, code_path, methods, judges)


def method_fault(method: Any) -> str:
    """The reason why an object cannot be registered as a method, in plain words; "" where nothing does."""
    if not isinstance(method, Method):
        return f"METHOD is a {type(method).__name__}, and a decoders.Method is wanted"
    if not isinstance(method.name, str) or not NAME.fullmatch(method.name) or method.name == "all":
        return (
            f"its method is called {method.name!r}, and a name begins with a letter or digit and goes on with letters, "
            "digits, _ + . or -"
        )
    return card_fault(method, ("title", "paper", "summary", "bibtex"), "target and params")


def _entries(plugin: Any) -> Iterator[Any]:
    """The methods and verifiers of a module with METHOD or METHODS, VERIFIER or VERIFIERS, or what an entry point names
    itself: one, or several.
    """
    if isinstance(plugin, ModuleType):
        if hasattr(plugin, "METHOD"):
            yield plugin.METHOD
        yield from getattr(plugin, "METHODS", ())
        if hasattr(plugin, "VERIFIER"):
            if not isinstance(plugin.VERIFIER, VerifierCard):
                raise Unusable(verifier_fault(plugin.VERIFIER))
            yield plugin.VERIFIER
        yield from getattr(plugin, "VERIFIERS", ())
    elif isinstance(plugin, (tuple, list)):
        yield from plugin
    else:
        yield plugin


def _failure(source: PluginSource, problem: BaseException) -> str:
    if isinstance(problem, SyntaxError):
        return f"line {problem.lineno} is no Python: {problem.msg}"
    at = place_of(traceback.extract_tb(problem.__traceback__), source.place)
    return f"its import fails{at and ' at '}{at}: {type(problem).__name__}: {first_line(problem)}"


def _module(path: Path) -> ModuleType:
    """A file as a module, read anew; its folder is where it imports from, beside what is installed."""
    name = f"specviz_plugin_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{abs(hash(str(path))):x}"
    module = ModuleType(name)
    module.__file__ = str(path)
    code = compile(path.read_text("utf-8"), str(path), "exec")  # never a cached .pyc: an editor saves twice a second
    sys.modules[name] = module  # dataclasses and pickles look there
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        exec(code, module.__dict__)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _code_of(entry: importlib.metadata.EntryPoint) -> str:
    """The folder of the package that an entry point names, or its file."""
    with suppress(ImportError, AttributeError, ValueError):
        spec = importlib.util.find_spec(entry.module.partition(".")[0])
        if spec is not None and spec.submodule_search_locations:
            return next(iter(spec.submodule_search_locations))
        return (spec and spec.origin) or ""
    return ""
