"""Tables of results as files' text: CSV, LaTeX and Markdown; a batch's also as rows for the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decoders.errors import UserError
from specviz.markup import inert, md, tex

from .figures import caption
from .grids import grids
from .results import Results
from .tables import OVERALL, Cell, Check, Table, checks, columns_of, notes, tables, warnings

FORMATS = ("csv", "tex", "md")


def written(results: Results, form: str, metrics: Sequence[str] | None = None) -> str:
    """The tables as a file's text, ``form`` of ``FORMATS``. Raises UserError for another form or metric."""
    if form not in FORMATS:
        raise UserError(f"tables are not written as {form[:20]!r}: choose of {', '.join(FORMATS)}")
    if not results.about.get("repeats"):
        return _drawn(results, form, metrics)
    makers = {"csv": _csv, "tex": _latex, "md": _markdown}
    return makers[form](results, tables(results, metrics))


def _drawn(results: Results, form: str, metrics: Sequence[str] | None) -> str:
    """The tables below charts: a row per point, a table per profile."""
    every = grids(results, metrics)
    if form == "csv":
        out = io.StringIO(newline="")
        writer = csv.writer(out, lineterminator="\r\n")
        for table in every:
            writer.writerows([map(inert, line) for line in (table.heads, *table.rows)])
        return out.getvalue()
    sentences = " ".join([caption(results), *results.about["notes"]])
    if form == "md":
        parts = []
        for table in every:
            rules = ["---"] * table.words + ["---:"] * (len(table.heads) - table.words)
            lines = [list(map(md, table.heads)), rules, *(list(map(md, row)) for row in table.rows)]
            parts.append("\n".join([f"**{md(table.title)}**\n", *(f"| {' | '.join(line)} |" for line in lines)]))
        return "\n\n".join([*parts, md(sentences)]) + "\n"
    parts = ["% needs \\usepackage{booktabs}"]
    for table in every:
        heads, *lines = (" & ".join(map(tex, row)) + r" \\" for row in (table.heads, *table.rows))
        kinds = "l" * table.words + "r" * (len(table.heads) - table.words)
        body = "\n".join([heads, r"\midrule", *lines])
        parts.append(_environment(f"{tex(table.title)}. {tex(sentences)}", kinds, body))
    return "\n\n".join(parts) + "\n"


def _environment(words: str, kinds: str, body: str) -> str:
    """LaTeX's ``table`` with booktabs' rules; all of it is escaped already."""
    return (
        f"\\begin{{table}}\n\\centering\n\\caption{{{words}}}\n"
        f"\\begin{{tabular}}{{{kinds}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}"
    )


def _csv(results: Results, every: Sequence[Table]) -> str:
    """A line per metric and task, whole numbers of digits, three columns per method; the checks are lines of their own.

    Shares are from 0 to 1 here.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    columns = columns_of(results)
    heads = [part for name in columns for part in (name, f"{name} low", f"{name} high")]
    counts = every[0].counts if every else "prompts"
    writer.writerow(["metric", "unit", "task", counts, *(inert(head) for head in heads)])
    for table in every:
        for line in table.lines:
            numbers = [number for cell in line.cells for number in (cell.mean, cell.low, cell.high)]
            exact = ["" if number is None else f"{number:.6g}" for number in numbers]
            writer.writerow([table.metric, table.unit, inert(line.name), line.prompts, *exact])
    checked = {check.name: check for check in checks(results)}
    for key, of in (("outputs_checked", "checked"), ("outputs_same_as_plain", "same"), ("outputs_bugs", "bugs")):
        counts = [part for name in columns for part in (getattr(checked[name], of), "", "")]
        writer.writerow([key, "outputs", OVERALL, "", *counts])
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class Style:
    """How a kind of file writes names, the best of a row, a check that failed, the range, and the marks of a method
    that is not lossless and of what was disturbed.
    """

    name: Callable[[str], str]
    best: str
    failed: str
    spread: str
    lossy: str
    disturbed: str

    def cell(self, cell: Cell) -> str:
        text = self.best.format(cell.text) if cell.best else self.name(cell.text)
        text += self.disturbed if cell.disturbed else ""
        spread = self.spread.format(self.name(cell.spread)) if cell.spread else ""
        return text + spread + (cell.partly and f" ({cell.partly})")

    def check(self, check: Check) -> str:
        return self.failed.format(self.name(check.text)) if check.bugs else self.name(check.text)


TERMINAL = Style(str, "{}*", "{}", " [{}]", " †", "‡")


def grid(results: Results, table: Table, style: Style = TERMINAL) -> list[list[str]]:
    """A table as rows of text: the heads, a row per task, and the outputs' check against plain decoding."""
    checked = {check.name: check for check in checks(results)}
    heads = [style.name(name) + (style.lossy if checked[name].lossy else "") for name in table.columns]
    lines = [[style.name(one.name), f"{one.prompts:,}", *map(style.cell, one.cells)] for one in table.lines]
    return [
        ["task", table.counts, *heads], *lines,
        ["same as plain", "", *(style.check(checked[name]) for name in table.columns)],
    ]  # fmt: skip


def _latex(results: Results, every: Sequence[Table]) -> str:
    """A ``table`` with booktabs' rules per metric; the best of a row is bold."""
    bold = r"\textbf{{{}}}"
    style = Style(
        tex, bold, bold, r" {{\scriptsize [{}]}}", r"\textsuperscript{\dag}", r"\textsuperscript{\ddag}"
    )  # fmt: skip
    sentences = tex(" ".join([*warnings(results), *notes(results)]))
    parts = ["% needs \\usepackage{booktabs}"]
    for table in every:
        heads, *lines, same = (" & ".join(row) + r" \\" for row in grid(results, table, style))
        if len(lines) > 1:
            lines.insert(-1, r"\midrule")
        body = "\n".join([heads, r"\midrule", *lines, r"\midrule", same])
        words = f"{tex(table.title)} = {tex(table.formula)}. {sentences}"
        parts.append(_environment(words, f"l{'r' * (len(table.columns) + 1)}", body))
    return "\n\n".join(parts) + "\n"


def _markdown(results: Results, every: Sequence[Table]) -> str:
    """A table per metric, the best of a row bold, and the notes below."""
    style = Style(md, "**{}**", "**{}**", " ({})", " †", "‡")
    parts = []
    for table in every:
        heads, *rows = grid(results, table, style)
        rows = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
        body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        parts.append(f"**{md(table.title)}** = {md(table.formula)}\n\n{body}")
    sentences = "\n".join(f"- {md(text)}" for text in (*warnings(results), *notes(results)))
    return "\n\n".join([*parts, sentences]) + "\n"
