"""AdaPLD fig. 5: does a second turn reuse more than a first one?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line

EXPERIMENT = Experiment(
    "adapld-fig5",
    "First turn, second turn",
    paper="adapld",
    figure="fig. 5",
    question="Is there more to reuse once a conversation has a history?",
    finding="The first turn accepts nothing more often; the second reuses more, by the copy and by branches.",
    note="The figure's shares are drawn in the paper, not printed. The demo's first turns already hand over a text.",
    lines=(Line("AdaPLD", "adapld"),),
    prompts="turns",
    count=24,
    metrics=("outcomes",),
    x="category",
    chart="stack",
)
