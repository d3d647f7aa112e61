"""vLLM's log: the line "SpecDecoding metrics: …" that it writes every few seconds, numbers of all requests together.

vllm/v1/spec_decode/metrics.py, SpecDecodingLogging.log. The mean acceptance length counts the bonus token, over the
interval's steps; the rates per position are of all drafts of the interval.
"""

from __future__ import annotations

import math
import re

from .importer import Contents, Importer, Numbers
from .request import MOST_REQUESTS
from .source import Source

LINE = re.compile(r"SpecDecoding metrics: (?P<rest>.*)")
PART = re.compile(r"\b([A-Z][A-Za-z -]{0,60}?): ((?:\d{1,15}(?:\.\d{1,15})?(?:, |\b))+)")
AT = re.compile(r"(\d\d-\d\d \d\d:\d\d:\d\d)")


def read(source: Source) -> Contents | None:
    """The intervals, and all of them together."""
    if "SpecDecoding metrics:" not in source.text:
        return None
    contents, accepted, drafted, steps = Contents(), 0, 0, 0.0
    for line in source.lines():
        if (match := LINE.search(line)) is None:
            continue
        values: dict[str, object] = {}
        for name, told in PART.findall(match["rest"]):
            parts = [float(part) for part in told.rstrip(", ").split(", ")]
            values[name] = parts if name.startswith("Per-position") else parts[0]
        a, d, mean = (values.get(name) for name in ("Accepted", "Drafted", "Mean acceptance length"))
        if isinstance(a, float) and isinstance(d, float):
            accepted, drafted = accepted + int(a), drafted + int(d)
            steps += _drafts(a, d, mean, values.get("Per-position acceptance rate"))
        if not values:
            continue
        when = AT.search(line)
        contents.numbers.append(Numbers(when[1] if when else f"interval {len(contents.numbers) + 1}", values))
    if len(contents.numbers) > MOST_REQUESTS:
        contents.notes.append(f"of {len(contents.numbers):,} intervals the first {MOST_REQUESTS} are shown")
        del contents.numbers[MOST_REQUESTS:]
    if drafted:
        pooled: dict[str, object] = {"Accepted": accepted, "Drafted": drafted, "Accepted ÷ drafted": accepted / drafted}
        if 0 < steps < math.inf:
            pooled["Mean acceptance length, about"] = 1 + accepted / steps
        contents.numbers.insert(0, Numbers("all intervals, pooled", pooled))
    return contents


def _drafts(accepted: float, drafted: float, mean: object, rates: object) -> float:
    """About how many drafts an interval had: by its mean acceptance length, and where nothing was accepted by the
    positions of a draft; nan where neither says.
    """
    if isinstance(mean, float) and mean > 1:
        return accepted / (mean - 1)
    if not accepted and isinstance(rates, list):
        return drafted / len(rates)
    return math.nan if drafted else 0.0


IMPORTER = Importer("vllm-log", "vLLM's log", read, order=20)
