"""Method parameters: one frozen dataclass per method gives the app's controls, ``--set`` and the sweeps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints


@dataclass(frozen=True)
class NoParams:
    """Of a method without parameters."""


@dataclass(frozen=True, slots=True)
class Control:
    """How one parameter is shown and checked. ``kind`` is int, float, bool, str or choice."""

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

    def check(self, given: Any) -> Any:
        """The value, converted; ValueError says what was given and what is allowed.

        >>> Control("k", "int", 10, "Draft length", "", 1, 128).check("12")
        12
        """
        words = self.kind in ("choice", "bool")  # "off" is a value of theirs
        if given is None or (isinstance(given, str) and given.strip().lower() in {"", "none", "off"} and not words):
            if self.optional:
                return None
            raise ValueError(f"{self.name} needs a value: {self.allowed()}")
        try:
            value = self._convert(given)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{self.name}={given!r} is not allowed: {self.allowed()}") from None
        outside = (self.low is not None and value < self.low) or (self.high is not None and value > self.high)
        if outside or (self.choices and value not in self.choices):
            raise ValueError(f"{self.name}={given!r} is out of range: {self.allowed()}")
        return value

    def _convert(self, given: Any) -> Any:
        if self.kind == "bool":
            if isinstance(given, bool):
                return given
            words = {
                "true": True,
                "1": True,
                "yes": True,
                "on": True,
                "false": False,
                "0": False,
                "no": False,
                "off": False,
            }
            return words[str(given).lower()] if str(given).lower() in words else int("not a bool")
        if self.kind == "int":
            if isinstance(given, bool) or float(given) != int(float(given)):
                raise ValueError
            return int(float(given))
        if self.kind == "float":
            if isinstance(given, bool) or not math.isfinite(float(given)):
                raise ValueError
            return float(given)
        return str(given)

    def allowed(self) -> str:
        """What may be given, in words."""
        if self.choices:
            words = "one of " + ", ".join(self.choices)
        elif self.kind == "bool":
            words = "true or false"
        else:
            noun = {"int": "a whole number", "float": "a number", "str": "text"}[self.kind]
            if self.low is not None and self.high is not None:
                noun += f" from {self.low:g} to {self.high:g}"
            elif self.low is not None:
                noun += f" of at least {self.low:g}"
            words = noun
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
) -> Any:
    """A dataclass field that carries its control.

    >>> @dataclass(frozen=True)
    ... class Params:
    ...     k: int = param(10, "Draft length", "Tokens copied per draft.", low=1, high=128)
    >>> controls(Params)[0].label
    'Draft length'
    """
    meta = {"label": label, "help": help, "low": low, "high": high, "step": step, "choices": choices}
    return dataclasses.field(default=default, metadata=meta)


def controls(params: type) -> tuple[Control, ...]:
    """The controls of a params class, in field order."""
    hints = get_type_hints(params)
    result = []
    for f in dataclasses.fields(params):
        names = {getattr(t, "__name__", str(t)) for t in getattr(hints[f.name], "__args__", (hints[f.name],))}
        kind = "choice" if f.metadata["choices"] else next(k for k in ("bool", "int", "float", "str") if k in names)
        result.append(Control(f.name, kind, f.default, optional="NoneType" in names, **f.metadata))
    return tuple(result)


def make_params(params: type, given: Mapping[str, Any]) -> Any:
    """An instance of ``params`` from names and values (text allowed), checked.

    Raises ValueError naming an unknown parameter and those that exist, or a value out of range.
    """
    known = {c.name: c for c in controls(params)}
    for name in given:
        if name not in known:
            raise ValueError(f"unknown parameter {name!r}: this method has {', '.join(known) or 'no parameters'}")
    return params(**{name: known[name].check(value) for name, value in given.items()})
