"""PLD+: which places to copy from rank best, how long drafts should be, and what copied spans say of an answer."""

from __future__ import annotations

from decoders.study.attribution import COUNTED
from specviz.experiments.experiment import Axis, Line
from specviz.experiments.papers import DRAWN, Paper
from specviz.experiments.quoted import MIN_RUNS, QUANTITIES
from specviz.experiments.values import attention_layers, head_counts, hidden_states

PLDPLUS = Paper("pldplus", "Vicuna-7B", lines=(Line("PLD+ (h)", "pld+h"),))

FIG3 = PLDPLUS.recipe(
    "fig. 3",
    "Which attention heads rank best",
    question="Does one layer's attention find the place to copy from, or do the heads known to copy find it better?",
    finding="Selected copying heads, joined by their maximum, beat every single layer and all heads together (3.21 "
    "tokens per step with 50 heads of Vicuna-7B, table 6).",
    note=DRAWN,
    lines=(
        Line("one layer, max", "pld+a", {"aggregation": "layer max"}),
        Line("one layer, sum", "pld+a", {"aggregation": "layer sum"}),
        Line("all layers, max", "pld+a", {"aggregation": "all max"}, fixed=True),
        Line("all layers, sum", "pld+a", {"aggregation": "all sum"}, fixed=True),
        Line("copying heads, max", "pld+a", {"aggregation": "heads max"}, fixed=True),
    ),
    axes=(Axis("layer", attention_layers, "attention layer"),),
)

FIG4 = PLDPLUS.recipe(
    "fig. 4",
    "Draft length",
    question="Do longer drafts pay, and more so when places are ranked by the model's own states than by n-grams?",
    finding="PLD+ gains from longer drafts where PLD does not; K = 70 was chosen.",
    note=DRAWN,
    lines=(Line("PLD", "pld"), Line("PLD+ (a)", "pld+a"), Line("PLD+ (h)", "pld+h")),
    axes=(Axis("k", (10, 20, 30, 40, 50, 70, 100), "draft length K", paper=70),),
    max_new_tokens=128,
)

FIG5 = PLDPLUS.recipe(
    "fig. 5",
    "Layer of the hidden states",
    question="At which depth do the hidden states tell best which earlier place is the one to copy from?",
    finding="Early layers: 9, 13 and 11 of Vicuna 7B, 13B and 33B (32, 40 and 60 layers).",
    note="K = 10, as in the paper. The figure's values are drawn there, not printed.",
    lines=(Line("PLD+ (h)", "pld+h", {"k": 10}),),
    axes=(Axis("layer", hidden_states, "hidden state (0 = embeddings)"),),
    count=9,
)

COUNTS, TOKENS = (10, 20, 30, 40, 50, 100, 200, 300), (3.17, 3.18, 3.2, 3.21, 3.21, 2.93, 2.9, 2.9)
TABLE6 = PLDPLUS.recipe(
    "table 6",
    "How many copying heads",
    question="How many of the heads that copy should be asked before those that do not copy drown them out?",
    finding="40 to 50 heads of 1,024; from 100 on the others outvote them.",
    note="The paper's row “All” (2.90) is left out of the chart: it is every head found to copy, 379.",
    lines=(Line("PLD+ (a)", "pld+a"),),
    axes=(Axis("heads", head_counts, "heads", log=True),),
    papers=PLDPLUS.printed("table 6", "tokens_per_step", COUNTS, {"PLD+ (a)": TOKENS}),
)

THRESHOLDS, SPEEDS = ("off", "-0.75", "-0.5", "0", "0.5", "0.75"), (92.26, 94.44, 93.79, 95.05, 76.86, 57.73)
TABLE7 = PLDPLUS.recipe(
    "table 7",
    "Threshold on the cosine",
    question="Does it pay to drop candidates whose hidden states are not alike enough?",
    finding="A low threshold does no harm and θ = 0 is best; above 0 good places are lost.",
    axes=(Axis("theta", (None, -0.75, -0.5, 0.0, 0.5, 0.75, 0.9), "threshold θ"),),
    metrics=("tokens_per_s", "tokens_per_step"),
    papers=PLDPLUS.printed("table 7", "tokens_per_s", THRESHOLDS, {"PLD+ (h)": SPEEDS}),
)

AVERAGED = (1, 2, 3, 4, 5, 6)
TABLE8 = PLDPLUS.recipe(
    "table 8",
    "Averaged hidden states",
    question="Are places told apart better by one hidden state or by the mean of the last few?",
    finding="One state is best, and every further one makes it a little worse.",
    note="m = 1 is the paper's row without averaging.",
    axes=(Axis("average_last", AVERAGED, "states averaged, m", paper=1),),
    count=9,
    papers=PLDPLUS.printed("table 8", "tokens_per_step", AVERAGED, {"PLD+ (h)": (3.14, 3.05, 3.04, 3.03, 3.01, 3.0)}),
)

RUNS = (2, 5, 8)  # min_run
SCORES = {"precision": (0.96, 0.98, 0.99), "recall": (0.96, 0.85, 0.70), "f1": (0.96, 0.90, 0.79)}
TABLE10 = PLDPLUS.recipe(
    "table 10",
    "Attribution of quotes",
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
        Axis("min_run", MIN_RUNS, "min_run, tokens", measured=True),
        Axis("counted", tuple(COUNTED.values()), "counted", measured=True),
    ),
    prompts="quotes",
    count=24,
    max_new_tokens=128,
    metrics=("f1", "precision", "recall", "right_passage"),
    papers=tuple(
        series
        for metric, row in SCORES.items()
        for series in PLDPLUS.printed("table 10", metric, RUNS, {"PLD+ (h)": row})
    ),
    own=QUANTITIES,
    forced=True,
)
