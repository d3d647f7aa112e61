"""CASD table 6: is the top-k condition enough without the threshold?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

from .casd_table1 import ROWS as TABLE_1
from .casd_table1 import TASKS

ROWS = {
    "threshold and top k (mixed)": TABLE_1["CASD, mixed"],
    "top k only": (37.47, 92.64, 42.84, 50.20, 15.16, 19.31, 49.86, 60.80, 46.04),
    "threshold only (fixed)": TABLE_1["CASD, fixed"],
}
WHERE = {"threshold only (fixed)": "table 1"}

EXPERIMENT = Experiment(
    "casd-table6",
    "Ablation of the rule",
    paper="casd",
    figure="table 6",
    question="Which half of the rule protects the answer: the threshold or the top k?",
    finding="The threshold: with top k alone the average falls from 47.96 to 46.04; without top k it is 47.89.",
    lines=(
        Line("threshold and top k (mixed)", "casd", {"rule": "mixed"}),
        Line("top k only", "casd", {"rule": "top-k only"}),
        Line("threshold only (fixed)", "casd"),
    ),
    prompts="demo:quote,summary,code_edit",
    count=24,
    metrics=("quality", "tokens_per_step", "differs"),
    x="category",
    chart="bar",
    papers=tuple(
        PaperSeries(
            label, WHERE.get(label, "table 6"), "quality",
            tuple((t, v / 100) for t, v in zip(TASKS, row, strict=True)), "Llama-3.1-8B",
        )
        for label, row in ROWS.items()
    ),
)  # fmt: skip
