"""AdaPLD tables 7 and 8: does it still pay when tokens are drawn (T = 1)?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

TASKS = ("Debug", "Polish", "Translate", "Switch", "Avg.")
ROWS = {
    ("Vicuna-33B", "table 7"): {
        "Token Recycling": (1.35, 1.27, 1.38, 1.33, 1.33),
        "SAM decoding": (2.55, 2.12, 1.57, 3.00, 2.31),
        "PLD": (1.95, 1.93, 1.33, 2.43, 1.91),
        "PLD+": (2.56, 2.63, 1.65, 3.30, 2.54),
        "LogitSpec": (1.94, 2.14, 1.42, 3.12, 2.16),
        "AdaPLD": (2.90, 2.37, 1.78, 3.30, 2.59),
    },
    ("Qwen3-8B", "table 8"): {
        "Token Recycling": (2.67, 2.69, 2.65, 2.55, 2.64),
        "SAM decoding": (2.58, 4.54, 1.67, 3.74, 3.13),
        "PLD": (2.16, 3.37, 1.40, 2.56, 2.37),
        "PLD+": (2.66, 5.51, 1.71, 4.02, 3.48),
        "LogitSpec": (2.87, 4.68, 1.91, 3.82, 3.32),
        "AdaPLD": (3.04, 5.65, 1.92, 4.50, 3.78),
    },
}

EXPERIMENT = Experiment(
    "adapld-table7",
    "With drawn tokens, T = 1",
    paper="adapld",
    figure="tables 7, 8",
    question="How much of the speedup is left when tokens are drawn at temperature 1?",
    finding="Less than in greedy decoding, and the order of the methods stays: AdaPLD before PLD+ before PLD.",
    note="Token Recycling, SAM decoding and LogitSpec are drawn from the paper alone.",
    lines=(Line("PLD", "pld"), Line("PLD+", "pld+h"), Line("AdaPLD", "adapld")),
    prompts="demo:code_edit,text_edit,summary,chat",
    count=16,
    temperature=1.0,
    metrics=("speedup", "tokens_per_step"),
    x="category",
    chart="bar",
    papers=tuple(
        PaperSeries(label, where, "speedup", tuple(zip(TASKS, values, strict=True)), model)
        for (model, where), rows in ROWS.items()
        for label, values in rows.items()
    ),
)
