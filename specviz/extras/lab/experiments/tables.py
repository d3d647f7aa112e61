"""A batch as the papers print it: a table of tasks × methods per metric, on the page and in files (``result_table``).

A cell is the mean over the prompts of its task, or, of a quotient whose parts are known (``pool``), of all their
steps together; where the metric is timed, it is the mean of each prompt's median over the repeats, and the range beside
it is the same mean of their quartiles. A prompt's measurement is disturbed where its quartiles lie
far apart, and where it says more than can be: a speedup above the tokens per step. The second kind is left out, and
neither is marked as best; nor is a number whose range meets another's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from decoders.errors import UserError
from decoders.model.files.catalog import precision_of
from decoders.sweep.timing import MAX_RETRIES, TIMED_METRICS, WIDEST, Timing, spot, timings
from specviz.groups import group
from specviz.views.prompts import ALL_TASKS, NAMES
from specviz.words import column, plural, with_unit

from .experiment import Row
from .quantities import DEFINED, Quantity, pool
from .result_table import TableEntry
from .results import SCHEMA, Results, openable_runs, points

OVERALL = "overall"
Form = Callable[[float | None], str]
BETTER = {  # 1: the highest is the best, -1: the lowest; in other tables none is marked
    "tokens_per_step": 1, "tokens_per_s": 1, "speedup": 1, "draft_efficiency": 1, "beta": 1, "reuse_rate": 1,
    "quality": 1, "quality_f1": 1, "quality_rouge_l": 1, "quality_edit": 1, "steps": -1, "prefill_ms": -1,
    "prepare_ms": -1, "kv_mb": -1,
}  # fmt: skip
# known without recorded runs
TIMING_COLUMNS = ("tokens", "steps", "accepted", "tokens_per_step", "tokens_per_s", "speedup")
BUG = "bug"  # the verdict on a lossless method's output that the target would not have written
VERSIONS = ("python", "torch", "transformers", "specviz")


@dataclass(frozen=True, slots=True)
class Mean:
    """Of several prompts' timings; None where there is no value, or (``low``, ``high``) no repeat."""

    mean: float | None
    low: float | None
    high: float | None
    count: int
    disturbed: int


@dataclass(frozen=True, slots=True)
class TableCell(Mean):
    """One method on one task. ``text`` and ``spread`` are what is shown of ``mean``, ``low`` and ``high``; ``count``
    values are in them, of ``prompts`` prompts; ``disturbed`` of these; ``best`` of its row.
    """

    text: str
    spread: str
    prompts: int
    failed: int
    best: bool
    partly: str
    runs: tuple[Mapping[str, str], ...]

    @property
    def entry(self) -> TableEntry:
        """As a cell of a table of results."""
        return TableEntry(self.text, self.spread, self.partly and f" ({self.partly})", self.best, bool(self.disturbed))


@dataclass(frozen=True, slots=True)
class TableLine:
    """A row of a table: a task and its cells, one per column; ``prompts`` it has in all."""

    task: str
    name: str
    prompts: int
    cells: tuple[TableCell, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """A column's outputs against plain decoding's: ``same`` of ``checked`` are equal. ``runs`` of the others say where
    they differ (``at``, an output token's number from 0) and the verdict; ``bugs`` counts those that must not be.
    """

    name: str
    lossy: bool
    checked: int
    same: int
    bugs: int
    runs: tuple[Mapping[str, Any], ...]

    @property
    def text(self) -> str:
        """As in "12/12", "9/12, 3 DIFFER"."""
        if not self.checked:
            return "–"
        return f"{self.same}/{self.checked}" + (f", {self.bugs} DIFFER" if self.bugs else "")


@dataclass(frozen=True, slots=True)
class BatchTable:
    """One metric: tasks × methods."""

    metric: str
    label: str
    unit: str
    formula: str
    columns: tuple[str, ...]
    lines: tuple[TableLine, ...]
    counts: str = "prompts"  # or "turns", where prompts have several
    pooled: bool = False  # cells are Σ ÷ Σ over their prompts, not means

    @property
    def title(self) -> str:
        return with_unit(self.label, self.unit)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "title": self.title}


