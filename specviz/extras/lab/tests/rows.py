"""Rows of experiments, compared."""

from __future__ import annotations

from typing import Any

from ..experiments.experiment import Row
from ..experiments.quantities import QUANTITIES, TIME_UNITS, Breakdown, Quantity

ALWAYS_CLOCKED = ("draft_cost", "draft_share", "expected_speedup", "trace")


def counted_alone(rows: list[Row]) -> list[dict[str, Any]]:
    """Rows without what a clock told, and without the runs' names; with another number of threads sums round otherwise
    in their last digits.
    """

    def keeps(column: str) -> bool:
        quantity = QUANTITIES.get(column.split(":")[0])
        by_clock = isinstance(quantity, Breakdown) and quantity.key in ("times", "triggered", "cost")
        by_clock |= isinstance(quantity, Quantity) and quantity.unit in TIME_UNITS
        return not by_clock and column not in ALWAYS_CLOCKED

    def near(value: Any) -> Any:
        return round(value, 4) if isinstance(value, float) else value

    return [{name: near(value) for name, value in row.items() if keeps(name) and value is not None} for row in rows]
