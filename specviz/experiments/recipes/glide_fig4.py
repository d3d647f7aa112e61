"""GLIDE fig. 4: what is a glimpse at the target's cache worth?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line

EXPERIMENT = Experiment(
    "glide-fig4",
    "With and without cross-attention",
    paper="glide",
    figure="fig. 4",
    question="How much more is accepted of a draft model that reads the target's cache than of the same one that "
    "does not?",
    finding="5.4 to 23.5 points more, in most settings over 10.",
    note="The figure's values are drawn in the paper, not printed. Both models see the same data in the same order.",
    lines=(Line("GLIDE", "glide", trains={}), Line("Vanilla drafter", "sps", trains={})),
    prompts="demo:summary,text_edit,code_edit,chat",
    count=12,
    temperature=1.0,
    metrics=("learning", "beta"),
    x="category",
    chart="bar",
)
