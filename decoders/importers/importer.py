"""An importer's card, and what it makes of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from decoders.trace.acceptance import AcceptanceSums
from decoders.trace.trace import Trace

from .fields import about_drafts, check_totals, field_words, snake, totals_of
from .request import MOST_REQUESTS, MOST_ROWS, Request, Token
from .request_trace import trace_of
from .source import LogSource
from .values import clean

MOST_LOOKED = 4_000  # documents that are looked through for fields about drafts
NO_TEXT = "the answer has no text in this file (a tool call?): its tokens are counted, and not told"
ABOUT = frozenset(("drafted", "accepted", "drafts", "steps"))  # totals that speak of drafts
RATES = {
    "accepted ÷ drafted": "draft_acceptance", "mean acceptance length (1 + accepted ÷ drafts)": "acceptance_length",
    "tokens per step": "emitted_per_step",
}  # fmt: skip


@dataclass(slots=True)
class Numbers:
    """Numbers that a server gives of many requests together: they are no run, and have no steps. ``totals`` has the
    counts among them; it is empty where other numbers of the file count the same tokens.
    """

    title: str
    values: dict[str, Any]
    totals: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, title: str, fields: Mapping[str, Any], totals: Mapping[str, Any]) -> Numbers:
        """A server's own numbers, and the rates that its counts give.

        >>> Numbers.of("the server", {"draft_n": 8}, {"drafted": 8, "accepted": 3}).values
        {'draft_n': 8, 'accepted ÷ drafted': 0.375}
        """
        counts = check_totals(totals)
        rates = AcceptanceSums.of_totals(counts).values()
        values = {**fields, **{label: rates[key] for label, key in RATES.items() if rates[key]}}
        return cls(title, values, counts if ABOUT.intersection(counts) else {})


@dataclass(slots=True)
class Contents:
    """The contents of a file that an importer read: requests, and numbers of many together. ``unread`` counts the lines
    that look like a step or a statistic of the format and were not understood.
    """

    requests: list[Request] = field(default_factory=list)
    numbers: list[Numbers] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unread: int = 0


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
    of another kind. ``order``: the particular ones are asked first, those that take much for their own last. ``fields``
    names what it uses of a document beside the numbers that it shows: other fields about drafts are named in a note.
    """

    name: str
    title: str
    read: Callable[[LogSource], Contents | None]
    order: int = 50
    fields: frozenset[str] = frozenset()

    def open(self, source: LogSource) -> ImportResult:
        """Read the file; nothing where it is of another kind."""
        contents = self.read(source) or Contents()
        for request in contents.requests:
            _settle(request, contents)
        traces = [trace_of(request, self.name, self.title) for request in _with_output(contents)]
        if contents.unread:
            is_plural = contents.unread > 1
            lines = f"{contents.unread:,} lines like step lines were" if is_plural else "1 line like a step line was"
            contents.notes.append(f"{lines} not read")
        if (traces or contents.numbers) and (unused := self._find_unused(source, contents)):
            contents.notes.append(f"fields about drafts that were not used: {field_words(unused)}")
        return ImportResult(self.name, self.title, traces, contents.numbers, contents.notes)

    def _find_unused(self, source: LogSource, contents: Contents) -> dict[str, Any]:
        """The fields about drafts in the file's documents that are neither used nor shown; none in a log of text."""
        if not source.was_searched:
            return {}
        shown_names = {snake(name) for request in contents.requests for name in request.server_fields}
        shown_names |= {snake(name) for numbers in contents.numbers for name in numbers.values} | self.fields
        unused_fields: dict[str, Any] = {}
        for document in islice(source.documents, MOST_LOOKED):
            for path, value in about_drafts(document.value).items():
                if snake(path) not in shown_names:
                    unused_fields.setdefault(path, value)
        return unused_fields


def _settle(request: Request, contents: Contents) -> None:
    """Complete a request's totals by its server's own numbers; one that tells counts alone becomes numbers."""
    known_totals = {name: count for name, count in request.totals.items() if count is not None}
    request.totals = check_totals({**totals_of(request.server_fields), **known_totals})
    if request.tokens or not ABOUT.intersection(request.totals):
        return
    count = request.totals.get("tokens")
    if count and count <= MOST_ROWS:
        request.tokens, request.is_counted = [Token()] * count, True
        request.notes.append(NO_TEXT)
    else:
        contents.numbers.append(Numbers.of(clean(request.key[:80]), request.server_fields, request.totals))


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
            if not ABOUT.intersection(request.totals):
                contents.notes.append(f"{name} has no output in this file")
        elif request.rows > MOST_ROWS:
            subject = "tokens, their first choices and drafted tokens are"
            contents.notes.append(f"{name} was left out: its {subject} {request.rows:,}, and {MOST_ROWS:,} are allowed")
        else:
            rows += request.rows
            yield request
