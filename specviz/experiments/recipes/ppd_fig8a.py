"""PPD fig. 8a: do pruned trees accept more than naive and random ones of the same size?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

EXPERIMENT = Experiment(
    "ppd-fig8a",
    "Pruned, naive and random trees",
    paper="ppd",
    figure="fig. 8a",
    question="With as many rows, is more accepted where prompt tokens are pruned by what they cost than where every "
    "guess has as many, or where they are placed at random?",
    finding="Pruned trees accept more at every size, and go on growing; naive ones come close where trees are large.",
    note="The figure's values are drawn in the paper, not printed. Random trees have the pruned ones' guesses, one "
    "draw per size.",
    lines=(
        Line("pruned", "ppd"),
        Line("naive", "ppd", {"kind": "naive"}),
        Line("random", "ppd", {"kind": "random"}),
    ),
    axes=(Axis("size", (8, 12, 16, 24, 32, 48), "rows of the verify forward"),),
    prompts="demo",
    count=8,
    metrics=("tokens_per_step",),
)
