"""CASD fig. 4: accepted length against the threshold."""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

from .casd_table8 import DELTAS

EXPERIMENT = Experiment(
    "casd-fig4",
    "Acceptance against the threshold",
    paper="casd",
    figure="fig. 4",
    question="How much longer do accepted drafts get as the threshold falls?",
    finding="The lower the threshold, the longer the accepted drafts, in every task.",
    note="The figure's values are drawn in the paper, not printed.",
    lines=(Line("CASD", "casd"),),
    axes=(Axis("delta", (1.0, *DELTAS), "threshold δ", log=True, paper=0.1),),
    prompts="demo:quote,summary,code_edit",
    count=15,
    metrics=("tokens_per_step", "differs"),
    by_category=True,
)
