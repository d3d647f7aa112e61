"""Quantities that experiments draw: every metric of a run, a few more numbers, and breakdowns into shares or parts.

A quantity is one number per run; a breakdown is a handful of them that belong together (the shares of a run's steps by
outcome, say), kept in the columns ``breakdown:part``; a profile is amounts along something inside a run (confidence,
depth, training step), kept in the columns ``profile:place/part`` and added up over runs before they are divided.
Their names and formulas stand in ``quantities.toml``.
"""

from __future__ import annotations

import difflib
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from decoders.errors import UserError
from decoders.trace import metrics
from decoders.trace.acceptance import DEFINITIONS
from decoders.trace.branches import second_branches
from decoders.trace.metrics import ratio
from decoders.trace.origins import MAIN
from decoders.trace.speedup import expected_speedup
from decoders.trace.trace import Trace

EDIT_TASKS = ("code_edit", "code", "repobench-p", "lcc")
SUMMARY_TASKS = ("summary", "summarization", "text_edit", "multi_news", "gov_report")
LONG = 5  # accepted lengths of so many tokens and more are one class


@dataclass(frozen=True, slots=True, kw_only=True)
class _Label:
    """The heading, unit and help of anything that can be drawn."""

    key: str
    label: str
    formula: str
    unit: str
    help: str
    needs_reference: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity(_Label):
    """One number per run; ``of`` gives it from a trace and its task (None: it is not defined for that run)."""

    of: Callable[[Trace, str], float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown(_Label):
    """Numbers per run that belong together, by part; ``whole`` says that they are shares of one whole."""

    of: Callable[[Trace], Mapping[str, float]]
    parts: tuple[str, ...] = ()  # in the order they are drawn; others follow
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(_Label):
    """Amounts per run, by place along something inside it (``along``) and by part.

    ``whole``: the parts are shares of what was counted at a place. Otherwise there are two, ``TOTAL`` and ``COUNT``,
    and their ratio is drawn as a curve; ``counted``: with the counts under it, which are of ``things``; ``tenths``: the
    places are tenths of a probability, and the diagonal is drawn. ``of`` gives {place: {part: amount}} from a trace
    (None: the amounts come from elsewhere).
    """

    along: str
    of: Callable[[Trace], Mapping[str, Mapping[str, float]]] | None = None
    parts: tuple[str, ...] = ()  # in the order they are drawn
    whole: bool = False
    counted: bool = False
    things: str = "tokens"
    tenths: bool = False


TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))  # label, formula, unit, help
TOTAL, COUNT = "total", "count"
TIME_UNITS = ("ms", "tokens/s", "×")  # units that depend on the machine's state


def _quality(trace: Trace, category: str) -> float | None:
    """The metric its papers score a task with: edit similarity of code, ROUGE-L of texts, F1 of answers."""
    kind = "edit" if category in EDIT_TASKS else "rouge_l" if category in SUMMARY_TASKS else "f1"
    return trace.run.get("metrics", {}).get(f"quality_{kind}")


def _branch_fraction(trace: Trace, _: str) -> float | None:
    winners = _win_columns(trace)
    return ratio(sum("branch" in origin for origin in winners), len(winners))


def _win_columns(trace: Trace) -> list[str]:
    return [origin for origin in trace.tables["steps"]["origins"] if origin]


def _reuse_length(trace: Trace, _: str) -> float | None:
    lengths = [length for length in metrics.accepted_lengths(trace) if length]
    return ratio(sum(lengths), len(lengths))


def _recovery(trace: Trace, _: str) -> float | None:
    routes = Counter(metrics.routes(trace))
    return ratio(routes["semantic"], routes["semantic"] + routes["none"])


def _kept_context(trace: Trace, _: str) -> float | None:
    numbers = trace.run.get("compression") or {}
    return ratio(numbers.get("kept_tokens"), numbers.get("context_tokens"))


def _expected_speedup(trace: Trace, _: str) -> float | None:
    values, gamma = trace.run.get("metrics", {}), trace.run["method"].get("params", {}).get("gamma")
    beta, cost = values.get("beta"), values.get("draft_cost")
    if beta is None or cost is None or not isinstance(gamma, int) or not metrics.one_forward_per_token(trace):
        return None
    return expected_speedup(beta, cost, gamma)


def _draft_sizes(trace: Trace) -> list[int]:
    return trace.tables["steps"]["drafted"]


def _rows_read(trace: Trace) -> list[int]:
    """Rows of every step's verify forward: root, drafted tokens and prompt tokens."""
    probes = trace.tables["probes"]
    read = Counter(step for step, kind in zip(probes["step"], probes["kind"], strict=True) if kind != "joint")
    return [1 + drafted + read[step] for step, drafted in enumerate(_draft_sizes(trace))]


