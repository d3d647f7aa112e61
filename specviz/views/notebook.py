"""A trace in a notebook: the standalone page in a frame of its own, so that neither disturbs the other."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from decoders.trace.trace import Trace

from .export import standalone_html


@dataclass(frozen=True, slots=True)
class Display:
    """The result of ``trace.show()``; a notebook draws it by itself.

    ``height`` is in pixels; ``step`` counts from 0.
    """

    trace: Trace
    step: int = 0
    height: int = 980

    def _repr_html_(self) -> str:
        page = escape(standalone_html(self.trace, self.step), quote=True)
        return (
            f'<iframe srcdoc="{page}" title="Trace inspector" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{int(self.height)}px;border:0;border-radius:8px"></iframe>'
        )

    def __repr__(self) -> str:
        name = self.trace.run.get("title") or self.trace.run.get("id")
        return f"Display({name!r}, {self.trace.rows('steps')} steps; open it in a notebook)"


def show(trace: Trace, step: int = 0, height: int = 980) -> Display:
    """A notebook view of a trace, opened at ``step``."""
    return Display(trace, step, height)
