"""GLIDE with a CAPE: a glimpse at the target's cache, the draft model's shape, and candidates where it is unsure."""

from __future__ import annotations

from typing import Any

from specviz.experiments.experiment import Axis, Line
from specviz.experiments.papers import DRAWN, Paper
from specviz.experiments.values import draft_layers, draft_widths, some_layers

GLIDE = Paper("glide", "Vicuna-7B", lines=(Line("GLIDE", "glide"),), prompts="demo:summary,text_edit,code_edit,chat")
BOTH = (Line("GLIDE", "glide"), Line("Vanilla drafter", "sps"))
TRAINED = (Line("GLIDE", "glide", trains={}),)
DRAWN_TOKENS: dict[str, Any] = {"temperature": 1.0}  # as the paper samples

FIG1B = GLIDE.recipe(
    "fig. 1b",
    "Confidence and acceptance",
    question="Does the draft model's top probability tell how likely its token is to be accepted?",
    finding="Acceptance rises with confidence: what CAPE builds on.",
    note=f"{DRAWN} Decoding is greedy: a token is accepted where it is the target's first choice.",
    lines=BOTH,
    prompts="demo",
    count=24,
    metrics=("confidence",),
)

FIG4 = GLIDE.bars_by_task(
    "fig. 4",
    "With and without cross-attention",
    question="How much more is accepted of a draft model that reads the target's cache than of the same one that "
    "does not?",
    finding="5.4 to 23.5 points more, in most settings over 10.",
    note=f"{DRAWN} Both models see the same data in the same order.",
    lines=(*TRAINED, Line("Vanilla drafter", "sps", trains={})),
    count=12,
    metrics=("learning", "beta"),
    **DRAWN_TOKENS,
)

FIG7 = GLIDE.recipe(
    "fig. 7",
    "Layer whose cache is read",
    question="Which layer's keys and values help the draft model most, and do the lowest help at all?",
    finding="The higher the layer, the higher the acceptance; low layers still beat reading nothing (Mistral-7B).",
    note=f"{DRAWN} Reading the layer with the bundled target's copying heads (1) pays only after about 200 steps: give "
    "the training fewer, and all layers look alike.",
    training_steps=400,
    lines=(*TRAINED, Line("reads nothing", "sps", trains={}, fixed=True)),
    axes=(Axis("kv_layer", some_layers, "target layer, from 0"),),
    count=8,
    metrics=("beta", "tokens_per_step"),
    **DRAWN_TOKENS,
)

FIG8 = GLIDE.recipe(
    "fig. 8",
    "Draft layers",
    question="Does a deeper draft model win more by its acceptance than it loses by its time?",
    finding="One layer is best for targets below 33B; two for 33B, whose forward is long.",
    note=f"{DRAWN} It varies the number of layers and shows the expected speedup.",
    lines=TRAINED,
    axes=(Axis("layers", draft_layers, "draft layers"),),
    count=8,
    metrics=("expected_speedup", "beta", "draft_cost"),
    **DRAWN_TOKENS,
)

FIG9 = GLIDE.recipe(
    "fig. 9",
    "Draft width",
    question="Does width make up for the layers that a draft model lacks, and what does it cost?",
    finding="Wider is faster: of 768, 2048 and 4096, the widest has the best expected speedup at 7B and 13B.",
    note=f"{DRAWN} 4096 is the width of the 7B target itself; on a processor without spare parallel units, width costs "
    "more than on the paper's GPU.",
    lines=TRAINED,
    axes=(Axis("width", draft_widths, "width of the draft model", log=True),),
    count=8,
    metrics=("expected_speedup", "beta", "draft_cost"),
    **DRAWN_TOKENS,
)

