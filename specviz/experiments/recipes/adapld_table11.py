"""AdaPLD table 11: how often, how, and how much is reused per task?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

ROWS = {
    "MT": (0.3725, 0.4492, 3.65),
    "SUM": (0.6033, 0.3505, 4.53),
    "RAG": (0.4607, 0.4719, 3.59),
    "Debug": (0.5254, 0.4053, 4.20),
    "Polish": (0.4257, 0.4189, 5.15),
    "Translate": (0.4897, 0.4121, 3.21),
    "Switch": (0.5800, 0.3537, 6.68),
}
METRICS = ("reuse_rate", "branch_fraction", "reuse_length")

EXPERIMENT = Experiment(
    "adapld-table11",
    "Reuse by task",
    paper="adapld",
    figure="table 11",
    question="In which tasks does reuse succeed often, by branches, and in long runs?",
    finding="37 to 60 % of the steps reuse something, 35 to 47 % of them by a branch; edits give the longest runs.",
    note="Tables 11 and 12 of the paper do not fit one definition of the length; here the bonus token is not counted.",
    lines=(Line("AdaPLD", "adapld"),),
    prompts="demo",
    count=24,
    metrics=METRICS,
    x="category",
    chart="bar",
    papers=tuple(
        PaperSeries(
            "AdaPLD", "table 11", metric, tuple((task, row[n]) for task, row in ROWS.items()), "Vicuna-33B"
        )
        for n, metric in enumerate(METRICS)
    ),
)
