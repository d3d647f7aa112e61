"""GLIDE table 3: what does a wider draft cost?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

LINES = ("GLIDE", "beam 4", "beam 8", "CAPE")
ROWS = {
    "Vicuna-7B": (5.3, 10.9, 14.8, 5.5),
    "Vicuna-13B": (5.3, 10.9, 14.9, 5.5),
    "Vicuna-33B": (9.1, 17.1, 24.6, 8.9),
}

EXPERIMENT = Experiment(
    "glide-table3",
    "Drafting time of chains, beams and CAPE",
    paper="glide",
    figure="table 3",
    question="How long does it take to draft a chain, beams, or a chain with CAPE's leaves, and what is accepted?",
    finding="CAPE adds 0.2 ms to 5.3 ms; four beams take twice as long, eight nearly three times.",
    note="γ = 5 throughout, greedy decoding.",
    lines=(
        Line("GLIDE", "glide", {"gamma": 5}),
        Line("beam 4", "glide+cape", {"gamma": 5, "expansion": "beam 4"}),
        Line("beam 8", "glide+cape", {"gamma": 5, "expansion": "beam 8"}),
        Line("CAPE", "glide+cape", {"gamma": 5}),
    ),
    prompts="demo:summary,text_edit,code_edit,chat",
    count=12,
    metrics=("draft_ms", "tokens_per_step", "speedup"),
    x="line",
    chart="bar",
    papers=tuple(
        PaperSeries(model, "table 3", "draft_ms", tuple(zip(LINES, row, strict=True)), "Vicuna")
        for model, row in ROWS.items()
    ),
)
