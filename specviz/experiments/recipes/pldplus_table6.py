"""PLD+ table 6: how many copying heads?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line, PaperSeries, head_counts

POINTS = ((10, 3.17), (20, 3.18), (30, 3.2), (40, 3.21), (50, 3.21), (100, 2.93), (200, 2.9), (300, 2.9))

EXPERIMENT = Experiment(
    "pldplus-table6",
    "How many copying heads",
    paper="pldplus",
    figure="table 6",
    question="How many of the heads that copy should be asked before those that do not copy drown them out?",
    finding="40 to 50 heads of 1,024; from 100 on the others outvote them.",
    note="The paper's row “All” (2.90) is left out of the chart: it is every head found to copy, 379.",
    lines=(Line("PLD+ (a)", "pld+a"),),
    axes=(Axis("heads", head_counts, "heads", log=True),),
    papers=(PaperSeries("PLD+ (a)", "table 6", "tokens_per_step", POINTS, "Vicuna-7B"),),
)
