"""A file that somebody gave: its text, and the JSON in it, however both are arranged.

Whatever stands around a server's own words is taken away: an encoding other than UTF-8, a fence of Markdown, colours of
a terminal, and what a collector of logs writes in front of each line.
"""

from __future__ import annotations

import ast
import codecs
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .values import number

MAX_BYTES = 64 << 20  # bytes of a file
MOST_LITERAL = 1 << 18  # characters of an object in Python's notation
TIMES = ("t", "time", "timestamp", "received", "received_at", "arrival")
INNER = ("data", "chunk", "event", "response", "body", "out")
LOGGED = ("log", "message", "MESSAGE", "msg", "line")  # a collector's object has a server's line under one of these
MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
COLOUR = re.compile(r"\x1b\[[0-9;?]{0,24}[A-Za-z]")
FENCE = re.compile(r"^[ \t]{0,8}(?:`{3,}|~{3,})[ \t]*[\w.+-]{0,30}[ \t]*\r?$", re.MULTILINE)
STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
COLLECTOR = re.compile(  # docker compose, Kubernetes and containers, journald
    rf"^(?:[\w./-]{{1,80}}\s{{0,20}}\|\s|{STAMP}\s+std(?:out|err)\s+[FP]\s|{STAMP}\s(?=\S)"
    r"|[A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d \S{1,80} [\w./@-]{1,80}\[\d{1,9}\]: )",
    re.MULTILINE,
)
LINE_PREFIX = re.compile(r"[^{}\"']{0,160}?(?=(?:data:\s*)?\{\s*[\"'])")  # of a line, in front of its JSON


@dataclass(frozen=True, slots=True)
class LogDocument:
    """One object of JSON, and when it arrived (seconds, from any start), where the file says so."""

    value: dict[str, Any]
    at: float | None = None


class LogSource:
    """A file's text and the documents in it: one JSON value, a list, JSON lines, or a stream of server-sent events."""

    def __init__(self, data: bytes, name: str = "") -> None:
        self.name, self.data = name, data
        self.encoding, mark = encoding_of(data)
        self._body = data[mark:]
        self.text = FENCE.sub("", self._decode("replace"))

    def _decode(self, errors: str) -> str:
        text = self._body.decode(self.encoding, errors)
        return COLOUR.sub("", text) if "\x1b[" in text else text

    @cached_property
    def _read(self) -> tuple[list[LogDocument], int]:
        text = self.text.strip()
        if text[:1] in ("{", "["):
            try:
                value = json.loads(text)
                several = value if isinstance(value, list) else [value]
                return [document(item) for item in several if isinstance(item, dict)], 0
            except (ValueError, RecursionError):
                pass
        documents, lost_count = lines_of(text)
        if not documents and (values := _values(text)):
            return values, 0
        return documents, lost_count

    @cached_property
    def raw(self) -> str:
        """The text with every byte that is no UTF-8 as a lone surrogate, from which it can be had back."""
        if self.text.lstrip()[:1] == "{":
            return "\n".join(self._lines)
        return COLLECTOR.sub("", self._decode("surrogateescape" if self.encoding == "utf-8" else "replace"))

    @property
    def documents(self) -> list[LogDocument]:
        """The objects of JSON in the file; none in a log of plain text."""
        return self._read[0]

    @property
    def was_searched(self) -> bool:
        """True once somebody asked for the file's documents."""
        return "_read" in self.__dict__

    @property
    def unread(self) -> int:
        """Lines that are neither JSON nor part of a stream."""
        return self._read[1]

    @cached_property
    def _lines(self) -> list[str]:
        lines = (_unwrap(line) for line in self.text.split("\n"))
        return [line.rstrip("\r") for line in lines]

    def lines(self) -> Iterator[str]:
        """The file's lines as the server wrote them: one that a collector wrapped in JSON is taken out of it."""
        return iter(self._lines)


