"""PPD fig. 10d and appendix F: how many prompt tokens are worth their rows?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

EXPERIMENT = Experiment(
    "ppd-fig10d",
    "Number of prompt tokens",
    paper="ppd",
    figure="fig. 10d, appendix F",
    question="Do more than three prompt tokens make steps longer, and does that need larger trees?",
    finding="Three are enough: more do not lengthen acceptance, as the tree's size is limited.",
    note="Each number is trained anew. The figure's values (accuracy of five prompt tokens) are drawn in the paper, "
    "not printed.",
    lines=tuple(Line(f"{size} rows", "ppd", {"size": size}, trains={}) for size in (16, 32, 64)),
    axes=(Axis("tokens", (1, 2, 3, 5), "prompt tokens", paper=3),),
    prompts="demo",
    count=8,
    metrics=("tokens_per_step", "speedup"),
)
