"""Results as tables: a row per point, a table per profile, lines × tasks, answers; of a batch, tasks × methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from decoders.errors import UserError
from specviz.views.prompts import NAMES
from specviz.words import column

from .answers import CASES, cases_shown
from .experiment import LINE
from .field import field_notes, field_tables
from .figures import caption
from .quantities import Profile, Quantity, part_name
from .result_table import FORMATS, PLAIN, Cell, ResultTable, TableEntry, csv_text, latex, markdown
from .results import Results, columns_of, points, profile_table
from .sheets import sheets, texts, title_of
from .significance import HEADS, compare_lines
from .tables import OVERALL, BatchTable, checks, notes, tables, warnings
from .tables import columns_of as lines_of

TABLE_CHARTS = ("sheet", CASES)  # charts whose tables are lines × tasks, or answers


def grids(results: Results, metrics: Sequence[str] | None = None, *, field: bool = False) -> list[ResultTable]:
    """The points' table (none where only profiles are shown), then the profiles'; of a batch a table per metric, in the
    ``field``'s form where that is asked for.
    """
    if results.about.get("repeats"):
        if field:
            return field_tables(results, metrics)
        return [of_batch(results, table) for table in tables(results, metrics)]
    metric_keys = list(metrics or results.about["metrics"])
    profiles = [quantity for key in metric_keys if isinstance(quantity := results.quantity(key), Profile)]
    if results.about["chart"] in TABLE_CHARTS:
        return line_tables(results, metric_keys)
    point_tables = [_of_points(results, metric_keys)] if measured_columns(results, metric_keys) else []
    return [
        *point_tables,
        *(profile_table(results, profile) for profile in profiles),
        *test_tables(results, metric_keys),
    ]


def test_tables(results: Results, metrics: Sequence[str]) -> list[ResultTable]:
    """The table of the tests, where a line is tested against the others (``significance``)."""
    if not results.about.get("tested"):
        return []
    title, rows = compare_lines(results, metrics)
    return [ResultTable(title, HEADS, tuple(rows), 3)] if rows else []


def line_tables(results: Results, metrics: Sequence[str]) -> list[ResultTable]:
    """The tables of lines × tasks, ours and the paper's; or the answers."""
    if results.about["chart"] == CASES:
        return [ResultTable(*case) for case in cases_shown(results, metrics)]
    result_tables, shown_points = [], list(points(results, list(metrics)))
    for quantity in map(results.quantity, metrics):
        if isinstance(quantity, Quantity):
            for sheet in sheets(results, quantity, shown_points):
                result_tables.append(ResultTable(title_of(sheet, quantity), *texts(sheet, quantity), 1))
    return result_tables


def measured_columns(results: Results, metrics: Sequence[str]) -> list[tuple[str, str, str]]:
    """Column, label and unit of what is measured per point, profiles apart; what it is set against comes first."""
    keys = [k for k in (results.about.get("against"), *metrics) if k and not isinstance(results.quantity(k), Profile)]
    return [
        (c, (part_name(c.split(":", 1)[1]) if ":" in c else quantity.label) + results.rough(quantity), quantity.unit)
        for key in keys
        for quantity in [results.quantity(key)]
        for c in columns_of(quantity, key, results.columns)
    ]


def write_texts(results: Results, metrics: Sequence[str], shown_points: Sequence[dict[str, Any]]) -> None:
    """Writes into every value of the points how it is shown: "text" → value, se, low and high, a rule per column."""
    for key, _, unit in measured_columns(results, metrics):
        values = [point["values"][key] for point in shown_points if key in point["values"]]
        form = column(unit, [value["value"] for value in values])
        for value in values:
            value["text"] = {name: form(value[name]) for name in ("value", "se", "low", "high")}


