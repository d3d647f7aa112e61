"""Page "Runs": everything that can be opened again."""

from __future__ import annotations

from .parts import RunTable


def build() -> None:
    RunTable(elem_id="sv-runs")
