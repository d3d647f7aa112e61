"""The batch mode: methods × prompts, every method's runs timed in alternation and checked against plain decoding.

A row of its results is one method on one prompt in one repeat: ``repeat`` from 1 and, of a prompt with several user
turns, ``turn`` from 1; ``tokens_per_s`` and ``speedup`` of a run that was not recorded; ``same``, 1 where every output
was plain decoding's, else 0, with ``differs_at`` (an output token's number from 0) and ``verdict``
(``decoders.study.divergences``). All other quantities are of the recorded run, which each method makes once per prompt:
they stand in the rows of repeat 1, with the ``trace`` to open. What was disturbed (``timing``) is measured again beside
plain decoding, in further repeats.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from decoders.draft.params import controls
from decoders.errors import UserError
from decoders.names import BASELINE
from specviz.places import new_id
from specviz.words import sentence

from .experiment import CATEGORY, Experiment, Line, Row, near, registered, text_of
from .prompts import Case
from .quantities import QUANTITIES, Breakdown, Profile, measured
from .timing import REPEATED, Spot, disturbed

if TYPE_CHECKING:
    from decoders import Target
    from decoders.study.bench import Made, Turn
    from decoders.trace.trace import Trace

    from .plan import OnDevice, Session

NAME, PLAIN, TRACED = "batch", BASELINE, " traced"  # the last two as in decoders.study.bench
METRICS = ("tokens_per_step", "speedup")
MOST_LINES, MOST_REPEATS = 24, 100


def batch(
    chosen: Sequence[tuple[str, Mapping[str, Any]]],
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
    registry = registry or registered()
    for name, _ in chosen:
        if name not in registry:
            raise UserError(f"there is no method {name[:40]!r}{near(name, registry)}: choose of {', '.join(registry)}")
    others = [(name, _settled(registry[name], params)) for name, params in chosen if name != PLAIN]
    if not others:
        raise UserError("nothing is to be compared with plain decoding: choose at least one other method")
    if len(others) >= MOST_LINES:
        raise UserError(f"{len(others)} methods are chosen and at most {MOST_LINES - 1} fit one table")
    if not 1 <= repeats <= MOST_REPEATS:
        raise UserError(f"{repeats} repeats are asked for: a whole number from 1 to {MOST_REPEATS} is needed")
    for key in metrics:
        if isinstance(quantity := QUANTITIES.get(key), Breakdown | Profile):
            raise UserError(f"{quantity.label} is not one number per run: choose another metric for a table")
    lines = [Line(PLAIN, PLAIN)]
    for name, params in others:
        several = sum(other == name for other, _ in others) > 1
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


def _settled(method: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, checked and converted."""
    parameters = {control.name: control for control in controls(method.params)}
    for name in params:
        if name not in parameters:
            listed = ", ".join(parameters) or "no parameters"
            raise UserError(
                f"{method.name} has no parameter {str(name)[:40]!r}{near(name, parameters)}: it has {listed}"
            )
    try:
        return {name: parameters[name].check(value) for name, value in params.items()}
    except ValueError as problem:
        raise UserError(f"{method.name}: {problem}") from None


