"""AdaPLD: branches beside the copy, the semantic fallback, and what each part contributes and costs."""

from __future__ import annotations

from typing import Any

from specviz.experiments.experiment import Axis, Line, PaperSeries
from specviz.experiments.papers import DRAWN, Paper

ADAPLD = Paper("adapld", "Vicuna-33B", lines=(Line("AdaPLD", "adapld"),), prompts="demo:code_edit")
ALL_TASKS: dict[str, Any] = {"prompts": "demo", "count": 24}
SHARES_DRAWN = "The figure's shares are drawn in the paper, not printed."
LENGTHS = "Tables 11 and 12 of the paper do not fit one definition of the length; here the bonus token is not counted."

FIG1 = ADAPLD.recipe(
    "fig. 1",
    "Branch width",
    question="How many of the target's likely tokens should be tried beside the copy before verifying them costs more?",
    finding="Accepted tokens grow with the width; speed is best at 8 to 16 branches and drops clearly at 64.",
    note=DRAWN,
    axes=(Axis("k", (2, 4, 8, 16, 32, 64), "branches K", log=True, paper=8),),
    count=8,
    metrics=("tokens_per_step", "speedup"),
)

FIG2 = ADAPLD.recipe(
    "fig. 2",
    "Copy length",
    question="How many tokens should be copied at most in one step?",
    finding="More tokens are accepted up to L = 30, where speed is best too; beyond, nothing is gained.",
    note=DRAWN,
    axes=(Axis("copy_length", tuple(range(10, 101, 10)), "copy length L", paper=30),),
    max_new_tokens=128,
    metrics=("tokens_per_step", "speedup"),
)

FIG3 = ADAPLD.recipe(
    "fig. 3",
    "Threshold of the semantic fallback",
    question="How alike must two tokens be before one may stand in for the other?",
    finding="Higher thresholds lower the accepted tokens; low to moderate ones are equally fast. τ = 0.1 was chosen.",
    note=f"{DRAWN} In a small model all embeddings are alike, so the same sweep with centred embeddings is drawn too.",
    lines=(Line("AdaPLD", "adapld"), Line("AdaPLD, centred embeddings", "adapld", {"center_embeddings": True})),
    axes=(Axis("tau", tuple(n / 10 for n in range(9)), "threshold τ", paper=0.1),),
    metrics=("tokens_per_step", "speedup"),
)

FIG4 = ADAPLD.shares_by_task(
    "fig. 4",
    "What is reused",
    question="Do accepted tokens come from the copy, from a branch beside it, or from a branch and its successor?",
    finding="No single part carries it: the copy is central, branches are a large share, successors add to them.",
    note=f"{SHARES_DRAWN} Its share “prefill” is not a step here.",
    metrics=("outcomes",),
    **ALL_TASKS,
)

FIG5 = ADAPLD.shares_by_task(
    "fig. 5",
    "First turn, second turn",
    question="Is there more to reuse once a conversation has a history?",
    finding="The first turn accepts nothing more often; the second reuses more, by the copy and by branches.",
    note=f"{SHARES_DRAWN} The demo's first turns already hand over a text.",
    prompts="turns",
    count=24,
    metrics=("outcomes",),
)

TASKS = ("MT", "SUM", "RAG", "Debug", "Polish", "Translate", "Switch", "Avg.")
TABLE4 = ADAPLD.bars_by_task(
    "table 4",
    "Ablation of the parts",
    question="What is lost without branches, without successors, and without the semantic fallback?",
    finding="Every part helps: branches most (2.40 to 2.18), then the fallback (2.24), then successors (2.37).",
    lines=(
        Line("full", "adapld"),
        Line("no branches, no successors", "adapld", {"branches": False, "successors": False}),
        Line("no successors", "adapld", {"successors": False}),
        Line("lexical only", "adapld", {"semantic": False}),
    ),
    prompts="demo:chat,summary,quote,code_edit",
    count=16,
    metrics=("speedup", "tokens_per_step"),
    papers=ADAPLD.printed(
        "table 4",
        "speedup",
        TASKS,
        {
            "full": (1.70, 2.45, 1.79, 2.28, 2.34, 1.70, 4.51, 2.40),
            "no branches, no successors": (1.53, 2.25, 1.64, 2.03, 2.07, 1.51, 4.22, 2.18),
            "no successors": (1.60, 2.41, 1.77, 2.26, 2.34, 1.69, 4.51, 2.37),
            "lexical only": (1.62, 2.37, 1.74, 2.20, 2.23, 1.63, 3.91, 2.24),
        },
        model="Vicuna-13B",
    ),
)

