"""Page "Runs": everything that can be opened again."""

from __future__ import annotations

from specviz.server.desk import Desk
from specviz.shell.parts import part


def build(_: Desk) -> None:
    part("table", "sv-runs")
