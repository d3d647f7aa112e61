"""MLC-LLM: the engine's metrics, as ``GET /metrics`` and ``usage.extra`` of a request for them give them.

cpp/serve/metrics.h, SpecDecodeMetrics: ``spec_decode.draft_count`` and ``accept_count`` per position, of which position
0 is the target's own token, in every step: a step counts as accepted there always. ``accept_prob{step=i}``,
``accept_rate{…}`` and ``accept_len{…}`` are quotients of these two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decoders.importers.importer import Contents, Importer, Numbers
from decoders.importers.source import LogSource
from decoders.importers.values import numbers

FIELDS = frozenset(("draft_count", "accept_count", "accept_prob", "accept_rate", "accept_len"))


def read(source: LogSource) -> Contents | None:
    """The counts of each document."""
    if "accept_count" not in source.text:
        return None
    contents = Contents()
    for document in source.documents:
        for counts in _counts(document.value, 0):
            drafted, accepted = numbers(counts.get("draft_count")), numbers(counts.get("accept_count"))
            if not drafted or not accepted or len(drafted) != len(accepted) or accepted[0] > drafted[0]:
                contents.unread += 1
                continue
            steps, tokens = drafted[0], sum(accepted)
            totals = {"tokens": tokens, "steps": steps, "drafts": steps, "drafted": sum(drafted[1:]),
                      "accepted": sum(accepted[1:])}  # fmt: skip
            fields: dict[str, Any] = {"draft_count": drafted, "accept_count": accepted}
            if steps:
                fields["acceptance by position (of all drafts)"] = [count / steps for count in accepted[1:]]
            contents.numbers.append(Numbers.of(f"the engine{f', {n + 1}' if (n := len(contents.numbers)) else ''}",
                                               fields, totals))  # fmt: skip
    return contents if contents.numbers else None


def _counts(value: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    if "draft_count" in value and "accept_count" in value:
        yield value
    elif depth < 5:
        for inner in value.values():
            if isinstance(inner, dict):
                yield from _counts(inner, depth + 1)


IMPORTER = Importer("mlc", "MLC-LLM", read, order=13, fields=FIELDS)
