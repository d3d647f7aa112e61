"""Work, counted by what does not depend on the machine: calls, lines, bytes."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any


def calls(act: Callable[[], Any]) -> int:
    """Number of functions, of Python and of C, that are called while ``act()`` runs (in this thread)."""
    count = 0

    def see(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def lines(act: Callable[[], Any]) -> int:
    """Number of lines of Python that run, as often as a loop comes to them, while ``act()`` does (in this thread)."""
    count = 0

    def see(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def peak_bytes(act: Callable[[], Any]) -> int:
    """Bytes, arrays of numpy among them, that are taken at the most while ``act()`` runs."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
