"""PPD table 1: throughput, tokens per step, forward latency and input length."""

from __future__ import annotations

from specviz.experiments.experiment import Experiment, Line, PaperSeries

PLAIN, PPD, TYPICAL = "Plain decoding", "PPD", "PPD, typical"
LINES = (PLAIN, "Medusa", PPD)
ROWS = {  # tokens per second, tokens per step, ms per forward
    "MobileLLaMA": ((50.2, None, 108.7), (1.00, None, 2.43), (20, None, 22)),
    "7B": ((39.2, 82.0, 88.0), (1.00, 2.51, 2.54), (26, 30.7, 29)),
    "13B": ((30.4, 63.4, 66.1), (1.00, 2.59, 2.44), (33, 40.8, 37.9)),
}
MODELS = "Vicuna, MobileLLaMA"
METRICS = ("tokens_per_s", "tokens_per_step", "verify_ms")

EXPERIMENT = Experiment(
    "ppd-table1",
    "PPD and plain decoding",
    paper="ppd",
    figure="table 1",
    question="How much faster is PPD, how many tokens does a step give, and what does the longer forward cost?",
    finding="2.2 times as many tokens per second on MobileLLaMA and Vicuna, at steps of 2.4 to 2.5 tokens and forwards "
    "10 to 15 % longer; answers are as good.",
    note="Greedy decoding here; the paper's Vicuna rows are sampled at MT-Bench's temperature and judged there (5.93 "
    "to 6.38 of 10 with and without PPD). Trained parameters: the recipe of fig. 7a. Batch size 1, as in the paper.",
    lines=(Line(PLAIN, "plain", fixed=True), Line(PPD, "ppd"), Line(TYPICAL, "ppd+typical")),
    prompts="demo",
    count=18,
    metrics=(*METRICS, "input_rows", "quality"),
    x="line",
    chart="bar",
    papers=tuple(
        PaperSeries(model, "table 1", metric, tuple((n, v) for n, v in zip(LINES, row, strict=True) if v), MODELS)
        for model, rows in ROWS.items()
        for metric, row in zip(METRICS, rows, strict=True)
    ),
)
