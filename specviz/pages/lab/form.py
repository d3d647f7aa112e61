"""Page "Lab": experiments of the papers and sweeps of one's own, run on real prompts and drawn."""

from __future__ import annotations

from specviz.shell.parts import part


def build() -> None:
    part("lab", "sv-lab", "lab/page")
