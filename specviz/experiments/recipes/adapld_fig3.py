"""AdaPLD fig. 3: how alike must embeddings be?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

EXPERIMENT = Experiment(
    "adapld-fig3",
    "Threshold of the semantic fallback",
    paper="adapld",
    figure="fig. 3",
    question="How alike must two tokens be before one may stand in for the other?",
    finding="Higher thresholds lower the accepted tokens; low to moderate ones are equally fast. τ = 0.1 was chosen.",
    note="The figure's values are drawn in the paper, not printed. In a small model all embeddings are alike, so the "
    "same sweep with centred embeddings is drawn too.",
    lines=(Line("AdaPLD", "adapld"), Line("AdaPLD, centred embeddings", "adapld", {"center_embeddings": True})),
    axes=(Axis("tau", tuple(n / 10 for n in range(9)), "threshold τ", paper=0.1),),
    prompts="demo:code_edit",
    metrics=("tokens_per_step", "speedup"),
)