def tables(
    results: Results, metrics: Sequence[str] | None = None, titles: Mapping[str, str] = NAMES
) -> list[BatchTable]:
    """A table per metric, those of the experiment unless others are named; categories of one name in ``titles`` are one
    line. Raises UserError for a metric that is no number per run.
    """
    faulty_lines = {check.name for check in checks(results) if check.bugs}
    return [_table(results, key, faulty_lines, titles) for key in metrics or results.about["metrics"]]


def describe(results: Results) -> dict[str, Any]:
    """All of the results as JSON: what they are, the tables of a batch or the points of a chart, the runs."""
    rows = [{k: v for k, v in row.items() if v is not None} for row in results.rows]
    batch = bool(results.about.get("repeats"))
    content = {"tables": [t.to_json() for t in tables(results)]} if batch else {"points": list(points(results))}
    return {"schema": SCHEMA, **results.about, **content, "rows": rows}


def checks(results: Results) -> list[Check]:
    """Every column's outputs against plain decoding's."""
    about = results.about
    opens = {(row["series"], spot(row)): row["trace"] for row in results.rows if row.get("trace")}
    check_list = []
    for name in columns_of(results):
        rows = [row for row in results.rows if row["series"] == name and row.get("same") is not None]
        differing = [row for row in rows if not row["same"]]
        runs = tuple(
            {
                "trace": opens.get((name, spot(row)), ""), "prompt": row["prompt"], "category": row["category"],
                "at": None if row.get("differs_at") is None else int(row["differs_at"]),
                "verdict": row.get("verdict") or "", "repeat": int(row.get("repeat") or 1),
            }
            for row in differing
        )  # fmt: skip
        bugs = sum(run["verdict"] == BUG for run in runs)
        check_list.append(Check(name, name in about.get("lossy", ()), len(rows), len(rows) - len(runs), bugs, runs))
    return check_list


def warnings(results: Results) -> list[str]:
    """Warnings above the tables: methods that are lossless and wrote something else than plain decoding."""
    sentences = []
    for check in checks(results):
        if check.bugs:
            wrong = [run for run in check.runs if run["verdict"] == BUG]
            places = list(dict.fromkeys(f"{run['prompt']} (token {run['at']})" for run in wrong))
            remainder = f" and {len(places) - 3} more prompts" if len(places) > 3 else ""
            sentences.append(
                f"{check.name} must not change the output, and {check.bugs} of {check.checked} outputs are not plain "
                f"decoding's: {', '.join(places[:3])}{remainder}. This is a fault, so its numbers are never marked as "
                "best; "
                "specviz verify says more."
            )
    return sentences