def encoding_of(data: bytes) -> tuple[str, int]:
    """The encoding of a file, and how many bytes its mark takes: UTF-16 is found without a mark, too.

    >>> encoding_of(b"\\xff\\xfea\\x00"), encoding_of(b"a\\x00b\\x00c\\x00d\\x00"), encoding_of(b"text")
    (('utf-16-le', 2), ('utf-16-le', 0), ('utf-8', 0))
    """
    for mark, name in MARKS:
        if data.startswith(mark):
            return name, len(mark)
    start = data[:4096]
    if len(start) >= 8 and start.count(0) > len(start) // 4:
        even = start[::2].count(0)
        return ("utf-16-be" if even > start.count(0) - even else "utf-16-le"), 0
    return "utf-8", 0


def lines_of(text: str) -> tuple[list[LogDocument], int]:
    """The objects that stand in a line each, and how many lines hold something else."""
    documents, lost_count = [], 0
    for line in text.split("\n"):  # not splitlines: a text of JSON may hold other ends of lines
        line = line.strip()
        stamp = None
        if leading := re.match(r"\[?(\d+(?:\.\d+)?)\]?\s+(?=data:|\{)", line):
            stamp, line = number(float(leading[1])), line[leading.end() :]
        line = line.removeprefix("data:").strip()
        if line and not line.startswith("{") and "{" in line[:320] and (prefix := LINE_PREFIX.match(line)):
            line = line[prefix.end() :].removeprefix("data:").strip()
        if "out={'" in line:
            line = line[line.index("out={'") + 4 :]
        if not line.startswith("{"):
            lost_count += bool(line) and line != "[DONE]" and not line.startswith((":", "event:", "id:", "retry:"))
            continue
        if (value := object_of(line)) is None:
            lost_count += 1
        else:
            documents.append(document(value, stamp))
    return documents, lost_count


def object_of(line: str) -> dict[str, Any] | None:
    """The object in a line: of JSON, or as Python prints it; None for what is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = _parse_python(line)
    return value if isinstance(value, dict) else None


def _parse_python(line: str) -> Any:
    """Read an object as Python prints it (SGLang's finish lines, an SDK's answer): constants alone."""
    if not line.startswith("{'") or len(line) > MOST_LITERAL:
        return None
    try:
        return ast.literal_eval(line[: line.rfind("}") + 1])
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _values(text: str) -> list[LogDocument]:
    """Objects that stand behind one another over several lines each, whatever stands in front of the first."""
    decoder, documents = json.JSONDecoder(), list[LogDocument]()
    tries = [match.start() for match in re.finditer(r"^\s{0,8}[{\[]", text, re.MULTILINE)][:16]
    for start in tries:
        at = start
        while at < len(text):
            at = re.compile(r"[\s,]*").match(text, at).end()  # type: ignore[union-attr]
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                break
            several = value if isinstance(value, list) else [value]
            documents += [document(item) for item in several if isinstance(item, dict)]
        if documents:
            return documents
    literal = _parse_python(text.strip())
    return [document(literal)] if isinstance(literal, dict) else []


def _unwrap(line: str) -> str:
    """A line as the server wrote it."""
    if line.startswith("{") and len(line) < MOST_LITERAL and any(f'"{name}"' in line for name in LOGGED):
        value = object_of(line.strip())
        inner = None if value is None or "choices" in value else _first(value, LOGGED)
        return line if inner is None else COLOUR.sub("", inner.rstrip("\n"))
    return COLLECTOR.sub("", line, count=1)


def _first(value: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((value[name] for name in names if isinstance(value.get(name), str)), None)


def document(value: dict[str, Any], stamp: float | None = None) -> LogDocument:
    """A document, taken out of the envelope that a client may have put it in: {"t": seconds, "data": {…}}."""
    if "choices" not in value and (line := _first(value, LOGGED) or "").startswith(("{", "data:")):
        value = object_of(line.removeprefix("data:").strip()) or value
    times = [time for name in TIMES if (time := number(value.get(name))) is not None]
    inner = next((value[name] for name in INNER if isinstance(value.get(name), dict)), None)
    if inner is None or "choices" in value or "object" in value:
        return LogDocument(value, stamp)
    return LogDocument(inner, times[0] if times else stamp)
