"""The recipes, a file per paper in the folders of annexes and plug-ins (``Extra.recipes``): each of its tables is the
recipe of a figure or table, ``adapld-fig1`` of adapld.toml. Its
``[common]`` names the paper: ``title``, ``short`` and, if it is not to be the last, ``order``.

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

Functions and values of Python are named by module and name, as in ``measure = "recipes.casd:lookups"``: of a module
beside the file, or of ``SHARED``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.extra import Extra, extras, leave_out

from . import guesses, quote_scores, values
from .experiment import Axis, Experiment, Line, PaperSeries
from .quantities import Quantity, near

DRAWN_NOTE = "The figure's values are drawn in the paper, not printed."
SHARED = {"guesses": guesses, "quote_scores": quote_scores, "values": values}


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper whose figures and tables are recipes: its title, its short name, its place among the others."""

    title: str
    short: str
    order: int = 100


OWN_SWEEPS = Paper("Your own", "", 1000)


@cache
def _read_all() -> tuple[dict[str, Paper], dict[str, Experiment]]:
    """Papers by their files' names, and recipes by theirs; a file that cannot be read is left out, with a sentence."""
    read_papers, experiments = {}, {}
    for extra, file in _files():
        try:
            paper, read = _read(extra, file)
            if doubles := [recipe.name for recipe in read if recipe.name in experiments]:
                raise ValueError(f"there is a recipe {doubles[0]!r} already: rename the file")
        except Exception as problem:
            leave_out(f"{extra.package}: {file.name}", problem)
            continue
        read_papers[file.stem] = paper
        experiments |= {recipe.name: recipe for recipe in read}
    return read_papers, experiments


def _files() -> Iterator[tuple[Extra, Path]]:
    """Every file of recipes, with the annex or plug-in that brings it."""
    for extra in extras().values():
        if extra.recipes:
            yield from ((extra, file) for file in sorted((extra.folder / extra.recipes).glob("*.toml")))


@cache
def papers() -> dict[str, Paper]:
    """The papers by their files' names, in order; "" are a user's own sweeps."""
    return dict(sorted({**_read_all()[0], "": OWN_SWEEPS}.items(), key=lambda item: item[1].order))


@cache
def recipes() -> dict[str, Experiment]:
    """All recipes by name, paper by paper, figures before tables, each in the paper's order."""
    return {recipe.name: recipe for recipe in sorted(_read_all()[1].values(), key=_place)}


def find_recipe(name: str) -> Experiment:
    """The recipe called ``name``; UserError lists those that exist."""
    if name not in recipes():
        raise UserError(f"there is no recipe {name!r}{near(name, recipes())}: choose one of {', '.join(recipes())}")
    return recipes()[name]


def _place(experiment: Experiment) -> tuple[int, bool, int]:
    number = re.search(r"\d+", experiment.figure)
    table = not experiment.figure.startswith("fig")
    return list(papers()).index(experiment.paper), table, int(number[0]) if number else 0


def _read(extra: Extra, file: Path) -> tuple[Paper, list[Experiment]]:
    """A file's paper and its recipes."""
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    paper = Paper(**{key: document["common"][key] for key in ("title", "short", "order") if key in document["common"]})
    return paper, list(_recipes_of(document, file.stem, f".{extra.recipes.replace('/', '.')}", extra))


def _recipes_of(document: dict[str, Any], paper: str, package: str, extra: Extra) -> Iterator[Experiment]:
    def python(name: str) -> Any:
        module, _, attribute = name.removeprefix("recipes.").partition(":")
        return getattr(SHARED.get(module) or extra.module(f"{package}.{module}"), attribute)

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
        fields["axes"] = tuple(_axis(param, axis, python) for param, axis in fields.get("axes", {}).items())
        paper_tables = fields.pop("printed", ())
        source = {"model": common["model"], "where": fields["figure"]}
        fields["papers"] = tuple(series for table in paper_tables for series in _series(**source | table))
        fields["own"] = tuple(Quantity(**quantity) for quantity in fields.get("own", ()))
        fields |= {key: python(fields[key]) for key in ("arrange", "look", "measure") if key in fields}
        yield Experiment(f"{paper}-{name}", paper=paper, **fields)


def _plain(value: Any) -> Any:
    """Lists as tuples; texts over several lines as one."""
    if isinstance(value, str):
        return " ".join(value.split())
    return tuple(value) if isinstance(value, list) else value


def _axis(param: str, axis: Mapping[str, Any], python: Callable[[str], Any]) -> Axis:
    values = axis["values"]
    if isinstance(values, str):
        values = python(values)
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
