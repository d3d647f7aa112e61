"""GLIDE fig. 8: how many draft layers?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line, draft_layers

EXPERIMENT = Experiment(
    "glide-fig8",
    "Draft layers",
    paper="glide",
    figure="fig. 8",
    question="Does a deeper draft model win more by its acceptance than it loses by its time?",
    finding="One layer is best for targets below 33B; two for 33B, whose forward is long.",
    note="The figure's values are drawn in the paper, not printed. It varies the number of layers and shows the "
    "expected speedup.",
    lines=(Line("GLIDE", "glide", trains={}),),
    axes=(Axis("layers", draft_layers, "draft layers"),),
    prompts="demo:summary,text_edit,code_edit,chat",
    count=8,
    temperature=1.0,
    metrics=("expected_speedup", "beta", "draft_cost"),
)
