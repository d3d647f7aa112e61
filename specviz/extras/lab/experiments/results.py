"""Results of an experiment: one row per run, with its description; saved as JSON and CSV, opened again, drawn from.

Columns of text: ``series`` (the line), ``param:<name>`` (the varied parameters), ``prompt``, ``category``, ``method``,
``trace`` (the run's id), ``role``, ``error``, ``verdict`` (on a batch's output that is not plain decoding's) and
``output`` (the answer, where answers are shown); all others are numbers. ``role`` is ``run`` (drawn), ``hidden`` (run,
but not drawn: plain decoding for the speedup) or ``derived`` (a copy under another series: the best of a sweep). What
is exported has a last column ``doubt``: why the run's speedup cannot be right, in a sentence; empty where it can.
"""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from decoders.errors import UserError
from decoders.folders import write_text
from decoders.trace.metrics import doubts
from specviz.groups import group
from specviz.markup import drop_guard, inert
from specviz.views.prompts import ALL_TASKS, NAMES
from specviz.words import column, numeric

from .experiment import CATEGORY, LINE, Row, text_of
from .quantities import (
    COUNT,
    TOTAL,
    Breakdown,
    Profile,
    Quantity,
    find_quantity,
    needs_clock,
    number_of,
    parts_of,
    pool,
    pooled_error,
)
from .result_table import ResultTable

SCHEMA = "speclab/1"
TEXT = ("series", "prompt", "category", "method", "trace", "role", "error", "verdict", "output")
DOUBT = "doubt"  # made anew from each row
ABOUT, RUNS = "experiment.json", "runs.csv"
MAX_BYTES = 64 << 20


@dataclass
class Results:
    """Rows and their description (``Experiment.describe`` with id, model, created, state, notes and seconds).

    ``state`` is running, complete, cancelled or error.
    """

    about: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.about["id"]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per run; text columns are never missing, numbers may be nan."""
        data = {name: [row.get(name) for row in self.rows] for name in self.columns}
        data[DOUBT] = [" ".join(doubts(row).values()) for row in self.rows]
        return pd.DataFrame(
            {
                name: pd.Series(["" if v is None else str(v) for v in values], dtype="str")
                if is_text(name)
                else pd.Series([math.nan if v is None else v for v in values], dtype="float64")
                for name, values in data.items()
            }
        )

    @property
    def columns(self) -> list[str]:
        """All columns of the rows, those of text first."""
        names = dict.fromkeys(("series", *(f"param:{a['param']}" for a in self.about["axes"]), *TEXT[1:-2]))
        for row in self.rows:
            names |= dict.fromkeys(row)
        return list(names)

    @property
    def failures(self) -> int:
        return sum(bool(row.get("error")) for row in self.rows)

    @property
    def all_failed(self) -> bool:
        return 0 < len(self.rows) == self.failures

    @property
    def reasons(self) -> list[str]:
        """Reasons why runs failed, each once, the first five."""
        return list(dict.fromkeys(row["error"] for row in self.rows if row.get("error")))[:5]

    def quantity(self, key: str) -> Quantity | Breakdown | Profile:
        """A quantity by key, the experiment's own ones included."""
        return find_quantity(key, [Quantity(**fields) for fields in self.about["own"]])

    def rough(self, quantity: Quantity | Breakdown | Profile) -> str:
        """A mark for what a busy machine disturbed while an example result was recorded; nothing for all else."""
        return ", rough" if (self.about.get("recorded") or {}).get("rough") and needs_clock(quantity) else ""

    @property
    def any_rough(self) -> bool:
        """True where a drawn quantity has that mark."""
        return any(self.rough(self.quantity(key)) for key in self.about["metrics"])

    def to_csv(self) -> str:
        """Every run, as CSV for a spreadsheet."""
        return self._guard_cells().to_csv(index=False, lineterminator="\r\n")

    def _guard_cells(self) -> pd.DataFrame:
        """Every run; text that a spreadsheet would run as a formula has an apostrophe."""
        frame = self.frame
        for name in filter(is_text, frame.columns):
            frame[name] = [text if numeric(text) else inert(text) for text in frame[name]]
        return frame

    def to_parquet(self) -> bytes:
        """Every run, as a Parquet file."""
        frame, buffer = self.frame, io.BytesIO()
        for name in frame.columns:
            if pd.api.types.is_object_dtype(frame[name]):
                frame[name] = frame[name].astype("string")
        frame.to_parquet(buffer, index=False)
        return buffer.getvalue()

    # --- files ---

    def save(self, folder: Path, *, private: bool = False) -> None:
        """Write ``experiment.json`` and ``runs.csv`` into a folder, each whole or not at all; ``private`` as in
        ``decoders.folders.write_bytes``.
        """
        for name, text in self.files().items():
            write_text(folder / name, text, private=private)

    def files(self) -> dict[str, str]:
        """The results' files by name."""
        about = json.dumps({"schema": SCHEMA, **self.about}, indent=1, ensure_ascii=False)
        return {ABOUT: about, RUNS: self._guard_cells().to_csv(index=False)}

    def to_zip(self) -> bytes:
        """Both files as one, for a download."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in self.files().items():
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
        return buffer.getvalue()

    @classmethod
    def load(cls, source: Path | bytes) -> Results:
        """Results from a folder, a zip file or a zip's bytes. Raises UserError saying what is wrong with them."""
        origin = "the file" if isinstance(source, bytes) else str(source)
        try:
            if isinstance(source, Path) and source.is_dir():
                sizes = {name: (source / name).stat().st_size for name in (ABOUT, RUNS)}
                _check_sizes(sizes, origin)
                parts = {name: (source / name).read_text(encoding="utf-8") for name in sizes}
            else:
                with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
                    sizes = {name: archive.getinfo(name).file_size for name in (ABOUT, RUNS)}
                    _check_sizes(sizes, origin)
                    parts = {name: archive.read(name).decode() for name in sizes}
            return cls(_about(parts[ABOUT], origin), _rows(parts[RUNS]))
        except UserError:
            raise
        except (OSError, KeyError, ValueError, zipfile.BadZipFile, RecursionError) as fault:
            raise UserError(f"{origin} cannot be opened as results of an experiment: {fault}") from None


