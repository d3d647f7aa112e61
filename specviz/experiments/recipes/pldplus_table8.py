"""PLD+ table 8: should hidden states be averaged before they are compared?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line, PaperSeries

POINTS = ((1, 3.14), (2, 3.05), (3, 3.04), (4, 3.03), (5, 3.01), (6, 3.0))

EXPERIMENT = Experiment(
    "pldplus-table8",
    "Averaged hidden states",
    paper="pldplus",
    figure="table 8",
    question="Are places told apart better by one hidden state or by the mean of the last few?",
    finding="One state is best, and every further one makes it a little worse.",
    note="m = 1 is the paper's row without averaging.",
    lines=(Line("PLD+ (h)", "pld+h"),),
    axes=(Axis("average_last", (1, 2, 3, 4, 5, 6), "states averaged, m", paper=1),),
    count=9,
    papers=(PaperSeries("PLD+ (h)", "table 8", "tokens_per_step", POINTS, "Vicuna-7B"),),
)