EDITS = ("Debug", "Polish", "Translate", "Switch", "Avg.")
VICUNA = {
    "Token Recycling": (1.35, 1.27, 1.38, 1.33, 1.33),
    "SAM decoding": (2.55, 2.12, 1.57, 3.00, 2.31),
    "PLD": (1.95, 1.93, 1.33, 2.43, 1.91),
    "PLD+": (2.56, 2.63, 1.65, 3.30, 2.54),
    "LogitSpec": (1.94, 2.14, 1.42, 3.12, 2.16),
    "AdaPLD": (2.90, 2.37, 1.78, 3.30, 2.59),
}
QWEN = {
    "Token Recycling": (2.67, 2.69, 2.65, 2.55, 2.64),
    "SAM decoding": (2.58, 4.54, 1.67, 3.74, 3.13),
    "PLD": (2.16, 3.37, 1.40, 2.56, 2.37),
    "PLD+": (2.66, 5.51, 1.71, 4.02, 3.48),
    "LogitSpec": (2.87, 4.68, 1.91, 3.82, 3.32),
    "AdaPLD": (3.04, 5.65, 1.92, 4.50, 3.78),
}
TABLE7 = ADAPLD.bars_by_task(
    "tables 7, 8",
    "With drawn tokens, T = 1",
    question="How much of the speedup is left when tokens are drawn at temperature 1?",
    finding="Less than in greedy decoding, and the order of the methods stays: AdaPLD before PLD+ before PLD.",
    note="Token Recycling, SAM decoding and LogitSpec are drawn from the paper alone.",
    lines=(Line("PLD", "pld"), Line("PLD+", "pld+h"), Line("AdaPLD", "adapld")),
    prompts="demo:code_edit,text_edit,summary,chat",
    count=16,
    temperature=1.0,
    metrics=("speedup", "tokens_per_step"),
    papers=(
        *ADAPLD.printed("table 7", "speedup", EDITS, VICUNA),
        *ADAPLD.printed("table 8", "speedup", EDITS, QWEN, model="Qwen3-8B"),
    ),
)

COST = (("retrieval", 0.0007), ("rerank", 0.0012), ("branches", 0.0017), ("successors", 0.0017))
TIMES = (("verify", 39.195), ("retrieval", 0.028), ("rerank", 0.049), ("branches", 0.066), ("successors", 0.069))
TABLE9 = ADAPLD.recipe(
    "table 9",
    "Cost of the parts",
    question="How much time do retrieval, reranking, branches and successors take beside the target's forward?",
    finding="0.53 % of the forward altogether, each part under 0.2 %.",
    note="The paper's forward is a 33B model's on a GPU; the smaller the model, the more drafting weighs. Retrieval "
    "holds the lexical search here; the paper's row is the semantic fallback alone.",
    count=8,
    metrics=("cost", "times"),
    chart="bar",
    papers=(
        PaperSeries("AdaPLD", "table 9", "cost", COST, "Vicuna-33B"),
        PaperSeries("AdaPLD", "table 9", "times", TIMES, "Vicuna-33B"),
    ),
)

HITS = {  # lexical, semantic, none
    "Spec-Bench": (0.6117, 0.2616, 0.1267),
    "CodeEditorBench": (0.7343, 0.2128, 0.0530),
    "AIME24": (0.7289, 0.2061, 0.0650),
    "MATH-500": (0.7326, 0.2055, 0.0619),
    "MMLU-Pro": (0.6433, 0.2441, 0.1127),
}
RECOVERED = (0.6737, 0.8007, 0.7601, 0.7684, 0.6841)
TABLE10 = ADAPLD.shares_by_task(
    "table 10",
    "Hit rates of retrieval",
    question="How often is the last token itself found, how often only one like it, and how often nothing?",
    finding="Exact matches carry 61 to 73 %; of the rest, the fallback recovers 67 to 80 %.",
    metrics=("routes", "semantic_recovery"),
    papers=(
        *ADAPLD.printed("table 10", "routes", ("lexical", "semantic", "none"), HITS),
        *ADAPLD.printed("table 10", "semantic_recovery", tuple(HITS), {"AdaPLD": RECOVERED}),
    ),
    **ALL_TASKS,
)

REUSE = {
    "reuse_rate": (0.3725, 0.6033, 0.4607, 0.5254, 0.4257, 0.4897, 0.5800),
    "branch_fraction": (0.4492, 0.3505, 0.4719, 0.4053, 0.4189, 0.4121, 0.3537),
    "reuse_length": (3.65, 4.53, 3.59, 4.20, 5.15, 3.21, 6.68),
}
TABLE11 = ADAPLD.bars_by_task(
    "table 11",
    "Reuse by task",
    question="In which tasks does reuse succeed often, by branches, and in long runs?",
    finding="37 to 60 % of the steps reuse something, 35 to 47 % of them by a branch; edits give the longest runs.",
    note=LENGTHS,
    metrics=tuple(REUSE),
    papers=tuple(
        series
        for metric, row in REUSE.items()
        for series in ADAPLD.printed("table 11", metric, TASKS[:-1], {"AdaPLD": row})
    ),
    **ALL_TASKS,
)

TABLE12 = ADAPLD.recipe(
    "table 12",
    "Lengths of accepted drafts",
    question="Does AdaPLD turn one-token successes into longer ones?",
    finding="One-token successes fall from 67 % (PLD+) to 46 %.",
    note=LENGTHS,
    lines=(Line("PLD+", "pld+h"), Line("AdaPLD", "adapld")),
    count=12,
    metrics=("lengths",),
    chart="stack",
    papers=ADAPLD.printed(
        "table 12",
        "lengths",
        ("1", "2", "3", "4", "5+"),
        {"PLD+": (0.67, 0.13, 0.10, 0.05, 0.05), "AdaPLD": (0.46, 0.31, 0.13, 0.05, 0.05)},
    ),
)
