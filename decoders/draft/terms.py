"""Numbers that a method declares: of its candidates, of tree nodes, of steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """A number that belongs to a candidate, a node or a step, as the views show it."""

    key: str
    label: str
    help: str
    low: float = 0.0
    high: float = 1.0
