"""GLIDE table 2: should the draft model learn what the target would answer?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

from .glide_table1 import SETS

ROWS = {"learns the data's answers": (64.8, 63.2, 55.7, 67.0), "learns the target's answers": (65.0, 63.9, 56.0, 67.5)}

EXPERIMENT = Experiment(
    "glide-table2",
    "Sequence-level distillation",
    paper="glide",
    figure="table 2",
    question="Is more accepted of a draft model that learns the target's own answers instead of the data's?",
    finding="0.2 to 0.7 points more, for twice the training time: not used elsewhere in the paper.",
    note="Both learn from the same prompts; what each is validated on while learning are its own kind of answers.",
    lines=tuple(
        Line(label, "glide", trains=trains) for label, trains in zip(ROWS, ({}, {"distill": True}), strict=True)
    ),
    prompts="demo:summary,text_edit,code_edit,chat",
    count=12,
    temperature=1.0,
    metrics=("beta", "learning"),
    x="category",
    chart="bar",
    papers=tuple(
        PaperSeries(
            label, "table 2", "beta", tuple((s, v / 100) for s, v in zip(SETS, values, strict=True)), "Vicuna-7B"
        )
        for label, values in ROWS.items()
    ),
)
