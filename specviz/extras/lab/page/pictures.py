"""Cards of recorded experiments: a small picture, and what was found in one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from decoders.errors import UserError

from ..experiments.comparison import comparisons
from ..experiments.findings import summary
from ..experiments.results import Results, columns_of, points

MAX_LINES, MAX_VALUES = 6, 24  # a picture of more says nothing


@cache
def pictures(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """The picture of each recorded experiment that comes along, by its recipe."""
    found = {path.stem: picture(path) for path in sorted(folder.glob("*.zip"))}
    return {name: drawn for name, drawn in found.items() if drawn is not None}


def picture(path: Path) -> dict[str, Any] | None:
    """``{"kind", "lines", "finding"}`` of an experiment: its ``picture_of`` and its ``findings.summary``; None where it
    has no numbers.
    """
    with contextlib.suppress(UserError):
        results = Results.load(path)
        drawn = picture_of(results)
        return drawn and {**drawn, "finding": summary(results, comparisons(path.parent).get(path.stem))}
    return None


def picture_of(results: Results) -> dict[str, Any] | None:
    """``{"kind", "lines"}``: "bar", "line" or "heat", and per line its values of the first metric (None: no number)
    from 0 to 1; None where there are no numbers.
    """
    about = results.about
    for metric in about["metrics"]:
        columns = list(columns_of(results.quantity(metric), metric, results.columns))
        if not columns:
            continue
        lines: dict[str, list[float | None]] = {}
        is_heat = about["chart"] == "heat" and len(about["axes"]) == 2
        for point in points(results, [metric]):
            value = (point["values"].get(columns[0]) or {}).get("value")
            row = point["y"] if is_heat else point["series"]
            lines.setdefault(str(row), []).append(value if isinstance(value, int | float) else None)
        rows = [row[:MAX_VALUES] for row in [*lines.values()][:MAX_LINES]]
        numbers = [abs(value) for row in rows for value in row if value is not None]
        if not numbers or not max(numbers):
            continue
        is_line = not is_heat and any(len(row) > 2 for row in rows) and about["chart"] not in ("bar", "cases", "sheet")
        high, low = max(numbers), 0.0
        if is_line and min(numbers) < high:  # its shape, not its height
            low = min(numbers) - 0.15 * (high - min(numbers))
        span = high - low
        shares = [[None if value is None else round((abs(value) - low) / span, 3) for value in row] for row in rows]
        return {"kind": "heat" if is_heat else "line" if is_line else "bar", "lines": shares}
    return None
