"""CASD fig. 2: quality against the threshold."""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line

from .casd_table8 import CURVES, DELTAS

EXPERIMENT = Experiment(
    "casd-fig2",
    "Quality against the threshold",
    paper="casd",
    figure="fig. 2",
    question="How far can the threshold be lowered before the answers suffer, and does it depend on the task?",
    finding="It does: NQ rises as δ falls, the other questions and code fall, summaries stay above plain decoding.",
    note="Level lines are plain decoding. The paper's curves are the values of its table 8.",
    lines=(Line("CASD", "casd"), Line("Plain decoding", "plain", fixed=True)),
    axes=(Axis("delta", DELTAS, "threshold δ", log=True, paper=0.1),),
    prompts="demo:quote,summary,code_edit",
    count=18,
    metrics=("quality",),
    by_category=True,
    papers=CURVES,
)
