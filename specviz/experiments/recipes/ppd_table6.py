"""PPD table 6: should prompt tokens have a head of their own?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis
from specviz.experiments.guesses import ablation

EXPERIMENT = ablation(
    6,
    "A head for prompt tokens",
    Axis("head", ("target", "one-stage", "two-stage"), "head"),
    {
        "target": (0.485, 0.779, 0.261, 0.586),
        "one-stage": (0.385, 0.614, 0.229, 0.482),
        "two-stage": (0.506, 0.795, 0.276, 0.602),
    },
    question="Is a head that is trained for the prompt tokens better than the target's own, and must it wait until the "
    "prompt tokens have learnt?",
    finding="Trained from the beginning it is 12 to 21 % worse; trained in a second stage, 2 to 4 % better, for many "
    "more parameters.",
    note="The paper does not name the model. Ours begins as a copy of the target's head. In two stages, prompt tokens "
    "learn alone for the first half of the steps (the paper: 2 epochs), then both at a tenth of the learning rate "
    "(the paper: a smaller one).",
)
