"""Page "Compare": methods side by side on one prompt."""

from __future__ import annotations

from specviz.shell.parts import part


def build() -> None:
    part("compare", "sv-compare", "compare/page")
