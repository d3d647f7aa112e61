"""Runs by method: other servers' draft lengths replayed on them, and the method in batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from decoders.trace.load import Load
from decoders.trace.trace import Trace
from specviz.groups import group

from .batches import at_batches, break_even_curve, chain_numbers, for_sglang, for_vllm, tiers
from .policies import compare, costs_of, offers_of


def lengths_by_method(traces: Iterable[Trace], load: Load | None) -> list[dict[str, Any]]:
    """Per method: servers' draft lengths replayed on its runs, and it in batches where a ``load`` of its model was
    measured; ``why`` its runs cannot be replayed. Runs of given answers are left out.
    """
    unforced_runs = ((trace.run["method"], trace) for trace in traces if not trace.run.get("forced"))
    sets = group(
        ((method["name"], str(method.get("title") or method["name"])), trace) for method, trace in unforced_runs
    )
    summaries = []
    for (name, title), runs in sets.items():
        summary: dict[str, Any] = {"method": name, "title": title, "runs": len(runs)}
        summary |= {"policies": [], "batches": [], "tiers": None, "why": ""}
        try:
            if not any(any(trace.tables["steps"]["drafted"]) for trace in runs):
                raise ValueError("Nothing was drafted, so there is no length to choose.")
            summary["policies"] = [asdict(p) for p in compare([(offers_of(t), costs_of(t)) for t in runs])]
        except (ValueError, KeyError) as problem:
            summary["why"] = str(problem)
        if load is not None and all(t.run["model"].get("name") == load.model and t.output_ids for t in runs):
            summary["batches"], summary["tiers"] = _in_batches(runs, load), _best_lengths(runs, load)
        summaries.append(summary)
    return summaries


def _in_batches(runs: Sequence[Trace], load: Load) -> list[dict[str, Any]]:
    """The runs at each batch size, pooled: all tokens ÷ all seconds."""
    batch_rows, tokens = [at_batches(trace, load) for trace in runs], [len(trace.output_ids) for trace in runs]
    pooled = []
    for column in zip(*batch_rows, strict=True):
        speed, plain = (
            sum(tokens) / sum(n / getattr(at, key) for n, at in zip(tokens, column, strict=True))
            for key in ("tokens_per_s", "plain_tokens_per_s")
        )
        first = column[0]
        pooled.append({"batch": first.batch, "tokens_per_s": speed, "plain_tokens_per_s": plain,
                       "speedup": speed / plain, "measured": first.measured})  # fmt: skip
    return pooled


def _best_lengths(runs: Sequence[Trace], load: Load) -> dict[str, Any] | None:
    """Chains with the runs' α and c: the best length per batch size, as servers take it too, and the acceptance from
    which lengths pay; None where nothing was drafted.
    """
    try:
        alpha, cost = chain_numbers(runs, load)
    except ValueError:
        return None
    table = tiers(load, alpha, cost)
    return {
        "alpha": alpha, "cost": cost, "best": [asdict(tier) for tier in table], "measured_to": load.batches[-1],
        "curve": [{"batch": batch, "alpha": line} for batch, line in break_even_curve(load, cost).items()],
        "vllm": for_vllm(table), "sglang": for_sglang(table),
    }  # fmt: skip
