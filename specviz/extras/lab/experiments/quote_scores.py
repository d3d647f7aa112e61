"""Answers with known quotes in the Lab: each is given to the methods, and their links are scored (PLD+ table 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.study.attribute.attribution import COUNT_UNITS
from decoders.study.attribute.quotes import QuotedAnswer, scores

if TYPE_CHECKING:
    from decoders.trace.trace import Trace

MIN_RUNS = (1, 2, 3, 5, 8, 12)
COUNTS = tuple(COUNT_UNITS.values())


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
