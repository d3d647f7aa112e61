"""Runs pooled by method: acceptance by every definition, and each confidence's reliability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decoders.errors import UserError
from decoders.importers.importer import ImportResult
from decoders.trace.acceptance import DEFINITIONS, Acceptance, AcceptanceSums
from decoders.trace.baseline import asked_prompt
from decoders.trace.metrics import draft_cost, ratio
from decoders.trace.reliability import Signal, outcomes, pool_runs, signals
from decoders.trace.trace import Trace
from specviz.groups import group


@dataclass(frozen=True, slots=True)
class SetCounts:
    """One run's part in any set: its sums, and what it told with what came of that."""

    group: tuple[str, str, bool]  # its method: name, title, lossless
    acceptance: Acceptance
    signal_values: dict[Signal, tuple[np.ndarray, np.ndarray]]
    draft_cost: float | None
    is_earlier: bool  # its one-row time was measured behind another run, or where is not recorded
    forced: bool = False  # it wrote a given answer, which says nothing of the method's own acceptance
    prompt: Any = None  # the same for runs of one prompt; None for a server's totals

    @classmethod
    def of(cls, trace: Trace, by: str | None = None) -> SetCounts:
        """Of a run; ``by`` "cached" puts runs whose prompt a server had cached apart from the others."""
        method = trace.run["method"]
        title = str(method.get("title") or method["name"])
        title += f", {cached_words(trace)}" if by == "cached" else ""
        group = method["name"], title, bool(method.get("lossless", True))
        outcomes_by_signal = {signal: outcomes(trace, signal) for signal in signals([trace])}
        row = trace.run.get("one_row")
        is_earlier = not isinstance(row, dict) or row.get("run") != trace.run.get("id")
        return cls(
            group,
            Acceptance.of(trace),
            outcomes_by_signal,
            draft_cost(trace),
            is_earlier,
            bool(trace.run.get("forced")),
            asked_prompt(trace),
        )

    @classmethod
    def of_totals(cls, title: str, totals: Mapping[str, Any]) -> SetCounts:
        """Of a server's totals of many requests, which have no steps."""
        sums = AcceptanceSums.of_totals(totals)
        return cls(("imported", title, True), Acceptance(sums, [sums]), {}, None, False)


def counts_of_log(log: ImportResult, by: str | None = None) -> list[SetCounts]:
    """Counts of a server's file: of each request in it, and of its totals of many. Raises UserError where it has
    neither.
    """
    requests = [SetCounts.of(trace, by) for trace in log.traces]
    totals = [SetCounts.of_totals(log.title, numbers.totals) for numbers in log.numbers if numbers.totals]
    if not requests and not totals:
        raise UserError(f"{log.title} gives rates and no counts, so that nothing can be pooled")
    return requests + totals


def cached_words(trace: Trace) -> str:
    """State of the server's prefix cache at a run, in words: its count of the prompt's cached tokens."""
    cached = ((trace.run.get("imported") or {}).get("totals") or {}).get("cached")
    return "cached tokens not told" if cached is None else "some of the prompt cached" if cached else "none cached"


def pooled_by_method(runs: Iterable[SetCounts]) -> list[dict[str, Any]]:
    """A set per method, most tokens per step first, each with an own title; runs of given answers are left out."""
    sets = group((run.group, run) for run in runs if not run.forced)
    titles = Counter(title for _, title, _ in sets)
    pooled_sets = [
        _pool(name, title if titles[title] == 1 or lossless else f"{title} (lossy)", lossless, several)
        for (name, title, lossless), several in sets.items()
    ]
    return sorted(pooled_sets, key=lambda entry: entry["pooled"]["tokens_per_step"] or 0, reverse=True)


def _pool(name: str, title: str, lossless: bool, runs: Sequence[SetCounts]) -> dict[str, Any]:
    """One method's runs, pooled and each."""
    total = Acceptance()
    for run in runs:
        total += run.acceptance
    pooled = total.to_json()
    numbers = {key: "–" if value is None else _plain(value) for key, value in pooled["parts"].items()}
    workings = {
        definition.key: definition.worked.format(**numbers)
        for definition in DEFINITIONS
        if pooled["pooled"][definition.key] is not None
    }
    costs = [run.draft_cost for run in runs if run.draft_cost is not None]
    separate_costs = sum(run.is_earlier for run in runs if run.draft_cost is not None)
    return {
        **pooled, "method": name, "title": title, "lossless": lossless, "worked": workings,
        "draft_cost": ratio(sum(costs), len(costs)), "costs": len(costs), "costs_apart": separate_costs,
        "calibration": _calibrations(runs),
    }  # fmt: skip


def _calibrations(runs: Sequence[SetCounts]) -> list[dict[str, Any]]:
    """Each confidence's reliability; confidences of the same numbers, as q and a chain's ``confidence``, are one."""
    names = {name: "" for name in ("key", "label", "help")}
    entries: list[dict[str, Any]] = []
    for entry in _reliabilities(runs):
        twin = next((twin for twin in entries if {**twin, **names} == {**entry, **names}), None)
        if twin is None:
            entries.append(entry)
        else:
            twin["label"] += f" = {entry['label']}"
    return entries


def _reliabilities(runs: Sequence[SetCounts]) -> Iterator[dict[str, Any]]:
    for signal in dict.fromkeys(signal for run in runs for signal in run.signal_values):
        parts = [run.signal_values[signal] for run in runs if signal in run.signal_values]
        if any(len(confidences) for confidences, _ in parts):
            yield pool_runs(parts, signal).to_json(signal)


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
