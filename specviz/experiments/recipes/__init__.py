"""The registry of recipes. One paper, one file: every experiment that a module here defines is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache

from decoders.errors import UserError
from specviz.experiments.experiment import PAPERS, Experiment, near


@cache
def recipes() -> dict[str, Experiment]:
    """All recipes by name, paper by paper, figures before tables, each in the paper's order."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    defined = [value for module in modules for value in vars(module).values() if isinstance(value, Experiment)]
    return {experiment.name: experiment for experiment in sorted(defined, key=_place)}


def _place(experiment: Experiment) -> tuple[int, bool, int]:
    number = re.search(r"\d+", experiment.figure)
    table = not experiment.figure.startswith("fig")
    return list(PAPERS).index(experiment.paper), table, int(number[0]) if number else 0


def find_recipe(name: str) -> Experiment:
    """The recipe called ``name``; UserError lists those that exist."""
    if name not in recipes():
        raise UserError(f"there is no recipe {name!r}{near(name, recipes())}: choose one of {', '.join(recipes())}")
    return recipes()[name]
