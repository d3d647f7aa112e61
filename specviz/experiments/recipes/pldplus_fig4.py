"""PLD+ fig. 4: how long should drafts be?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

EXPERIMENT = Experiment(
    "pldplus-fig4",
    "Draft length",
    paper="pldplus",
    figure="fig. 4",
    question="Do longer drafts pay, and more so when places are ranked by the model's own states than by n-grams?",
    finding="PLD+ gains from longer drafts where PLD does not; K = 70 was chosen.",
    note="The figure's values are drawn in the paper, not printed.",
    lines=(Line("PLD", "pld"), Line("PLD+ (a)", "pld+a"), Line("PLD+ (h)", "pld+h")),
    axes=(Axis("k", (10, 20, 30, 40, 50, 70, 100), "draft length K", paper=70),),
    max_new_tokens=128,
)
