"""Servers' logs and answers on speculative decoding, as traces. One source, one file: a module here that defines
``IMPORTER`` is found by itself.

>>> opened = open_log(b'{"choices": [{"text": "Hi"}]}', "answer.json")  # doctest: +SKIP
>>> opened.importer, len(opened.traces)  # doctest: +SKIP
('openai', 1)

Nothing here needs torch. A source's text is data: it is parsed as JSON or by fixed patterns, and never run.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from decoders.extra import cards
from decoders.trace.check import check
from decoders.trace.tables import TraceError

from .importer import Importer, ImportResult
from .request import ImportFault, NotALog
from .source import MAX_BYTES, LogSource

__all__ = ["ImportFault", "ImportResult", "Importer", "NotALog", "check_size", "importers", "open_log"]


@cache
def importers() -> tuple[Importer, ...]:
    """All importers, the most particular first."""
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    all_importers = [module.IMPORTER for module in modules if hasattr(module, "IMPORTER")]
    all_importers += (importer for _, importer in cards("importers", "IMPORTER"))
    return tuple(sorted(all_importers, key=lambda importer: (importer.order, importer.name)))


def check_size(size: int, name: str = "") -> None:
    """Raise ImportFault for a file of more bytes than are read."""
    if size > MAX_BYTES:
        raise ImportFault(
            f"{name or 'the file'} has {size / (1 << 20):,.1f} MiB, and {MAX_BYTES >> 20} are read: cut it"
        )


def open_log(data: bytes, name: str = "", kind: str | None = None) -> ImportResult:
    """The runs and numbers in a file of a server. ``kind`` names the importer; without it the file's content decides.

    Raises ImportFault, one sentence, for a file in which nothing was found: never another exception.
    """
    check_size(len(data), name)
    by_name = {importer.name: importer for importer in importers()}
    if kind is not None and kind not in by_name:
        raise ImportFault(f"there is no importer {kind!r}: choose one of {', '.join(by_name)}")
    source, notes = LogSource(data, name), list[str]()
    for importer in importers() if kind is None else (by_name[kind],):
        contents = importer.open(source)
        if contents.traces or contents.numbers:
            try:
                for trace in contents.traces:
                    check(trace)
            except TraceError as problem:
                raise ImportFault(f"{name or 'the file'} cannot be shown: {problem}") from problem
            return contents
        notes = notes or contents.notes
    failure = f"{name or 'the file'} holds nothing that is known of speculative decoding"
    if notes:
        raise ImportFault(f"{failure}: {notes[0]}")
    raise NotALog(f"{failure}; known: {', '.join(importer.title for importer in importers())}")
