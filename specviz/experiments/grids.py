"""Drawn results as tables of text: a row per point, and a table per profile; for the terminal, files and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specviz.words import column

from .answers import CASES, cases_shown
from .experiment import LINE
from .prompts import NAMES
from .quantities import Profile, Quantity
from .results import Results, columns_of, points, profile_table
from .sheets import sheets, texts, titled
from .significance import HEADS, compare_lines

TABLED = ("sheet", CASES)  # charts whose tables are lines × tasks, or answers


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: of its columns the first ``words`` hold text, the others numbers, as text with one rule per column."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int


def grids(results: Results, metrics: Sequence[str] | None = None) -> list[Grid]:
    """The points' table (none where only profiles are shown), then the profiles'."""
    wanted = list(metrics or results.about["metrics"])
    profiles = [quantity for key in wanted if isinstance(quantity := results.quantity(key), Profile)]
    if results.about["chart"] in TABLED:
        return tabled(results, wanted)
    made = [_of_points(results, wanted)] if measured_columns(results, wanted) else []
    return [*made, *(of_profile(profile_table(results, profile)) for profile in profiles), *compared(results, wanted)]


def compared(results: Results, metrics: Sequence[str]) -> list[Grid]:
    """The table of the tests, where a line is tested against the others (``significance``)."""
    if not results.about.get("tested"):
        return []
    title, rows = compare_lines(results, metrics)
    return [Grid(title, HEADS, tuple(rows), 3)] if rows else []


def tabled(results: Results, metrics: Sequence[str]) -> list[Grid]:
    """The tables of lines × tasks, ours and the paper's; or the answers."""
    if results.about["chart"] == CASES:
        return [Grid(*case) for case in cases_shown(results, metrics)]
    made, drawn = [], list(points(results, list(metrics)))
    for quantity in map(results.quantity, metrics):
        if isinstance(quantity, Quantity):
            for sheet in sheets(results, quantity, drawn):
                made.append(Grid(titled(sheet, quantity), *texts(sheet, quantity), 1))
    return made


def measured_columns(results: Results, metrics: Sequence[str]) -> list[tuple[str, str, str]]:
    """Column, label and unit of what is measured per point, profiles apart; what it is set against comes first."""
    keys = [k for k in (results.about.get("against"), *metrics) if k and not isinstance(results.quantity(k), Profile)]
    return [
        (c, (c.split(":", 1)[1] if ":" in c else quantity.label) + results.rough(quantity), quantity.unit)
        for key in keys
        for quantity in [results.quantity(key)]
        for c in columns_of(quantity, key, results.columns)
    ]


def told(results: Results, metrics: Sequence[str], drawn: Sequence[dict[str, Any]]) -> None:
    """Writes into every value of the points how it is shown: "text" → mean, se, low and high, a rule per column."""
    for key, _, unit in measured_columns(results, metrics):
        values = [point["values"][key] for point in drawn if key in point["values"]]
        form = column(unit, [value["mean"] for value in values])
        for value in values:
            value["text"] = {name: form(value[name]) for name in ("mean", "se", "low", "high")}


def _of_points(results: Results, metrics: Sequence[str]) -> Grid:
    about, drawn = results.about, list(points(results, list(metrics)))
    told(results, metrics, drawn)
    measured = measured_columns(results, metrics)
    along, second = about["x"] != LINE, any(point["y"] for point in drawn)
    place = next((axis["label"] for axis in about["axes"] if axis["param"] == about["x"]), about["x"])
    heads = ["", *([place] if along else []), *([about["axes"][1]["label"]] if second else [])]
    rows = []
    for point in drawn:
        where = [NAMES.get(point["x"], point["x"]) if point["x"] else "(level)"] if along else []
        numbers = [point["values"][key]["text"]["mean"] for key, *_ in measured]
        failed = f", {point['failed']} failed" if point["failed"] else ""
        words = [point["series"] or point["x"], *where, *([point["y"]] if second else [])]
        rows.append((*words, *numbers, f"{point['count']}{failed}"))
    for name, missing in (about.get("absent") or {}).items():
        rows.append((name, *[""] * (len(heads) - 1), *["–"] * len(measured), missing))
    labels = [f"{label} (%)" if unit == "share" else label for _, label, unit in measured]
    return Grid(about["title"], (*heads, *labels, "runs"), tuple(rows), len(heads))


def of_profile(table: dict[str, Any]) -> Grid:
    """A profile's table (``profile_table``) as text."""
    last = 2 + table["measured"]
    forms = [column(table["unit"], [row[n] for row in table["rows"]]) for n in range(2, last)]
    rows = tuple(
        (*map(str, row[:2]), *(form(value) for form, value in zip(forms, row[2:last], strict=True)),
         *(f"{count:,}" for count in row[last:]))
        for row in table["rows"]
    )  # fmt: skip
    share = " (%)" if table["unit"] == "share" else ""
    heads = [f"{head}{share}" if 2 <= n < last else head for n, head in enumerate(table["heads"])]
    return Grid(table["label"], tuple(heads), rows, 2)
