"""A file that somebody gave: its text, and the JSON in it, however it is arranged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .values import number

MOST = 64 << 20  # bytes of a file
TIMES = ("t", "time", "timestamp", "received", "received_at", "arrival")
INNER = ("data", "chunk", "event", "response", "body")


@dataclass(frozen=True, slots=True)
class Document:
    """One object of JSON, and when it arrived (seconds, from any start), where the file says so."""

    value: dict[str, Any]
    at: float | None = None


class Source:
    """A file's text and the documents in it: one JSON value, a list, JSON lines, or a stream of server-sent events."""

    def __init__(self, data: bytes, name: str = "") -> None:
        self.name, self.data = name, data
        self.text = data.decode("utf-8", "replace")

    @cached_property
    def _read(self) -> tuple[list[Document], int]:
        text = self.text.strip().removeprefix("\ufeff")
        if text[:1] in ("{", "["):
            try:
                value = json.loads(text)
                several = value if isinstance(value, list) else [value]
                return [document(one) for one in several if isinstance(one, dict)], 0
            except (ValueError, RecursionError):
                pass
        documents, lost = [], 0
        for line in text.split("\n"):  # not splitlines: a text of JSON may hold other ends of lines
            line = line.strip()
            stamp = None
            if leading := re.match(r"\[?(\d+(?:\.\d+)?)\]?\s+(?=data:|\{)", line):
                stamp, line = number(float(leading[1])), line[leading.end() :]
            line = line.removeprefix("data:").strip()
            if not line.startswith("{"):
                lost += bool(line) and line != "[DONE]" and not line.startswith((":", "event:", "id:", "retry:"))
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                lost += 1
                continue
            documents.append(document(value, stamp))
        return documents, lost

    @cached_property
    def raw(self) -> str:
        """The text with every byte that is no UTF-8 as a lone surrogate, from which it can be had back."""
        return self.text if "\ufffd" not in self.text else self.data.decode("utf-8", "surrogateescape")

    @property
    def documents(self) -> list[Document]:
        """The objects of JSON in the file; none in a log of plain text."""
        return self._read[0]

    @property
    def unread(self) -> int:
        """Lines that are neither JSON nor part of a stream."""
        return self._read[1]

    def lines(self) -> Iterator[str]:
        """The file's lines."""
        return iter(self.text.split("\n"))


def document(value: dict[str, Any], stamp: float | None = None) -> Document:
    """A document, taken out of the envelope that a client may have put it in: {"t": seconds, "data": {…}}."""
    times = [time for name in TIMES if (time := number(value.get(name))) is not None]
    inner = next((value[name] for name in INNER if isinstance(value.get(name), dict)), None)
    if inner is None or "choices" in value or "object" in value:
        return Document(value, stamp)
    return Document(inner, times[0] if times else stamp)
