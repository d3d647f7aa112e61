"""Page "Lessons": guided tours over recorded runs."""

from __future__ import annotations

from specviz.shell.parts import part


def build() -> None:
    part("lessons", "sv-lessons", "lesson/page")
