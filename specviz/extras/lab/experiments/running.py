"""Running an experiment: every setting on every prompt, prompt by prompt, so that what is done is always balanced."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.names import BASELINE
from decoders.sweep.plan import Case, Contender, Failure, Measurement, attempt, execute, in_order
from decoders.trace.baseline import baseline
from specviz import __version__
from specviz.places import new_id
from specviz.words import sentence
from specviz.workers.sweep import Standing

from .answers import CASES, mark_accepted
from .batch import units
from .experiment import Row, Setting, methods_by_name, text_of
from .plan import PLAIN, Make, OnDevice, Plan, PlanSession, SkippedTurn, at_once
from .quantities import learning, measure, needs_clock
from .quote_scores import sweep_thresholds
from .results import Results
from .variants import Variant, name_of, training, trim, variant_of

if TYPE_CHECKING:
    from decoders import Target
    from decoders.trace.trace import Trace

WARM_TOKENS = 8
TURN_SECONDS = 1.0  # of training, before others may use the device

MODEL = ("name", "parameters", "dtype", "weights", "activations", "device", "layers", "heads")


def begin(plan: Plan, target: Target) -> Results:
    """Results without rows yet, described for this target."""
    about = plan.experiment.describe(target.info)
    info = target.info
    about |= {
        "id": new_id(), "state": "running", "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "model": {name: info.get(name) for name in MODEL if name in info},
        "notes": list(plan.notes), "seconds": 0.0, "trained_s": 0.0, "runs": plan.runs,
        "cases": len(plan.cases), "turns": plan.turns, "absent": dict(plan.absent),
    }  # fmt: skip
    if plan.experiment.repeats:
        from decoders.sweep.bench import machine

        about |= {"lossy": list(plan.lossy), "machine": {**machine(), "specviz": __version__}}
    return Results(about)


def run_experiment(
    target: Target,
    plan: Plan,
    results: Results | None = None,
    *,
    progress: Callable[[Standing], None] | None = None,
    cancel: threading.Event | None = None,
    keep: Callable[[Trace], None] | None = None,
    make: Make | None = None,
    on_device: OnDevice = at_once,
) -> Results:
    """Run what was planned; a run that fails becomes a row with its error, and the others go on.

    The others are the ``PlanSession``'s. When ``cancel`` is set, or on Ctrl+C, what is done so far is the result.
    """
    results = results or begin(plan, target)
    cancel = cancel or threading.Event()
    about, experiment = results.about, plan.experiment
    session = PlanSession(target, plan, on_device, keep, progress, cancel, None if experiment.forced else make)
    start_s = time.perf_counter()
    try:
        parts = _train_parts(session) if experiment.trains else {}
        about["trained_s"], ran_from = round(time.perf_counter() - start_s, 1), time.monotonic()
        if not cancel.is_set():
            _warm(session)
        for count, rows in enumerate(units(session) if experiment.repeats else _units(session, parts), 1):
            if cancel.is_set():
                break
            results.rows += rows
            if progress is not None:
                progress(Standing(max(count, plan.runs), done=count, started=ran_from))
        about["state"] = "cancelled" if cancel.is_set() else "complete"
    except KeyboardInterrupt:
        about["state"] = "cancelled"
    about["seconds"] = round(time.perf_counter() - start_s, 1)
    if experiment.arrange is not None and results.rows:
        results.rows = experiment.arrange(results.rows)
    return results


def rows_of(target: Target, plan: Plan, keep: Callable[[Trace], None], *, warm: bool = False) -> list[Row]:
    """All rows of a plan on a target, as a worker makes them of one prompt. Parts that are to be trained are there.

    ``keep`` gets every trace; ``warm``: an earlier plan has run on this target, so that nothing is run to warm up.
    """
    session = PlanSession(target, plan, keep=keep)
    if not warm:
        _warm(session)
    unit_rows = units(session, warm=warm) if plan.experiment.repeats else _units(session, _parts(session, {}))
    return [row for rows in unit_rows for row in rows]


def _warm(session: PlanSession) -> None:
    """A first run that nobody times, where the machine's state matters; a batch warms up by itself."""
    plan, warm_up = session.planned, functools.partial(session.record, PLAIN.label, PLAIN.method, {}, WARM_TOKENS)
    needs_timing = any(needs_clock(plan.experiment.quantity(key)) for key in plan.experiment.metrics)
    if needs_timing and plan.cases and not plan.experiment.repeats:
        session.on_device(lambda: attempt(warm_up, plan.cases[0]))


Parts = Mapping[Variant, tuple[Path | None, Mapping[str, Any]]]


def train_parts(
    target: Target, plan: Plan, progress: Callable[[Standing], None] | None, cancel: threading.Event | None
) -> float:
    """Train the parts that a plan compares, where they are not there yet; the seconds it took."""
    start_s = time.perf_counter()
    _train_parts(PlanSession(target, plan, progress=progress, cancel=cancel or threading.Event()))
    return round(time.perf_counter() - start_s, 1)


