"""Rows on their way into a trace: columns of its tables, with the defaults of those that are not named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .tables import REQUIRED, TABLES, columns_of

SEVERAL = (list, tuple)
Delta = dict[str, dict[str, list[Any]]]
Defaults = dict[str, list[tuple[str, Any]]]  # table → its columns, each with its default


def columns_with_defaults(run: Mapping[str, Any]) -> Defaults:
    """The columns that a run's tables have, the method's numbers included."""
    return {table: [(c.name, c.default) for c in columns_of(table, run).values()] for table in TABLES}


class TraceRows:
    """Rows of some tables, column by column, on their way into a trace.

    >>> rows = TraceRows(columns_with_defaults({}), ["targets"])
    >>> rows.add("targets", 2, {"step": 7, "node": [0, 3], "token": [11, 12], "prob": None})
    >>> rows.delta["targets"]["step"], rows.delta["targets"]["node"]
    ([7, 7], [0, 3])
    """

    def __init__(self, columns: Defaults, tables: Sequence[str]) -> None:
        self._columns = columns
        self.delta: Delta = {table: {name: [] for name, _ in columns[table]} for table in tables}

    def add(self, table: str, count: int, values: Mapping[str, Any]) -> None:
        """``count`` rows: per column their values, or one for all. KeyError where one without a default is left out."""
        rows = self.delta[table]
        for name, default in self._columns[table]:
            value = values[name] if default is REQUIRED or name in values else default
            rows[name] += [value] * count if value is None or not isinstance(value, SEVERAL) else value
