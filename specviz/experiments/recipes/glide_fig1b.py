"""GLIDE fig. 1b: does confidence tell what will be accepted?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line

EXPERIMENT = Experiment(
    "glide-fig1b",
    "Confidence and acceptance",
    paper="glide",
    figure="fig. 1b",
    question="Does the draft model's top probability tell how likely its token is to be accepted?",
    finding="Acceptance rises with confidence: what CAPE builds on.",
    note="The figure's values are drawn in the paper, not printed. Decoding is greedy: a token is accepted where it is "
    "the target's first choice.",
    lines=(Line("GLIDE", "glide"), Line("Vanilla drafter", "sps")),
    prompts="demo",
    count=24,
    metrics=("confidence",),
    x="line",
)
