"""Work, counted by calls that do not depend on the machine."""

from __future__ import annotations

import sys
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
