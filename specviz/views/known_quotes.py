"""Prompts whose answers have known quotes: of a file in QuoteSum's form, or of the demo generator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from decoders.prompt.files import PromptRecord
from decoders.study.attribute.quotes import Quote, QuotedAnswer, read_quotesum


@dataclass(frozen=True, slots=True)
class QuotedRecord(PromptRecord):
    """A prompt with an answer whose quotes are known."""

    gold: QuotedAnswer | None = None


def quoted_records(path: Path | None, count: int) -> list[PromptRecord]:
    """Questions whose answers have known quotes: of a QuoteSum file, or (None) of the demo generator."""
    from decoders.study.attribute.demo_quotes import demo_quotes

    answers = demo_quotes(count) if path is None else read_quotesum(path, count)[0]
    records = [(gold, gold.record()) for gold in answers]
    return [QuotedRecord(**{f.name: getattr(r, f.name) for f in fields(PromptRecord)}, gold=g) for g, r in records]


def quoted_answer(data: Mapping[str, Any]) -> QuotedAnswer:
    """An answer with its known quotes, back from JSON."""
    quotes = tuple(Quote(**quote) for quote in data["quotes"])
    return QuotedAnswer(**{**data, "passages": tuple(data["passages"]), "quotes": quotes})


def is_quotesum(path: Path) -> bool:
    """True where a file's first row has QuoteSum's form."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            row = json.loads(next((line for line in lines if line.strip()), ""))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(row, dict) and "summary" in row and "source1" in row
