"""Runs pooled by method: acceptance by every definition, and each confidence's reliability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decoders.trace.acceptance import DEFINITIONS, Acceptance
from decoders.trace.metrics import draft_cost, ratio
from decoders.trace.reliability import Signal, outcomes, pooled, signals
from decoders.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Counted:
    """One run's part in any set: its sums, and what it told with what came of that."""

    group: tuple[str, str, bool]  # its method: name, title, lossless
    acceptance: Acceptance
    told: dict[Signal, tuple[np.ndarray, np.ndarray]]
    draft_cost: float | None
    earlier: bool  # its one-row time was measured behind another run, or where is not recorded
    forced: bool = False  # it wrote a given answer, which says nothing of the method's own acceptance

    @classmethod
    def of(cls, trace: Trace) -> Counted:
        method = trace.run["method"]
        group = method["name"], str(method.get("title") or method["name"]), bool(method.get("lossless", True))
        told = {signal: outcomes(trace, signal) for signal in signals([trace])}
        row = trace.run.get("one_row")
        earlier = not isinstance(row, dict) or row.get("run") != trace.run.get("id")
        return cls(group, Acceptance.of(trace), told, draft_cost(trace), earlier, bool(trace.run.get("forced")))


def pooled_by_method(runs: Iterable[Counted]) -> list[dict[str, Any]]:
    """A set per method, in the order of its first run, each with a title of its own; runs of given answers are left
    out.
    """
    sets: dict[tuple[str, str, bool], list[Counted]] = {}
    for run in runs:
        if not run.forced:
            sets.setdefault(run.group, []).append(run)
    titles = Counter(title for _, title, _ in sets)
    return [
        _pooled(name, title if titles[title] == 1 or lossless else f"{title} (lossy)", lossless, several)
        for (name, title, lossless), several in sets.items()
    ]


def _pooled(name: str, title: str, lossless: bool, runs: Sequence[Counted]) -> dict[str, Any]:
    """One method's runs, pooled and each."""
    total = Acceptance()
    for run in runs:
        total += run.acceptance
    made = total.to_json()
    numbers = {key: "–" if value is None else _plain(value) for key, value in made["parts"].items()}
    worked = {one.key: one.worked.format(**numbers) for one in DEFINITIONS if made["pooled"][one.key] is not None}
    costs = [run.draft_cost for run in runs if run.draft_cost is not None]
    apart = sum(run.earlier for run in runs if run.draft_cost is not None)
    return {
        **made, "method": name, "title": title, "lossless": lossless, "worked": worked,
        "draft_cost": ratio(sum(costs), len(costs)), "costs": len(costs), "costs_apart": apart,
        "calibration": list(_calibrations(runs)),
    }  # fmt: skip


def _calibrations(runs: Sequence[Counted]) -> Iterator[dict[str, Any]]:
    for signal in dict.fromkeys(signal for run in runs for signal in run.told):
        parts = [run.told[signal] for run in runs if signal in run.told]
        if any(len(told) for told, _ in parts):
            yield pooled(parts, signal).to_json(signal)


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
