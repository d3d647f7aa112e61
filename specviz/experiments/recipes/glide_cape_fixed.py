"""GLIDE §5.4: is CAPE's confidence worth more than as many candidates everywhere?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

EXPERIMENT = Experiment(
    "glide-cape-fixed",
    "CAPE and fixed expansion",
    paper="glide",
    figure="§5.4",
    question="With trees of the same size, is more accepted where candidates go where the drafter is unsure?",
    finding="70.6 tokens per second with CAPE, 68.4 with four candidates everywhere (MT-Bench).",
    note="γ = 4 throughout. The number at a point is the candidates at each position, the first choice included.",
    lines=(
        Line("fixed size", "glide+cape", {"expansion": "fixed"}),
        Line("CAPE", "glide+cape", fixed=True),
        Line("chain alone", "glide", {"gamma": 4}, fixed=True),
    ),
    axes=(Axis("size", (2, 3, 4, 6, 8), "candidates"),),
    prompts="demo:summary,text_edit,code_edit,chat",
    count=12,
    metrics=("tokens_per_step", "draft_ms", "tokens_per_s"),
    against="tree_size",
)
