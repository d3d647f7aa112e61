"""Named numbers in a line of text: ``name: value``, ``name = value``, with units, and lists in brackets."""

from __future__ import annotations

import re
from typing import Any

from decoders.importers.values import clean, number

VALUE = r"[-+]?\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?"
PART = re.compile(
    r"(?P<name>[#A-Za-z](?:[\w #/÷%.-]|\([\w,/ ]{1,20}\)){0,80}?)\s{0,60}[:=]\s{0,60}"
    rf"(?:[(\[](?P<listed>\s*{VALUE}(?:\s*,\s*{VALUE}){{0,200}})\s*[)\]]"
    rf"|(?P<several>{VALUE}(?:(?:,\s?|\s{{1,8}}|/){VALUE}){{1,200}})(?=\s*(?:,|#|ms\b|\.?$))"
    rf"|(?P<value>{VALUE})(?P<unit>\s?%)?(?!\d|[\w:-]|\.\w))"
)


def parts_of(text: str, limit: int = 60) -> dict[str, Any]:
    """The named numbers of a line; a percentage keeps its unit, as text.

    >>> parts_of("#calls(b,g,a) = 1 87 87, #gen drafts = 87, rates: 0.8, 0.5, all: 3.")
    {'calls(b,g,a)': [1.0, 87.0, 87.0], 'gen drafts': 87, 'rates': [0.8, 0.5], 'all': 3}
    >>> parts_of("accept len: 2.54, rate: 75.0%, acc rate per pos = (0.8, 0.5)")
    {'accept len': 2.54, 'rate': '75.0%', 'acc rate per pos': [0.8, 0.5]}
    """
    parts: dict[str, Any] = {}
    for match in PART.finditer(text):
        name = clean(match["name"].strip(" ,#"))
        if match["listed"]:
            parts[name] = [float(item) for item in match["listed"].split(",")]
        elif match["several"]:
            parts[name] = [float(item) for item in re.split(r"[,\s/]+", match["several"])]
        elif (value := number(float(match["value"]))) is not None:
            percent = bool(match["unit"])
            parts[name] = f"{match['value']}%" if percent else int(value) if match["value"].isdigit() else value
        if len(parts) == limit:
            break
    return parts


def share_of(value: Any) -> float | None:
    """A share as a number from 0 to 1: of a percentage, or as it is.

    >>> share_of("75.0%"), share_of(0.6)
    (0.75, 0.6)
    """
    if isinstance(value, str) and value.endswith("%"):
        return float(value[:-1]) / 100
    return number(value)


def drafts_of(accepted: Any, mean: Any, decimals: int = 2) -> int | None:
    """The number of drafts by a mean acceptance length that was rounded; None where several numbers fit.

    >>> drafts_of(169, 2.94), drafts_of(16900, 2.94)
    (87, None)
    """
    if not isinstance(accepted, int) or not isinstance(mean, int | float) or mean <= 1 or accepted < 1:
        return None
    half = 0.5 * 10**-decimals
    low_bound, upper = accepted / (mean - 1 + half), accepted / max(mean - 1 - half, 1e-9)
    whole = (
        [count for count in range(int(low_bound), int(upper) + 2) if low_bound <= count <= upper]
        if upper - low_bound < 3
        else []
    )
    return whole[0] if len(whole) == 1 else None
