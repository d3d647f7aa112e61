"""Cards of methods and verifiers as the pages have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from decoders.draft.params import Control, controls
from decoders.names import BASELINE

RULE = ("name", "title", "source", "summary", "lossless", "greedy_match")  # a verifier's facts


def of_model(control: Control, target: Any) -> Control:
    """A method's control as a model bounds it: its layers, and its heads."""
    if target is None or control.name not in ("layer", "heads") or control.high is None:
        return control
    layers, heads = (int(target.info.get(name) or 0) for name in ("layers", "heads"))
    limit = layers if control.name == "layer" else layers * heads
    return dataclasses.replace(control, high=min(control.high, limit)) if limit else control


def verifier_cards(names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Verifiers as the pages have them, with their controls; no ``names``: all. Raises UserError for an unknown one."""
    from decoders.drafters import find_verifier, verifiers

    return [
        {**{name: getattr(card, name) for name in RULE},
         "controls": [dataclasses.asdict(c) for c in controls(card.params) if c.kind != "str"]}
        for card in (verifiers().values() if names is None else map(find_verifier, names))
    ]  # fmt: skip


def judges(method: Any) -> dict[str, bool]:
    """Verifiers that can judge a method's drafts: whether its output is then lossless; {} where it drafts nothing."""
    if not hasattr(method, "verifier_params") or method.name == BASELINE:
        return {}
    from decoders.drafters import verifiers
    from decoders.method.method import judges_of

    return judges_of(method, verifiers().values())


def part_training(method: Any, target: Any) -> dict[str, Any]:
    """Training of the part that a method drafts with for this model (``training_facts``); {} without one."""
    part = method.part
    if part is None or target is None:
        return {}
    from decoders.parts import find_part, read_part, training_facts

    place = find_part(target.key, part.kind.name)
    return {} if place is None else training_facts(read_part(place).training)
