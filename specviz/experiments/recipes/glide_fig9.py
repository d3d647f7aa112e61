"""GLIDE fig. 9: how wide should the draft model be?"""

from __future__ import annotations

from specviz.experiments.experiment import Axis, Experiment, Line, draft_widths

EXPERIMENT = Experiment(
    "glide-fig9",
    "Draft width",
    paper="glide",
    figure="fig. 9",
    question="Does width make up for the layers that a draft model lacks, and what does it cost?",
    finding="Wider is faster: of 768, 2048 and 4096, the widest has the best expected speedup at 7B and 13B.",
    note="The figure's values are drawn in the paper, not printed. 4096 is the width of the 7B target itself; on a "
    "processor without spare parallel units, width costs more than on the paper's GPU.",
    lines=(Line("GLIDE", "glide", trains={}),),
    axes=(Axis("width", draft_widths, "width of the draft model", log=True),),
    prompts="demo:summary,text_edit,code_edit,chat",
    count=8,
    temperature=1.0,
    metrics=("expected_speedup", "beta", "draft_cost"),
)
