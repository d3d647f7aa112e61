"""An experiment of one's own: methods, one or two parameters, values, and a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decoders.draft.params import controls
from decoders.errors import UserError

from .experiment import Axis, Experiment, Line, methods_by_name
from .values import values_of

NAME = "own"


def free(
    methods: Sequence[str],
    fixed: Mapping[str, Any],
    vary: Mapping[str, str],
    metrics: Sequence[str] = ("tokens_per_step",),
    *,
    registry: Mapping[str, Any] | None = None,
) -> Experiment:
    """A sweep from what a user typed; values are checked and converted by the first method that has the parameter.
    Of the ``fixed`` ones, "K" is of every method that has it, "METHOD.K" of one.

    A method without any of the varied parameters is drawn level. Two parameters make a heat map.

    >>> free(["plain"], {}, {}).title
    'plain'
    """
    registry = registry or methods_by_name()
    if not methods:
        raise UserError(f"no method was named: choose of {', '.join(registry)}")
    if len(vary) > 2:
        raise UserError(f"{len(vary)} parameters vary, and a chart shows two: fix some of them")
    of = {name: {c.name: c for c in controls(registry[name].params)} if name in registry else {} for name in methods}
    everywhere = {param: control for name in reversed(methods) for param, control in of[name].items()}
    for key in (*fixed, *vary):
        method, _, param = key.rpartition(".")
        known_params = of.get(method, {}) if method else everywhere
        if all(name in registry for name in methods) and param not in known_params:
            known_names = ", ".join(known_params or everywhere) or "no parameters"
            raise UserError(f"there is no parameter {key!r} in {', '.join(methods)}: there is {known_names}")
    axes = []
    for param, text in vary.items():
        control = everywhere.get(param)
        values = [control.check(v) if control else v for v in values_of(text)]
        axes.append(Axis(param, tuple(values), control.label if control else param))
    lines = []
    for name in dict.fromkeys(methods):
        own_params = of[name]
        known_params = [param for param in vary if param in own_params]
        if known_params and len(known_params) < len(vary):
            raise UserError(
                f"{name} has {', '.join(known_params)} but not {', '.join(p for p in vary if p not in own_params)}: "
                "vary parameters that it has all, or leave it out"
            )
        params = {param: value for param, value in fixed.items() if param in own_params}
        params |= {param: fixed[key] for param in own_params if (key := f"{name}.{param}") in fixed}
        title = registry[name].title if name in registry else name
        lines.append(Line(title, name, params, fixed=bool(vary) and not known_params))
    axis_names = " and ".join(axis.label for axis in axes)
    title = ", ".join(methods) + (f": {axis_names}" if axis_names else "")
    chart = "heat" if len(axes) == 2 else "line" if axes else "bar"
    return Experiment(
        NAME, title, tuple(lines), tuple(axes), metrics=tuple(metrics), chart=chart, x="" if axes else "category",
        count=6,
    )  # fmt: skip
