"""AdaPLD table 9: what does each part of drafting cost?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

COST = (("retrieval", 0.0007), ("rerank", 0.0012), ("branches", 0.0017), ("successors", 0.0017))
TIMES = (("verify", 39.195), ("retrieval", 0.028), ("rerank", 0.049), ("branches", 0.066), ("successors", 0.069))

EXPERIMENT = Experiment(
    "adapld-table9",
    "Cost of the parts",
    paper="adapld",
    figure="table 9",
    question="How much time do retrieval, reranking, branches and successors take beside the target's forward?",
    finding="0.53 % of the forward altogether, each part under 0.2 %.",
    note="The paper's forward is a 33B model's on a GPU; the smaller the model, the more drafting weighs. Retrieval "
    "holds the lexical search here; the paper's row is the semantic fallback alone.",
    lines=(Line("AdaPLD", "adapld"),),
    prompts="demo:code_edit",
    count=8,
    metrics=("cost", "times"),
    x="line",
    chart="bar",
    papers=(
        PaperSeries("AdaPLD", "table 9", "cost", COST, "Vicuna-33B"),
        PaperSeries("AdaPLD", "table 9", "times", TIMES, "Vicuna-33B"),
    ),
)