def _check_sizes(sizes: Mapping[str, int], origin: str) -> None:
    for name, size in sizes.items():
        if size > MAX_BYTES:
            raise UserError(f"{name} in {origin} is larger than {MAX_BYTES >> 20} MiB")


def read_about(path: Path) -> dict[str, Any]:
    """The description alone, from ``experiment.json``. Raises UserError."""
    try:
        return _about(path.read_text(encoding="utf-8"), str(path))
    except UserError:
        raise
    except (OSError, ValueError, RecursionError) as fault:
        raise UserError(f"{path} cannot be read: {fault}") from None


REQUIRED_FIELDS = {
    "id": str, "name": str, "state": str, "created": str, "x": str, "chart": str, "axes": list, "lines": list,
    "metrics": list, "papers": list, "own": list, "model": dict, "by_category": bool,
}  # fmt: skip


def _about(text: str, origin: str) -> dict[str, Any]:
    about = json.loads(text)
    if not isinstance(about, dict) or about.pop("schema", None) != SCHEMA:
        raise UserError(f"{origin} is not of the form {SCHEMA}: it was written by another version of specviz")
    for name, kind in REQUIRED_FIELDS.items():
        if not isinstance(about.get(name), kind):
            raise UserError(f"{origin} says nothing usable of {name!r}: it is damaged, so run the experiment again")
    return about


def is_text(column: str) -> bool:
    return column in (*TEXT, DOUBT) or column.startswith("param:")


def _rows(text: str) -> list[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows = []
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num} of {RUNS} has another number of columns than its head")
        rows.append({
            name: drop_guard(v) if is_text(name) else float(v) if v else None
            for name, v in row.items() if name != DOUBT
        })  # fmt: skip
    return rows


# --- points: what is drawn ---


