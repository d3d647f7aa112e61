"""Work, counted by what does not depend on the machine: calls, lines, bytes."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any


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