EXTRA: tuple[Quantity, ...] = tuple(
    Quantity(key=key, **TEXTS[key], of=of)
    for key, of in {
        "quality": _quality, "reuse_rate": lambda trace, _: ratio(len(_win_columns(trace)), trace.rows("steps")),
        "branch_fraction": _branch_fraction, "reuse_length": _reuse_length, "semantic_recovery": _recovery,
        "kept_context": _kept_context, "expected_speedup": _expected_speedup,
        "tree_size": lambda trace, _: ratio(sum(trace.tables["steps"]["drafted"]), trace.rows("steps")),
        "input_rows": lambda trace, _: ratio(sum(_rows_read(trace)), trace.rows("steps")),
    }.items()
)  # fmt: skip


def part_name(part: str) -> str:
    """A breakdown's part as a reader would say it.

    >>> part_name("main"), part_name("lexical")
    ('chosen copy', 'lexical')
    """
    return MAIN.label if part == MAIN.name else part


OUTCOMES = ("main", "branch", "branch+successor", "mismatch", "none")  # AdaPLD, fig. 4
ROUTES = ("lexical", "semantic", "none")


def _shares(counts: Mapping[str, int], parts: Sequence[str] = ()) -> dict[str, float]:
    """Each part of the whole; of ``parts`` also those that did not occur, so that a mean over runs counts their 0."""
    total = sum(counts.values())
    return {part: counts.get(part, 0) / total for part in dict.fromkeys([*parts, *counts])} if total else {}


def _lengths(trace: Trace) -> dict[str, float]:
    counts = Counter(min(length, LONG) for length in metrics.accepted_lengths(trace) if length)
    return _shares({str(n) if n < LONG else f"{LONG}+": counts[n] for n in range(1, LONG + 1)})


def _times(trace: Trace) -> dict[str, float]:
    steps, count = trace.tables["steps"], trace.rows("steps")
    if not count:
        return {}
    parts = {key.removesuffix("_ms"): steps[f"term:{key}"] for key in metrics.step_term_shares(trace)}
    parts = {"verify": steps["verify_ms"], **(parts or {"draft": steps["draft_ms"]})}
    return {part: sum(v for v in values if v is not None) / count for part, values in parts.items()}


def _times_where_run(trace: Trace) -> dict[str, float]:
    """Of the steps in which a part of drafting took any time: what it took there on average."""
    steps, parts = trace.tables["steps"], {}
    for key in metrics.step_term_shares(trace):
        durations = [value for value in steps[f"term:{key}"] if value]
        if durations:
            parts[key.removesuffix("_ms")] = sum(durations) / len(durations)
    return parts


def _cost(trace: Trace) -> dict[str, float]:
    times = _times(trace)
    verify = times.pop("verify", 0.0)
    return {part: value / verify for part, value in times.items()} if verify else {}


BREAKDOWNS: tuple[Breakdown, ...] = tuple(
    Breakdown(key=key, **TEXTS[key], of=of, parts=parts)
    for key, of, parts in (
        ("outcomes", lambda trace: _shares(metrics.outcomes(trace), OUTCOMES), OUTCOMES),
        ("routes", lambda trace: _shares(metrics.routes(trace), ROUTES), ROUTES),
        ("lengths", _lengths, ("1", "2", "3", "4", f"{LONG}+")),
        ("times", _times, ("verify",)),
        ("triggered", _times_where_run, ()),
        ("cost", _cost, ()),
    )
)

RANKS = (("rank 1", 1), ("rank 2", 2), ("rank 3", 3), ("rank 4 to 8", 8))  # the last rank that belongs to it
LAST_CLASS = "beyond 8"
STATE = "term:state"  # of a step: prompt tokens that the last accepted node had


def _confidence(trace: Trace) -> dict[str, dict[str, float]]:
    return {
        f"{(tenth + 0.5) / 10:g}": {TOTAL: accepted, COUNT: drafted}
        for tenth, drafted, accepted in metrics.confidence_bins(trace)
    }


def _ranks(trace: Trace) -> dict[str, dict[str, float]]:
    ranks: dict[str, dict[str, float]] = {}
    for (depth, rank), count in metrics.target_ranks(trace).items():
        parts = ranks.setdefault(str(depth), {part: 0.0 for part in (*(name for name, _ in RANKS), LAST_CLASS)})
        parts[next((name for name, last in RANKS if rank < last), LAST_CLASS)] += count
    return ranks


def _by_depth(trace: Trace) -> dict[str, dict[str, float]]:
    return {
        str(depth): {TOTAL: accepted_count, COUNT: trials}
        for depth, trials, accepted_count in metrics.acceptance_by_depth(trace)
    }


def _second_branch(trace: Trace) -> dict[str, dict[str, float]]:
    counts = second_branches(trace)
    amounts = ((counts.sibling, counts.misses), (counts.child, counts.sibling))
    return {str(place): {TOTAL: stood, COUNT: total} for place, (stood, total) in enumerate(amounts, 1) if total}