def notes(results: Results) -> list[str]:
    """Notes for reading the tables: one sentence per line."""
    about = results.about
    model, machine, repeats = about["model"], about.get("machine", {}), int(about.get("repeats") or 1)
    size = f" ({model['parameters'] / 1e6:,.0f} M parameters)" if model.get("parameters") else ""
    place = machine.get("gpu") if str(model.get("device", "cpu")) != "cpu" else None
    if not place:
        threads = machine.get("torch_threads", "?")
        place = f"{machine.get('processor', 'CPU')}, {machine.get('cores', '?')} cores, {threads} of them used"
    versions = ", ".join(f"{name} {machine[name]}" for name in VERSIONS if machine.get(name))
    prompts, temperature = len({row.get("place") for row in results.rows}), float(about.get("temperature") or 0)
    turns = len({spot(row) for row in results.rows})
    several = f" in {plural(turns, 'turn')}" if turns > prompts else ""
    drawing = f"temperature {temperature:g}" if temperature else "greedy"
    run_limits = f"at most {about['max_new_tokens']} new tokens, {drawing}, batch size 1 (one request at a time)"
    setup = f"{plural(prompts, 'prompt')}{several}{_source(about)}, {run_limits}"
    spread = (
        f"{plural(repeats, 'repeat')}, the methods in turn: medians, with quartiles between the repeats"
        if repeats > 1
        else "1 repeat: nothing is known of the spread (more repeats show it)"
    )
    lossy = [check.name for check in checks(results) if check.lossy]
    if several:
        setup += "; a further turn follows plain decoding's answer to the one before, and each turn counts as a prompt"
    sentences = [
        f"{model.get('name') or 'model'}{size}, {precision_of(model)} on {place}; {versions}; {about['created'][:10]}.",
        f"{setup}; {spread}.",
        "Speed and speedup are of runs that were not recorded, without reading the prompt and preparing to draft; a "
        "speedup is formed between runs of the same prompt in the same repeat. What else is counted is the same in "
        "every repeat.",
        "Tokens per step (accepted length τ, MAT) are pooled: Σ tokens ÷ Σ steps of all prompts of a cell. Speeds and "
        "speedups are means over them.",
    ]
    if disturbances := sum(
        bool(timing.is_disturbed) for key in TIMED_METRICS for timing in timings(results.rows, key).values()
    ):
        has_repeats = any(int(row.get("repeat") or 1) > repeats for row in results.rows)
        disturbance = f"still disturbed after {plural(MAX_RETRIES, 'more turn')}" if has_repeats else "disturbed"
        sentences.append(
            f"‡ {plural(disturbances, 'measurement')} {disturbance}: quartiles more than {WIDEST:.0%} of the median "
            "apart, or "
            "a speedup above the tokens per step, which cannot be and is left out."
        )
    if lossy:
        sentences.append(f"† {', '.join(lossy)}: not lossless, the output may differ from plain decoding's.")
    for name in columns_of(results):
        errors = [row for row in results.rows if row["series"] == name and row.get("error")]
        if errors:
            places = len({spot(row) for row in errors})
            of = plural(turns, "turn") if several else plural(prompts, "prompt")
            sentences.append(
                f"{name} failed on {places} of {of} and its numbers are of the others: {errors[0]['error']}"
            )
    if any(run["verdict"] == "near tie" for check in checks(results) for run in check.runs):
        sentences.append("Some outputs differ at a near tie alone: rounding decided between equally likely tokens.")
    if about["state"] != "complete":
        sentences.append(f"The batch is not complete ({about['state']}): every line is of the prompts done so far.")
    return sentences


def _source(about: Mapping[str, Any]) -> str:
    names = {"examples": "the examples", "demo": "held-out tasks", "turns": "chats"}
    prompts = str(about.get("prompts") or "")
    return f" ({names.get(prompts.partition(':')[0], prompts)})" if prompts else ""


# --- cells ---


def columns_of(results: Results) -> list[str]:
    """The lines in order, as far as they have rows, and what else was run beside them."""
    series = dict.fromkeys(row["series"] for row in results.rows)
    lines = [line["label"] for line in results.about["lines"] if line["label"] in series]
    return list(dict.fromkeys([*lines, *series]))


