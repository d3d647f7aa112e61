"""A paper's recipes, written shortly: what they have in common is said once, the shapes of its figures and tables have
names.

>>> from specviz.experiments.experiment import Line
>>> pld = Paper("pldplus", "Vicuna-7B", lines=(Line("PLD", "pld"),))
>>> recipe = pld.bars_by_task("table 3", "Speed", papers=pld.printed("table 3", "speedup", ("QA",), {"PLD": (1.5,)}))
>>> recipe.name, recipe.x, recipe.lines[0].label, recipe.papers[0].points
('pldplus-table3', 'category', 'PLD', (('QA', 1.5),))
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .experiment import CATEGORY, Experiment, PaperSeries

DRAWN = "The figure's values are drawn in the paper, not printed."


class Paper:
    """A paper by its key in ``PAPERS``, the ``model`` that its numbers are of, and the ``usual`` fields of its recipes'
    experiments.
    """

    def __init__(self, key: str, model: str = "", **usual: Any) -> None:
        self.key, self.model, self.usual = key, model, usual

    def recipe(self, figure: str, title: str, name: str = "", **fields: Any) -> Experiment:
        """The experiment of a figure, a table or (then it has a ``name``) a section: a line over its first axis, or
        bars over its lines where ``chart`` says so.
        """
        if not name:
            number = re.search(r"(fig|table)\w*\.? (\w+)", figure)
            assert number is not None, f"{figure} is neither a figure nor a table: name its recipe"
            name = number[1] + number[2]
        common = {"paper": self.key, "figure": figure, **self.usual}
        return Experiment(f"{self.key}-{name}", title, **{**common, **fields})

    def bars_by_task(self, figure: str, title: str, name: str = "", **fields: Any) -> Experiment:
        """Bars: task by task, one per line."""
        return self.recipe(figure, title, name, x=CATEGORY, chart="bar", **fields)

    def shares_by_task(self, figure: str, title: str, name: str = "", **fields: Any) -> Experiment:
        """The parts of a whole: task by task, one stack per line."""
        return self.recipe(figure, title, name, x=CATEGORY, chart="stack", **fields)

    def printed(
        self, where: str, metric: str, places: Sequence[Any], rows: Mapping[str, Sequence[float | None]],
        *, model: str = "", per: int = 1,
    ) -> tuple[PaperSeries, ...]:  # fmt: skip
        """A printed table: its ``rows`` by label, a number for each of ``places`` (None: none is printed), each of them
        divided by ``per`` (100: they are percentages).
        """
        return tuple(
            PaperSeries(
                label, where, metric,
                tuple((place, value / per if per != 1 else value)
                      for place, value in zip(places, row, strict=True) if value is not None),
                model or self.model,
            )
            for label, row in rows.items()
        )  # fmt: skip
