"""Page "Runs": everything that can be opened again."""

from __future__ import annotations

from specviz.shell.parts import part


def build() -> None:
    part("table", "sv-runs", "runs/page")