SETS = ("GSM8K", "Fin.-Alp.", "Spider", "Code")
PRINTED = {  # target → drafter → c, β per data set (both in percent), expected speedup per data set
    "Vicuna-7B": {
        "LLaMA-68m": (7.7, (51.6, 49.7, 19.2, 34.8), (1.46, 1.41, 0.89, 1.11)),
        "LLaMA-160m": (49.0, (58.0, 57.1, 25.1, 40.0), (0.66, 0.65, 0.38, 0.48)),
        "GLIDE": (6.7, (64.8, 63.2, 55.7, 67.0), (1.97, 1.90, 1.64, 2.06)),
    },
    "Mistral-7B": {
        "LLaMA-45m": (4.9, (36.7, 40.2, 41.9, 44.5), (1.27, 1.34, 1.38, 1.44)),
        "GLIDE": (6.6, (60.1, 56.4, 59.8, 62.6), (1.80, 1.67, 1.79, 1.89)),
    },
}
SPEEDUPS = {"LLaMA-68m": (1.53, 1.48, 0.95, 1.02), "GLIDE": (1.90, 1.94, 1.69, 2.11)}  # table 5
TABLE1 = GLIDE.bars_by_task(
    "tables 1, 5",
    "GLIDE and other draft models",
    question="How much is accepted, what does a draft forward cost, and how much faster is decoding than those two "
    "let expect?",
    finding="GLIDE accepts 55 to 69 % at a cost of 5.5 to 6.8 % of a forward: expected 1.6 to 2.2 times as fast, and "
    "measured about the same.",
    note="γ = 5 and drawn tokens, as in the paper; its α is β here. The paper's c is one number per target. "
    "The drafters of Vicuna are other people's; LLaMA-45m was trained on GLIDE's data.",
    lines=BOTH[::-1],
    count=24,
    metrics=("beta", "draft_cost", "expected_speedup", "speedup"),
    papers=(
        *(
            series
            for model, rows in PRINTED.items()
            for label, (cost, acceptance, expected) in rows.items()
            for series in (
                *GLIDE.printed("table 1", "beta", SETS, {label: acceptance}, model=model, per=100),
                *GLIDE.printed("table 1", "draft_cost", ("all sets",), {label: (cost,)}, model=model, per=100),
                *GLIDE.printed("table 1", "expected_speedup", SETS, {label: expected}, model=model),
            )
        ),
        *GLIDE.printed("table 5", "speedup", SETS, SPEEDUPS),
    ),
    **DRAWN_TOKENS,
)

DATA, ANSWERS = "learns the data's answers", "learns the target's answers"
TABLE2 = GLIDE.bars_by_task(
    "table 2",
    "Sequence-level distillation",
    question="Is more accepted of a draft model that learns the target's own answers instead of the data's?",
    finding="0.2 to 0.7 points more, for twice the training time: not used elsewhere in the paper.",
    note="Both learn from the same prompts; what each is validated on while learning are its own kind of answers.",
    lines=(Line(DATA, "glide", trains={}), Line(ANSWERS, "glide", trains={"distill": True})),
    count=12,
    metrics=("beta", "learning"),
    papers=GLIDE.printed(
        "table 2", "beta", SETS, {DATA: (64.8, 63.2, 55.7, 67.0), ANSWERS: (65.0, 63.9, 56.0, 67.5)}, per=100
    ),
    **DRAWN_TOKENS,
)

DRAFTING = {
    "Vicuna-7B": (5.3, 10.9, 14.8, 5.5),
    "Vicuna-13B": (5.3, 10.9, 14.9, 5.5),
    "Vicuna-33B": (9.1, 17.1, 24.6, 8.9),
}
TABLE3 = GLIDE.recipe(
    "table 3",
    "Drafting time of chains, beams and CAPE",
    question="How long does it take to draft a chain, beams, or a chain with CAPE's leaves, and what is accepted?",
    finding="CAPE adds 0.2 ms to 5.3 ms; four beams take twice as long, eight nearly three times.",
    note="γ = 5 throughout, greedy decoding.",
    lines=(
        Line("GLIDE", "glide", {"gamma": 5}),
        Line("beam 4", "glide+cape", {"gamma": 5, "expansion": "beam 4"}),
        Line("beam 8", "glide+cape", {"gamma": 5, "expansion": "beam 8"}),
        Line("CAPE", "glide+cape", {"gamma": 5}),
    ),
    count=12,
    metrics=("draft_ms", "tokens_per_step", "speedup"),
    chart="bar",
    papers=GLIDE.printed("table 3", "draft_ms", ("GLIDE", "beam 4", "beam 8", "CAPE"), DRAFTING, model="Vicuna"),
)

RANKS = GLIDE.recipe(
    "§4.2",
    "Where the target's token ranks",
    "ranks",
    question="How often is the target's token the drafter's second or third choice, at each depth of the draft?",
    finding="CAPE tries the drafter's choices 2 to 8 too, more of them the less sure it is; how often they are right "
    "is not printed.",
    note="A depth is counted where it was reached: deeper ones follow easier text, as all before was accepted.",
    lines=BOTH,
    prompts="demo",
    count=24,
    metrics=("ranks",),
    chart="stack",
)

CAPE_FIXED = GLIDE.recipe(
    "§5.4",
    "CAPE and fixed expansion",
    "cape-fixed",
    question="With trees of the same size, is more accepted where candidates go where the drafter is unsure?",
    finding="70.6 tokens per second with CAPE, 68.4 with four candidates everywhere (MT-Bench).",
    note="γ = 4 throughout. The number at a point is the candidates at each position, the first choice included.",
    lines=(
        Line("fixed size", "glide+cape", {"expansion": "fixed"}),
        Line("CAPE", "glide+cape", fixed=True),
        Line("chain alone", "glide", {"gamma": 4}, fixed=True),
    ),
    axes=(Axis("size", (2, 3, 4, 6, 8), "candidates"),),
    count=12,
    metrics=("tokens_per_step", "draft_ms", "tokens_per_s"),
    against="tree_size",
)
