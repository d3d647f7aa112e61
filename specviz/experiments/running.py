"""Running an experiment: every setting on every prompt, prompt by prompt, so that what is done is always balanced."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.names import BASELINE
from decoders.trace.baseline import baseline
from specviz import __version__
from specviz.places import new_id
from specviz.words import sentence

from .answers import CASES, marked
from .batch import units
from .experiment import Experiment, Row, Setting, text_of
from .plan import PLAIN, Make, Missed, OnDevice, Plan, Progress, Session
from .prompts import Case
from .quantities import clocked, learning, measured
from .quoted import maker, swept
from .results import Results
from .variants import Variant, named, part_parameter, training, trim, variant_of

if TYPE_CHECKING:
    from decoders import Target
    from decoders.trace.trace import Trace

WARM_TOKENS = 8
TURN_SECONDS = 1.0  # of training, before others may use the device

MODEL = ("name", "parameters", "dtype", "weights", "device", "layers", "heads")


def begin(planned: Plan, target: Target) -> Results:
    """Results without rows yet, described for this target."""
    about = planned.experiment.described(target.info)
    info = target.info
    about |= {
        "id": new_id(), "state": "running", "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "model": {name: info.get(name) for name in MODEL if name in info},
        "notes": list(planned.notes), "seconds": 0.0, "trained_s": 0.0, "runs": planned.runs,
        "cases": len(planned.cases), "turns": planned.turns, "absent": dict(planned.absent),
    }  # fmt: skip
    if planned.experiment.repeats:
        from decoders.study.bench import machine

        about |= {"lossy": list(planned.lossy), "machine": {**machine(), "specviz": __version__}}
    return Results(about)


def run_experiment(
    target: Target,
    planned: Plan,
    results: Results | None = None,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    keep: Callable[[Trace], None] | None = None,
    make: Make | None = None,
    on_device: OnDevice = lambda work: work(),
) -> Results:
    """Run what was planned; a run that fails becomes a row with its error, and the others go on.

    ``keep`` gets every finished trace. ``make`` makes a run, ``on_device`` calls a function where the device is free
    (the app's worker). When ``cancel`` is set, or on Ctrl+C, what is done so far is the result.
    """
    results = results or begin(planned, target)
    cancel = cancel or threading.Event()
    about, experiment = results.about, planned.experiment
    make = None if experiment.forced else make
    session = Session(target, planned, make or _maker(target, experiment), on_device, keep, progress, cancel)
    started = time.perf_counter()
    try:
        parts = _trained(session) if experiment.trains else {}
        ran_from = time.perf_counter()
        about["trained_s"] = round(ran_from - started, 1)
        if not cancel.is_set():
            _warm(session)
        for done, rows in enumerate(units(session) if experiment.repeats else _units(session, parts), 1):
            if cancel.is_set():
                break
            results.rows += rows
            if progress is not None:
                progress(Progress(done, max(done, planned.runs), time.perf_counter() - ran_from))
        about["state"] = "cancelled" if cancel.is_set() else "complete"
    except KeyboardInterrupt:
        about["state"] = "cancelled"
    about["seconds"] = round(time.perf_counter() - started, 1)
    if experiment.arrange is not None and results.rows:
        results.rows = experiment.arrange(results.rows)
    return results


def rows_of(target: Target, planned: Plan, keep: Callable[[Trace], None], *, warm: bool = False) -> list[Row]:
    """All rows of a plan on a target, as a worker makes them of one prompt. Parts that are to be trained are there.

    ``keep`` gets every trace; ``warm``: an earlier plan has run on this target, so that nothing is run to warm up.
    """
    session = Session(target, planned, _maker(target, planned.experiment), _at_once, keep, None, threading.Event())
    if not warm:
        _warm(session)
    each = units(session, warm=warm) if planned.experiment.repeats else _units(session, _parts(session, {}))
    return [row for rows in each for row in rows]


def _at_once(work: Callable[[], Any]) -> Any:
    return work()


def _warm(session: Session) -> None:
    """A first run that nobody times, where the machine's state matters; a batch warms up by itself."""
    planned = session.planned
    if _clocked(planned.experiment) and planned.cases and not planned.experiment.repeats:
        session.on_device(lambda: _one(session, planned.cases[0], Setting(PLAIN, {}), WARM_TOKENS, {}))


Parts = Mapping[Variant, tuple[Path | None, Mapping[str, Any]]]


def trained(
    target: Target, planned: Plan, progress: Callable[[Progress], None] | None, cancel: threading.Event | None
) -> float:
    """Train the parts that a plan compares, where they are not there yet; the seconds it took."""
    started, make = time.perf_counter(), _maker(target, planned.experiment)
    _trained(Session(target, planned, make, _at_once, None, progress, cancel or threading.Event()))
    return round(time.perf_counter() - started, 1)


def _trained(session: Session) -> Parts:
    """Train what is not there yet, a second at a time: per variant its folder and what its rows share.

    A training that fails leaves no folder, and its rows an error.
    """
    from decoders.model.load import stock_network

    target, planned, cancel = session.target, session.planned, session.cancel
    settings = {v: s for s in planned.settings if (v := variant_of(planned.experiment, s)) is not None}
    total = sum(variant.steps for variant, _ in planned.variants)
    failed: dict[Variant, str] = {}
    started, done = time.perf_counter(), 0
    network = session.on_device(lambda: stock_network(target)) if planned.variants else None
    for variant, _ in planned.variants:
        words = named(variant, settings[variant].trains or {})
        with contextlib.closing(training(variant, target, network)) as steps:
            made = 0
            while made < variant.steps and not cancel.is_set():
                try:
                    made = session.on_device(functools.partial(_turn, steps, variant.steps))
                except (UserError, OSError, RuntimeError) as problem:
                    failed[variant] = f"the {words} could not be trained: {sentence(problem)}"
                    break
                if session.progress is not None:
                    session.progress(Progress(done + made, total, time.perf_counter() - started, words))
        done += variant.steps
    parts = _parts(session, failed)
    trim([variant.folder(target.key) for variant in settings])
    return parts


def _parts(session: Session, failed: Mapping[Variant, str]) -> Parts:
    """The trained parts of a plan's settings: per variant its folder, and what its rows share."""
    target, planned = session.target, session.planned
    parts: dict[Variant, tuple[Path | None, Mapping[str, Any]]] = {}
    for variant in {v: None for s in planned.settings if (v := variant_of(planned.experiment, s)) is not None}:
        log = variant.log(target.key)
        reason = failed.get(variant) or ("the training was stopped" if log is None else "")
        folder = None if reason else variant.folder(target.key) / "part"
        parts[variant] = (folder, {"error": reason} if reason else learning(log or ()))
    return parts


def _turn(steps: Iterator[int], last: int) -> int:
    """Training steps, at least one and as many as fit into a turn; how many are made by now."""
    started, made = time.perf_counter(), next(steps)
    while made < last and time.perf_counter() - started < TURN_SECONDS:
        made = next(steps)
    return made


def _units(session: Session, parts: Parts) -> Iterator[list[Row]]:
    """Rows, one run (or one measurement) at a time."""
    planned, target = session.planned, session.target
    experiment = planned.experiment
    for case in session.every_turn() if experiment.measure is None else (None,):
        plain = None
        if isinstance(case, Missed):
            yield [labels_of(case.case, setting) | case.row() for setting in planned.settings]
            continue
        for round, setting in itertools.product(range(1, experiment.rounds + 1), planned.settings):
            if session.cancel.is_set():
                return
            counted = {"round": float(round)} if experiment.rounds > 1 and case is not None else {}
            variant = variant_of(experiment, setting)
            folder, shared = parts[variant] if variant is not None else (None, {})
            part = {part_parameter(setting.line.method): str(folder)} if variant is not None else {}
            labels = labels_of(case, setting) | counted
            if shared.get("error"):
                yield [{**labels, **shared}]
                continue
            if case is None or experiment.look is not None:
                params = {**setting.params, **part}
                measure = functools.partial(_measured, experiment, target, setting.line.method, params, case)
                yield [{**labels, **shared, **row} for row in session.on_device(measure)]
                continue
            new = experiment.max_new_tokens
            row, trace = session.on_device(functools.partial(_one, session, case, setting, new, part))
            row |= counted
            if trace is not None and not session.cancel.is_set():
                if setting.line.method == BASELINE and experiment.baseline:
                    plain = trace
                row |= {**measured(trace, case.category, plain and baseline(trace, plain).tokens_per_s), **shared}
                if session.keep is not None:
                    session.keep(trace)
            if trace is not None and experiment.chart == CASES:
                row["output"] = marked(trace)
            if setting.line is PLAIN:
                row["role"] = "hidden"
            yield swept(row, trace, case.gold) if case.gold and experiment.forced and trace is not None else [row]


def _measured(
    experiment: Experiment, target: Any, method: str, params: Mapping[str, Any], case: Case | None
) -> list[Row]:
    try:
        if experiment.measure is not None:
            return list(experiment.measure(target, method, params))
        assert experiment.look is not None and case is not None
        return list(experiment.look(target, method, params, case.prompt, experiment.max_new_tokens))
    except Exception as problem:
        return [{"error": sentence(problem)}]


def labels_of(case: Case | None, setting: Setting) -> Row:
    """A row without numbers yet."""
    values = {f"param:{name}": text_of(value) for name, value in setting.values.items()}
    prompt: Row = {}
    if case is not None:
        prompt = {"prompt": case.id, "category": case.category, "turn": float(case.prompt.turn), "trace": ""}
    return {"series": setting.line.label, **values, "method": setting.line.method, **prompt, "role": "run", "error": ""}


def _one(
    session: Session, case: Case, setting: Setting, new_tokens: int, part: Mapping[str, Any]
) -> tuple[Row, Trace | None]:
    """A run's row without its numbers, and its trace (None: it failed)."""
    row = labels_of(case, setting)
    values = ", ".join(f"{name} = {text_of(value)}" for name, value in setting.values.items())
    title = " · ".join(words for words in (case.id, setting.line.label, values) if words)
    try:
        run = session.make(case, setting.line.method, {**setting.params, **part}, title, session.cancel, new_tokens)
        for _ in run:
            pass  # what it yields is in run.trace
        trace: Trace = run.trace
    except Exception as problem:
        return {**row, "error": sentence(problem)}, None
    trace.run.update(id=new_id(), title=title, complete=True)
    return {**row, "trace": trace.run["id"]}, trace


def _maker(target: Target, experiment: Experiment) -> Make:
    if experiment.forced:
        return maker(target)

    def make(
        case: Case, method: str, params: Mapping[str, Any], title: str, cancel: threading.Event, new_tokens: int
    ) -> Any:
        from decoders import Run, Sampling

        sampling = Sampling(experiment.temperature)
        return Run(
            target, case.prompt, method, params=params, sampling=sampling, max_new_tokens=new_tokens, title=title,
            cancel=cancel,
        )  # fmt: skip

    return make


def _clocked(experiment: Experiment) -> bool:
    """Whether the machine's state matters to what is measured."""
    return any(clocked(experiment.quantity(key)) for key in experiment.metrics)
