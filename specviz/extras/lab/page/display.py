"""Results and recipes as the page Lab draws them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specviz.views.prompts import NAMES
from specviz.words import duration, with_unit
from specviz.workers.sweep import Standing

from ..experiments.answers import CASES
from ..experiments.comparison import comparisons
from ..experiments.experiment import Experiment, text_of
from ..experiments.field import field_notes, field_tables
from ..experiments.figures import caption, charts
from ..experiments.findings import findings, verdict
from ..experiments.grids import line_tables, measured_columns, test_tables, write_texts
from ..experiments.quantities import LEARNT, QUANTITIES, Breakdown, Profile, Quantity
from ..experiments.results import ABOUT, Results, points, profile_table, read_about
from ..experiments.sheets import sheet_json, sheets
from ..experiments.shipped import SHIPPED, comes_along
from ..experiments.tables import checks, notes, tables, warnings

SHOWN_FAILURES = 5  # the latest


def recipe_card(experiment: Experiment, info: Mapping[str, Any], available: set[str]) -> dict[str, Any]:
    """A recipe with what is missing for it; ``info`` is the target's."""
    methods = {line.method for line in experiment.lines if line.trains is None}
    missing = sorted(methods - available)
    description = experiment.describe(info)
    del description["papers"]
    return {
        **description,
        "axes": [{**axis, "values": [text_of(v) for v in axis["values"]]} for axis in description["axes"]],
        "papers": sorted({f"{series.where} ({series.model})" for series in experiment.papers}),
        "missing": missing if len(missing) == len(methods) and methods else [],
    }


def gallery_card(experiment: Experiment) -> dict[str, str]:
    """A recipe as the gallery shows it, whatever the model is."""
    return {name: getattr(experiment, name) for name in ("name", "title", "paper", "figure", "question")}


def metrics_shown() -> list[dict[str, Any]]:
    """The quantities that can be measured."""
    return [
        {
            "key": q.key, "label": q.label, "formula": q.formula, "unit": q.unit, "help": q.help,
            "parts": isinstance(q, Breakdown | Profile), "trained": q.key in LEARNT,
        }
        for q in QUANTITIES.values()
    ]  # fmt: skip


def progress_shown(progress: Standing | None) -> dict[str, Any] | None:
    """The progress of an experiment."""
    if progress is None:
        return None
    current_time = time.monotonic()
    workers = [
        {"name": w.name, "state": w.state, "seconds": current_time - w.since, "done": w.done, "losses": w.losses}
        for w in progress.workers
    ]
    return {
        **{name: getattr(progress, name) for name in ("done", "total", "seconds", "left_s", "trains", "before")},
        "workers": workers, "failures": list(progress.failures.values())[-SHOWN_FAILURES:],
        "failed": len(progress.failures), "left": "" if progress.left_s is None else duration(progress.left_s),
    }  # fmt: skip


def draw(results: Results, metric_keys: Sequence[str]) -> dict[str, Any]:
    """Charts, points and columns of the metrics that are ``metric_keys``; of a batch its tables."""
    about = results.about
    columns = results.columns
    keys = [k for k in QUANTITIES if k in columns or any(c.startswith(f"{k}:") for c in columns)]
    if about.get("repeats"):
        return {"measured": keys, **_draw_batch(results, metric_keys)}
    profiles = [q for m in metric_keys if isinstance(q := results.quantity(m), Profile)]
    drawn_points = list(points(results, metric_keys))
    write_texts(results, metric_keys, drawn_points)
    in_tables = about["chart"] == "sheet"  # they are drawn as tables, not as charts of tables
    claims = findings(results, comparisons(SHIPPED).get(about["name"]))
    return {
        "measured": keys,
        "charts": [
            {"title": chart.title, "paper": chart.paper, "figure": chart.figure.to_json()}
            for chart in ([] if in_tables else charts(results, metric_keys))
        ],
        "sheets": [
            {"title": with_unit(quantity.label, quantity.unit),
             "sheets": [sheet_json(sheet, quantity) for sheet in sheets(results, quantity, drawn_points)]}
            for quantity in map(results.quantity, metric_keys if in_tables else ())
            if isinstance(quantity, Quantity)
        ],
        "verdict": verdict(claims),
        "findings": [{"mark": claim.mark, "text": claim.text, "notes": claim.notes} for claim in claims],
        "points": drawn_points,
        "columns": [
            {"key": key, "label": label, "unit": unit} for key, label, unit in measured_columns(results, metric_keys)
        ],
        "profiles": [profile_table(results, profile).to_json() for profile in profiles]
        + ([table.to_json() for table in line_tables(results, metric_keys)] if about["chart"] == CASES else [])
        + [table.to_json() for table in test_tables(results, metric_keys)],
        "caption": caption(results),
        **_tables_below(results, metric_keys),
    }  # fmt: skip


def _tables_below(results: Results, metric_keys: Sequence[str]) -> dict[str, Any]:
    """The notes below charts and tables alike."""
    return {
        "formulas": [
            {"label": q.label, "formula": q.formula, "help": q.help} for q in map(results.quantity, metric_keys)
        ],
        "names": NAMES,
        "errors": results.reasons,
        "failed": results.failures,
    }


def _draw_batch(results: Results, metric_keys: Sequence[str]) -> dict[str, Any]:
    """A batch as a page shows it; of several tasks also in the field's form, as ``profiles``."""
    several = len({row["category"] for row in results.rows}) > 1
    return {
        "charts": [], "sheets": [], "points": [], "columns": [], "caption": "", "verdict": "", "findings": [],
        "profiles": [table.to_json() for table in field_tables(results, metric_keys)] if several else [],
        "tables": [table.to_json() for table in tables(results, metric_keys)],
        "checks": [{**asdict(check), "text": check.text} for check in checks(results)],
        "warnings": warnings(results), "remarks": [*notes(results), *field_notes(results)],
        **_tables_below(results, metric_keys),
    }  # fmt: skip


def latest_rows(path: Path, row_count: int) -> list[dict[str, Any]]:
    """Rows behind the first ``row_count``; the last line of a process that was killed may be half."""
    rows = []
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text(encoding="utf-8").splitlines():
            place, row = json.loads(line)
            if place == row_count + len(rows):
                rows.append(row)
    return rows


def end_state(about: Mapping[str, Any]) -> str:
    """The state of results that nothing works on any more."""
    return "cut off" if about["state"] in ("running", "queued") else about["state"]


def listed_card(about: Mapping[str, Any]) -> dict[str, Any]:
    """Results as a list shows them."""
    keys = ("id", "name", "title", "figure", "paper", "created", "state", "cases")
    return {key: about.get(key) for key in keys} | {"model": about["model"].get("name")}


def recorded_cards(shipped_folder: Path) -> list[dict[str, Any]]:
    """Results that come along, as a list shows them: the one with its runs first, then those of recipes."""
    abouts = [read_about(path) for path in sorted(shipped_folder.glob(f"*/{ABOUT}"))]
    return [listed_card(about) for about in [*abouts, *comes_along(shipped_folder).values()]]
