"""A figure with everything that is needed to print, cite and repeat it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO

from decoders.trace import files as tracefile
from decoders.trace.trace import Trace
from specviz.views.export import standalone_html

from . import citing
from .comparison import comparison_figure
from .pdf import pdf
from .sheet import Sheet
from .step import step_figure
from .svg import svg

ALWAYS = datetime(2026, 1, 1, tzinfo=UTC)  # of traces that do not say when they were made


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing of runs, ready to be written; ``step`` (from 0) where it shows one."""

    traces: tuple[Trace, ...]
    sheet: Sheet
    caption: str
    step: int | None = None

    @property
    def name(self) -> str:
        """For files: letters, digits and dashes."""
        method = "comparison" if self.step is None else str(self.traces[0].run["method"]["name"])
        place = "" if self.step is None else f"-step-{self.step + 1}"
        return re.sub(r"[^A-Za-z0-9]+", "-", f"{method}-{self.traces[0].run['id']}{place}").strip("-")[-100:]

    def commands(self, files: Sequence[str] = ()) -> list[str]:
        """Commands that make the runs again, one line per run, from ``files`` or those of ``archive``."""
        names = files if len(files) == len(self.traces) else self._files()
        return [citing.command(trace, file) for file, trace in zip(names, self.traces, strict=True)]

    @property
    def bibtex(self) -> str:
        return "\n\n".join(citing.entries(self.traces).values()) + "\n"

    def _files(self) -> dict[str, Trace]:
        names: dict[str, Trace] = {}
        for number, trace in enumerate(self.traces, 1):
            stem = re.sub(r"[^A-Za-z0-9]+", "-", str(trace.run["method"]["name"])).strip("-") or "run"
            stem += f"-{number}" if f"{stem}.spectrace" in names else ""
            names[f"{stem}.spectrace"] = trace
        return names

    def svg(self) -> str:
        return svg(self.sheet)

    def pdf(self) -> bytes:
        return pdf(self.sheet, _creation_time(self.traces[0]))

    def archive(self) -> bytes:
        """A ZIP file: the figure as PDF and SVG, LaTeX, BibTeX, the runs, of a step the interactive page."""
        keys = list(citing.entries(self.traces))
        label = self.name.lower()
        files: dict[str, str | bytes | None] = {
            "figure.pdf": self.pdf(),
            "figure.svg": self.svg(),
            "figure.tex": citing.latex(self.caption, keys, label),
            "references.bib": self.bibtex,
            "README.txt": self.to_text(),
            **{name: tracefile.save(trace, None) for name, trace in self._files().items()},
        }
        if self.step is not None:
            files["page.html"] = standalone_html(self.traces[0], step=self.step)
        out = BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                if data is not None:
                    archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
        return out.getvalue()

    def to_text(self, files: Sequence[str] = ()) -> str:
        """The caption, the commands (``commands``) and the BibTeX as plain text."""
        command_text = "\n".join(self.commands(files))
        return (
            f"{self.sheet.title}\n\nCaption:\n{self.caption}\n\nMake it again:\n{command_text}\n\nCite:\n{self.bibtex}"
        )


def write(figure: Figure, kind: str) -> tuple[bytes, str]:
    """A figure as a file and its media type; ``kind``: pdf, svg or zip."""
    if kind == "svg":
        return figure.svg().encode(), "image/svg+xml"
    return (figure.pdf(), "application/pdf") if kind == "pdf" else (figure.archive(), "application/zip")


def of_step(trace: Trace, step: int) -> Figure:
    """The figure of a step (from 0)."""
    return Figure((trace,), step_figure(trace, step), citing.caption(trace, step), step)


def of_runs(traces: Sequence[Trace]) -> Figure:
    """The figure of a comparison. Raises UserError for runs that cannot be compared."""
    return Figure(tuple(traces), comparison_figure(traces), citing.comparison_caption(traces))


def _creation_time(trace: Trace) -> datetime:
    try:
        return datetime.strptime(str(trace.run.get("created")), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return ALWAYS
