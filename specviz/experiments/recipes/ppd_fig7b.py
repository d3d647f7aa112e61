"""PPD fig. 7b and table 10: what is a tree of guesses worth, against their chain?"""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

BATCH = "batch 1"
SPEEDUPS = {"tree": 2.26, "chain": 1.71}  # table 10, its column of batch size 1

EXPERIMENT = Experiment(
    "ppd-fig7b",
    "With and without tree",
    paper="ppd",
    figure="fig. 7b, table 10",
    question="How much faster is a tree of guesses than the chain of each prompt token's first guess, with the best "
    "number of rows for this machine and with as many as the chain?",
    finding="By 32 %; without the tree PPD is still ahead of the other parallel decoding methods. The gain shrinks "
    "with the batch: from batch size 3 on, the chain is faster.",
    note="The chain of three prompt tokens, all on every node, takes 16 rows. The engine decodes one prompt at a time: "
    "batch size 1. The values of fig. 7b are drawn in the paper, not printed; those shown are table 10's.",
    lines=(
        Line("tree", "ppd"),
        Line("tree of 16 rows", "ppd", {"size": 16}),
        Line("chain", "ppd", {"tree": False}),
    ),
    prompts="demo:summary,text_edit,code_edit,chat",
    count=16,
    metrics=("speedup", "tokens_per_step", "input_rows"),
    x="category",
    chart="bar",
    papers=tuple(
        PaperSeries(label, "table 10", "speedup", ((BATCH, value),), "model not named")
        for label, value in SPEEDUPS.items()
    ),
)