@dataclass
class Ledger:
    """Makes rows of the runs as they come in: those of a prompt and a repeat together, when the last of them is there.

    ``methods`` has the method of every line, ``lossy`` the lines whose output need not be plain decoding's. ``keep``
    gets every trace that can be opened; ``on_device`` calls a function where the device is free. The outputs of all
    repeats are compared with plain decoding's first one; where ``temperature`` has tokens drawn, a method that does not
    match the target's own draws writes others, which is no fault.
    """

    target: Target
    cases: Sequence[Case]
    methods: Mapping[str, str]
    lossy: Collection[str] = ()
    keep: Callable[[Trace], None] | None = None
    on_device: OnDevice = lambda work: work()
    temperature: float = 0.0
    rows: list[Row] = field(default_factory=list)
    spots: list[Spot] = field(init=False)
    _group: dict[str, dict[str, Made | str]] = field(default_factory=dict)
    _plain: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        place = -1
        self.spots = []
        for case in self.cases:
            place += case.prompt.turn == 1
            self.spots.append((place, case.prompt.turn))

    def add(self, turn: Turn, made: Made | str) -> list[Row]:
        """What a run gave, or the sentence why it failed; the rows that are complete by it."""
        if turn.round < 0:
            return []
        kind, name = turn.contender.kind, turn.contender.name
        line = name.removesuffix(TRACED)
        self._group.setdefault(line, {})[kind] = made
        if not turn.last:
            return []
        group, self._group = self._group, {}
        plain = group.get(PLAIN, {}).get("method")
        speed = None
        if plain is not None and not isinstance(plain, str):
            speed = plain.sample.tokens_per_s
            self._plain.setdefault(turn.prompt, plain.output)
        new = [self._row(turn, line, group[line], speed) for line in self.methods if line in group]
        self.rows += new
        return new

    def _row(self, turn: Turn, line: str, runs: Mapping[str, Made | str], plain_speed: float | None) -> Row:
        case, first = self.cases[turn.prompt], turn.round == 0
        place, number = self.spots[turn.prompt]
        errors = [made for made in runs.values() if isinstance(made, str)]
        made = {kind: made for kind, made in runs.items() if not isinstance(made, str)}
        row: Row = {
            "series": line, "prompt": case.id, "category": case.category, "method": self.methods[line], "trace": "",
            "role": "run", "error": errors[0] if errors else "", "verdict": "", "place": place,
            "turn": float(number), "repeat": turn.round + 1,
        }  # fmt: skip
        recorded = made.pop("traced", None)
        timed = next(iter(made.values()), None)
        if first and recorded is not None and recorded.trace is not None:
            trace = recorded.trace
            trace.run.update(id=new_id(), title=f"{case.id} · {line}", complete=True)
            row |= {"trace": trace.run["id"], **measured(trace, case.category)}
            if self.keep is not None:
                self.keep(trace)
        elif first and timed is not None:
            sample = timed.sample
            row |= {"tokens": sample.tokens, "steps": sample.steps, "accepted": sample.accepted}
            row["tokens_per_step"] = sample.accepted / sample.steps + 1 if sample.steps else None  # type: ignore
        speed = timed.sample.tokens_per_s if timed is not None else None
        row |= {"tokens_per_s": speed, "speedup": speed / plain_speed if speed and plain_speed else None}
        outputs = [one.output for one in (recorded, timed) if one is not None]
        return row | self._checked(turn.prompt, line, outputs)

    def _checked(self, prompt: int, line: str, outputs: Sequence[list[int]]) -> Row:
        """Whether all outputs are plain decoding's; of the first that is not, where it leaves it, and the verdict."""
        from decoders import Sampling
        from decoders.study.divergences import divergence

        plain = self._plain.get(prompt)
        if plain is None or not outputs:
            return {"same": None, "differs_at": None}
        for output in outputs:
            if output != plain:
                judge = functools.partial(
                    divergence, self.target, output, self.cases[prompt].prompt, plain=plain,
                    lossless=line not in self.lossy, max_new_tokens=max(len(plain), len(output)),
                    sampling=Sampling(self.temperature),
                )  # fmt: skip
                if difference := self.on_device(judge):
                    return {"same": 0.0, "differs_at": difference.position, "verdict": difference.verdict}
        return {"same": 1.0, "differs_at": None}


def units(session: Session, *, warm: bool = False) -> Iterator[list[Row]]:
    """Every run of a batch, one after another: the rows that are complete by it. A run that fails is an error of its
    row, and the others go on. ``warm``: the target has run a batch before, so that nothing is run to warm up.
    """
    from decoders import Sampling
    from decoders.study.bench import Contender, Made, Sample, alternated, timed

    target, planned, cancel = session.target, session.planned, session.cancel
    new, temperature = planned.experiment.max_new_tokens, planned.experiment.temperature

    def clocked(line: Line) -> Callable[[Case], Made]:
        sampling = Sampling(temperature)
        run = timed(target, line.method, dict(line.params), new, name=line.label, cancel=cancel, sampling=sampling)
        return lambda case: run(case.prompt)

    def recorded(line: Line) -> Callable[[Case], Made]:
        def run(case: Case) -> Made:
            made = session.make(case, line.method, line.params, f"{case.id} · {line.label}", cancel, new)
            for _ in made:
                pass  # what it yields is in made.trace
            output = made.trace.output_ids
            return Made(Sample(line.label, 0, 0, len(output), 0, None, None, 0.0, 0.0), output, made.trace)

        return run

    def call(run: Callable[[], Made]) -> Made | str:
        def caught() -> Made | str:
            try:
                return run()
            except Exception as problem:
                return sentence(problem)

        return session.on_device(caught)

    contenders = []
    for line in (setting.line for setting in planned.settings):
        lossless = line.label not in planned.lossy
        contenders.append(Contender(line.label, "method", lossless, clocked(line)))
        contenders.append(Contender(line.label + TRACED, "traced", lossless, recorded(line), rounds=1))
    methods = {setting.line.label: setting.line.method for setting in planned.settings}
    cases, missed = list[Case](), list[Row]()
    for one in session.every_turn():
        if isinstance(one, Case):
            cases.append(one)
        else:
            place = sum(case.prompt.turn == 1 for case in cases) - 1
            for label, method in methods.items():
                labels = {"series": label, "category": one.case.category, "method": method, "trace": "", "role": "run"}
                missed.append({**labels, "verdict": "", "place": place, "repeat": 1, **one.row()})
    ledger = Ledger(target, cases, methods, planned.lossy, session.keep, session.on_device, temperature)
    repeats = planned.experiment.repeats
    if missed:
        yield missed
    for turn, made in alternated(contenders, cases, repeats, call, warm=warm):
        if cancel.is_set():
            return
        yield ledger.add(turn, made)
    timers = [contender for contender in contenders if contender.rounds is None]
    for more in range(1, REPEATED + 1):
        for at, lines in disturbed(ledger.rows).items():
            place = ledger.spots.index(at)
            again = [timer for timer in timers if timer.name in lines or timer.name == PLAIN]
            for turn, made in alternated(again, [cases[place]], repeats, call):
                if cancel.is_set():
                    return
                number = turn.round if turn.round < 0 else turn.round + more * repeats
                yield ledger.add(replace(turn, prompt=place, round=number), made)