def _by_state(trace: Trace, rows: Sequence[int]) -> dict[str, dict[str, float]]:
    """An amount of every step of PPD's by the state of its tree; empty for any other method."""
    amounts: dict[str, dict[str, float]] = {}
    for state, count in zip(trace.tables["steps"].get(STATE, ()), rows, strict=False):
        if state is not None:
            parts = amounts.setdefault(f"{state:g}", {TOTAL: 0.0, COUNT: 0.0})
            parts[TOTAL] += count
            parts[COUNT] += 1
    return dict(sorted(amounts.items()))


LEARNING, LOSS = LEARNT = ("learning", "loss")  # from a training's log
PROFILES: tuple[Profile, ...] = (
    Profile(key="confidence", **TEXTS["confidence"], of=_confidence, tenths=True),
    Profile(key="by_depth", **TEXTS["by_depth"], of=_by_depth, things="positions"),
    Profile(key="second_branch", **TEXTS["second_branch"], of=_second_branch, things="times"),
    Profile(key="ranks", **TEXTS["ranks"], of=_ranks, parts=(*(name for name, _ in RANKS), LAST_CLASS)),
    Profile(key="tree_by_state", **TEXTS["tree_by_state"], of=lambda trace: _by_state(trace, _draft_sizes(trace))),
    Profile(key="input_by_state", **TEXTS["input_by_state"], of=lambda trace: _by_state(trace, _rows_read(trace))),
    Profile(key=LEARNING, **TEXTS[LEARNING]),
    Profile(key=LOSS, **TEXTS[LOSS]),
)

_METRICS = (
    Quantity(**metric, needs_reference=metric["key"].startswith("quality_")) for metric in metrics.metric_help()
)
QUANTITIES: dict[str, Quantity | Breakdown | Profile] = {
    quantity.key: quantity for quantity in (*_METRICS, *EXTRA, *BREAKDOWNS, *PROFILES)
}


