"""Load: a verify step's time by rows, batch and context, L(rows, batch, context), as it was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decoders.folders import reading

SCHEMA = "specload/1"


@dataclass(frozen=True, slots=True)
class Cell:
    """A measured step: ``batch`` runs of ``rows`` rows each behind ``context`` tokens; ``experts``: unique experts that
    one MoE layer read, on average (None: the model has none).
    """

    batch: int
    rows: int
    context: int
    ms: float
    low: float
    high: float
    experts: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """L(rows, batch, context) of one machine and model: straight lines between the measured cells, the last slope
    beyond. ``setup`` says what it belongs to. Raises ValueError where a cell of the grid is missing.
    """

    model: str
    setup: Mapping[str, Any]
    cells: tuple[Cell, ...]
    rounds: int = 0

    def __post_init__(self) -> None:
        whole = {(b, r, c) for b in self.batches for r in self.rows for c in self.contexts}
        if not self.cells or whole != {(cell.batch, cell.rows, cell.context) for cell in self.cells}:
            raise ValueError("a load has a time for each of its batches, rows and contexts: measure it again")
        if not all(0 < cell.ms < 1e9 for cell in self.cells) or self.batches[0] != 1 or self.rows[0] != 1:
            raise ValueError("a load begins with one run of one row, and its times are milliseconds above 0")

    @property
    def batches(self) -> tuple[int, ...]:
        return tuple(sorted({cell.batch for cell in self.cells}))

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(sorted({cell.rows for cell in self.cells}))

    @property
    def contexts(self) -> tuple[int, ...]:
        return tuple(sorted({cell.context for cell in self.cells}))

    def ms(self, rows: float, batch: float = 1, context: float | None = None) -> float:
        """L(rows, batch, context): ``rows`` of each run. Without a context, the shortest measured.

        >>> cells = [Cell(b, r, 64, 10.0 + b * r, 0, 0) for b in (1, 2) for r in (1, 4)]
        >>> Load("m", {}, tuple(cells)).ms(2, 4)
        18.0
        """
        grid = np.array([
            [[self.at(b, r, c).ms for r in self.rows] for b in self.batches] for c in self.contexts
        ])  # fmt: skip
        for axis in (1, 2):  # more work takes no less time, however a measurement was disturbed
            grid = np.maximum.accumulate(grid, axis)
        by_batch = _line(self.contexts, grid, self.contexts[0] if context is None else context)
        by_rows = _line(self.batches, by_batch, batch)
        return float(_line(self.rows, by_rows, rows))

    def at(self, batch: int, rows: int, context: int) -> Cell:
        """The measured cost of so many rows. Raises StopIteration for rows that were not measured."""
        return next(c for c in self.cells if (c.batch, c.rows, c.context) == (batch, rows, context))

    def to_json(self) -> dict[str, Any]:
        cells = [[c.batch, c.rows, c.context, c.ms, c.low, c.high, c.experts] for c in self.cells]
        return {"schema": SCHEMA, "model": self.model, "setup": dict(self.setup), "rounds": self.rounds, "cells": cells}

    @classmethod
    def from_json(cls, data: Any) -> Load:
        """Back from ``to_json``. Raises ValueError in one sentence for anything else."""
        with reading(data, SCHEMA, "measured load"):
            cells = tuple(
                Cell(int(b), int(r), int(c), float(ms), float(low), float(high), None if e is None else float(e))
                for b, r, c, ms, low, high, e in data["cells"]
            )
            return cls(str(data["model"]), dict(data["setup"]), cells, int(data["rounds"]))


def _line(at: Sequence[int], values: np.ndarray, point: float) -> np.ndarray:
    """Values along the first axis at ``point``; the last slope beyond, never falling."""
    values = np.asarray(values, dtype=np.float64)
    if len(at) == 1:
        return values[0]
    right = int(np.clip(np.searchsorted(at, point), 1, len(at) - 1))
    left_index = right - 1
    slope = (values[right] - values[left_index]) / (at[right] - at[left_index])
    if point > at[-1]:
        return values[-1] + np.maximum(slope, 0) * (point - at[-1])
    return values[left_index] + slope * (max(point, at[0]) - at[left_index])
