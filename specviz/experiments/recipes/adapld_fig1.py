"""AdaPLD fig. 1: how many branches?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

EXPERIMENT = Experiment(
    "adapld-fig1",
    "Branch width",
    paper="adapld",
    figure="fig. 1",
    question="How many of the target's likely tokens should be tried beside the copy before verifying them costs more?",
    finding="Accepted tokens grow with the width; speed is best at 8 to 16 branches and drops clearly at 64.",
    note="The figure's values are drawn in the paper, not printed.",
    lines=(Line("AdaPLD", "adapld"),),
    axes=(Axis("k", (2, 4, 8, 16, 32, 64), "branches K", log=True, paper=8),),
    prompts="demo:code_edit",
    count=8,
    metrics=("tokens_per_step", "speedup"),
)
