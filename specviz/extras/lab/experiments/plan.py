"""The plan of an experiment: its runs, how many and how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from decoders.draft.params import make_params
from decoders.errors import UserError
from decoders.names import BASELINE
from decoders.sweep.plan import Measurement, Sample
from specviz.places import new_id
from specviz.views.prompts import Case
from specviz.words import duration, sentence
from specviz.workers.sweep import Standing

from .experiment import Experiment, Line, Row, Setting, methods_by_name
from .quote_scores import check_quoted
from .variants import Variant, check_variants, variant_of

if TYPE_CHECKING:
    from decoders import Target
    from decoders.trace.trace import Trace

PLAIN = Line("Plain decoding", BASELINE, fixed=True)
ASK_RUNS, ASK_SECONDS = 500, 600.0  # from here on a sweep is started only after a question
MAX_RUNS = 20_000

Make: TypeAlias = Callable[[Case, str, Mapping[str, Any], str, threading.Event, int], Any]
OnDevice: TypeAlias = Callable[[Callable[[], Any]], Any]


def at_once(work: Callable[[], Any]) -> Any:
    """A device that is always free."""
    return work()


def runs_of(lines: int, cases: int, repeats: int) -> int:
    """Runs of a batch: each line once to warm up, and on each prompt once recorded and ``repeats`` times timed.

    >>> runs_of(lines=2, cases=3, repeats=3)
    26
    """
    return lines * (1 + cases * (repeats + 1))


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of an experiment on a target: its settings, its prompts, and what has to be said about them.

    ``variants`` are the parts that it still has to train, with the seconds that each will take; ``lossy`` the lines
    whose output need not be plain decoding's; ``absent`` those that cannot be run here, with the reason.
    """

    experiment: Experiment
    settings: tuple[Setting, ...]
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()
    variants: tuple[tuple[Variant, float], ...] = ()
    lossy: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        if self.experiment.repeats:
            return runs_of(len(self.settings), self.turns, self.experiment.repeats)
        return len(self.settings) * (1 if self.experiment.measure else self.turns * self.experiment.rounds)

    @property
    def turns(self) -> int:
        """User turns of all prompts; a given answer is to the first one alone."""
        is_forced = self.experiment.forced
        return sum(1 if is_forced or case is None else case.prompt.turns for case in self.cases)

    def seconds(self, per_token: float) -> float:
        """About how long it takes, at ``per_token`` seconds for each new token and a tenth of a second per prompt."""
        trained = sum(seconds for _, seconds in self.variants)
        if self.experiment.measure:
            return trained + 2.0 * self.runs
        return trained + self.runs * (0.1 + per_token * self.experiment.max_new_tokens)

    def text(self, per_token: float) -> str:
        """Its work and the time that takes, in words."""
        trained = ""
        if count := len(self.variants):
            parts = f"{count} {self.experiment.parts[count > 1]}"
            trained = f"{parts} to train for {steps_of([variant for variant, _ in self.variants])} steps, "
        about = f"{'roughly' if trained else 'about'} {duration(self.seconds(per_token))}"
        return f"{trained}{self.runs:,} run{'s' * (self.runs != 1)}, {about}"

    def asks(self, per_token: float) -> str:
        """The question to ask before so much is started; "" where none is needed."""
        seconds = self.seconds(per_token)
        if self.runs < ASK_RUNS and seconds < ASK_SECONDS:
            return ""
        return f"This is {self.text(per_token)}. Start it?"


@dataclass(frozen=True, slots=True)
class SkippedTurn:
    """A user ``turn`` of a case that was not reached, and why."""

    case: Case
    turn: int
    error: str

    def row(self) -> Row:
        """Its values in the row of each line."""
        name = f"{self.case.id}, turn {self.turn}"
        return {"prompt": name, "turn": float(self.turn), "error": f"turn {self.turn} was not reached: {self.error}"}


