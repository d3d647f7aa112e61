"""SGLang's log: the line "Decode batch" of every few steps, with what was accepted since the line before, and the line
"Finish" of each request, on with ``--log-requests``.

srt/managers/scheduler_metrics_mixin.py: "Decode batch. #running-req: n, …, accept len: x, accept rate: y, …" (the rate
in later versions); the length counts the target's own token. srt/utils/request_logger.py: "Finish: obj=…, out={…}" as
Python prints it, or an object of JSON whose ``event`` is request.finished.
"""

from __future__ import annotations

import re
from typing import Any

from decoders.importers.importer import Contents, Importer, Numbers
from decoders.importers.request import MOST_REQUESTS
from decoders.importers.source import LogSource
from decoders.importers.values import number

from . import sglang
from .parts import parts_of

DECODE = re.compile(r"Decode(?: \w{1,20}){0,2} batch(?:\s*\[\d{1,9}\])?[.,:]?\s*(?P<tail>.{0,4000})")
TIMESTAMP = re.compile(r"\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?: (?:DP|TP|PP)\d+)*)|\[(\d\d:\d\d:\d\d[^\]]{0,20})\]")
LENGTH, RATE, RUNNING = ("accept len", "accept length", "avg accept len"), ("accept rate",), ("running-req",)


def read(source: LogSource) -> Contents | None:
    """The decode lines and their means, and the requests of finish lines."""
    if "Decode batch" not in source.text and "Finish:" not in source.text and "request.finished" not in source.text:
        return None
    contents = Contents()
    if "Finish:" in source.text or "request.finished" in source.text:
        contents = sglang.read(source) or contents
    lines, plain = list[Numbers](), 0
    for line in source.lines():
        match = DECODE.search(line)
        if match is None:
            continue
        values = {name: value for name, value in parts_of(match["tail"]).items() if ("accept" in name or name in KEEP)}
        if _first(values, LENGTH) is None:
            contents.unread += "accept" in match["tail"]
            plain += "accept" not in match["tail"]
            continue
        time_match = TIMESTAMP.search(line)
        title = next(filter(None, time_match.groups()), "") if time_match else ""
        lines.append(Numbers(title.strip() or f"line {len(lines) + 1}", values))
    if lines:
        contents.numbers = [*contents.numbers, _means(lines), *lines[:MOST_REQUESTS]]
        if len(lines) > MOST_REQUESTS:
            contents.notes.append(f"of {len(lines):,} lines the first {MOST_REQUESTS} are shown")
        if plain:
            contents.notes.append(f"{plain:,} decode lines tell of no drafts")
    return contents if contents.requests or contents.numbers else None


KEEP = ("running-req", "gen throughput (token/s)")


def _first(values: dict[str, Any], names: tuple[str, ...]) -> float | None:
    return next((n for name in names if (n := number(values.get(name))) is not None), None)


def _means(lines: list[Numbers]) -> Numbers:
    """All lines together, each weighted by the requests that ran: a line counts as many steps of each."""
    means: dict[str, Any] = {"lines": len(lines)}
    for label, names in (("Mean acceptance length", LENGTH), ("mean accept rate", RATE)):
        pairs = [
            (value, _first(line.values, RUNNING) or 1.0)
            for line in lines
            if (value := _first(line.values, names)) is not None
        ]
        if pairs:
            means[f"{label} of the lines"] = sum(value for value, _ in pairs) / len(pairs)
            means[label] = sum(value * weight for value, weight in pairs) / sum(weight for _, weight in pairs)
    return Numbers("all lines, weighted by running requests", means)


IMPORTER = Importer("sglang-log", "SGLang's log", read, order=11)
