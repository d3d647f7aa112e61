"""Experiments: sweeps and ablations of any method on real prompts, the papers' own numbers beside them."""

from __future__ import annotations

from .experiment import Axis, Experiment, Line, PaperSeries
from .plan import Plan, plan
from .recipe_files import find_recipe, recipes
from .results import Results, points
from .running import run_experiment

__all__ = [
    "Axis",
    "Experiment",
    "Line",
    "PaperSeries",
    "Plan",
    "Results",
    "find_recipe",
    "plan",
    "points",
    "recipes",
    "run_experiment",
]
