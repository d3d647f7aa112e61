"""Page "Trees": PPD's trees by size and prompt budget, and what they are worth on this machine."""

from __future__ import annotations

from specviz.shell.parts import part


def build() -> None:
    part("trees", "sv-trees", "trees/page")
