"""The recipes, a file per paper: each of its tables is the recipe of a figure or table, ``adapld-fig1`` of adapld.toml.

A recipe's fields are those of ``Experiment``; what it leaves out stands in its file's ``[common.usual]``, or in
``[common.NAME]`` where it says ``like = "NAME"``. Written shortly::

    drawn = true                                         # the note begins with: the values are drawn, not printed
    lines."no branches" = {method = "adapld", params = {branches = false}}  # or the method's name alone
    axes.k = {values = [2, 4, 8], label = "branches K", log = true, paper = 8}

    [[fig1.printed]]                                     # a table of the paper
    where = "table 4"                                    # if not the recipe's figure
    places = ["MT", "SUM", "Avg."]                       # along the chart
    rows.speedup."no branches" = [1.53, 2.25, nan]       # metric, series; nan: none is printed
    per = 100                                            # they are percentages (model: if not the file's)

A printed number may have its ±, as in ``"1.46 ± 0.27"``.

Functions and values of Python are named by module and name, as in ``measure = "recipes.casd:lookups"``: of a file here,
or of ``SHARED``.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from specviz.experiments import guesses, quote_scores, values
from specviz.experiments.experiment import PAPERS, Axis, Experiment, Line, PaperSeries
from specviz.experiments.quantities import Quantity, near

DRAWN_NOTE = "The figure's values are drawn in the paper, not printed."
SHARED = {"guesses": guesses, "quote_scores": quote_scores, "values": values}


@cache
def recipes() -> dict[str, Experiment]:
    """All recipes by name, paper by paper, figures before tables, each in the paper's order."""
    experiments = [recipe for file in sorted(Path(__file__).parent.glob("*.toml")) for recipe in _read(file)]
    return {experiment.name: experiment for experiment in sorted(experiments, key=_place)}


def find_recipe(name: str) -> Experiment:
    """The recipe called ``name``; UserError lists those that exist."""
    if name not in recipes():
        raise UserError(f"there is no recipe {name!r}{near(name, recipes())}: choose one of {', '.join(recipes())}")
    return recipes()[name]


def _place(experiment: Experiment) -> tuple[int, bool, int]:
    number = re.search(r"\d+", experiment.figure)
    table = not experiment.figure.startswith("fig")
    return list(PAPERS).index(experiment.paper), table, int(number[0]) if number else 0


def _read(file: Path) -> Iterator[Experiment]:
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    common = document.pop("common")
    for name, entry in document.items():
        fields = {**common["usual"], **common.get(entry.pop("like", ""), {}), **entry}
        fields = {key: _plain(value) for key, value in fields.items()}
        if fields.pop("drawn", False):
            fields["note"] = f"{DRAWN_NOTE} {fields.get('note', '')}".strip()
        fields["lines"] = tuple(
            Line(label, **(line if isinstance(line, dict) else {"method": line}))
            for label, line in fields["lines"].items()
        )
        fields["axes"] = tuple(_axis(param, axis) for param, axis in fields.get("axes", {}).items())
        paper_tables = fields.pop("printed", ())
        source = {"model": common["model"], "where": fields["figure"]}
        fields["papers"] = tuple(series for table in paper_tables for series in _series(**source | table))
        fields["own"] = tuple(Quantity(**quantity) for quantity in fields.get("own", ()))
        fields |= {key: _python(fields[key]) for key in ("arrange", "look", "measure") if key in fields}
        yield Experiment(f"{file.stem}-{name}", paper=file.stem, **fields)


def _plain(value: Any) -> Any:
    """Lists as tuples; texts over several lines as one."""
    if isinstance(value, str):
        return " ".join(value.split())
    return tuple(value) if isinstance(value, list) else value


def _python(name: str) -> Any:
    module, _, attribute = name.removeprefix("recipes.").partition(":")
    return getattr(SHARED.get(module) or importlib.import_module(f"{__name__}.{module}"), attribute)


def _axis(param: str, axis: Mapping[str, Any]) -> Axis:
    values = axis["values"]
    if isinstance(values, str):
        values = _python(values)
    else:
        values = tuple(None if value == "off" else value for value in values)
    return Axis(param, **{**axis, "values": values})


def _series(
    where: str, model: str, places: list[Any], rows: Mapping[str, Mapping[str, list[float | str]]], per: int = 1
) -> Iterator[PaperSeries]:
    for metric, series in rows.items():
        for label, numbers in series.items():
            pairs = [(x, *_parse_printed(y)) for x, y in zip(places, numbers, strict=True)]
            points = tuple((x, y / per if per != 1 else y) for x, y, _ in pairs if y == y)
            errors = tuple((x, error / per) for x, _, error in pairs if error is not None)
            yield PaperSeries(label, where, metric, points, model, errors)


def _parse_printed(number: float | str) -> tuple[float, float | None]:
    """A printed number and its ±, where it has one.

    >>> _parse_printed(2.5), _parse_printed("2.33 ± 0.06")
    ((2.5, None), (2.33, 0.06))
    """
    if not isinstance(number, str):
        return number, None
    value, error = map(float, number.split("±"))
    return value, error
