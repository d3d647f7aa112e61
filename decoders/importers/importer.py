"""An importer's card, and what it makes of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from decoders.trace.trace import Trace

from .request import MOST_REQUESTS, MOST_ROWS, Request
from .request_trace import trace_of
from .source import Source
from .values import clean


@dataclass(slots=True)
class Numbers:
    """Numbers that a server gives of many requests together: they are no run, and have no steps."""

    title: str
    values: dict[str, Any]


@dataclass(slots=True)
class Contents:
    """The contents of a file that an importer read: requests, and numbers of many together."""

    requests: list[Request] = field(default_factory=list)
    numbers: list[Numbers] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ImportResult:
    """The result of an import: a trace per request, and numbers of many requests together."""

    importer: str
    title: str
    traces: list[Trace]
    numbers: list[Numbers]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Importer:
    """One kind of file: its name, its title for people, and how it is read. ``read`` gives None, or nothing, for a file
    of another kind. ``order``: the particular ones are asked first, those that take much for their own last.
    """

    name: str
    title: str
    read: Callable[[Source], Contents | None]
    order: int = 50

    def open(self, source: Source) -> ImportResult:
        """Read the file; nothing where it is of another kind."""
        contents = self.read(source) or Contents()
        traces = [trace_of(one, self.name, self.title) for one in _with_output(contents)]
        return ImportResult(self.name, self.title, traces, contents.numbers, contents.notes)


def _with_output(contents: Contents) -> Iterator[Request]:
    """The requests that have an output, as many as are shown; of others a note is made, so that nothing is lost in
    silence.
    """
    rows = 0
    for number, request in enumerate(contents.requests):
        name = clean(request.key[:80]) or "a request"
        if number == MOST_REQUESTS or rows > MOST_ROWS:
            contents.notes.append(f"the first {number} requests are shown: cut the file to see others")
            return
        if not request.tokens:
            contents.notes.append(f"{name} has no output in this file")
        elif request.rows > MOST_ROWS:
            told = "tokens, their first choices and drafted tokens are"
            contents.notes.append(f"{name} was left out: its {told} {request.rows:,}, and {MOST_ROWS:,} are allowed")
        else:
            rows += request.rows
            yield request
