"""PLD+ table 7: does a threshold on the hidden states' cosine help?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line, PaperSeries

POINTS = (("off", 92.26), ("-0.75", 94.44), ("-0.5", 93.79), ("0", 95.05), ("0.5", 76.86), ("0.75", 57.73))

EXPERIMENT = Experiment(
    "pldplus-table7",
    "Threshold on the cosine",
    paper="pldplus",
    figure="table 7",
    question="Does it pay to drop candidates whose hidden states are not alike enough?",
    finding="A low threshold does no harm and θ = 0 is best; above 0 good places are lost.",
    lines=(Line("PLD+ (h)", "pld+h"),),
    axes=(Axis("theta", (None, -0.75, -0.5, 0.0, 0.5, 0.75, 0.9), "threshold θ"),),
    metrics=("tokens_per_s", "tokens_per_step"),
    papers=(PaperSeries("PLD+ (h)", "table 7", "tokens_per_s", POINTS, "Vicuna-7B"),),
)
