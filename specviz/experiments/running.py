"""Running an experiment: every setting on every prompt, prompt by prompt, so that what is done is always balanced."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError
from decoders.params import make_params

from .. import __version__
from ..runner import sentence
from ..store import new_id
from .batch import runs_of, units
from .experiment import Experiment, Line, Setting, text_of
from .prompts import Case, check_references
from .quantities import Breakdown, learning, measured
from .quoted import check_quoted, maker, swept
from .results import Results
from .variants import PARAMETER, Variant, check_variants, named, training, trim, variant_of

if TYPE_CHECKING:
    from decoders import Target
    from decoders.trace import Trace

PLAIN = Line("Plain decoding", "plain", fixed=True)
ASK_RUNS, ASK_SECONDS = 500, 600.0  # from here on a sweep is started only after a question
MAX_RUNS = 20_000
CLOCKED = ("ms", "tokens/s", "×")  # units that depend on the machine's state
WARM_TOKENS = 8
TURN_SECONDS = 1.0  # of training, before others may use the device

Make = Callable[[Case, str, Mapping[str, Any], str, threading.Event, int], Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What an experiment will do on a target: its settings, its prompts, and what has to be said about them.

    ``variants`` are the parts that it still has to train, with the seconds that each will take; ``lossy`` the lines
    whose output need not be plain decoding's.
    """

    experiment: Experiment
    settings: tuple[Setting, ...]
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()
    variants: tuple[tuple[Variant, float], ...] = ()
    lossy: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        if self.experiment.repeats:
            return runs_of(len(self.settings), len(self.cases), self.experiment.repeats)
        return len(self.settings) * (1 if self.experiment.measure else len(self.cases))

    def seconds(self, per_token: float) -> float:
        """About how long it takes, at ``per_token`` seconds for each new token and a tenth of a second per prompt."""
        trained = sum(seconds for _, seconds in self.variants)
        if self.experiment.measure:
            return trained + 2.0 * self.runs
        return trained + self.runs * (0.1 + per_token * self.experiment.max_new_tokens)

    def text(self, per_token: float) -> str:
        """What is done and about how long it takes, in words."""
        trained = ""
        if count := len(self.variants):
            parts = f"{count} {self.experiment.parts[count > 1]}"
            trained = f"{parts} to train for {self.experiment.training_steps:,} steps, "
        about = f"{'roughly' if trained else 'about'} {duration(self.seconds(per_token))}"
        return f"{trained}{self.runs:,} run{'s' * (self.runs != 1)}, {about}"

    def asks(self, per_token: float) -> str:
        """The question to ask before so much is started; "" where none is needed."""
        seconds = self.seconds(per_token)
        if self.runs < ASK_RUNS and seconds < ASK_SECONDS:
            return ""
        return f"This is {self.text(per_token)}. Start it?"


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` runs after ``seconds``; ``left_s`` is None until a first run is done.

    Before the runs, where parts are trained: training steps of all of them; ``trains`` names the one at work.
    """

    done: int
    total: int
    seconds: float
    trains: str = ""

    @property
    def left_s(self) -> float | None:
        return self.seconds / self.done * (self.total - self.done) if self.done else None


def registered() -> Mapping[str, Any]:
    """The methods there are."""
    from decoders import methods

    return methods()


def plan(
    target: Target, experiment: Experiment, cases: Sequence[Case], methods: Mapping[str, Any] | None = None
) -> Plan:
    """Check everything that can be checked before the first run. Raises UserError with a sentence.

    Lines whose method is not available for this target, and prompts that do not fit its context, are left out with a
    note; nothing left is an error.
    """
    methods = methods or registered()
    info = target.info
    experiment.check(methods, info)
    notes = []
    missing = {line.label: _missing(methods[line.method], line, target) for line in experiment.lines}
    reasons = dict.fromkeys((line.method, missing[line.label]) for line in experiment.lines)
    notes += [f"{name} is left out: {reason}" for name, reason in reasons if reason]
    settings = [s for s in experiment.settings(info) if not missing[s.line.label]]
    if not settings:
        raise UserError(f"no method of this experiment can run here: {'; '.join(notes)}")
    if experiment.baseline:
        own = [s for s in settings if s.line.method == "plain"]
        settings = [*(own or [Setting(PLAIN, {})]), *(s for s in settings if s.line.method != "plain")]
    alone = experiment.measure is not None
    cases = () if alone else cases
    fitting = [c for c in cases if len(c.prompt.tokens) + experiment.max_new_tokens <= target.context_length]
    if len(fitting) < len(cases):
        longest = max(len(case.prompt.tokens) for case in cases)
        notes.append(
            f"{len(cases) - len(fitting)} of {len(cases)} prompts are left out: with {experiment.max_new_tokens} new "
            f"tokens they do not fit the {target.context_length:,} tokens the model reads (the longest has {longest:,})"
        )
    if not fitting and not alone:
        raise UserError(notes[-1] if cases else "there are no prompts: choose a set or a file")
    if experiment.given:
        check_quoted(fitting)
    if experiment.needs_reference:
        check_references(fitting, [k for k in experiment.metrics if experiment.quantity(k).needs_reference])
    variants = list(dict.fromkeys(v for s in settings if (v := variant_of(experiment, s)) is not None))
    check_variants(variants, target)
    left = [variant for variant in variants if variant.log(target.key) is None]
    if variants:
        notes.append(
            f"{len(variants)} {experiment.parts[1]} are trained for this, alike but for what is compared, each for "
            f"{experiment.training_steps:,} steps"
            + (f" ({len(variants) - len(left)} of them are there already)" if len(left) < len(variants) else "")
            + f": short runs, to be compared with one another, not with a {experiment.parts[0]} trained to the end"
        )
    todo = tuple((variant, variant.seconds(target)) for variant in left)
    lossy = tuple(line.label for line in experiment.lines if not methods[line.method].lossless)
    found = Plan(experiment, tuple(settings), tuple(fitting), tuple(notes), todo, lossy)
    if found.runs > MAX_RUNS:
        raise UserError(
            f"this is {found.runs:,} runs ({len(settings):,} settings × {len(fitting):,} prompts) and at most "
            f"{MAX_RUNS:,} are taken: use fewer values or fewer prompts"
        )
    return found


def foreseen(target: Target, experiment: Experiment, per_token: float) -> float:
    """About how many seconds an experiment as it stands takes on a target, with no look at its prompts. Parts that are
    trained already cost nothing. Raises UserError for parts that cannot be trained for it.
    """
    settings = experiment.settings(target.info)
    if experiment.baseline and all(setting.line.method != "plain" for setting in settings):
        settings.append(Setting(PLAIN, {}))
    variants = dict.fromkeys(v for s in settings if (v := variant_of(experiment, s)) is not None)
    todo = tuple((v, v.seconds(target)) for v in variants if v.log(target.key) is None)
    counted: tuple[Any, ...] = (None,) * experiment.count  # their number alone matters
    return Plan(experiment, tuple(settings), () if experiment.measure else counted, variants=todo).seconds(per_token)


def _missing(method: Any, line: Line, target: Any) -> str | None:
    """Why a line cannot run on this target, in a sentence; one that names or trains its part lacks none."""
    reason = method.available(target)
    named = reason and line.params and method.brings(make_params(method.params, line.params))
    return None if line.trains is not None or named else reason


def pace(target: Any) -> float:
    """Seconds per new token to expect of a target before one was measured, from its size and device."""
    millions = float(target.info.get("parameters") or 5e6) / 1e6
    return (0.0025 if "cpu" in str(target.info.get("device", "cpu")) else 0.0008) * max(1.0, millions / 5) ** 0.8


def begin(planned: Plan, target: Target) -> Results:
    """Results without rows yet, described for this target."""
    about = planned.experiment.described(target.info)
    info = target.info
    about |= {
        "id": new_id(), "state": "running", "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "model": {k: info.get(k) for k in ("name", "parameters", "dtype", "device", "layers", "heads")},
        "notes": list(planned.notes), "seconds": 0.0, "trained_s": 0.0, "runs": planned.runs,
        "cases": len(planned.cases),
    }  # fmt: skip
    if planned.experiment.repeats:
        from decoders.bench import machine

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
    between: Callable[[Callable[[], Any]], Any] | None = None,
) -> Results:
    """Run what was planned; a run that fails becomes a row with its error, and the others go on.

    ``keep`` gets every finished trace. ``make`` makes a run, ``between`` calls a function where the device is free (the
    app's worker). When ``cancel`` is set, or on Ctrl+C, what is done so far is the result.
    """
    results = results or begin(planned, target)
    cancel = cancel or threading.Event()
    if planned.experiment.given:
        make = maker(target)
    make = make or _maker(target, planned.experiment)
    between = between or (lambda work: work())
    started = time.perf_counter()
    about, experiment = results.about, planned.experiment
    try:
        parts = _trained(target, planned, between, progress, cancel) if experiment.trains else {}
        ran_from = time.perf_counter()
        about["trained_s"] = round(ran_from - started, 1)
        if _clocked(experiment) and planned.cases and not experiment.repeats and not cancel.is_set():
            between(lambda: _one(make, planned.cases[0], Setting(PLAIN, {}), cancel, WARM_TOKENS, {}))
        for done, rows in enumerate(_units(target, planned, make, between, keep, cancel, parts), 1):
            if cancel.is_set():
                break
            results.rows += rows
            if progress is not None:
                progress(Progress(done, planned.runs, time.perf_counter() - ran_from))
        about["state"] = "cancelled" if cancel.is_set() else "complete"
    except KeyboardInterrupt:
        about["state"] = "cancelled"
    about["seconds"] = round(time.perf_counter() - started, 1)
    if experiment.arrange is not None and results.rows:
        results.rows = experiment.arrange(results.rows)
    return results


Parts = Mapping[Variant, tuple[Path | None, Mapping[str, Any]]]


def _trained(
    target: Any,
    planned: Plan,
    between: Callable[[Callable[[], Any]], Any],
    progress: Callable[[Progress], None] | None,
    cancel: threading.Event,
) -> Parts:
    """Train what is not there yet, a second at a time: per variant its folder and what its rows share.

    A training that fails leaves no folder, and its rows an error.
    """
    settings = {v: s for s in planned.settings if (v := variant_of(planned.experiment, s)) is not None}
    total = sum(variant.steps for variant, _ in planned.variants)
    failed: dict[Variant, str] = {}
    started, done = time.perf_counter(), 0
    network = between(lambda: _network(target)) if planned.variants else None
    for variant, _ in planned.variants:
        words = named(variant, settings[variant].trains or {})
        with contextlib.closing(training(variant, target, network)) as steps:
            made = 0
            while made < variant.steps and not cancel.is_set():
                try:
                    made = between(functools.partial(_turn, steps, variant.steps))
                except (UserError, OSError, RuntimeError) as problem:
                    failed[variant] = f"the {words} could not be trained: {sentence(problem)}"
                    break
                if progress is not None:
                    progress(Progress(done + made, total, time.perf_counter() - started, words))
        done += variant.steps
    parts: dict[Variant, tuple[Path | None, Mapping[str, Any]]] = {}
    for variant in settings:
        log = variant.log(target.key)
        reason = failed.get(variant) or ("the training was stopped" if log is None else "")
        folder = None if reason else variant.folder(target.key) / "part"
        parts[variant] = (folder, {"error": reason} if reason else learning(log or ()))
    trim([variant.folder(target.key) for variant in settings])
    return parts


def _network(target: Any) -> Any:
    from decoders.target import stock_network

    return stock_network(target)


def _turn(steps: Iterator[int], last: int) -> int:
    """Training steps, at least one and as many as fit into a turn; how many are made by now."""
    started, made = time.perf_counter(), next(steps)
    while made < last and time.perf_counter() - started < TURN_SECONDS:
        made = next(steps)
    return made


def _units(
    target: Any,
    planned: Plan,
    make: Make,
    between: Callable[[Callable[[], Any]], Any],
    keep: Callable[[Trace], None] | None,
    cancel: threading.Event,
    parts: Parts,
) -> Iterator[list[dict[str, Any]]]:
    """Rows, one run (or one measurement) at a time."""
    experiment, new = planned.experiment, planned.experiment.max_new_tokens
    if experiment.repeats:
        yield from units(target, planned, make, between, keep, cancel)
        return
    for case in planned.cases if experiment.measure is None else (None,):
        plain = None
        for setting in planned.settings:
            if cancel.is_set():
                return
            variant = variant_of(experiment, setting)
            folder, shared = parts[variant] if variant is not None else (None, {})
            named_part = {PARAMETER[variant.kind]: str(folder)} if variant is not None else {}
            if shared.get("error"):
                yield [{**_labels(setting), **_of(case), "role": "run", **shared}]
                continue
            if case is None or experiment.look is not None:
                params = {**setting.params, **named_part}
                found = between(functools.partial(_measured, experiment, target, params, case))
                yield [{**_labels(setting), **_of(case), "role": "run", "error": "", **shared, **row} for row in found]
                continue
            row, trace = between(functools.partial(_one, make, case, setting, cancel, new, named_part))
            if trace is not None and not cancel.is_set():
                row |= {**measured(trace, case.category, plain), **shared}
                if setting.line.method == "plain" and experiment.baseline:
                    plain = row["tokens_per_s"]
                    row["speedup"] = 1.0
                if keep is not None:
                    keep(trace)
            if setting.line is PLAIN:
                row["role"] = "hidden"
            yield swept(row, trace, case.gold) if case.gold and experiment.given and trace is not None else [row]


def _measured(
    experiment: Experiment, target: Any, params: Mapping[str, Any], case: Case | None
) -> list[dict[str, Any]]:
    try:
        if experiment.measure is not None:
            return list(experiment.measure(target, params))
        assert experiment.look is not None and case is not None
        return list(experiment.look(target, params, case.prompt, experiment.max_new_tokens))
    except Exception as problem:
        return [{"error": sentence(problem)}]


def _labels(setting: Setting) -> dict[str, Any]:
    values = {f"param:{name}": text_of(value) for name, value in setting.values.items()}
    return {"series": setting.line.label, **values, "method": setting.line.method}


def _of(case: Case | None) -> dict[str, Any]:
    return {} if case is None else {"prompt": case.id, "category": case.category, "trace": ""}


def _one(
    make: Make, case: Case, setting: Setting, cancel: threading.Event, new_tokens: int, part: Mapping[str, Any]
) -> tuple[dict[str, Any], Trace | None]:
    row = {**_labels(setting), **_of(case), "role": "run", "error": ""}
    shown = ", ".join(f"{name} = {text_of(value)}" for name, value in setting.values.items())
    title = " · ".join(part for part in (case.id, setting.line.label, shown) if part)
    try:
        run = make(case, setting.line.method, {**setting.params, **part}, title, cancel, new_tokens)
        for _ in run:
            pass
        trace: Trace = run.trace
    except Exception as problem:
        row["error"] = sentence(problem)
        return row, None
    trace.run.update(id=new_id(), title=title, complete=True)
    row["trace"] = trace.run["id"]
    return row, trace


def _maker(target: Target, experiment: Experiment) -> Make:
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
    found = [experiment.quantity(key) for key in experiment.metrics]
    return any(q.unit in CLOCKED or (isinstance(q, Breakdown) and not q.whole) for q in found)


def duration(seconds: float) -> str:
    """A length of time in words.

    >>> duration(8), duration(200), duration(9000)
    ('10 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{max(5, round(seconds / 5) * 5)} seconds"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"
