"""AdaPLD table 10: how often is an anchor found, and how?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

ROWS = {
    "Spec-Bench": (0.6117, 0.2616, 0.1267, 0.6737),
    "CodeEditorBench": (0.7343, 0.2128, 0.0530, 0.8007),
    "AIME24": (0.7289, 0.2061, 0.0650, 0.7601),
    "MATH-500": (0.7326, 0.2055, 0.0619, 0.7684),
    "MMLU-Pro": (0.6433, 0.2441, 0.1127, 0.6841),
}
PARTS = ("lexical", "semantic", "none")

EXPERIMENT = Experiment(
    "adapld-table10",
    "Hit rates of retrieval",
    paper="adapld",
    figure="table 10",
    question="How often is the last token itself found, how often only one like it, and how often nothing?",
    finding="Exact matches carry 61 to 73 %; of the rest, the fallback recovers 67 to 80 %.",
    lines=(Line("AdaPLD", "adapld"),),
    prompts="demo",
    count=24,
    metrics=("routes", "semantic_recovery"),
    x="category",
    chart="stack",
    papers=(
        *(
            PaperSeries(bench, "table 10", "routes", tuple(zip(PARTS, values, strict=False)), "Vicuna-33B")
            for bench, values in ROWS.items()
        ),
        PaperSeries(
            "AdaPLD", "table 10", "semantic_recovery", tuple((b, v[3]) for b, v in ROWS.items()), "Vicuna-33B"
        ),
    ),
)