@dataclass(frozen=True, slots=True)
class PlanSession:
    """Tools by which a plan is run. ``make`` makes a run of a case, a method with parameters, a title and a number of
    new tokens, in place of the session's own way; ``on_device`` calls a function where the device is free; ``keep``
    gets every finished trace.
    """

    target: Target
    planned: Plan
    on_device: OnDevice = at_once
    keep: Callable[[Trace], None] | None = None
    progress: Callable[[Standing], None] | None = None
    cancel: threading.Event = field(default_factory=threading.Event)
    make: Make | None = None

    def _make(
        self, case: Case, method: str, params: Mapping[str, Any], title: str, cancel: threading.Event, new_tokens: int
    ) -> Any:
        """A run; where answers are given, one that writes the case's."""
        from decoders import Run, Sampling
        from decoders.study.look.teacher_forcing import answer_ids, forced_run

        target, experiment = self.target, self.planned.experiment
        options: dict[str, Any] = {"max_new_tokens": new_tokens, "title": title, "cancel": cancel}
        if experiment.forced and case.gold is not None:
            return forced_run(target, case.prompt, answer_ids(target, case.gold.answer), method, params, **options)
        options |= {"sampling": Sampling(experiment.temperature), "length": experiment.length}
        return Run(target, case.prompt, method, params=params, **options)

    def record(self, name: str, method: str, params: Mapping[str, Any], new_tokens: int, case: Case) -> Measurement:
        """A recorded run of a case, with a new id; ``name`` stands behind the case's in its title."""
        title = " · ".join(filter(None, (case.id, name)))
        run = (self.make or self._make)(case, method, params, title, self.cancel, new_tokens)
        for _ in run:
            pass  # what it yields is in run.trace
        run.trace.run.update(id=new_id(), title=title, complete=True)
        output = run.trace.output_ids
        return Measurement(Sample.without_time(name, output), output, run.trace)

    def every_turn(self) -> Iterator[Case | SkippedTurn]:
        """The user turns of all cases, in order; where one cannot be reached, the reason in place of it."""
        for case in self.planned.cases:
            last_turn = 0
            try:
                for turn in self._turns(case):
                    yield turn
                    last_turn = turn.prompt.turn
            except Exception as problem:
                yield SkippedTurn(case, last_turn + 1, sentence(problem))

    def _turns(self, case: Case) -> Iterator[Case]:
        """A case's user turns, one after another, each behind plain decoding's answer to the one before it."""
        from decoders import Sampling
        from decoders.study.measure.turns import turns_of

        experiment = self.planned.experiment
        yield case
        if experiment.forced or case.prompt.turns == 1:
            return
        sampling = Sampling(experiment.temperature)
        options = {"max_new_tokens": experiment.max_new_tokens, "sampling": sampling, "cancel": self.cancel}
        prompts = turns_of(self.target, case.prompt, **options)
        next(prompts)
        while not self.cancel.is_set() and (prompt := self.on_device(partial(next, prompts, None))) is not None:
            yield case.next_turn(prompt)


