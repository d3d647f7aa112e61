"""Page "Attribution": what an answer was copied from."""

from __future__ import annotations

from specviz.shell.parts import part


def build() -> None:
    part("attribution", "sv-attribution", "attribution/page")
