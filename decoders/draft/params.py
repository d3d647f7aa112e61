"""Method parameters: one frozen dataclass per method gives the app's controls, ``--set`` and the sweeps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from decoders.errors import first_line

BOOLEANS = dict.fromkeys(("true", "1", "yes", "on"), True) | dict.fromkeys(("false", "0", "no", "off"), False)


@dataclass(frozen=True)
class NoParams:
    """Of a method without parameters."""


@dataclass(frozen=True, slots=True)
class Control:
    """The display and bounds of one parameter. ``kind`` is int, float, bool, choice, str (which may name a file) or
    text (which names none).
    """

    name: str
    kind: str
    default: Any
    label: str
    help: str
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    option: str = ""  # on the command line, where it is not the name

    def check(self, value: Any) -> Any:
        """The value, converted; ValueError says what was given and what is allowed.

        >>> Control("k", "int", 10, "Draft length", "", 1, 128).check("12")
        12
        """
        words = self.kind in ("choice", "bool")  # "off" is a value of theirs
        if value is None or (isinstance(value, str) and value.strip().lower() in {"", "none", "off"} and not words):
            if self.optional:
                return None
            raise ValueError(f"{self.name} needs a value: {self.range_in_words()}")
        try:
            setting = self._convert(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{self.name}={value!r} is not allowed: {self.range_in_words()}") from None
        out_of_range = (self.low is not None and setting < self.low) or (self.high is not None and setting > self.high)
        if out_of_range or (self.choices and setting not in self.choices):
            raise ValueError(f"{self.name}={value!r} is out of range: {self.range_in_words()}")
        return setting

    def _convert(self, value: Any) -> Any:
        if self.kind == "bool":
            word = str(value).lower()
            if word not in BOOLEANS:
                raise ValueError
            return BOOLEANS[word]
        if self.kind == "int":
            if isinstance(value, bool) or float(value) != int(float(value)):
                raise ValueError
            return int(float(value))
        if self.kind == "float":
            if isinstance(value, bool) or not math.isfinite(float(value)):
                raise ValueError
            return float(value)
        return str(value)

    def range_in_words(self) -> str:
        """The values allowed, in words."""
        if self.choices:
            words = "one of " + ", ".join(self.choices)
        elif self.kind == "bool":
            words = "true or false"
        else:
            words = {"int": "a whole number", "float": "a number"}.get(self.kind, "text")
            if self.low is not None:
                words += f" of at least {self.low:g}" if self.high is None else f" from {self.low:g} to {self.high:g}"
        return words + (", or 'off'" if self.optional else "")


def param(
    default: Any,
    label: str,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    step: float | None = None,
    choices: tuple[str, ...] = (),
    option: str = "",
    text: bool = False,
) -> Any:
    """A dataclass field that carries its control; ``option``: its name on the command line, where that is another.
    ``text``: of words that name no file, so that pages take them and traces are drafted again by them.

    >>> @dataclass(frozen=True)
    ... class Params:
    ...     k: int = param(10, "Draft length", "Tokens copied per draft.", low=1, high=128)
    >>> controls(Params)[0].label
    'Draft length'
    """
    meta = {
        "label": label, "help": help, "low": low, "high": high, "step": step, "choices": choices, "option": option,
        "text": text,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=meta)


def check_order(params: Any, low: str, high: str) -> None:
    """Checks that one field is at most another (of ``__post_init__``).

    Raises ValueError with both values.
    """
    if getattr(params, low) > getattr(params, high):
        raise ValueError(
            f"{low}={getattr(params, low)} is above {high}={getattr(params, high)}: the shortest is at most the longest"
        )


def controls(params: type) -> tuple[Control, ...]:
    """The controls of a params class, in field order; fields without one are left out."""
    hints = get_type_hints(params)
    result = []
    for f in dataclasses.fields(params):
        if "label" not in f.metadata:
            continue
        names = {getattr(t, "__name__", str(t)) for t in getattr(hints[f.name], "__args__", (hints[f.name],))}
        facts = dict(f.metadata)
        kinds = [k for k in ("bool", "int", "float", "str") if k in names]
        if facts.pop("text"):
            kinds = ["text"]
        elif facts["choices"]:
            kinds = ["choice"]
        if not kinds:
            raise ValueError(f"{f.name} is to be of bool, int, float or str, or one of its choices")
        result.append(Control(f.name, kinds[0], f.default, optional="NoneType" in names, **facts))
    return tuple(result)


def card_fault(card: Any, texts: Sequence[str], build: str) -> str:
    """The reason why a named card of a method or verifier cannot be used, in plain words; "" where it can: its
    ``texts`` are to be text, its ``params`` to make controls, and ``build`` says of what its function is one.
    """
    if odd := [part for part in texts if not isinstance(getattr(card, part), str)]:
        return f"{odd[0]} of {card.name} is to be text"
    if not (isinstance(card.params, type) and dataclasses.is_dataclass(card.params)):
        return f"params of {card.name} are to be a frozen dataclass, its fields made with param(…)"
    try:
        make_params(card.params, {control.name: control.default for control in controls(card.params)})
    except Exception as problem:
        return f"params of {card.name} cannot be made into controls: {type(problem).__name__}: {first_line(problem)}"
    return "" if callable(card.build) else f"build of {card.name} is to be a function of {build}"


def make_params(params: type, values: Mapping[str, Any]) -> Any:
    """An instance of ``params`` from names and values (text allowed), checked; fields without a control keep theirs.

    Raises ValueError naming an unknown parameter and those that exist, or a value out of range.
    """
    of = {c.name: c for c in controls(params)}
    without = {f.name: f.default for f in dataclasses.fields(params) if f.name not in of}
    values = {name: value for name, value in values.items() if name not in without or value != without[name]}
    for name in values:
        if name not in of:
            raise ValueError(f"unknown parameter {name!r}: this method has {', '.join(of) or 'no parameters'}")
    return params(**{name: of[name].check(value) for name, value in values.items()})
