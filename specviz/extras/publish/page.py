"""Figures for papers, as the pages Inspect and Compare offer them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Response

from decoders.errors import UserError
from specviz.pages.compare.compare_page import Runs
from specviz.server.desk import Service, get
from specviz.server.http import attachment
from specviz.server.routes import file_stem

Form = Literal["zip", "pdf", "svg"]


class Figures(Service):
    """A step, or runs side by side, as a figure with what is needed to cite it."""

    name, order = "figures", 95

    @get("step/{key}")
    def step(self, key: str, step: Annotated[int, Query(ge=0)] = 0, form: Form = "zip") -> Response:
        """A step of a run as an archive with caption, command and BibTeX, or the drawing alone. ``step`` counts from 0.
        Raises UnknownTrace, and UserError for a step that the run does not have.
        """
        from .figures.bundle import of_step, write

        trace: Any = self.desk.trace(key)
        if step >= trace.rows("steps"):
            raise UserError(f"there is no step {step + 1}: this run has steps 1 to {trace.rows('steps')}")
        return attachment(*write(of_step(trace, step), form), f"{file_stem(trace)}-step-{step + 1}.{form}")

    @get("runs")
    def runs(self, runs: Runs) -> Response:
        """The runs that are over as a figure, in an archive."""
        from .figures.bundle import of_runs

        figure = of_runs(list(self.desk.services["compare"].ended_runs(runs).values()))
        return attachment(figure.archive(), "application/zip", f"{figure.name}.zip")
