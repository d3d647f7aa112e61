"""vLLM's log: numbers of all requests together, which it writes every few seconds.

V1 (vllm/v1/spec_decode/metrics.py, SpecDecodingLogging.log): the line "SpecDecoding metrics: …" counts an interval. The
mean acceptance length counts the bonus token, over the interval's steps; the rates per position are of all drafts of
the interval. Its first versions wrote rate, "Accepted" and "Drafted" alone.

V0 (vllm/spec_decode/metrics.py, engine/metrics.py): the line "Speculative metrics: …" counts since the server started.
"Accepted" there counts each position by itself, also behind a rejected one; "emitted" tokens are those that stood, with
the target's own. A draft has "Number of speculative tokens".
"""

from __future__ import annotations

import math
import re
from typing import Any

from decoders.importers.importer import Contents, Importer, Numbers
from decoders.importers.request import MOST_REQUESTS
from decoders.importers.source import LogSource

from .parts import parts_of

LINE = re.compile(r"(?P<version>SpecDecoding|Speculative) metrics: ?(?P<tail>.*)")
AT = re.compile(r"(\d\d-\d\d \d\d:\d\d:\d\d)")
ABOUT = "the number of drafts is not in this log: it was computed from mean lengths of two decimals"
V0 = "accepted counts every position by itself, also behind a rejected one (vLLM V0): the length is emitted ÷ drafts"


def read(source: LogSource) -> Contents | None:
    """The intervals, and all of them together."""
    if "SpecDecoding metrics" not in source.text and "Speculative metrics" not in source.text:
        return None
    contents, sums, since = Contents(), dict[str, int](accepted=0, drafted=0), list[dict[str, Any]]()
    steps, whole = 0.0, True
    for line in source.lines():
        if (match := LINE.search(line)) is None:
            continue
        values = _values(match["tail"])
        if not values:
            contents.unread += 1
            continue
        time_match = AT.search(line)
        contents.numbers.append(
            Numbers(time_match[1] if time_match else f"interval {len(contents.numbers) + 1}", values)
        )
        if match["version"] == "Speculative":
            since.append(values)
            continue
        a, d, mean = (values.get(name) for name in ("Accepted", "Drafted", "Mean acceptance length"))
        if isinstance(a, int | float) and isinstance(d, int | float):
            sums["accepted"] += int(a)
            sums["drafted"] += int(d)
            steps += _drafts(a, d, mean, values.get("Per-position acceptance rate"))
        else:
            whole = False
    if len(contents.numbers) > MOST_REQUESTS:
        contents.notes.append(f"of {len(contents.numbers):,} intervals the first {MOST_REQUESTS} are shown")
        del contents.numbers[MOST_REQUESTS:]
    if sums["drafted"]:
        accepted, drafted = sums["accepted"], sums["drafted"]
        pooled: dict[str, Any] = {"Accepted": accepted, "Drafted": drafted, "Accepted ÷ drafted": accepted / drafted}
        if 0 < steps < math.inf:
            pooled["Mean acceptance length, about"] = 1 + accepted / steps
            sums |= {"drafts": round(steps)} if whole and round(steps) else {}
            contents.notes += [] if float(steps).is_integer() else [ABOUT]
        contents.numbers.insert(0, Numbers("all intervals, pooled", pooled, {**sums}))
    if since and (ends := _ends(since)):
        contents.notes.append(V0)
        contents.numbers.insert(0, _since_start(ends))
    return contents


def _values(tail: str) -> dict[str, Any]:
    values = {name.replace("tokens tokens", "tokens"): value for name, value in parts_of(tail).items()}
    return {n: [v] if n.startswith("Per-position") and isinstance(v, int | float) else v for n, v in values.items()}


def _ends(since: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of counts that grow, the last of each start of the server."""
    name = "Number of draft tokens"
    count_rows = [values for values in since if isinstance(values.get(name), int)]
    successors = [*count_rows[1:], {name: -1}]
    return [values for values, successor in zip(count_rows, successors, strict=False) if successor[name] < values[name]]


def _since_start(ends: list[dict[str, Any]]) -> Numbers:
    drafted, accepted, emitted = (
        sum(values.get(f"Number of {kind} tokens") or 0 for values in ends) for kind in ("draft", "accepted", "emitted")
    )
    lengths = [values.get("Number of speculative tokens") for values in ends]
    drafts = sum(
        v["Number of draft tokens"] // k for v, k in zip(ends, lengths, strict=True) if isinstance(k, int) and k
    )
    values: dict[str, Any] = {"accepted": accepted, "drafted": drafted, "emitted": emitted, "drafts": drafts}
    totals = {"accepted": accepted, "drafted": drafted}
    summary = Numbers.of("since the server started", values, totals)
    if drafts and emitted >= drafts:
        summary.values["Mean acceptance length"] = emitted / drafts
    return summary


def _drafts(accepted: float, drafted: float, mean: object, rates: object) -> float:
    """Number of an interval's drafts, or about: all drafts as long as there are positions, where that fits the mean
    acceptance length; else by this length, and where nothing was accepted by the positions; nan where neither says.
    """
    if isinstance(mean, int | float) and mean > 1:
        if isinstance(rates, list) and rates and not drafted % len(rates):
            drafts = drafted / len(rates)
            if drafts and abs(1 + accepted / drafts - mean) <= 0.0051:
                return drafts
        return accepted / (mean - 1)
    if not accepted and isinstance(rates, list) and rates:
        return drafted / len(rates)
    return math.nan if drafted else 0.0


IMPORTER = Importer("vllm-log", "vLLM's log", read, order=20)
