"""vLLM's log: the line "SpecDecoding metrics: …" that it writes every few seconds, numbers of all requests together.

vllm/v1/spec_decode/metrics.py, SpecDecodingLogging.log. The mean acceptance length counts the bonus token, over the
interval's steps; the rates per position are of all drafts of the interval.
"""

from __future__ import annotations

import re

from .importer import Contents, Importer, Numbers
from .source import Source

LINE = re.compile(r"SpecDecoding metrics: (?P<rest>.*)")
PART = re.compile(r"([A-Z][A-Za-z -]*?): ((?:[\d.]+(?:, |\b))+)")
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
            parts = [float(part) for part in told.rstrip(", ").split(", ") if re.fullmatch(r"\d+(?:\.\d+)?", part)]
            if parts:
                values[name] = parts if name.startswith("Per-position") else parts[0]
        a, d, mean = (values.get(name) for name in ("Accepted", "Drafted", "Mean acceptance length"))
        if isinstance(a, float) and isinstance(d, float):
            accepted, drafted = accepted + int(a), drafted + int(d)
            steps += a / (mean - 1) if isinstance(mean, float) and mean > 1 else 0
        when = AT.search(line)
        contents.numbers.append(Numbers(when[1] if when else f"interval {len(contents.numbers) + 1}", values))
    if drafted:
        pooled: dict[str, object] = {"Accepted": accepted, "Drafted": drafted, "Accepted ÷ drafted": accepted / drafted}
        if steps:
            pooled["Mean acceptance length, about"] = 1 + accepted / steps
        contents.numbers.insert(0, Numbers("all intervals, pooled", pooled))
    return contents


IMPORTER = Importer("vllm-log", "vLLM's log", read, order=20)
