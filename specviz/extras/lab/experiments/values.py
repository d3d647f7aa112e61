"""Values of a parameter: as a user types them, and as a model's shape gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decoders.errors import UserError

MAX_VALUES = 200


def values_of(text: str) -> tuple[Any, ...]:
    """Values as they are typed: a list, or a range with a step (both ends belong to it).

    >>> values_of("1, 2, off"), values_of("0..1 step 0.25")
    ((1, 2, 'off'), (0, 0.25, 0.5, 0.75, 1))
    """
    values: list[Any] = []
    for part in (p.strip() for p in text.replace(";", ",").split(",")):
        if ".." in part:
            values += _range(part)
        elif part:
            values.append(_parse(part))
    if not values:
        raise UserError("no values are given: type some, as in “1, 2, 4” or “0..1 step 0.1”")
    if len(values) > MAX_VALUES:
        raise UserError(f"{len(values)} values are given and at most {MAX_VALUES} are taken: use a wider step")
    return tuple(dict.fromkeys(values))


def _range(part: str) -> list[Any]:
    ends, _, step_text = part.partition("step")
    low_text, _, high_text = ends.partition("..")
    try:
        low, high, step = float(low_text), float(high_text), float(step_text or 1)
        count = (high - low) / step
    except (ValueError, ZeroDivisionError):
        count = float("nan")
        low = step = 0.0
    if not 0 <= count < float("inf"):
        raise UserError(f"{part!r} is no range: it is written like “0..1 step 0.1”, from low to high")
    if count > MAX_VALUES:
        raise UserError(f"{part!r} has {count:,.0f} values and at most {MAX_VALUES} are taken: use a wider step")
    return [_parse(f"{low + i * step:.10g}") for i in range(int(count + 1e-9) + 1)]


def _parse(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def hidden_states(info: Mapping[str, Any]) -> Sequence[int]:
    """Every hidden state of a model, 0 = embeddings."""
    return range(int(info.get("layers") or 1) + 1)


def attention_layers(info: Mapping[str, Any]) -> Sequence[int]:
    """Every attention layer of a model."""
    return range(int(info.get("layers") or 1))


def head_counts(info: Mapping[str, Any]) -> Sequence[int]:
    """1, 2, 4, … heads, up to all of them.

    >>> head_counts({"layers": 3, "heads": 4})
    [1, 2, 4, 8, 12]
    """
    head_total = int(info.get("layers") or 1) * int(info.get("heads") or 1)
    return [*(2**n for n in range(head_total.bit_length()) if 2**n < head_total), head_total]


def draft_layers(info: Mapping[str, Any]) -> Sequence[int]:
    """1, 2 and 4 draft layers, as far as the model has so many to read from.

    >>> draft_layers({"layers": 3})
    [1, 2]
    """
    return [layers for layers in (1, 2, 4) if layers <= int(info.get("layers") or 1)]


def draft_widths(info: Mapping[str, Any]) -> Sequence[int]:
    """A quarter, half, once and twice the model's width, each a multiple of what its heads need.

    >>> draft_widths({"hidden": 256, "heads": 8})
    [64, 128, 256, 512]
    """
    width, unit = int(info.get("hidden") or 64), 2 * int(info.get("heads") or 1)
    return list(dict.fromkeys(max(unit, round(width * share / unit) * unit) for share in (0.25, 0.5, 1, 2)))


def some_layers(info: Mapping[str, Any]) -> Sequence[int]:
    """At most eight attention layers of a model, evenly spread, the first and the last among them.

    >>> some_layers({"layers": 3}), some_layers({"layers": 32})
    ([0, 1, 2], [0, 4, 9, 13, 18, 22, 27, 31])
    """
    last = int(info.get("layers") or 1) - 1
    return list(dict.fromkeys(round(last * place / 7) for place in range(8))) if last > 7 else list(range(last + 1))
