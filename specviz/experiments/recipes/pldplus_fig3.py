"""PLD+ fig. 3: which attention heads should rank the places to copy from?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line, attention_layers

EXPERIMENT = Experiment(
    "pldplus-fig3",
    "Which attention heads rank best",
    paper="pldplus",
    figure="fig. 3",
    question="Does one layer's attention find the place to copy from, or do the heads known to copy find it better?",
    finding="Selected copying heads, joined by their maximum, beat every single layer and all heads together (3.21 "
    "tokens per step with 50 heads of Vicuna-7B, table 6).",
    note="The figure's values are drawn in the paper, not printed.",
    lines=(
        Line("one layer, max", "pld+a", {"aggregation": "layer max"}),
        Line("one layer, sum", "pld+a", {"aggregation": "layer sum"}),
        Line("all layers, max", "pld+a", {"aggregation": "all max"}, fixed=True),
        Line("all layers, sum", "pld+a", {"aggregation": "all sum"}, fixed=True),
        Line("copying heads, max", "pld+a", {"aggregation": "heads max"}, fixed=True),
    ),
    axes=(Axis("layer", attention_layers, "attention layer"),),
)
