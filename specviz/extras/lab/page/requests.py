"""A request of the page Lab, checked, and the experiment and the prompts that come of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import GroupedMetadata
from pydantic import BeforeValidator, Field

from decoders.draft.params import controls
from decoders.errors import UserError
from specviz.server.bodies import Body, SentFile, needs
from specviz.server.desk import Desk
from specviz.server.limits import Rules
from specviz.server.store import UnknownTrace
from specviz.views.prompts import SETS, Case, cases, check_tokens, of_trace, records, sent_records, short_name
from specviz.workers.kinds import KINDS, Workers

from ..experiments.batch import METRICS, MOST_REPEATS, batch
from ..experiments.experiment import Experiment
from ..experiments.free import free
from ..experiments.recipe_files import find_recipe

MOST_WORKERS = 64

EMPTY = BeforeValidator(lambda value: None if value == "" else value)  # fields are sent as they are typed


@dataclass(frozen=True)
class Count(GroupedMetadata):
    """A whole number from 1, as it is typed; ``name`` is what the sentence calls it."""

    name: str
    most: int

    def __iter__(self) -> Iterator[Any]:
        words = f"the number of {self.name} is {{given}}: a whole number from 1 to {self.most:,} is needed"
        return iter((Field(strict=False, ge=1, le=self.most), EMPTY, needs(words)))


Temperature = Annotated[
    float | None, Field(strict=False, ge=0, le=2), EMPTY,
    needs("the temperature is {given}: a number from 0 to 2 is needed"),
]  # fmt: skip
Length = Annotated[
    Literal["fixed", "auto"] | None, EMPTY, needs("the draft length is {given}: fixed or auto is needed")
]
Names = Annotated[list[str], needs("methods are given as a list of their names")]
Value = Annotated[
    Annotated[str, Field(max_length=200)] | int | float | bool | None,
    needs("the value of a parameter is no number and no short text"),
]


class AxisRequest(Body):
    """A parameter that is varied, and its values as they are typed."""

    param: str
    values: Annotated[str, Field(max_length=2000)] = ""


class Sweep(Body):
    """A sweep of one's own."""

    methods: Names = Field(default=[])
    fixed: dict[str, Value] | None = None
    vary: Annotated[list[AxisRequest], needs("a varied parameter is given as its name and its values")] | None = None


class LineRequest(Body):
    """A method with its parameters."""

    method: Annotated[str, needs("methods are given as a list, each with its name and parameters")]
    params: dict[str, Value] | None = None


class BatchRequest(Body):
    """Methods side by side, on every prompt, some times over."""

    lines: Annotated[list[LineRequest], needs("methods are given as a list, each with its name and parameters")]
    repeats: Annotated[int | None, Count("repeats", MOST_REPEATS)] = None


class SourceRequest(Body):
    """Prompts that are no set: a file that is sent, or a recorded run's."""

    file: Annotated[SentFile, needs("no prompt file came through: choose one again")] | None = None
    trace: str | None = None


class ExperimentRequest(Body):
    """An experiment: a recipe by its name, a ``free`` sweep or a ``batch``, and what it runs on.

    ``yes``: also where it takes long.
    """

    recipe: str = ""
    free: Sweep | None = None
    batch: BatchRequest | None = None
    prompts: SourceRequest | str | None = None
    count: Annotated[int | None, Count("prompts", 5000)] = None
    max_new_tokens: Annotated[int | None, Count("new tokens", 4096)] = None
    training_steps: Annotated[int | None, Count("training steps", 100_000)] = None
    temperature: Temperature = None
    length: Length = None
    metrics: Annotated[list[str], needs("metrics are given as a list of their names")] | None = None
    yes: bool = False
    workers: Annotated[int | None, Count("workers", MOST_WORKERS)] = None
    on: str = ""


def worker_kinds(rules: Rules) -> dict[str, str]:
    """Kinds of workers that can be chosen here, in words: none on a shared server, whose users share its one model."""
    return {} if rules.is_shared else {kind.name: kind.about for kind in KINDS.values() if kind.is_installed}


def workers_of(request: ExperimentRequest, rules: Rules) -> Workers | None:
    """The workers that are asked for; None: the app's own model does it. Raises UserError."""
    if request.workers is None and not request.on:
        return None
    kinds = worker_kinds(rules)
    if not kinds:
        raise UserError("workers can be had on a server of one's own only: leave them out")
    workers = Workers(request.workers or 1, request.on or "processes")
    if workers.on not in kinds:
        raise UserError(f"there are no workers of the kind {workers.on!r} here: choose one of {', '.join(kinds)}")
    return workers


def experiment_of(request: ExperimentRequest, methods: Mapping[str, Any]) -> Experiment:
    """The experiment that is asked for. Raises UserError with a sentence."""
    if request.batch is not None:
        lines = [(line.method, dict(line.params or {})) for line in request.batch.lines]
        for method, params in lines:
            _no_files(methods, method, params)
        experiment = batch(lines, request.batch.repeats or 3, request.metrics or METRICS, registry=methods)
    elif request.free is not None:
        fixed, sweep_values = dict(request.free.fixed or {}), {}
        for method in request.free.methods:
            _no_files(methods, method, fixed)
        for axis in request.free.vary or ():
            if axis.param in sweep_values:
                raise UserError(f"{axis.param} is varied twice: choose another second parameter")
            sweep_values[axis.param] = axis.values
        experiment = free(
            request.free.methods, fixed, sweep_values, request.metrics or ("tokens_per_step",), registry=methods
        )
    else:
        experiment = find_recipe(request.recipe)
    prompts = request.prompts
    if isinstance(prompts, SourceRequest):
        prompts = short_name(prompts.file.name) if prompts.file is not None else "the prompt of a recorded run"
    return experiment.changing(
        count=request.count, max_new_tokens=request.max_new_tokens, training_steps=request.training_steps,
        metrics=tuple(request.metrics or ()) or None, prompts=prompts or None, temperature=request.temperature,
        length=request.length,
    )  # fmt: skip


def cases_of(request: ExperimentRequest, experiment: Experiment, desk: Desk, target: Any) -> list[Case]:
    """The prompts that an experiment runs on, for a model. Raises UserError."""
    if experiment.measure is not None:
        return []
    source = request.prompts
    if isinstance(source, SourceRequest) and source.trace is not None:
        try:
            trace = desk.store.get(source.trace)
        except UnknownTrace as problem:
            raise UserError(str(problem)) from None
        if trace.run.get("model", {}).get("vocab") not in (None, target.info.get("vocab")):
            raise UserError("the run shown in Inspect was made by another model: choose other prompts")
        check_tokens(target, trace)
        return [of_trace(trace)]
    if isinstance(source, SourceRequest) and source.file is not None:
        return cases(target.tokenizer, sent_records(source.file.name, source.file.text, experiment.count))
    if experiment.prompts.partition(":")[0] not in SETS:  # a page names no files of this computer
        raise UserError(f"there are no prompts called {experiment.prompts[:60]!r}: choose of {', '.join(SETS)}")
    return cases(target.tokenizer, records(experiment.prompts, experiment.count, toy=desk.toy))


def _no_files(methods: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> None:
    """Raise UserError for a parameter that names a file of this computer."""
    kinds = {c.name: c for c in controls(methods[method].params)} if method in methods else {}
    for name, value in params.items():
        if name in kinds and kinds[name].kind == "str" and value not in ("", None):
            raise UserError(f"{kinds[name].label} names a file: it can be set in the commands only (--set)")
