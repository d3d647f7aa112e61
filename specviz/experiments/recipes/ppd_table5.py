"""PPD table 5: does a context of their own, before the text, help prompt tokens to guess?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis
from specviz.experiments.guesses import ablation

EXPERIMENT = ablation(
    5,
    "Prefix tuning",
    Axis("prefix", (0, 1), "prefix tokens per prompt token"),
    {0: (0.485, 0.779, 0.261, 0.586), 1: (0.412, 0.738, 0.204, 0.541)},
    question="Do prompt tokens guess better if each also sees a prefix token of its own, trained keys and values that "
    "the text never sees?",
    finding="No: up to 28 % worse.",
    note="The paper does not name the model. Ours begin as what an ordinary token alone would leave in the cache at "
    "position 0, and stay at that position.",
)