def points(results: Results, metrics: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Runs with the same series and place together: a dict per point of the chart, as JSON.

    ``series``, ``x`` (text), ``y`` (text; of a second axis), ``values`` {column: {value, se, mean, low, high, n}}
    (``value`` is what is drawn: Σ ÷ Σ over the runs of a pooled quotient, else their mean; its standard error; the mean
    and quartiles of the runs' own; of several rounds ``rounds``, the deviation of their numbers), ``runs`` [{trace,
    prompt, category, params}], ``count`` (runs or measurements that did not fail), ``failed``.
    """
    about = results.about
    result_columns = results.columns
    keys = dict.fromkeys([*(metrics or about["metrics"]), *filter(None, [about.get("against")])])
    columns = [c for key in keys for c in columns_of(results.quantity(key), key, result_columns)]
    shown_rows = [row for row in results.rows if row.get("role") != "hidden"]
    grid = about["chart"] == "heat" and len(about["axes"]) == 2
    x_name = {CATEGORY: CATEGORY, LINE: "series"}.get(about["x"], f"param:{about['x']}")
    y_name = f"param:{about['axes'][1]['param']}" if grid else ""
    order = {f"param:{a['param']}": [text_of(value) for value in a["values"]] for a in about["axes"]}
    level = {line["label"] for line in about["lines"] if line["fixed"]}

    def places(rows: Sequence[Row], name: str) -> list[str]:
        values = dict.fromkeys(row.get(name) or "" for row in rows)
        return [text for text in order[name] if text in values] if name in order else list(values)

    for series, series_rows in _by_series(about, shown_rows, {x_name, y_name}).items():
        is_level = x_name in order and series_rows[0]["series"] in level
        x_places = [""] if is_level else places(series_rows, x_name)
        if x_name == CATEGORY and len(x_places) > 1:
            x_places.append(ALL_TASKS)
        for x in x_places:
            x_rows = (
                series_rows
                if is_level or x == ALL_TASKS
                else [row for row in series_rows if (row.get(x_name) or "") == x]
            )
            for y in places(x_rows, y_name) if grid and not is_level else [""]:
                rows = [row for row in x_rows if row.get(y_name) == y] if y else x_rows
                yield {
                    "series": series, "x": x, "y": y, "level": is_level,
                    "values": {c: _spread(rows, c) for c in columns},
                    "runs": openable_runs(rows, about["axes"]),
                    "count": sum(not row.get("error") for row in rows),
                    "failed": sum(bool(row.get("error")) for row in rows),
                }  # fmt: skip


def openable_runs(rows: Sequence[Row], axes: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, str]]:
    """The runs of these rows that can be opened; ``params`` says their values along the ``axes``, in words."""
    return [
        {
            **{name: row.get(name) or "" for name in ("trace", "prompt", "category")},
            "params": ", ".join(
                f"{axis['label']} = {value}" for axis in axes if (value := row.get(f"param:{axis['param']}"))
            ),
        }
        for row in rows
        if row.get("trace")
    ]  # fmt: skip


def columns_of(quantity: Quantity | Breakdown | Profile, key: str, columns: Sequence[str]) -> list[str]:
    """The columns of the rows that hold a quantity."""
    if isinstance(quantity, Breakdown):
        return [f"{key}:{part}" for part in parts_of(quantity, list(columns))]
    if isinstance(quantity, Profile):
        return [c for c in columns if c.startswith(f"{key}:")]
    return [key]


def profile_of(profile: Profile, point: Mapping[str, Any]) -> list[tuple[str, dict[str, float], float]]:
    """A profile at a point: (place, parts, count), places in order. Amounts of all its runs, added up and divided.

    The parts of a whole are shares of the count; of a curve there is one part, the ratio.

    >>> ranks = find_quantity("ranks")
    >>> amounts = {"ranks:1/rank 1": {"mean": 6.0, "n": 2}, "ranks:1/rank 2": {"mean": 2.0, "n": 2}}
    >>> profile_of(ranks, {"values": amounts})
    [('1', {'rank 1': 0.75, 'rank 2': 0.25}, 16.0)]
    """
    sums: dict[str, dict[str, float]] = {}
    for name, spread in point["values"].items():
        if name.startswith(f"{profile.key}:") and spread["n"]:
            place, _, part = name.split(":", 1)[1].rpartition("/")
            sums.setdefault(place, {})[part] = spread["mean"] * spread["n"]
    places = []
    for place in sorted(sums, key=_number_of):
        parts = sums[place]
        count = sum(parts.values()) if profile.whole else parts.get(COUNT, 0.0)
        if count:
            shares = {p: v / count for p, v in parts.items()} if profile.whole else {TOTAL: parts[TOTAL] / count}
            places.append((place, shares, round(count, 6)))
    return places


def _number_of(text: str) -> tuple[float, str]:
    return (float(text), text) if numeric(text) else (math.inf, text)


def profile_points(results: Results, shown_points: Sequence[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """The points that profiles are drawn of, with their index: of tasks that are not told apart, all together."""
    pooled_points = [
        (n, p) for n, p in enumerate(shown_points) if results.about["x"] == CATEGORY and p["x"] == ALL_TASKS
    ]
    return pooled_points or list(enumerate(shown_points))


def place_of(profile: Profile, place: str) -> str:
    """A profile's place as text; tenths are kept by their middle.

    >>> place_of(find_quantity("confidence"), "0.35"), place_of(find_quantity("learning"), "1500")
    ('30 % to 40 %', '1,500')
    """
    if profile.tenths:
        return f"{100 * float(place) - 5:.0f} % to {100 * float(place) + 5:.0f} %"
    return f"{float(place):,.0f}"


def profile_table(results: Results, profile: Profile) -> ResultTable:
    """A profile as a table: a row per series and place, a column per part; then counts, where they say something."""
    line_profiles = [
        (" · ".join(part for part in (p["series"], NAMES.get(p["x"], p["x"])) if part), profile_of(profile, p))
        for _, p in profile_points(results, list(points(results, [profile.key])))
    ]
    parts = [
        part for part in (profile.parts or (TOTAL,)) if any(part in s for _, at in line_profiles for _, s, _ in at)
    ]
    forms = {part: column(profile.unit, [s.get(part) for _, at in line_profiles for _, s, _ in at]) for part in parts}
    has_counts = profile.whole or profile.counted
    rows = tuple(
        (name, place_of(profile, place), *(form(shares.get(part)) for part, form in forms.items()),
         *([f"{round(count):,}"] if has_counts else []))
        for name, at in line_profiles
        for place, shares, count in at
    )  # fmt: skip
    share = " (%)" if profile.unit == "share" else ""
    part_heads = (f"{profile.label if part == TOTAL else part}{share}" for part in parts)
    heads = ("", profile.along.split(":")[0], *part_heads, *(["counted"] if has_counts else []))
    return ResultTable(profile.label, heads, rows, 2)


def _by_series(about: Mapping[str, Any], rows: Sequence[Row], axis_columns: set[str]) -> dict[str, list[Row]]:
    """The rows by what is not along an axis: the line, other varied parameters, and the task if kept apart."""
    params = [(f"param:{axis['param']}", axis["label"]) for axis in about["axes"]]
    params = [(column, label) for column, label in params if column not in axis_columns]
    splits_tasks = about["by_category"] and CATEGORY not in axis_columns
    several = len({row["series"] for row in rows}) > 1

    def label(row: Row) -> str:
        parts = [row["series"]] if "series" not in axis_columns and (several or not (params or splits_tasks)) else []
        parts += [f"{title} = {row[column]}" for column, title in params if row.get(column)]
        parts += [NAMES.get(row.get(CATEGORY) or "", row.get(CATEGORY) or "")] if splits_tasks else []
        return " · ".join(filter(None, parts))

    return group((label(row), row) for row in rows)


def _spread(rows: Sequence[Row], column: str) -> dict[str, float | int | None]:
    """The number that is shown and its standard error; mean, quartiles and number of the runs' own. A quotient of
    counts is pooled, Σ ÷ Σ, everything else a mean. Of runs that were made in several rounds these are of each prompt's
    number, and ``rounds`` is the standard deviation of the rounds' numbers.
    """
    present_rows = [row for row in rows if row.get(column) is not None]
    of_rounds = _numbers(present_rows, column, "round")
    values = _numbers(present_rows, column, "prompt") if of_rounds else [row[column] for row in present_rows]
    present = np.array(values, dtype=np.float64)
    if not len(present):
        return {"value": None, "mean": None, "se": None, "low": None, "high": None, "n": 0}
    low, high = np.quantile(present, (0.25, 0.75))
    error = float(present.std(ddof=1)) / math.sqrt(len(present)) if len(present) > 1 else None
    mean, pooled = float(present.mean()), pool(rows, column)
    if pooled is not None:
        error = pooled_error(rows, column)
    summary = {"value": mean if pooled is None else pooled, "mean": mean, "se": error}
    spread = summary | {"low": float(low), "high": float(high), "n": len(present)}
    return spread | ({"rounds": float(np.std(of_rounds, ddof=1))} if len(of_rounds) > 1 else {})


def _numbers(rows: Sequence[Row], column: str, by: str) -> list[float]:
    """The numbers that ``number_of`` gives of the rows that are alike in another column; of rows without it, none."""
    groups = group((row[by], row) for row in rows if row.get(by) is not None)
    return [number for group_rows in groups.values() if (number := number_of(group_rows, column)) is not None]
