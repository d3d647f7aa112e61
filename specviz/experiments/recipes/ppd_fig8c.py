"""PPD fig. 8c: which tree size is fastest on this machine?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

EXPERIMENT = Experiment(
    "ppd-fig8c",
    "Actual speedup by tree size",
    paper="ppd",
    figure="fig. 8c",
    question="Is the size that is best in theory also the fastest?",
    finding="It is: the actual speedup peaks at the size that latency and acceptance length foretell (Alpaca Eval).",
    note="The figure's values are drawn in the paper, not printed. Compare with the recipe of fig. 8b.",
    lines=(Line("PPD", "ppd"),),
    axes=(Axis("size", (6, 8, 12, 16, 24, 32, 48, 64), "rows of the verify forward"),),
    prompts="demo",
    count=12,
    metrics=("speedup", "tokens_per_step", "verify_ms"),
)
