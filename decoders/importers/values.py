"""Values out of somebody else's JSON: each is looked at, and what is not of the kind becomes None."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

BIGGEST = 2**53  # numbers that a trace and a browser hold exactly
LEAST_LOG = -1e4  # of a log-probability: its probability is 0


def number(value: Any) -> float | None:
    """A number of a size that a trace holds, or None.

    >>> number(3), number(True), number("3"), number(float("nan")), number(10**400)
    (3.0, None, None, None, None)
    """
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < BIGGEST
    return float(value) if good else None


def whole(value: Any, limit: int = 10**9) -> int | None:
    """A whole number from 0, or None."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit
    return value if good else None


def numbers(values: Any) -> list[int] | None:
    """A list of whole numbers from 0, or None for what is none."""
    if not isinstance(values, list) or not all(whole(value) is not None for value in values):
        return None
    return values


def dicts(values: Any) -> list[dict[str, Any]]:
    """The objects in a list; none of what is no list."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def share(value: Any) -> float | None:
    """A probability as a trace keeps it; None for what is none."""
    if type(value) is float and 0.0 <= value <= 1.0:
        return round(value, 6)
    probability = number(value)
    return None if probability is None or not 0 <= probability <= 1.001 else round(min(probability, 1.0), 6)


def from_log(value: Any) -> float | None:
    """The probability of a log-probability; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 0.001:
        return None
    return math.exp(min(max(value, LEAST_LOG), 0.0))


def clean(text: str) -> str:
    """Text that a file can hold: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode()


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A server's own numbers, bounded: plain values and short lists of them."""
    plain_fields: dict[str, Any] = {}
    for name, value in list(fields.items())[:60]:
        key = clean(name[:80])
        if isinstance(value, list):
            plain_fields[key] = [item for item in value[:64] if number(item) is not None]
        elif isinstance(value, str):
            plain_fields[key] = clean(value[:300])
        elif isinstance(value, bool) or number(value) is not None:
            plain_fields[key] = value
    return plain_fields


def merge(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Several objects in one; the later ones win."""
    return {name: value for part in parts for name, value in part.items() if isinstance(name, str)}
