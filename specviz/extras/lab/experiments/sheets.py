"""Tables of methods × tasks as the papers print them, as figures and as text: ours first, then each of the paper's.

A method that was not run has a sentence in its cells: what would fill them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from specviz.views.prompts import NAMES
from specviz.words import column, with_unit

from .drawing import Chart, hover, new_figure, plain, value_of
from .drawing import visible_text as place_shown
from .quantities import Quantity
from .results import Results

OWN_COLOR, PAPER_COLOR = "0,114,178", "138,138,138"  # red, green, blue of the cells
LONGEST_WORDS = 44  # of what would fill a row, in the figure
MOST_ABREAST = 48  # characters of a figure's column heads, side by side
ERROR_LINE = "<br><span style='font-size:10px'>± {}</span>"  # below a cell's number


@dataclass(frozen=True, slots=True)
class Sheet:
    """``values`` ``[rows][columns]``, None where there is none; ``points``: the results' points behind them. ``about``
    says whose numbers these are; ``absent``: row → what would fill it; ``runs`` of each row. ``errors``: what stands
    behind ±, where several rounds were made (ours: their means' standard deviation) or a paper prints it.
    """

    about: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    points: tuple[tuple[int | None, ...], ...] = ()
    absent: Mapping[str, str] | None = None
    runs: tuple[int, ...] = ()
    errors: tuple[tuple[float | None, ...], ...] = ()


def sheets(results: Results, quantity: Quantity, points: Sequence[Mapping[str, Any]]) -> list[Sheet]:
    """Ours, and the paper's tables of the quantity, one per model."""
    about = results.about
    absent = dict(about.get("absent") or {})
    series_names = dict.fromkeys(point["series"] for point in points)
    rows = [line["label"] for line in about["lines"] if line["label"] in series_names or line["label"] in absent]
    rows = [*(name for name in series_names if name not in rows), *rows]
    columns = list(dict.fromkeys(point["x"] for point in points))
    at = {(point["series"], point["x"]): n for n, point in enumerate(points)}
    index = tuple(tuple(at.get((row, x)) for x in columns) for row in rows)
    values = tuple(tuple(None if n is None else value_of(points[n], quantity.key) for n in row) for row in index)
    runs = tuple(max((points[n]["count"] for n in row if n is not None), default=0) for row in index)
    round_errors = [
        [None if n is None else points[n]["values"][quantity.key].get("rounds") for n in row] for row in index
    ]
    errors = tuple(map(tuple, round_errors)) if any(error for row in round_errors for error in row) else ()
    titles = tuple(str(NAMES.get(x, x)) for x in columns)
    name = (about["model"].get("name") or "model") + results.rough(quantity)
    return [
        Sheet(name, tuple(rows), titles, values, index, absent, runs, errors), *_paper_sheets(about, quantity, rows)
    ]  # fmt: skip


def _paper_sheets(about: Mapping[str, Any], quantity: Quantity, order: Sequence[str]) -> Iterator[Sheet]:
    series = [entry for entry in about["papers"] if entry["metric"] == quantity.key]
    for place, model in dict.fromkeys((entry["where"], entry["model"]) for entry in series):
        place_series = [entry for entry in series if (entry["where"], entry["model"]) == (place, model)]
        curves = {entry["label"]: dict(entry["points"]) for entry in place_series}
        paper_errors = {entry["label"]: dict(entry.get("errors") or ()) for entry in place_series}
        rows = sorted(curves, key=lambda label: list(order).index(label) if label in order else len(order))
        columns = list(dict.fromkeys(x for curve in sorted(curves.values(), key=len, reverse=True) for x in curve))
        values = tuple(tuple(curves[row].get(x) for x in columns) for row in rows)
        errors = (
            tuple(tuple(paper_errors[row].get(x) for x in columns) for row in rows)
            if any(paper_errors.values())
            else ()
        )
        yield Sheet(f"paper: {place}, {model}", tuple(rows), tuple(map(str, columns)), values, errors=errors)


def texts(sheet: Sheet, quantity: Quantity) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """A sheet's heads and rows as text; what would fill an absent row stands in its last cell."""
    form = column(quantity.unit, [value for row in sheet.values for value in row])
    count_heads = ["runs"] if sheet.runs else []
    rows = []
    for n, (name, values) in enumerate(zip(sheet.rows, sheet.values, strict=True)):
        missing = (sheet.absent or {}).get(name)
        last = [missing or str(sheet.runs[n])] if sheet.runs else []
        errors = sheet.errors[n] if sheet.errors else [None] * len(values)
        cells = [
            form(value) if error is None else f"{form(value)} ± {form(error)}"
            for value, error in zip(values, errors, strict=True)
        ]
        rows.append((name, *cells, *last))
    return ("", *sheet.columns, *count_heads), tuple(rows)


def best_cells(sheet: Sheet, quantity: Quantity) -> set[tuple[int, int]]:
    """The highest of each column, row and column, where it may be stressed: a difference of two timings of ours may be
    chance, and what a paper prints itself is its own to stress.
    """
    if quantity.unit not in (("tokens/step",) if sheet.runs else ("×", "tokens/s", "tokens/step")):
        return set()
    best = set()
    for at in range(len(sheet.columns)):
        values = [value for row in sheet.values if (value := row[at]) is not None]
        best |= {(n, at) for n, row in enumerate(sheet.values) if len(values) > 1 and row[at] == max(values)}
    return best


def sheet_json(sheet: Sheet, quantity: Quantity) -> dict[str, Any]:
    """A sheet as a page draws it: cells as text, each with its share of the way from its column's lowest number up."""
    _, rows = texts(sheet, quantity)
    best = best_cells(sheet, quantity)
    columns = [[value for value in column if value is not None] or [0.0] for column in zip(*sheet.values, strict=True)]

    def cell(row: int, at: int) -> dict[str, Any]:
        text, _, error = rows[row][at + 1].partition(" ± ")
        value, low, high = sheet.values[row][at], min(columns[at]), max(columns[at])
        return {
            "text": text, "error": error if error.strip("0.") else "", "best": (row, at) in best,
            "share": None if value is None else round((value - low) / ((high - low) or 1.0), 3),
            "point": sheet.points[row][at] if sheet.points else None,
        }  # fmt: skip

    lines = [
        {
            "name": name,
            "absent": (sheet.absent or {}).get(name, ""),
            "cells": [cell(row, at) for at in range(len(sheet.columns))],
        }
        for row, name in enumerate(sheet.rows)
    ]
    return {"about": sheet.about, "columns": [str(NAMES.get(x, x)) for x in sheet.columns], "rows": lines}


def in_a_cell(missing: str) -> str:
    """Shorten a sentence on what is missing to a figure's cell: to its command, where it has one.

    >>> in_a_cell("there is no EAGLE head for m: make one with `specviz train eagle` --model and this model")
    'not there: specviz train eagle'
    """
    command = re.search(r"`([^`]+)`", missing)
    words = f"not there: {command[1]}" if command else missing
    return words if len(words) <= LONGEST_WORDS else words[: LONGEST_WORDS - 1].rstrip() + "…"


def title_of(sheet: Sheet, quantity: Quantity) -> str:
    """The heading of a sheet, as in "Speedup (×), SmolLM2"."""
    return f"{with_unit(quantity.label, quantity.unit)}, {sheet.about}"


def sheet_charts(results: Results, quantity: Quantity, points: list[dict[str, Any]]) -> Iterator[Chart]:
    """A figure per sheet."""
    for sheet in sheets(results, quantity, points):
        paper = not sheet.runs
        title = f"{quantity.label} ({sheet.about})" if paper else quantity.label
        yield Chart(title, _draw(sheet, quantity, points, paper=paper), paper)


def _draw(sheet: Sheet, quantity: Quantity, points: Sequence[Mapping[str, Any]], *, paper: bool) -> go.Figure:
    """Cells whose shade is their number and whose number stands in them, the highest of a column bold."""
    figure, color = new_figure(quantity, sheet.about, paper=paper), PAPER_COLOR if paper else OWN_COLOR
    _, rows = texts(sheet, quantity)
    across, down = list(range(len(sheet.columns))), list(range(len(sheet.rows)))
    index = [list(row) for row in sheet.points] if sheet.points else None

    def text_at(row: int, at: int) -> str:
        if missing := (sheet.absent or {}).get(sheet.rows[row]):
            return f"<b>{plain(sheet.rows[row])}</b><br>{plain(missing)}"
        number = sheet.points[row][at] if sheet.points else None
        if number is not None:
            return hover(quantity, points[number], quantity.key)
        place = f"{plain(sheet.rows[row])} · {plain(sheet.columns[at])}"
        return f"<b>{rows[row][at + 1]}</b> {place}<br>{plain(sheet.about)}"

    figure.add_trace(
        go.Heatmap(
            z=[list(row) for row in sheet.values], x=across, y=down, customdata=index, xgap=2, ygap=2, showscale=False,
            colorscale=[[0, f"rgba({color},.05)"], [1, f"rgba({color},.34)"]],
            text=[[text_at(row, at) for at in across] for row in down], hovertemplate="%{text}<extra></extra>",
        )
    )  # fmt: skip
    best = best_cells(sheet, quantity)
    for at in across:
        for row in down:
            if sheet.values[row][at] is not None:
                text, _, error = rows[row][at + 1].partition(" ± ")
                text = (f"<b>{text}</b>" if (row, at) in best else text) + (ERROR_LINE.format(error) if error else "")
                figure.add_annotation(x=at, y=row, text=text, showarrow=False)
    for row, name in enumerate(sheet.rows):
        if missing := (sheet.absent or {}).get(name):
            words = in_a_cell(missing)
            figure.add_annotation(
                x=(len(across) - 1) / 2, y=row, text=f"<i>{plain(words)}</i>", showarrow=False, font={"size": 11}
            )
    names = [place_shown(name) for name in sheet.columns]
    longest = max((len(word) for name in names for word in name.split()), default=0)
    is_crowded = longest * len(across) > MOST_ABREAST
    figure.update_xaxes(
        tickvals=across, ticktext=names if is_crowded else [_lines(name) for name in names], showgrid=False,
        zeroline=False, side="top", tickfont={"size": 12}, tickangle=-40 if is_crowded else 0, ticks="",
        range=[-0.5, len(across) - 0.5],
    )  # fmt: skip
    figure.update_yaxes(
        tickvals=down, ticktext=[plain(name) for name in sheet.rows], showgrid=False, zeroline=False,
        range=[len(down) - 0.5, -0.5], automargin=True, tickfont={"size": 12}, ticks="", ticklabelstandoff=6,
    )  # fmt: skip
    row_height = 40 if sheet.errors else 28
    head_lines = max((name.count("<br>") + 1 for name in figure.layout.xaxis.ticktext), default=1)
    top = 150 if is_crowded else 56 + 18 * head_lines
    figure.update_layout(height=top + 26 + row_height * len(down), margin={"t": top, "b": 16}, showlegend=False)
    return figure


def _lines(name: str) -> str:
    """A task's name in lines, for a narrow column.

    >>> _lines("Text editing, short"), _lines("all prompts")
    ('Text<br>editing,<br>short', 'all<br>prompts')
    """
    return "<br>".join(name.split())
