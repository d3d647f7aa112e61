"""The one table of results that every view prints: its renderers for terminal, LaTeX, Markdown, CSV and page.

>>> table = ResultTable("Speed", ("", "PLD"), (("code", TableEntry("2.0", best=True)),), 1)
>>> markdown([table], "one prompt").splitlines()[2:]
['|  | PLD |', '| --- | ---: |', '| code | **2.0** |', '', 'one prompt']
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specviz.markup import inert, md, tex

FORMATS = ("csv", "tex", "md")


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A cell about which more is said than its text: the ``spread`` behind it, a ``remark``, whether it is the best of
    its row, was disturbed, is wrong, or (of a head) names a method that is not lossless.
    """

    text: str
    spread: str = ""
    remark: str = ""
    best: bool = False
    disturbed: bool = False
    wrong: bool = False
    lossy: bool = False


Cell = str | TableEntry


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Heads and rows of cells; the first ``words`` columns hold text, the others numbers, as text with one rule per
    column. ``formula``: of the one quantity that it shows; ``rules``: rows that a line stands above.
    """

    title: str
    heads: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: int
    formula: str = ""
    rules: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As the page draws it."""
        heads, *rows = self.lines(PLAIN)
        return {"title": self.title, "heads": heads, "rows": rows, "words": self.words}

    def lines(self, style: Style) -> list[list[str]]:
        """Heads and rows as text."""
        return [[style.cell(cell) for cell in line] for line in (self.heads, *self.rows)]


@dataclass(frozen=True, slots=True)
class Style:
    """A way to write cells: ``name`` escapes text, the others are forms and marks."""

    name: Callable[[str], str] = str
    best: str = "{}"
    wrong: str = "{}"
    spread: str = " [{}]"
    lossy: str = ""
    disturbed: str = ""

    def cell(self, cell: Cell) -> str:
        if isinstance(cell, str):
            return self.name(cell)
        text = self.name(cell.text)
        text = self.best.format(text) if cell.best else self.wrong.format(text) if cell.wrong else text
        text += (self.disturbed if cell.disturbed else "") + (self.lossy if cell.lossy else "")
        return text + (self.spread.format(self.name(cell.spread)) if cell.spread else "") + cell.remark


PLAIN = Style()
TERMINAL = Style(best="{}*", lossy=" †", disturbed="‡")
LATEX = Style(
    tex, r"\textbf{{{}}}", r"\textbf{{{}}}", r" {{\scriptsize [{}]}}", r"\textsuperscript{\dag}",
    r"\textsuperscript{\ddag}",
)  # fmt: skip
MARKDOWN = Style(md, "**{}**", "**{}**", " ({})", " †", "‡")


def latex(tables: Iterable[ResultTable], sentences: str) -> str:
    """A ``table`` with booktabs' rules for each; ``sentences`` stand in every caption."""
    parts = ["% needs \\usepackage{booktabs}"]
    for table in tables:
        heads, *rows = (" & ".join(line) + r" \\" for line in table.lines(LATEX))
        body = [line for n, row in enumerate(rows) for line in ([r"\midrule"] if n in table.rules else []) + [row]]
        equals = f" = {tex(table.formula)}" if table.formula else ""
        kinds = "l" * table.words + "r" * (len(table.heads) - table.words)
        content = "\n".join([heads, r"\midrule", *body])
        parts.append(
            f"\\begin{{table}}\n\\centering\n\\caption{{{tex(table.title)}{equals}. {tex(sentences)}}}\n"
            f"\\begin{{tabular}}{{{kinds}}}\n\\toprule\n{content}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}"
        )
    return "\n\n".join(parts) + "\n"


def markdown(tables: Iterable[ResultTable], sentences: str | Sequence[str]) -> str:
    """A table each, and what has to be known below them: a paragraph, or a list of sentences."""
    parts = []
    for table in tables:
        heads, *rows = table.lines(MARKDOWN)
        rule = ["---"] * table.words + ["---:"] * (len(heads) - table.words)
        equals = f" = {md(table.formula)}" if table.formula else ""
        body = "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *rows))
        parts.append(f"**{md(table.title)}**{equals}\n\n{body}")
    footer = md(sentences) if isinstance(sentences, str) else "\n".join(f"- {md(text)}" for text in sentences)
    return "\n\n".join([*parts, footer]) + "\n"


def csv_text(lines: Iterable[Iterable[Any]]) -> str:
    """Lines as CSV; text that a spreadsheet would run as a formula is made inert."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerows([inert(cell) if isinstance(cell, str) else cell for cell in line] for line in lines)
    return out.getvalue()
