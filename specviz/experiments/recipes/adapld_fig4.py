"""AdaPLD fig. 4: which part of the draft is accepted?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line

EXPERIMENT = Experiment(
    "adapld-fig4",
    "What is reused",
    paper="adapld",
    figure="fig. 4",
    question="Do accepted tokens come from the copy, from a branch beside it, or from a branch and its successor?",
    finding="No single part carries it: the copy is central, branches are a large share, successors add to them.",
    note="The figure's shares are drawn in the paper, not printed. Its share “prefill” is not a step here.",
    lines=(Line("AdaPLD", "adapld"),),
    prompts="demo",
    count=24,
    metrics=("outcomes",),
    x="category",
    chart="stack",
)
