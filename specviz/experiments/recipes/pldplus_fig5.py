"""PLD+ fig. 5: which layer's hidden states should be compared?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line, hidden_states

EXPERIMENT = Experiment(
    "pldplus-fig5",
    "Layer of the hidden states",
    paper="pldplus",
    figure="fig. 5",
    question="At which depth do the hidden states tell best which earlier place is the one to copy from?",
    finding="Early layers: 9, 13 and 11 of Vicuna 7B, 13B and 33B (32, 40 and 60 layers).",
    note="K = 10, as in the paper. The figure's values are drawn there, not printed.",
    lines=(Line("PLD+ (h)", "pld+h", {"k": 10}),),
    axes=(Axis("layer", hidden_states, "hidden state (0 = embeddings)"),),
    count=9,
)