def plan(
    target: Target, experiment: Experiment, cases: Sequence[Case], methods: Mapping[str, Any] | None = None
) -> Plan:
    """Check everything that can be checked before the first run. Raises UserError with a sentence.

    Lines whose method is not available for this target, and prompts that do not fit its context, are left out with a
    note; nothing left is an error.
    """
    methods = methods or methods_by_name()
    info = target.info
    experiment.check(methods, info)
    notes = []
    missing = {line.label: _missing(methods[line.method], line, target) for line in experiment.lines}
    line_names = {line.label: line.label if line.asks else line.method for line in experiment.lines}
    reasons = dict.fromkeys((line_names[label], reason) for label, reason in missing.items())
    notes += [f"{name} is left out: {reason}" for name, reason in reasons if reason]
    settings = [s for s in experiment.settings(info) if not missing[s.line.label]]
    if not settings:
        raise UserError(f"no method of this experiment can run here: {'; '.join(notes)}")
    if experiment.baseline:
        baseline_settings = [s for s in settings if s.line.method == BASELINE]
        settings = [*(baseline_settings or [Setting(PLAIN, {})]), *(s for s in settings if s.line.method != BASELINE)]
    has_measure = experiment.measure is not None
    cases = () if has_measure else cases
    fitting = [c for c in cases if len(c.prompt.tokens) + experiment.max_new_tokens <= target.context_length]
    if len(fitting) < len(cases):
        longest = max(len(case.prompt.tokens) for case in cases)
        notes.append(
            f"{len(cases) - len(fitting)} of {len(cases)} prompts are left out: with {experiment.max_new_tokens} new "
            f"tokens they do not fit the {target.context_length:,} tokens the model reads (the longest has {longest:,})"
        )
    if not fitting and not has_measure:
        raise UserError(notes[-1] if cases else "there are no prompts: choose a set or a file")
    if experiment.forced:
        check_quoted(fitting)
    if experiment.needs_reference:
        check_references(fitting, [k for k in experiment.metrics if experiment.quantity(k).needs_reference])
    variants = list(dict.fromkeys(v for s in settings if (v := variant_of(experiment, s)) is not None))
    check_variants(variants, target)
    untrained_variants = [variant for variant in variants if variant.log(target.key) is None]
    if variants:
        notes.append(
            f"{len(variants)} {experiment.parts[1]} are trained for this, alike but for what is compared, each for "
            f"{steps_of(variants)} steps"
            + (
                f" ({len(variants) - len(untrained_variants)} of them are there already)"
                if len(untrained_variants) < len(variants)
                else ""
            )
            + f": short runs, to be compared with one another, not with a {experiment.parts[0]} trained to the end"
        )
    if (several := sum(case.prompt.turns > 1 for case in fitting)) and not experiment.forced:
        notes.append(
            f"{several} of {len(fitting)} prompts have several user turns: each is a row, and a further one follows "
            "plain decoding's answer to the one before"
        )
    todo = tuple((variant, variant.seconds(target)) for variant in untrained_variants)
    run = [line for line in experiment.lines if not missing[line.label]]
    lossy = tuple(line.label for line in run if not methods[line.method].lossless)
    absent = {label: reason for label, reason in missing.items() if reason}
    run_plan = Plan(experiment, tuple(settings), tuple(fitting), tuple(notes), todo, lossy, absent)
    if run_plan.runs > MAX_RUNS:
        raise UserError(
            f"this is {run_plan.runs:,} runs ({len(settings):,} settings × {len(fitting):,} prompts) and at most "
            f"{MAX_RUNS:,} are taken: use fewer values or fewer prompts"
        )
    return run_plan


def foreseen(target: Target, experiment: Experiment, per_token: float) -> float:
    """About how many seconds an experiment as it stands takes on a target, with no look at its prompts. Parts that are
    trained already cost nothing. Raises UserError for parts that cannot be trained for it.
    """
    settings = [s for s in experiment.settings(target.info) if s.line.method in methods_by_name()]
    if experiment.baseline and all(setting.line.method != BASELINE for setting in settings):
        settings.append(Setting(PLAIN, {}))
    variants = dict.fromkeys(v for s in settings if (v := variant_of(experiment, s)) is not None)
    todo = tuple((v, v.seconds(target)) for v in variants if v.log(target.key) is None)
    case_slots: tuple[Any, ...] = (None,) * experiment.count  # their number alone matters
    return Plan(experiment, tuple(settings), () if experiment.measure else case_slots, variants=todo).seconds(per_token)


def steps_of(variants: Sequence[Variant]) -> str:
    """The steps of trainings in words: of all, or from the fewest to the most."""
    fewest, maximum = (end(variant.steps for variant in variants) for end in (min, max))
    return f"{fewest:,}" if fewest == maximum else f"{fewest:,} to {maximum:,}"


def _missing(method: Any, line: Line, target: Any) -> str | None:
    """The reason why a line cannot run on this target, in a sentence; one that names or trains its part lacks none."""
    if line.asks:
        return (
            f"it is a draft model of other people's: give it with --set {line.asks}=FOLDER (or a hub id) if it has the "
            f"tokenizer of {target.name}"
        )
    return method.missing(target, make_params(method.params, line.params)) if line.trains is None else None


def pace(target: Any) -> float:
    """Seconds per new token to expect of a target before one was measured, from its size and device."""
    millions = float(target.info.get("parameters") or 5e6) / 1e6
    return (0.0025 if "cpu" in str(target.info.get("device", "cpu")) else 0.0008) * max(1.0, millions / 5) ** 0.8


def check_references(cases: Sequence[Case], metrics: Sequence[str]) -> None:
    """Raise UserError if a quality metric is asked for and an answer to compare with is missing."""
    missing = [case.id for case in cases if not case.prompt.reference]
    if missing:
        raise UserError(
            f"{', '.join(metrics)} compares answers with a reference, and {len(missing)} of {len(cases)} prompts have "
            f"none (the first is {missing[0]}): use the held-out prompts (demo), the examples, or a file whose lines "
            'have a "reference"'
        )
