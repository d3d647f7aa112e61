"""An experiment: which methods and parameters vary over which values, on which prompts, and what is measured.

>>> drafts = Experiment(
...     "draft-length", "Draft length", lines=(Line("PLD", "pld"), Line("PLD+ (h)", "pld+h")),
...     axes=(Axis("k", (5, 10, 20)),), prompts="demo:summary", count=4,
... )
>>> [setting.values for setting in drafts.settings({})][:3]
[{'k': 5}, {'k': 10}, {'k': 20}]
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decoders.draft.params import controls, make_params, param
from decoders.draft.settings import length_param
from decoders.errors import UserError
from decoders.method.part import DRAFT_MODELS, PROMPT_TOKENS

from .quantities import LEARNT, Breakdown, Profile, Quantity, find_quantity, near

DRAFTER = "drafter"  # the parameter that names a draft model
CATEGORY, LINE = "category", "line"  # what x may be beside a parameter
AS_IT_IS = (  # fields of an experiment that its description has as they are
    "name", "title", "paper", "figure", "question", "finding", "note", "prompts", "count", "max_new_tokens",
    "temperature", "length", "by_category", "chart", "against", "repeats", "rounds",
    "tested", "groups",
)  # fmt: skip
Row = dict[str, Any]
Values = tuple[Any, ...] | Callable[[Mapping[str, Any]], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter and the values it takes; a function makes them from what the model is (its number of layers, say).

    ``paper`` is the value the paper settled on, where it says so: marked in the chart. ``measured``: the values are not
    gone through, but come with what is measured (its rows say them).
    """

    param: str
    values: Values
    label: str = ""
    log: bool = False
    paper: float | None = None
    measured: bool = False

    def over(self, info: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values for a model, each once, in order."""
        values = self.values(info) if callable(self.values) else self.values
        return tuple(dict.fromkeys(values))


@dataclass(frozen=True, slots=True)
class Line:
    """A method with fixed parameters: a line of the chart. ``fixed``: the axes do not apply (drawn level).

    With ``trains`` (settings that its kind of part varies; none: the usual ones) it drafts with a part trained for the
    experiment; an axis may vary such a setting too. ``asks``: it drafts with a model of other people's, which is named
    by a setting of this name; until then it is left out.
    """

    label: str
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    fixed: bool = False
    asks: str = ""
    trains: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PaperSeries:
    """Numbers that a paper prints, as (x, y); ``where`` cites them. Of a breakdown, x names the part. ``errors`` are
    the printed ± of such as have one, as (x, error).
    """

    label: str
    where: str
    metric: str
    points: tuple[tuple[Any, float], ...]
    model: str
    errors: tuple[tuple[Any, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """One line at one point of the axes."""

    line: Line
    values: Mapping[str, Any]

    @property
    def params(self) -> dict[str, Any]:
        """The method's parameters."""
        return {**self.line.params, **self._values(trained=False)}

    @property
    def trains(self) -> dict[str, Any] | None:
        """Settings of the part to be trained for it; None where it takes what is there."""
        return None if self.line.trains is None else {**self.line.trains, **self._values(trained=True)}

    def _values(self, *, trained: bool) -> dict[str, Any]:
        learnt = training_settings(self.line)
        return {name: value for name, value in self.values.items() if (name in learnt) == trained}


@dataclass(frozen=True)
class Experiment:
    """An experiment: its runs and its drawings.

    ``question`` is what the experiment answers; ``finding`` is what the paper found. ``prompts`` names a prompt set
    (``specviz.views.prompts``) of ``count`` prompts. ``x`` is what goes along the chart: a parameter,
    ``category`` (the prompts' tasks) or ``line`` (default: the first axis, else the tasks or the lines).
    ``by_category`` keeps the tasks apart where x is something else; ``groups`` names what stands in their place.
    ``arrange`` may turn the runs' rows into what is drawn. Two fields replace the runs, and yield rows of
    their own, whose numbers ``own`` describes: ``measure(target,
    method, params)`` once per setting, without prompts, and ``look(target, method, params, prompt, max_new_tokens)``
    once per setting and prompt; ``method`` is the line's, by name. ``against`` is a metric: lines are drawn over its
    means instead of over the parameter's values. Parts that lines train learn from ``data`` ("demo" or files) for
    ``training_steps`` steps each. With ``repeats`` it is a batch (``batch``): a table of tasks ×
    lines, every run timed so many times.
    ``rounds``: every run is made so many times, and tables say how far the means of these lie apart. ``tested`` names a
    line that is tested against the best other one, prompt by prompt (``significance``). ``forced``:
    the methods decode the prompts' own answers, teacher-forced, and are scored by the quotes in them
    (``quote_scores``). ``chart`` is line, bar, stack, heat (two axes), sheet (a table of lines ×
    tasks, ``sheets``) or cases (the answers themselves, ``answers``).
    """

    name: str
    title: str
    lines: tuple[Line, ...] = ()
    axes: tuple[Axis, ...] = ()
    paper: str = ""
    figure: str = ""
    question: str = ""
    finding: str = ""
    note: str = ""
    prompts: str = param(
        "demo:code_edit,text_edit,summary", "Prompts", "prompt file, or demo[:task,…], examples[:task,…], turns"
    )
    count: int = param(6, "Prompts", "read at most N prompts", low=1, high=5000, option="limit")
    max_new_tokens: int = param(96, "New tokens", "tokens per answer", low=1, high=4096)
    temperature: float = param(0.0, "Temperature", "0 is greedy", low=0, high=2)
    length: str = length_param()
    metrics: tuple[str, ...] = ("tokens_per_step",)
    x: str = ""
    by_category: bool = False
    groups: str = "task"
    chart: str = "line"
    papers: tuple[PaperSeries, ...] = ()
    arrange: Callable[[list[Row]], list[Row]] | None = None
    measure: Callable[[Any, str, Mapping[str, Any]], Iterator[Row]] | None = None
    look: Callable[[Any, str, Mapping[str, Any], Any, int], Iterator[Row]] | None = None
    own: tuple[Quantity, ...] = ()
    against: str = ""
    training_steps: int = param(150, "Training steps", "of each model", low=1, high=100_000)
    data: tuple[str, ...] = ("demo",)
    repeats: int = 0
    rounds: int = 1
    tested: str = ""
    forced: bool = False

    def settings(self, info: Mapping[str, Any]) -> list[Setting]:
        """Every line at every point of the axes, for a model."""
        axes = [axis for axis in self.axes if not axis.measured]
        grid = [
            dict(zip((axis.param for axis in axes), point, strict=True))
            for point in itertools.product(*(axis.over(info) for axis in axes))
        ]
        return [Setting(line, values) for line in self.lines for values in ([{}] if line.fixed else grid)]

    def fixing(self, params: Mapping[str, Any]) -> Experiment:
        """With parameters fixed: "K" in every line whose method has it, "METHOD.K" in those of one method. Raises
        UserError for one that none has, or that is varied or compared here.
        """
        methods = methods_by_name()
        lines = list(self.lines)
        for key, value in sorted(params.items(), key=lambda pair: "." in pair[0]):  # a method's own wins
            method, _, name = key.rpartition(".")
            if asking := [n for n, line in enumerate(lines) if line.asks == name]:
                for n in asking:
                    lines[n] = dataclasses.replace(lines[n], params={**lines[n].params, DRAFTER: value}, asks="")
                continue
            entries = [methods.get(line.method) for line in lines]
            of = [{control.name for control in controls(entry.params)} if entry else set() for entry in entries]
            matches = [method in ("", line.method) and not line.asks for line in lines]
            having = [n for n, names in enumerate(of) if name in names and matches[n]]
            if not having:
                raise UserError(f"no method of {self.name} has a parameter {key!r}: leave it out")
            values = {repr(self.lines[n].params.get(name)) for n in having}
            is_axis = name in {axis.param for axis in self.axes} or len(values) > 1
            if is_axis or (self.trains and name in ("part", "drafter")):
                raise UserError(f"{self.name} compares values of {name}: leave it out, or make a sweep of your own")
            for n in having:
                lines[n] = dataclasses.replace(lines[n], params={**lines[n].params, name: value})
        return dataclasses.replace(self, lines=tuple(lines))

    def changing(self, **values: Any) -> Experiment:
        """With other values of its fields, as far as they are not None."""
        return dataclasses.replace(self, **{name: value for name, value in values.items() if value is not None})

    @property
    def along_axis(self) -> str:
        """The name of the x axis: a parameter, the tasks, or the lines."""
        return self.x or (self.axes[0].param if self.axes else CATEGORY if self.by_category else LINE)

    def quantity(self, key: str) -> Quantity | Breakdown | Profile:
        """A metric of this experiment by key. Raises UserError naming those there are."""
        return find_quantity(key, self.own)

    @property
    def baseline(self) -> bool:
        """True where plain decoding has to be run beside it, for the speedup; what replaces runs measures its own."""
        return "speedup" in self.metrics and self.measure is None and self.look is None

    @property
    def trains(self) -> bool:
        """True where parts are trained for it."""
        return any(line.trains is not None for line in self.lines)

    @property
    def parts(self) -> tuple[str, str]:
        """The parts that are trained for it, in words: one, several.

        >>> Experiment("x", "X", (Line("PPD", "ppd", trains={}),)).parts
        ('set of prompt tokens', 'sets of prompt tokens')
        """
        kinds = {trainable(line.method) for line in self.lines if line.trains is not None}
        families = {kind.training.family for kind in kinds if kind is not None}
        if families == {PROMPT_TOKENS}:
            return "set of prompt tokens", "sets of prompt tokens"
        return ("draft model", "draft models") if families == {DRAFT_MODELS} else ("part", "parts")

    @property
    def needs_reference(self) -> bool:
        return any(self.quantity(key).needs_reference for key in self.metrics)

    def check(self, methods: Mapping[str, Any], info: Mapping[str, Any] | None = None) -> None:
        """Raise UserError for an unknown method, parameter, metric or value, naming what exists.

        >>> Experiment("x", "X", (Line("A", "plain"),), metrics=("speed",)).check({})
        Traceback (most recent call last):
        decoders.errors.UserError: there is no metric 'speed'...
        """
        for key in (*self.metrics, *filter(None, [self.against])):
            self.quantity(key)
        missing = [key for key in LEARNT if key in self.metrics and not self.trains and self.measure is None]
        if missing:
            raise UserError(f"{missing[0]} is measured where parts are trained, and none are here: leave it out")
        if not self.lines:
            raise UserError("nothing is to be run: choose at least one method")
        if len(self.axes) > 2:
            raise UserError(f"{len(self.axes)} parameters vary, and a chart shows two: fix some of them")
        for line in self.lines:
            if line.method not in methods:
                raise UserError(
                    f"there is no method {line.method!r}{near(line.method, methods)}: "
                    f"choose one of {', '.join(methods)}"
                )
            if line.trains is not None and trainable(line.method) is None:
                trainable_names = ", ".join(name for name in methods if trainable(name) is not None)
                raise UserError(f"{line.method} has no part to train: choose one of {trainable_names}")
            for name in line.trains or ():
                if name not in training_settings(line):
                    raise UserError(
                        f"{name!r} is no setting of training: choose one of {', '.join(training_settings(line))}"
                    )
            try:
                make_params(methods[line.method].params, line.params)
            except ValueError as problem:
                raise UserError(f"{line.method}: {problem}") from None
            parameters = {control.name: control for control in controls(methods[line.method].params)}
            for axis in () if line.fixed or self.measure is not None else self.axes:
                if axis.measured:
                    continue
                learnt = axis.param in training_settings(line)
                if axis.param not in parameters and not learnt:
                    known_names = ", ".join(parameters) or "no parameters"
                    close = near(axis.param, parameters)
                    raise UserError(f"{line.method} has no parameter {axis.param!r}{close}: it has {known_names}")
                if callable(axis.values) and info is None:
                    continue
                values = axis.over(info or {})
                if not values:
                    raise UserError(f"{axis.param} has no values: give some, as in “1, 2, 4” or “0..1 step 0.1”")
                for value in () if learnt else values:
                    parameters[axis.param].check(value)
        if self.along_axis not in {LINE, CATEGORY, *(axis.param for axis in self.axes)}:
            raise UserError(f"x={self.x!r} is neither a varied parameter nor {CATEGORY!r} nor {LINE!r}")

    def describe(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """All of it as JSON, the values settled for a model: enough to draw and to run it again."""
        axes = [
            {"param": a.param, "label": a.label or a.param, "log": a.log, "paper": a.paper, "values": [*a.over(info)]}
            for a in self.axes
        ]
        return {
            **{name: getattr(self, name) for name in AS_IT_IS}, "metrics": list(self.metrics), "x": self.along_axis,
            "axes": axes, "against_label": self.quantity(self.against).label if self.against else "",
            "training_steps": self.training_steps if self.trains else 0, "data": list(self.data),
            "parts": self.parts[1] if self.trains else "", "promptless": self.measure is not None,
            "lines": [{**dataclasses.asdict(line), "params": dict(line.params)} for line in self.lines],
            "papers": [dataclasses.asdict(series) for series in self.papers],
            "own": [{k: v for k, v in dataclasses.asdict(q).items() if k != "of"} for q in self.own],
        }  # fmt: skip


def methods_by_name() -> Mapping[str, Any]:
    """The methods there are."""
    from decoders import methods

    return methods()


def trainable(method: str) -> Any:
    """The kind of part (``decoders.method.part.Kind``) of a method, where an experiment can train it; else None."""
    entry = methods_by_name().get(method)
    part = entry.part if entry is not None and entry.part is not None and entry.part.owner is None else None
    return part.kind if part is not None and part.kind.training is not None and part.kind.training.varies else None


def training_settings(line: Line) -> tuple[str, ...]:
    """The settings of training that may differ between a line's parts; none where it takes the part that is there."""
    kind = trainable(line.method) if line.trains is not None else None
    return () if kind is None else kind.training.varies


def text_of(value: Any) -> str:
    """A parameter's value as charts, tables and files show it.

    >>> text_of(None), text_of(True), text_of(0.1), text_of(30)
    ('off', 'yes', '0.1', '30')
    """
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
