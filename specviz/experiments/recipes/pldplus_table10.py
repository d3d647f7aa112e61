"""PLD+ table 10: do the spans that a method copies find what an answer quotes?"""

from __future__ import annotations

from decoders.study.attribution import COUNTED
from specviz.experiments.experiment import Axis, Experiment, Line, PaperSeries
from specviz.experiments.quoted import MIN_RUNS, QUANTITIES

ROWS = {2: (0.96, 0.96, 0.96), 5: (0.98, 0.85, 0.90), 8: (0.99, 0.70, 0.79)}  # precision, recall, F1

EXPERIMENT = Experiment(
    "pldplus-table10",
    "Attribution of quotes",
    paper="pldplus",
    figure="table 10",
    question="How well do copied spans find what an answer quotes, and how long must a copied run be to count?",
    finding="PLD+ (h) reaches F1 .96 on QuoteSum at min_run 2, as good as a trained attributor (Yi-6b: precision .94, "
    "recall .99) and better than GPT-4 (.96, .87, F1 .90); longer runs are surer and find less.",
    note="The answers are given to the method. “Drafted tokens” is the signal alone; “whole quotations” takes in the "
    "words beside a drafted run that its source has too. By default the demo generator's quoted answers, whose quotes "
    "are known by construction (one-word answers left out); --prompts takes a file in QuoteSum's form.",
    lines=(
        Line("PLD+ (h)", "pld+h"),
        Line("PLD+ (a)", "pld+a"),
        Line("AdaPLD", "adapld"),
        Line("CASD", "casd"),
        Line("GLIDE, where it looked", "glide"),
    ),
    axes=(
        Axis("min_run", MIN_RUNS, "min_run, tokens", found=True),
        Axis("counted", tuple(COUNTED.values()), "counted", found=True),
    ),
    prompts="quotes",
    count=24,
    max_new_tokens=128,
    metrics=("f1", "precision", "recall", "right_passage"),
    papers=tuple(
        PaperSeries("PLD+ (h)", "table 10", metric, tuple((n, row[k]) for n, row in ROWS.items()), "Vicuna-7B")
        for k, metric in enumerate(("precision", "recall", "f1"))
    ),
    own=QUANTITIES,
    given=True,
)