def _train_parts(session: PlanSession) -> Parts:
    """Train what is not there yet, a second at a time: per variant its folder and what its rows share.

    A training that fails leaves no folder, and its rows an error.
    """
    from decoders.model.target_model.load import stock_network

    target, plan, cancel = session.target, session.planned, session.cancel
    settings = {v: s for s in plan.settings if (v := variant_of(plan.experiment, s)) is not None}
    missing = [variant for variant, _ in plan.variants if variant.log(target.key) is None]  # by now
    total = sum(variant.steps for variant in missing)
    failed: dict[Variant, str] = {}
    start_time, step_count = time.monotonic(), 0
    network = session.on_device(lambda: stock_network(target)) if missing else None
    for variant in missing:
        words = name_of(variant, settings[variant].trains or {})
        with contextlib.closing(training(variant, target, network)) as steps:
            variant_steps = 0
            while variant_steps < variant.steps and not cancel.is_set():
                try:
                    variant_steps = session.on_device(functools.partial(_turn, steps, variant.steps))
                except (UserError, OSError, RuntimeError) as problem:
                    failed[variant] = f"the {words} could not be trained: {sentence(problem)}"
                    break
                if session.progress is not None:
                    session.progress(Standing(total, done=step_count + variant_steps, started=start_time, trains=words))
        step_count += variant.steps
    parts = _parts(session, failed)
    trim([variant.folder(target.key) for variant in settings])
    return parts


def _parts(session: PlanSession, failed: Mapping[Variant, str]) -> Parts:
    """The trained parts of a plan's settings: per variant its folder, and what its rows share."""
    target, plan = session.target, session.planned
    parts: dict[Variant, tuple[Path | None, Mapping[str, Any]]] = {}
    for variant in {v: None for s in plan.settings if (v := variant_of(plan.experiment, s)) is not None}:
        log = variant.log(target.key)
        reason = failed.get(variant) or ("the training was stopped" if log is None else "")
        folder = None if reason else variant.folder(target.key) / "part"
        parts[variant] = (folder, {"error": reason} if reason else learning(log or ()))
    return parts


def _turn(steps: Iterator[int], last: int) -> int:
    """Training steps, at least one and as many as fit into a turn; how many are made by now."""
    start_s, step_count = time.perf_counter(), next(steps)
    while step_count < last and time.perf_counter() - start_s < TURN_SECONDS:
        step_count = next(steps)
    return step_count


def _units(session: PlanSession, parts: Parts) -> Iterator[list[Row]]:
    """Rows, one run (or one measurement) at a time."""
    plan, experiment, cancel = session.planned, session.planned.experiment, session.cancel
    contenders = [Contender(str(number), "traced", True, functools.partial(_attempt, session, setting, parts))
                  for number, setting in enumerate(plan.settings)]  # fmt: skip
    for case in session.every_turn() if experiment.measure is None else (None,):
        if isinstance(case, SkippedTurn):
            yield [labels_of(case.case, setting) | case.row() for setting in plan.settings]
            continue
        plain: Trace | None = None
        for turn, outcome in execute(in_order(contenders, [case], experiment.rounds), session.on_device, cancel):
            setting = plan.settings[int(turn.contender.name)]
            _, shared = _part(session, setting, parts)
            row = labels_of(case, setting)
            if experiment.rounds > 1 and case is not None:
                row["round"] = turn.round + 1.0
            if isinstance(outcome, Failure):
                yield [{**row, **shared, "error": outcome.reason}]
                continue
            if not isinstance(outcome, Measurement):
                yield [{**row, **shared, **outcome_row} for outcome_row in outcome]
                continue
            assert case is not None and outcome.trace is not None
            trace = outcome.trace
            if setting.line.method == BASELINE and experiment.baseline:
                plain = trace
            row |= {**measure(trace, case.category, plain and baseline(trace, plain).tokens_per_s), **shared}
            row["trace"] = trace.run["id"]
            if session.keep is not None:
                session.keep(trace)
            if experiment.chart == CASES:
                row["output"] = mark_accepted(trace)
            if setting.line is PLAIN:
                row["role"] = "hidden"
            yield sweep_thresholds(row, trace, case.gold) if case.gold and experiment.forced else [row]


def _part(session: PlanSession, setting: Setting, parts: Parts) -> tuple[dict[str, str], Mapping[str, Any]]:
    """The parameter that names a setting's trained part, and what its rows share."""
    variant = variant_of(session.planned.experiment, setting)
    if variant is None:
        return {}, {}
    folder, shared = parts[variant]
    return {methods_by_name()[setting.line.method].part.parameter: str(folder)}, shared


def _attempt(session: PlanSession, setting: Setting, parts: Parts, case: Case | None) -> Any:
    """A setting on a case: a recorded run, or the rows of what is measured otherwise."""
    experiment, method = session.planned.experiment, setting.line.method
    part, shared = _part(session, setting, parts)
    params = {**setting.params, **part}
    if shared.get("error"):
        return [{}]
    if experiment.measure is not None:
        return list(experiment.measure(session.target, method, params))
    assert case is not None
    if experiment.look is not None:
        return list(experiment.look(session.target, method, params, case.prompt, experiment.max_new_tokens))
    values = ", ".join(f"{name} = {text_of(value)}" for name, value in setting.values.items())
    name = " · ".join(filter(None, (setting.line.label, values)))
    return session.record(name, method, params, experiment.max_new_tokens, case)


def labels_of(case: Case | None, setting: Setting) -> Row:
    """A row without numbers yet."""
    values = {f"param:{name}": text_of(value) for name, value in setting.values.items()}
    prompt: Row = {}
    if case is not None:
        prompt = {"prompt": case.id, "category": case.category, "turn": float(case.prompt.turn), "trace": ""}
    return {"series": setting.line.label, **values, "method": setting.line.method, **prompt, "role": "run", "error": ""}
