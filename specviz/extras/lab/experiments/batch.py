"""The batch mode: methods × prompts, every method's runs timed in alternation and checked against plain decoding.

A row of its results is one method on one prompt in one repeat: ``repeat`` from 1 and, of a prompt with several user
turns, ``turn`` from 1; ``tokens_per_s`` and ``speedup`` of a run that was not recorded; ``same``, 1 where every output
was plain decoding's, else 0, with ``differs_at`` (an output token's number from 0) and ``verdict``
(``decoders.study.judge.divergences``). All other quantities are of the recorded run, which each method makes once per
prompt: they stand in the rows of repeat 1, with the ``trace`` to open. What was disturbed (``decoders.sweep.timing``)
is measured again beside plain decoding, in further repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from decoders.draft.params import controls
from decoders.errors import UserError
from decoders.sweep.plan import PLAIN, TRACED_SUFFIX, Case, Contender, Outcome
from specviz.places import new_id

from .experiment import CATEGORY, Experiment, Line, Row, methods_by_name, text_of
from .quantities import QUANTITIES, Breakdown, Profile, measure, near

if TYPE_CHECKING:
    from decoders.sweep.ledger import FileRow
    from decoders.trace.trace import Trace

    from .plan import PlanSession

NAME = "batch"
METRICS = ("tokens_per_step", "speedup")
MOST_LINES, MOST_REPEATS = 24, 100


def batch(
    selection: Sequence[tuple[str, Mapping[str, Any]]],
    repeats: int = 3,
    metrics: Sequence[str] = METRICS,
    *,
    registry: Mapping[str, Any] | None = None,
) -> Experiment:
    """Methods with their parameters, as lines of a batch; plain decoding is always one of them, and the first.

    A line is called by its method's name, and by the parameters that are not the usual ones where a method is there
    more than once. Raises UserError for an unknown method, a method that is there twice alike, or too much of anything.

    >>> [line.label for line in batch([("pld", {"k": 5}), ("pld", {}), ("pld+h", {"k": 5})]).lines]
    ['plain', 'pld, k = 5', 'pld', 'pld+h']
    """
    registry = registry or methods_by_name()
    for name, _ in selection:
        if name not in registry:
            raise UserError(f"there is no method {name[:40]!r}{near(name, registry)}: choose of {', '.join(registry)}")
    other_methods = [(name, _check_params(registry[name], params)) for name, params in selection if name != PLAIN]
    if not other_methods:
        raise UserError("nothing is to be compared with plain decoding: choose at least one other method")
    if len(other_methods) >= MOST_LINES:
        raise UserError(f"{len(other_methods)} methods are chosen and at most {MOST_LINES - 1} fit one table")
    if not 1 <= repeats <= MOST_REPEATS:
        raise UserError(f"{repeats} repeats are asked for: a whole number from 1 to {MOST_REPEATS} is needed")
    for key in metrics:
        if isinstance(quantity := QUANTITIES.get(key), Breakdown | Profile):
            raise UserError(f"{quantity.label} is not one number per run: choose another metric for a table")
    lines = [Line(PLAIN, PLAIN)]
    for name, params in other_methods:
        several = sum(other_name == name for other_name, _ in other_methods) > 1
        usual = registry[name].params()
        differing = [f"{p} = {text_of(v)}" for p, v in params.items() if v != getattr(usual, p)]
        label = ", ".join([name, *differing]) if several else name
        if any(line.label == label for line in lines):
            raise UserError(f"{label} is chosen twice: change a parameter of one of the two, or leave one out")
        lines.append(Line(label, name, params))
    return of_lines(lines, repeats, metrics)


def of_lines(lines: Sequence[Line], repeats: int, metrics: Sequence[str] = METRICS, title: str = "") -> Experiment:
    """The batch of lines that are as they should be."""
    return Experiment(
        NAME, title.strip() or "Methods × prompts", tuple(lines), prompts="examples", count=12, metrics=tuple(metrics),
        x=CATEGORY, chart="table", repeats=repeats,
    )  # fmt: skip


def _check_params(method: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, checked and converted."""
    parameters = {control.name: control for control in controls(method.params)}
    for name in params:
        if name not in parameters:
            known_names = ", ".join(parameters) or "no parameters"
            raise UserError(
                f"{method.name} has no parameter {str(name)[:40]!r}{near(name, parameters)}: it has {known_names}"
            )
    try:
        return {name: parameters[name].check(value) for name, value in params.items()}
    except ValueError as problem:
        raise UserError(f"{method.name}: {problem}") from None


def filed_with(keep: Callable[[Trace], None] | None) -> FileRow:
    """The row of a recorded run, which gets a new id and its line's title; ``keep`` gets the trace."""

    def file(trace: Trace, case: Case, line: str) -> Row:
        trace.run.update(id=new_id(), title=f"{case.id} · {line}", complete=True)
        row = {"trace": trace.run["id"], **measure(trace, case.category)}
        if keep is not None:
            keep(trace)
        return row

    return file


def units(session: PlanSession, *, warm: bool = False) -> Iterator[list[Row]]:
    """Every run of a batch, one after another: the rows that are complete by it. A run that fails is an error of its
    row, and the others go on. ``warm``: the target has run a batch before, so that nothing is run to warm up.
    """
    from decoders import Sampling
    from decoders.sweep.contenders import timer
    from decoders.sweep.ledger import Ledger

    target, plan, cancel = session.target, session.planned, session.cancel
    new, sampling = plan.experiment.max_new_tokens, Sampling(plan.experiment.temperature)
    options = {"cancel": cancel, "sampling": sampling, "length": plan.experiment.length}

    def needs_clock(line: Line) -> Callable[[Case], Outcome]:
        run = timer(target, line.method, dict(line.params), new, name=line.label, **options)
        return lambda case: run(case.prompt)

    contenders = []
    for line in (setting.line for setting in plan.settings):
        lossless = line.label not in plan.lossy
        contenders.append(Contender(line.label, "method", lossless, needs_clock(line)))
        recorder = partial(session.record, line.label, line.method, line.params, new)
        contenders.append(Contender(line.label + TRACED_SUFFIX, "traced", lossless, recorder, rounds=1))
    methods = {setting.line.label: setting.line.method for setting in plan.settings}
    cases, skipped_rows = list[Case](), list[Row]()
    for turn in session.every_turn():
        if isinstance(turn, Case):
            cases.append(turn)
        else:
            place = sum(case.prompt.turn == 1 for case in cases) - 1
            for label, method in methods.items():
                labels = {"series": label, "category": turn.case.category, "method": method, "trace": "", "role": "run"}
                skipped_rows.append({**labels, "verdict": "", "place": place, "repeat": 1, **turn.row()})
    if skipped_rows:
        yield skipped_rows
    ledger = Ledger(target, cases, methods, plan.lossy, filed_with(session.keep), session.on_device, sampling)
    repeats, run_options = plan.experiment.repeats, {"call": session.on_device, "cancel": cancel}
    for _, rows in ledger.run(contenders, cases, repeats, warm=warm, **run_options):
        yield rows
