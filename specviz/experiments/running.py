"""Running an experiment: every setting on every prompt, prompt by prompt, so that what is done is always balanced."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError

from ..runner import sentence
from ..store import new_id
from .experiment import Experiment, Line, Setting, text_of
from .prompts import Case, check_references
from .quantities import Breakdown, measured
from .results import Results

if TYPE_CHECKING:
    from decoders import Target
    from decoders.trace import Trace

PLAIN = Line("Plain decoding", "plain", fixed=True)
ASK_RUNS, ASK_SECONDS = 500, 600.0  # from here on a sweep is started only after a question
MAX_RUNS = 20_000
CLOCKED = ("ms", "tokens/s", "×")  # units that depend on the machine's state
WARM_TOKENS = 8

Make = Callable[[Case, str, Mapping[str, Any], str, threading.Event, int], Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What an experiment will do on a target: its settings, its prompts, and what has to be said about them."""

    experiment: Experiment
    settings: tuple[Setting, ...]
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        return len(self.settings) * (1 if self.experiment.measure else len(self.cases))

    def seconds(self, per_token: float) -> float:
        """About how long it takes, at ``per_token`` seconds for each new token and a tenth of a second per prompt."""
        if self.experiment.measure:
            return 2.0 * self.runs
        return self.runs * (0.1 + per_token * self.experiment.max_new_tokens)

    def asks(self, per_token: float) -> str:
        """The question to ask before so much is started; "" where none is needed."""
        seconds = self.seconds(per_token)
        if self.runs < ASK_RUNS and seconds < ASK_SECONDS:
            return ""
        return f"This is {self.runs:,} runs, about {duration(seconds)}. Start it?"


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` runs after ``seconds``; ``left_s`` is None until a first run is done."""

    done: int
    total: int
    seconds: float

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
    if experiment.measure is not None:
        return Plan(experiment, tuple(experiment.settings(info)), ())
    notes = []
    missing = {line.method: methods[line.method].available(target) for line in experiment.lines}
    notes += [f"{name} is left out: {reason}" for name, reason in missing.items() if reason]
    settings = [s for s in experiment.settings(info) if not missing[s.line.method]]
    if not settings:
        raise UserError(f"no method of this experiment can run here: {'; '.join(notes)}")
    if experiment.baseline:
        own = [s for s in settings if s.line.method == "plain"]
        settings = [*(own or [Setting(PLAIN, {})]), *(s for s in settings if s.line.method != "plain")]
    fitting = [c for c in cases if len(c.prompt.tokens) + experiment.max_new_tokens <= target.context_length]
    if len(fitting) < len(cases):
        longest = max(len(case.prompt.tokens) for case in cases)
        notes.append(
            f"{len(cases) - len(fitting)} of {len(cases)} prompts are left out: with {experiment.max_new_tokens} new "
            f"tokens they do not fit the {target.context_length:,} tokens the model reads (the longest has {longest:,})"
        )
    if not fitting:
        raise UserError(notes[-1] if cases else "there are no prompts: choose a set or a file")
    if experiment.needs_reference:
        check_references(fitting, [k for k in experiment.metrics if experiment.quantity(k).needs_reference])
    found = Plan(experiment, tuple(settings), tuple(fitting), tuple(notes))
    if found.runs > MAX_RUNS:
        raise UserError(
            f"this is {found.runs:,} runs ({len(settings):,} settings × {len(fitting):,} prompts) and at most "
            f"{MAX_RUNS:,} are taken: use fewer values or fewer prompts"
        )
    return found


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
        "notes": list(planned.notes), "seconds": 0.0, "runs": planned.runs,
        "cases": len(planned.cases),
    }  # fmt: skip
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
    make = make or _maker(target, planned.experiment)
    between = between or (lambda work: work())
    started = time.perf_counter()
    about, experiment = results.about, planned.experiment
    try:
        if _clocked(experiment) and planned.cases:
            between(lambda: _one(make, planned.cases[0], Setting(PLAIN, {}), cancel, WARM_TOKENS))
        for done, rows in enumerate(_units(target, planned, make, between, keep, cancel), 1):
            if cancel.is_set():
                break
            results.rows += rows
            if progress is not None:
                progress(Progress(done, planned.runs, time.perf_counter() - started))
        about["state"] = "cancelled" if cancel.is_set() else "complete"
    except KeyboardInterrupt:
        about["state"] = "cancelled"
    about["seconds"] = round(time.perf_counter() - started, 1)
    if experiment.arrange is not None and results.rows:
        results.rows = experiment.arrange(results.rows)
    return results


def _units(
    target: Any,
    planned: Plan,
    make: Make,
    between: Callable[[Callable[[], Any]], Any],
    keep: Callable[[Trace], None] | None,
    cancel: threading.Event,
) -> Iterator[list[dict[str, Any]]]:
    """Rows, one run (or one measurement) at a time."""
    experiment = planned.experiment
    if experiment.measure is not None:
        for setting in planned.settings:
            if cancel.is_set():
                return
            found = between(functools.partial(_measured, experiment, target, setting))
            yield [{**_labels(setting), "role": "run", "error": "", **row} for row in found]
        return
    for case in planned.cases:
        plain = None
        for setting in planned.settings:
            if cancel.is_set():
                return
            row, trace = between(
                functools.partial(_one, make, case, setting, cancel, experiment.max_new_tokens)
            )
            if trace is not None and not cancel.is_set():
                row |= measured(trace, case.category, plain)
                if setting.line.method == "plain" and experiment.baseline:
                    plain = row["tokens_per_s"]
                    row["speedup"] = 1.0
                if keep is not None:
                    keep(trace)
            if setting.line is PLAIN:
                row["role"] = "hidden"
            yield [row]


def _measured(experiment: Experiment, target: Any, setting: Setting) -> list[dict[str, Any]]:
    assert experiment.measure is not None
    try:
        return list(experiment.measure(target, setting))
    except Exception as problem:
        return [{"error": sentence(problem)}]


def _labels(setting: Setting) -> dict[str, Any]:
    values = {f"param:{name}": text_of(value) for name, value in setting.values.items()}
    return {"series": setting.line.label, **values, "method": setting.line.method}


def _one(
    make: Make, case: Case, setting: Setting, cancel: threading.Event, new_tokens: int
) -> tuple[dict[str, Any], Trace | None]:
    row = {**_labels(setting), "prompt": case.id, "category": case.category, "trace": "", "role": "run", "error": ""}
    shown = ", ".join(f"{name} = {text_of(value)}" for name, value in setting.values.items())
    title = " · ".join(part for part in (case.id, setting.line.label, shown) if part)
    try:
        run = make(case, setting.line.method, setting.params, title, cancel, new_tokens)
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
