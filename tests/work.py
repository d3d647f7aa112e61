"""Work, counted by what does not depend on the machine: calls, lines, bytes."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from specviz.experiments.experiment import Row
from specviz.experiments.quantities import QUANTITIES, TIME_UNITS, Breakdown, Quantity

ALWAYS_CLOCKED = ("draft_cost", "draft_share", "expected_speedup", "trace")


def _count(act: Callable[[], Any], events: tuple[str, ...], get: Callable[[], Any], put: Callable[[Any], None]) -> int:
    """Number of these events that a hook, which ``put`` sets for this thread, sees while ``act()`` runs."""
    count = 0

    def see(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event in events
        return see

    before = get()
    put(see)
    try:
        act()
    finally:
        put(before)
    return count


def calls(act: Callable[[], Any]) -> int:
    """Number of functions, of Python and of C, that are called while ``act()`` runs (in this thread)."""
    return _count(act, ("call", "c_call"), sys.getprofile, sys.setprofile)


def lines(act: Callable[[], Any]) -> int:
    """Number of lines of Python that run, as often as a loop comes to them, while ``act()`` does (in this thread)."""
    return _count(act, ("line",), sys.gettrace, sys.settrace)


def peak_bytes(act: Callable[[], Any]) -> int:
    """Bytes, arrays of numpy among them, that are taken at the most while ``act()`` runs."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


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