def _of_points(results: Results, metrics: Sequence[str]) -> ResultTable:
    about, shown_points = results.about, list(points(results, list(metrics)))
    write_texts(results, metrics, shown_points)
    metric_columns = measured_columns(results, metrics)
    has_axis, second = about["x"] != LINE, any(point["y"] for point in shown_points)
    place = next((axis["label"] for axis in about["axes"] if axis["param"] == about["x"]), about["x"])
    heads = ["", *([place] if has_axis else []), *([about["axes"][1]["label"]] if second else [])]
    rows = []
    for point in shown_points:
        place_cells = [NAMES.get(point["x"], point["x"]) if point["x"] else "(level)"] if has_axis else []
        numbers = [point["values"][key]["text"]["value"] for key, *_ in metric_columns]
        failed = f", {point['failed']} failed" if point["failed"] else ""
        words = [point["series"] or point["x"], *place_cells, *([point["y"]] if second else [])]
        rows.append((*words, *numbers, f"{point['count']}{failed}"))
    for name, missing in (about.get("absent") or {}).items():
        rows.append((name, *[""] * (len(heads) - 1), *["–"] * len(metric_columns), missing))
    labels = [f"{label} (%)" if unit == "share" else label for _, label, unit in metric_columns]
    return ResultTable(about["title"], (*heads, *labels, "runs"), tuple(rows), len(heads))


# --- a batch, and files ---


def of_batch(results: Results, table: BatchTable) -> ResultTable:
    """Tasks × methods, the outputs' check against plain decoding in the last row."""
    check_by_name = {check.name: check for check in checks(results)}
    heads = ("task", table.counts, *(TableEntry(name, lossy=check_by_name[name].lossy) for name in table.columns))
    rows: list[tuple[Cell, ...]] = [
        (line.name, f"{line.prompts:,}", *(cell.entry for cell in line.cells)) for line in table.lines
    ]
    identity_cells = (
        TableEntry(check_by_name[name].text, wrong=bool(check_by_name[name].bugs)) for name in table.columns
    )
    rules = (len(rows) - 1, len(rows)) if len(rows) > 1 else (len(rows),)
    return ResultTable(table.title, heads, (*rows, ("same as plain", "", *identity_cells)), 1, table.formula, rules)


def to_file_text(results: Results, form: str, metrics: Sequence[str] | None = None, *, field: bool = False) -> str:
    """The tables as a file's text, ``form`` of ``FORMATS``; of a batch in the ``field``'s form where that is asked for.
    Raises UserError for another form or metric.
    """
    if form not in FORMATS:
        raise UserError(f"tables are not written as {form[:20]!r}: choose of {', '.join(FORMATS)}")
    batch = bool(results.about.get("repeats"))
    if form == "csv" and batch and not field:
        return csv_text(_batch_lines(results, tables(results, metrics)))
    all_tables = grids(results, metrics, field=field)
    if form == "csv":
        return csv_text(line for table in all_tables for line in table.lines(PLAIN))
    sentences = [caption(results), *results.about["notes"]]
    if batch:
        sentences = [*warnings(results), *notes(results), *(field_notes(results) if field else ())]
    if form == "tex":
        return latex(all_tables, " ".join(sentences))
    return markdown(all_tables, sentences if batch else " ".join(sentences))


def _batch_lines(results: Results, batch_tables: Sequence[BatchTable]) -> Iterator[list[Any]]:
    """A line per metric and task, whole numbers of digits, three columns per method; the checks are lines of their own.

    Shares are from 0 to 1 here.
    """
    columns = lines_of(results)
    heads = [part for name in columns for part in (name, f"{name} low", f"{name} high")]
    yield ["metric", "unit", "task", batch_tables[0].counts if batch_tables else "prompts", *heads]
    for table in batch_tables:
        for line in table.lines:
            numbers = [number for cell in line.cells for number in (cell.mean, cell.low, cell.high)]
            exact = ["" if number is None else f"{number:.6g}" for number in numbers]
            yield [table.metric, table.unit, line.name, line.prompts, *exact]
    check_by_name = {check.name: check for check in checks(results)}
    for key, of in (("outputs_checked", "checked"), ("outputs_same_as_plain", "same"), ("outputs_bugs", "bugs")):
        yield [
            key,
            "outputs",
            OVERALL,
            "",
            *(x for name in columns for x in (getattr(check_by_name[name], of), "", "")),
        ]
