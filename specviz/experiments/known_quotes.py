"""Answers with known quotes in the lab: each is given to the methods, and what they link is scored (PLD+ table 10)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.prompt.files import PromptRecord
from decoders.study.attribute.attribution import COUNT_UNITS
from decoders.study.attribute.quotes import Quote, QuotedAnswer, read_quotesum, scores

if TYPE_CHECKING:
    from decoders.trace.trace import Trace

MIN_RUNS = (1, 2, 3, 5, 8, 12)
COUNTS = tuple(COUNT_UNITS.values())


@dataclass(frozen=True, slots=True)
class QuotedRecord(PromptRecord):
    """A prompt with an answer whose quotes are known."""

    gold: QuotedAnswer | None = None


def quoted_records(path: Path | None, count: int) -> list[PromptRecord]:
    """Questions whose answers have known quotes: of a QuoteSum file, or (None) of the demo generator."""
    from decoders.training.demo.quotes import demo_quotes

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


def check_quoted(cases: Any) -> None:
    """Raise UserError where a prompt has no answer with known quotes."""
    if missing := [case.id for case in cases if case.gold is None]:
        raise UserError(
            f"this experiment scores answers whose quotes are known, and {len(missing)} of {len(cases)} prompts have "
            f"none (the first is {missing[0]}): use the set quotes, or a file in QuoteSum's form"
        )


def sweep_thresholds(row: Mapping[str, Any], trace: Trace, gold: QuotedAnswer) -> list[dict[str, Any]]:
    """A run's row for each threshold, under both ways to count."""
    return [
        {**row, "param:min_run": str(n), "param:counted": unit, **asdict(score)}
        for whole, unit in COUNT_UNITS.items()
        for n, score in zip(MIN_RUNS, scores(trace, gold, MIN_RUNS, whole=whole) or [], strict=True)
    ]