def _of_column(name: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda row: row.get(name)


def _reuse_steps(row: Mapping[str, Any]) -> float | None:
    rate, steps = row.get("reuse_rate"), row.get("steps")
    return None if rate is None or steps is None else rate * steps


def _unmatched_steps(row: Mapping[str, Any]) -> float | None:
    """Steps without a lexical hit."""
    shares, steps = [row.get(f"routes:{route}") for route in ("semantic", "none")], row.get("steps")
    return None if steps is None or all(share is None for share in shares) else steps * sum(s or 0.0 for s in shares)


# quotients of counts, which are pooled over runs (Σ ÷ Σ): what each run's own value was divided by
POOLED: dict[str, Callable[[Mapping[str, Any]], float | None]] = {
    **dict.fromkeys(
        ("tokens_per_step", "tree_size", "input_rows", "reuse_rate", "outcomes", "routes"), _of_column("steps")
    ),
    **dict.fromkeys(("branch_fraction", "reuse_length", "lengths"), _reuse_steps),
    "draft_efficiency": _of_column("drafted"), "copied_share": _of_column("tokens"),
    "semantic_recovery": _unmatched_steps,
}  # fmt: skip
WEIGHTS = ("tokens", "steps", "drafted", "reuse_rate", "routes:semantic", "routes:none")  # columns that these read
_DEFINED = {definition.key: definition for definition in DEFINITIONS}
DEFINED = {"tokens_per_step": _DEFINED["tokens_per_step"], "draft_efficiency": _DEFINED["draft_acceptance"]}


def _quotients(rows: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    """The values of a quotient of counts with what each was divided by; empty where that is not known of every run."""
    weigh = POOLED.get(key.partition(":")[0])
    valued_rows = [row for row in rows if row.get(key) is not None]
    weights = [weigh(row) if weigh else None for row in valued_rows]
    return (
        [] if None in weights else [(row[key], weight or 0.0) for row, weight in zip(valued_rows, weights, strict=True)]
    )


def pool(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """A quotient of several runs together, Σ ÷ Σ: the mean of its values by what each was divided by. None for any
    other quantity, and where a run's divisor is not known.

    >>> rows = [{"tokens_per_step": 3.0, "steps": 10.0}, {"tokens_per_step": 1.0, "steps": 30.0}]
    >>> pool(rows, "tokens_per_step"), pool(rows, "speedup")
    (1.5, None)
    """
    pairs = _quotients(rows, key)
    return ratio(sum(value * weight for value, weight in pairs), sum(weight for _, weight in pairs))


def number_of(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """The one number of several runs: pooled where that is defined (``pool``), else the mean; None of no values.

    >>> rows = [{"tokens_per_step": 3.0, "steps": 10.0, "ms": 3.0}, {"tokens_per_step": 1.0, "steps": 30.0, "ms": 1.0}]
    >>> number_of(rows, "tokens_per_step"), number_of(rows, "ms"), number_of(rows, "speedup")
    (1.5, 2.0, None)
    """
    pooled = pool(rows, key)
    values = [row[key] for row in rows if row.get(key) is not None]
    return pooled if pooled is not None else fmean(values) if values else None


def amounts_of(rows: Sequence[Mapping[str, Any]], key: str, is_pooled: bool) -> list[tuple[float, float]]:
    """Each run's share in ``number_of``, which is Σ amounts ÷ Σ divisors; of a mean every divisor is 1."""
    if is_pooled:
        return [(value * weight, weight) for value, weight in _quotients(rows, key)]
    return [(row[key], 1.0) for row in rows if row.get(key) is not None]


def pooled_error(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """The standard error of a pooled quotient R = Σ aᵢ ÷ Σ bᵢ, runs drawn: √(n ÷ (n − 1) · Σ (aᵢ − R bᵢ)²) ÷ Σ bᵢ. None
    for fewer than two runs.

    >>> round(pooled_error([{"tokens_per_step": 3.0, "steps": 10.0}, {"tokens_per_step": 1.0, "steps": 30.0}],
    ...     "tokens_per_step"), 3)
    0.75
    """
    pairs, pooled = _quotients(rows, key), pool(rows, key)
    if pooled is None or len(pairs) < 2:
        return None
    deviation = sum(((value - pooled) * weight) ** 2 for value, weight in pairs)
    return (len(pairs) / (len(pairs) - 1) * deviation) ** 0.5 / sum(weight for _, weight in pairs)


def find_quantity(key: str, own_quantities: Sequence[Quantity] = ()) -> Quantity | Breakdown | Profile:
    """A quantity by key, or one of an experiment's ``own_quantities``. Raises UserError naming those there are."""
    registry = {**QUANTITIES, **{quantity.key: quantity for quantity in own_quantities}}
    if key not in registry:
        raise UserError(f"there is no metric {key!r}{near(key, registry)}: choose one of {', '.join(registry)}")
    return registry[key]


def near(name: str, names: Mapping[str, Any]) -> str:
    """ ", did you mean …?", or nothing.

    >>> near("adapld-fig11", {"adapld-fig1": 0})
    ' (did you mean adapld-fig1?)'
    """
    close = difflib.get_close_matches(str(name), names, 1, 0.7)
    return f" (did you mean {close[0]}?)" if close else ""


def needs_clock(quantity: Quantity | Breakdown | Profile) -> bool:
    """True where the machine's state matters to it."""
    return quantity.unit in TIME_UNITS or (isinstance(quantity, Breakdown) and not quantity.whole)


def measure(trace: Trace, category: str = "", plain_tokens_per_s: float | None = None) -> dict[str, float | None]:
    """Every quantity of a finished run by column: ``tokens_per_step``, …, ``outcomes:main``, …"""
    values: dict[str, float | None] = dict(metrics.compute(trace, plain_tokens_per_s))
    trace.run["metrics"] = {**(trace.run.get("metrics") or {}), **values}
    for quantity in EXTRA:
        assert quantity.of is not None
        values[quantity.key] = quantity.of(trace, category)
    for breakdown in BREAKDOWNS:
        values |= {f"{breakdown.key}:{part}": value for part, value in breakdown.of(trace).items()}
    for profile in PROFILES:
        if profile.of is not None:
            values |= columns_of_profile(profile.key, profile.of(trace))
    return values


def columns_of_profile(key: str, amounts: Mapping[str, Mapping[str, float]]) -> dict[str, float | None]:
    """Amounts by place and part as columns of a row.

    >>> columns_of_profile("ranks", {"1": {"rank 1": 3.0}})
    {'ranks:1/rank 1': 3.0}
    """
    return {f"{key}:{place}/{part}": value for place, parts in amounts.items() for part, value in parts.items()}


def learning(log: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """The columns of a training's log: a draft model's acceptance per step, or prompt tokens' held-out loss."""
    key, name = (LEARNING, "acceptance") if log and "acceptance" in log[0] else (LOSS, "held_out_loss")
    return columns_of_profile(key, {str(at["step"]): {TOTAL: at[name], COUNT: 1} for at in log})


def parts_of(breakdown: Breakdown, columns: list[str]) -> list[str]:
    """The parts of a breakdown that a frame's columns have, in the order they are drawn.

    >>> parts_of(QUANTITIES["routes"], ["routes:none", "tokens", "routes:filtered", "routes:lexical"])
    ['lexical', 'none', 'filtered']
    """
    part_names = [c.split(":", 1)[1] for c in columns if c.startswith(f"{breakdown.key}:")]
    parts = [part for part in breakdown.parts if part in part_names]
    return parts + [part for part in part_names if part not in parts]
