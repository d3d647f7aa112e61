"""AdaPLD table 4: what does each part contribute?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

TASKS = ("MT", "SUM", "RAG", "Debug", "Polish", "Translate", "Switch", "Avg.")
ROWS = {
    "full": (1.70, 2.45, 1.79, 2.28, 2.34, 1.70, 4.51, 2.40),
    "no branches, no successors": (1.53, 2.25, 1.64, 2.03, 2.07, 1.51, 4.22, 2.18),
    "no successors": (1.60, 2.41, 1.77, 2.26, 2.34, 1.69, 4.51, 2.37),
    "lexical only": (1.62, 2.37, 1.74, 2.20, 2.23, 1.63, 3.91, 2.24),
}

EXPERIMENT = Experiment(
    "adapld-table4",
    "Ablation of the parts",
    paper="adapld",
    figure="table 4",
    question="What is lost without branches, without successors, and without the semantic fallback?",
    finding="Every part helps: branches most (2.40 to 2.18), then the fallback (2.24), then successors (2.37).",
    lines=(
        Line("full", "adapld"),
        Line("no branches, no successors", "adapld", {"branches": False, "successors": False}),
        Line("no successors", "adapld", {"successors": False}),
        Line("lexical only", "adapld", {"semantic": False}),
    ),
    prompts="demo:chat,summary,quote,code_edit",
    count=16,
    metrics=("speedup", "tokens_per_step"),
    x="category",
    chart="bar",
    papers=tuple(
        PaperSeries(label, "table 4", "speedup", tuple(zip(TASKS, values, strict=True)), "Vicuna-13B")
        for label, values in ROWS.items()
    ),
)