def _table(results: Results, key: str, faulty_lines: set[str], titles: Mapping[str, str]) -> BatchTable:
    quantity = results.quantity(key)
    if not isinstance(quantity, Quantity):
        raise UserError(f"{quantity.label} is not one number per run: choose another metric for a table")
    columns = tuple(columns_of(results))
    tasks: dict[str, str] = {}  # by the name that they have here
    for category in dict.fromkeys(row["category"] for row in results.rows):
        tasks.setdefault(str(titles.get(category, category)), category)
    by = group(((str(titles.get(row["category"], row["category"])), row["series"]), row) for row in results.rows)
    groups = [(task, name, {c: by.get((name, c), []) for c in columns}) for name, task in tasks.items()]
    if len(tasks) > 1:
        groups.append((ALL_TASKS, OVERALL, {c: [r for r in results.rows if r["series"] == c] for c in columns}))
    line_timings = timings(results.rows, key)
    means = {
        (task, name): _mean([line_timings[name, place] for place in dict.fromkeys(map(spot, rows))], pool(rows, key))
        for task, _, of in groups
        for name, rows in of.items()
    }
    pools = any(pool(rows, key) is not None for _, _, of in groups for rows in of.values())
    form = column(quantity.unit, [mean.mean for mean in means.values()])
    lines = []
    for task, name, of in groups:
        prompts = len({spot(row) for rows in of.values() for row in rows})
        eligible = {c for c, rows in of.items() if c not in faulty_lines and _turns_done(rows) == prompts}
        best = _best(key, {c: means[task, c] for c in of}, eligible, form)
        cells = tuple(_cell(rows, prompts, means[task, c], form, c in best) for c, rows in of.items())
        lines.append(TableLine(task, name, prompts, cells))
    counts = "turns" if any(spot(row)[1] > 1 for row in results.rows) else "prompts"
    formula = DEFINED[key].formula if pools and key in DEFINED else quantity.formula
    return BatchTable(key, quantity.label, quantity.unit, formula, columns, tuple(lines), counts, pools)


def _mean(of: Sequence[Timing], pooled_mean: float | None) -> Mean:
    valid_timings = [timing for timing in of if timing.median is not None and not timing.impossible]
    disturbances = sum(bool(timing.is_disturbed) for timing in of)
    if not valid_timings:
        return Mean(None, None, None, 0, disturbances)
    ranges = [
        (timing.low, timing.high) for timing in valid_timings if timing.low is not None and timing.high is not None
    ]
    low, high = (
        (fmean(ends) for ends in zip(*ranges, strict=True)) if len(ranges) == len(valid_timings) else (None, None)
    )
    mean = fmean(timing.median or 0.0 for timing in valid_timings) if pooled_mean is None else pooled_mean
    return Mean(mean, low, high, sum(timing.count for timing in valid_timings), disturbances)


def _turns_done(rows: Sequence[Row]) -> int:
    """Turns of prompts on which nothing failed."""
    return len({*map(spot, rows)} - {spot(row) for row in rows if row.get("error")})


def _cell(rows: Sequence[Row], prompts: int, mean: Mean, form: Form, best: bool) -> TableCell:
    text = "–" if mean.mean is None else form(mean.mean)
    low, high = ("" if end is None else form(end) for end in (mean.low, mean.high))
    spread = f"{low}–{high}" if {low, high} - {text, ""} else ""
    failed = sum(bool(row.get("error")) for row in rows)
    partly = f"{_turns_done(rows)} of {prompts}" if failed else ""
    return TableCell(
        **asdict(mean), text=text, spread=spread, prompts=_turns_done(rows), failed=failed, best=best, partly=partly,
        runs=tuple(openable_runs(rows)),
    )  # fmt: skip


def _best(key: str, means: Mapping[str, Mean], eligible: Collection[str], form: Form) -> set[str]:
    """The columns with the best number as it is shown; none without a choice, or where a timed range meets another."""
    values = {name: mean.mean for name, mean in means.items() if mean.mean is not None and name in eligible}
    if key not in BETTER or len(values) < 2:
        return set()
    best = (max if BETTER[key] > 0 else min)(values.values())
    first = {name for name, value in values.items() if form(value) == form(best)}
    if key in TIMED_METRICS:
        floor = min(means[name].low or 0.0 for name in first)
        other_highs = [
            mean.high or math.inf for name, mean in means.items() if name not in first and mean.mean is not None
        ]
        if any(means[name].disturbed for name in first) or floor <= max(other_highs, default=0.0):
            return set()
    return first if len(first) < len(values) else set()
