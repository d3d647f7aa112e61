"""AdaPLD fig. 2: how long may a copy be?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

EXPERIMENT = Experiment(
    "adapld-fig2",
    "Copy length",
    paper="adapld",
    figure="fig. 2",
    question="How many tokens should be copied at most in one step?",
    finding="More tokens are accepted up to L = 30, where speed is best too; beyond, nothing is gained.",
    note="The figure's values are drawn in the paper, not printed.",
    lines=(Line("AdaPLD", "adapld"),),
    axes=(Axis("copy_length", tuple(range(10, 101, 10)), "copy length L", paper=30),),
    prompts="demo:code_edit",
    max_new_tokens=128,
    metrics=("tokens_per_step", "speedup"),
)
