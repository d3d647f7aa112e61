"""GLIDE §4.2: where in the drafter's ranking stands what the target writes?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line

EXPERIMENT = Experiment(
    "glide-ranks",
    "Where the target's token ranks",
    paper="glide",
    figure="§4.2",
    question="How often is the target's token the drafter's second or third choice, at each depth of the draft?",
    finding="CAPE tries the drafter's choices 2 to 8 too, more of them the less sure it is; how often they are right "
    "is not printed.",
    note="A depth is counted where it was reached: deeper ones follow easier text, as all before was accepted.",
    lines=(Line("GLIDE", "glide"), Line("Vanilla drafter", "sps")),
    prompts="demo",
    count=24,
    metrics=("ranks",),
    x="line",
    chart="stack",
)
