"""AdaPLD table 12: how long are accepted drafts?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

PARTS = ("1", "2", "3", "4", "5+")
ROWS = {"PLD+": (0.67, 0.13, 0.10, 0.05, 0.05), "AdaPLD": (0.46, 0.31, 0.13, 0.05, 0.05)}

EXPERIMENT = Experiment(
    "adapld-table12",
    "Lengths of accepted drafts",
    paper="adapld",
    figure="table 12",
    question="Does AdaPLD turn one-token successes into longer ones?",
    finding="One-token successes fall from 67 % (PLD+) to 46 %.",
    note="Tables 11 and 12 of the paper do not fit one definition of the length; here the bonus token is not counted.",
    lines=(Line("PLD+", "pld+h"), Line("AdaPLD", "adapld")),
    prompts="demo:code_edit",
    count=12,
    metrics=("lengths",),
    x="line",
    chart="stack",
    papers=tuple(
        PaperSeries(label, "table 12", "lengths", tuple(zip(PARTS, shares, strict=True)), "Vicuna-33B")
        for label, shares in ROWS.items()
    ),
)
