"""PPD: how well prompt tokens guess, what their trees are worth, and the ablations of their training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from specviz.experiments.experiment import Axis, Experiment, Line, Row, text_of
from specviz.experiments.guesses import (
    ACCURACY,
    COLUMNS,
    RANKS,
    acceptance_of,
    by_distance,
    look,
    part_of,
    side_by_side,
)
from specviz.experiments.papers import DRAWN, Paper
from specviz.experiments.quantities import Quantity, learning

PPD = Paper("ppd", "model not named", lines=(Line("PPD", "ppd"),), prompts="demo")
GUESSES: dict[str, Any] = {"metrics": (ACCURACY.key,), "look": look, "own": (ACCURACY,)}

FIG6 = PPD.recipe(
    "fig. 6",
    "Accumulative accuracy",
    question="How often is the target's token among the first k guesses of a prompt token, and how fast does that fall "
    "with the distance?",
    finding="More guesses help most far ahead: at distance 3, ten guesses gain 0.1 over Medusa's, one guess 0.02. "
    "100 EPTs instead of 1 add 0.018 to 0.045; Vicuna-13B instead of 7B adds 0.011 to 0.038.",
    note=f"{DRAWN} Every position of the target's own answers counts.",
    axes=(Axis("k", tuple(range(1, RANKS + 1)), "first guesses", measured=True),),
    count=24,
    arrange=by_distance,
    **GUESSES,
)

NAMES = {"ppd": "PPD", "glide": "GLIDE", "drafter": "Vanilla drafter"}
TARGETS = "Vicuna, MobileLLaMA"


def trained_parts(target: Any, params: Mapping[str, Any]) -> Iterator[Row]:
    """A row per part that there is for the target, counted from its file.

    Memory while decoding: the part's numbers, and the keys and values that a draft model keeps of a full context, all
    in the target's type. Prompt tokens keep none: theirs are dropped after each step.
    """
    from safetensors import safe_open

    from decoders.draft_models.network import DraftConfig
    from decoders.parts import WEIGHTS, find_part, read_part

    parameters = float(target.info["parameters"])
    for kind, name in NAMES.items():
        folder = part_of(target, params)[0] if kind == "ppd" else find_part(target.key, kind)
        if folder is None:
            continue
        with safe_open(folder / WEIGHTS, framework="pt") as stored:
            numbers = sum(math.prod(stored.get_slice(key).get_shape()) for key in stored.keys())  # noqa: SIM118
        config = read_part(folder).config
        cached = 2 * config.layers * config.hidden * target.context_length if isinstance(config, DraftConfig) else 0
        yield {
            "series": name,
            "trained_percent": 100 * numbers / parameters,
            "memory_percent": 100 * (numbers + cached) / parameters,
        }


FIG7A = PPD.recipe(
    "fig. 7a, table 1",
    "Trained parameters and memory",
    question="How many numbers are trained for a target, and how much memory do they take while decoding?",
    finding="PPD trains 0.0002 % of Vicuna-7B's parameters and takes 0.0004 % of memory; Medusa trains 8 %.",
    note="Counted from the parts that there are for this target, not run. The smaller the target, the larger the share "
    "of the same few vectors. The memory of fig. 7a is drawn in the paper, not printed.",
    metrics=("trained_percent", "memory_percent"),
    chart="bar",
    measure=trained_parts,
    own=(
        Quantity(
            "trained_percent", "Trained parameters", "trained numbers ÷ the target's parameters", "%",
            "Counted in the part's file.",
        ),
        Quantity(
            "memory_percent", "Memory added", "(weights + cache of a full context) ÷ the target's weights", "%",
            "In the target's number type; prompt tokens need no cache of their own.",
        ),
    ),
    papers=(
        *PPD.printed("table 1", "trained_percent", ("PPD",), {"MobileLLaMA": (4.5e-4,)}, model=TARGETS),
        *PPD.printed(
            "table 1", "trained_percent", ("PPD", "Medusa"), {"7B": (1.82e-4, 8.07), "13B": (7.87e-5, 5.52)},
            model=TARGETS,
        ),
    ),
)  # fmt: skip

FIG7B = PPD.bars_by_task(
    "fig. 7b, table 10",
    "With and without tree",
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
    papers=PPD.printed("table 10", "speedup", ("batch 1",), {"tree": (2.26,), "chain": (1.71,)}),
)

FIG8A = PPD.recipe(
    "fig. 8a",
    "Pruned, naive and random trees",
    question="With as many rows, is more accepted where prompt tokens are pruned by what they cost than where every "
    "guess has as many, or where they are placed at random?",
    finding="Pruned trees accept more at every size, and go on growing; naive ones come close where trees are large.",
    note=f"{DRAWN} Random trees have the pruned ones' guesses, one draw per size.",
    lines=(
        Line("pruned", "ppd"),
        Line("naive", "ppd", {"kind": "naive"}),
        Line("random", "ppd", {"kind": "random"}),
    ),
    axes=(Axis("size", (8, 12, 16, 24, 32, 48), "rows of the verify forward"),),
    count=8,
)

SIZES = (6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64)
DRAWS = 5  # random trees of each size


def by_tree_size(target: Any, params: Mapping[str, Any]) -> Iterator[Row]:
    """A row per size and kind of trees: τ from the acceptance measured of the prompt tokens, L(n) as kept for this
    machine and model, measured now where it is not.
    """
    from decoders.parts import load_part
    from decoders.prompt_tokens.design import design_sizes, naive_trees, random_trees
    from decoders.prompt_tokens.trees import least_size
    from decoders.study.latency import latency_for

    vectors = load_part(target, "ppd", params.get("part")).config.vectors
    table = acceptance_of(target, params)
    sizes = [size for size in SIZES if size >= least_size(len(table), vectors)]
    latency = latency_for(target, SIZES[-1])
    for size, designed in design_sizes(table, sizes, vectors).items():
        drawn = [("random", random_trees(table, size, vectors, seed)) for seed in range(DRAWS)]
        for name, trees in (("pruned", designed), ("naive", naive_trees(table, size, vectors)), *drawn):
            ms, tau = latency.ms(trees.size), trees.tokens_per_step
            row = {"series": name, "param:size": str(size), "tau": tau, "predicted": tau * latency.ms(1) / ms}
            yield {**row, "latency_ms": ms} if name == "pruned" else row


FIG8B = PPD.recipe(
    "fig. 8b",
    "Speedup in theory, by tree size",
    question="Where do tokens per step stop paying for the longer forward on this machine?",
    finding="Each GPU has a best size of its own: the peak of tokens per step over latency.",
    note=f"{DRAWN} Nothing is decoded here: acceptance is what was measured of these prompt tokens, the latency this "
    "machine's with this model.",
    axes=(Axis("size", SIZES, "rows of the verify forward", measured=True),),
    metrics=("predicted", "tau", "latency_ms"),
    measure=by_tree_size,
    own=(
        Quantity("predicted", "Speedup in theory", "τ(n) · L(1) ÷ L(n)", "×", "Recording left out."),
        Quantity("tau", "Tokens per step in theory", "1 + Σ π_k f(T_k)", "tokens/step", "In the steady state."),
        Quantity("latency_ms", "Latency L(n)", "median time of a decode step of n rows", "ms", "Of pruned trees."),
    ),
)

FIG8C = PPD.recipe(
    "fig. 8c",
    "Actual speedup by tree size",
    question="Is the size that is best in theory also the fastest?",
    finding="It is: the actual speedup peaks at the size that latency and acceptance length foretell (Alpaca Eval).",
    note=f"{DRAWN} Compare with the recipe of fig. 8b.",
    axes=(Axis("size", (6, 8, 12, 16, 24, 32, 48, 64), "rows of the verify forward"),),
    count=12,
    metrics=("speedup", "tokens_per_step", "verify_ms"),
)


def loss(target: Any, params: Mapping[str, Any]) -> Iterator[Row]:
    """The loss by step, from the part's own log."""
    yield learning(part_of(target, params)[1].training.get("log") or ())


FIG9 = PPD.recipe(
    "fig. 9",
    "Training loss",
    question="How fast is what prompt tokens can learn learnt, and do more vectors learn more?",
    finding="With 1 EPT the loss falls from above 5 to below 2 in the first epoch and stays there; with 100 it begins "
    "below 3 and goes on falling slowly.",
    note="The figure's curves are drawn in the paper, not printed. Ours is the loss on held-out documents; the first "
    "curve is of the prompt tokens in use, the others of short runs that are tried on fewer documents.",
    lines=(
        Line("in use", "ppd"),
        Line("1 EPT", "ppd", trains={}),
        Line("4 EPTs", "ppd", trains={"vectors": 4}),
    ),
    metrics=("loss",),
    measure=loss,
)

FIG10 = PPD.bars_by_task(
    "fig. 10a–c",
    "Accuracy by task",
    "fig10",
    question="Do prompt tokens that were trained once guess well in all kinds of tasks?",
    finding="One set of prompt tokens carries over to mathematics, code and conversation.",
    note=DRAWN,
    count=24,
    arrange=side_by_side,
    **GUESSES,
)

FIG10D = PPD.recipe(
    "fig. 10d, appendix F",
    "Number of prompt tokens",
    question="Do more than three prompt tokens make steps longer, and does that need larger trees?",
    finding="Three are enough: more do not lengthen acceptance, as the tree's size is limited.",
    note="Each number is trained anew. The figure's values (accuracy of five prompt tokens) are drawn in the paper, "
    "not printed.",
    lines=tuple(Line(f"{size} rows", "ppd", {"size": size}, trains={}) for size in (16, 32, 64)),
    axes=(Axis("tokens", (1, 2, 3, 5), "prompt tokens", paper=3),),
    count=8,
    metrics=("tokens_per_step", "speedup"),
)

SPEEDS = {  # Medusa's are not printed of MobileLLaMA
    "tokens_per_s": {"MobileLLaMA": (50.2, None, 108.7), "7B": (39.2, 82.0, 88.0), "13B": (30.4, 63.4, 66.1)},
    "tokens_per_step": {"MobileLLaMA": (1.00, None, 2.43), "7B": (1.00, 2.51, 2.54), "13B": (1.00, 2.59, 2.44)},
    "verify_ms": {"MobileLLaMA": (20, None, 22), "7B": (26, 30.7, 29), "13B": (33, 40.8, 37.9)},
}
TABLE1 = PPD.recipe(
    "table 1",
    "PPD and plain decoding",
    question="How much faster is PPD, how many tokens does a step give, and what does the longer forward cost?",
    finding="2.2 times as many tokens per second on MobileLLaMA and Vicuna, at steps of 2.4 to 2.5 tokens and forwards "
    "10 to 15 % longer; answers are as good.",
    note="Greedy decoding here; the paper's Vicuna rows are sampled at MT-Bench's temperature and judged there (5.93 "
    "to 6.38 of 10 with and without PPD). Trained parameters: the recipe of fig. 7a. Batch size 1, as in the paper.",
    lines=(Line("Plain decoding", "plain", fixed=True), Line("PPD", "ppd"), Line("PPD, typical", "ppd+typical")),
    count=18,
    metrics=(*SPEEDS, "input_rows", "quality"),
    chart="bar",
    papers=tuple(
        series
        for metric, rows in SPEEDS.items()
        for series in PPD.printed("table 1", metric, ("Plain decoding", "Medusa", "PPD"), rows, model=TARGETS)
    ),
)


def ablation(
    table: int,
    title: str,
    axis: Axis,
    rows: Mapping[Any, tuple[float, float, float, float]],
    *,
    model: str = "1 EPT",
    trains: Mapping[str, Any] | None = None,
    chart: str = "bar",
    **fields: Any,
) -> Experiment:
    """The recipe of a table that compares prompt tokens by how often their guesses hold: for each value of ``axis``
    some are trained, alike but for that and with ``trains`` in common. ``rows`` are the paper's, by the axis' values;
    ``model`` says what they are of.
    """
    places = [value if chart == "line" else text_of(value) for value in rows]
    columns = {
        f"@{distance} top-{count}": [row[i] for row in rows.values()] for i, (distance, count) in enumerate(COLUMNS)
    }
    return PPD.recipe(
        f"table {table}",
        title,
        lines=(Line("PPD", "ppd", trains=trains or {}),),
        axes=(axis,),
        count=12,
        chart=chart,
        arrange=side_by_side,
        papers=PPD.printed(f"table {table}", ACCURACY.key, places, columns, model=model),
        **GUESSES,
        **fields,
    )


TABLE3 = ablation(
    3,
    "Vectors per prompt token",
    Axis("vectors", (1, 2, 4), "EPTs per prompt token", log=True),
    {
        1: (0.472, 0.771, 0.248, 0.576),
        2: (0.486, 0.777, 0.259, 0.583),
        5: (0.499, 0.787, 0.265, 0.596),
        10: (0.494, 0.786, 0.273, 0.600),
        20: (0.501, 0.791, 0.276, 0.607),
        50: (0.502, 0.791, 0.281, 0.604),
        100: (0.506, 0.794, 0.276, 0.602),
    },
    question="Does an ensemble of vectors per prompt token guess better than one, for the rows that it takes?",
    finding="A little: 100 instead of 1 gain 0.02 to 0.03, most of it with the first five.",
    note="Each number is trained anew, and ours learn from as many insertion points each.",
    model="model not named",
    chart="line",
)

TABLE4 = ablation(
    4,
    "Distillation and hard labels",
    Axis("hard_labels", (False, True), "hard labels"),
    {False: (0.485, 0.779, 0.261, 0.586), True: (0.472, 0.771, 0.248, 0.576)},  # 1 EPT, 12 epochs, batch size 4
    question="Do prompt tokens guess better if they learn the target's distributions instead of the text's tokens?",
    finding="Distillation gains up to 12 %; longer training and a smaller batch gain a little more.",
    note="The paper's numbers are of 1 EPT, 12 epochs, batch size 4; it does not name the model. Neither epochs nor "
    "batch sizes are varied here.",
)

TABLE5 = ablation(
    5,
    "Prefix tuning",
    Axis("prefix", (0, 1), "prefix tokens per prompt token"),
    {0: (0.485, 0.779, 0.261, 0.586), 1: (0.412, 0.738, 0.204, 0.541)},
    question="Do prompt tokens guess better if each also sees a prefix token of its own, trained keys and values that "
    "the text never sees?",
    finding="No: up to 28 % worse.",
    note="The paper does not name the model. Ours begin as what an ordinary token alone would leave in the cache at "
    "position 0, and stay at that position.",
)

TABLE6 = ablation(
    6,
    "A head for prompt tokens",
    Axis("head", ("target", "one-stage", "two-stage"), "head"),
    {
        "target": (0.485, 0.779, 0.261, 0.586),
        "one-stage": (0.385, 0.614, 0.229, 0.482),
        "two-stage": (0.506, 0.795, 0.276, 0.602),
    },
    question="Is a head that is trained for the prompt tokens better than the target's own, and must it wait until the "
    "prompt tokens have learnt?",
    finding="Trained from the beginning it is 12 to 21 % worse; trained in a second stage, 2 to 4 % better, for many "
    "more parameters.",
    note="The paper does not name the model. Ours begins as a copy of the target's head. In two stages, prompt tokens "
    "learn alone for the first half of the steps (the paper: 2 epochs), then both at a tenth of the learning rate "
    "(the paper: a smaller one).",
)

TABLE7 = ablation(
    7,
    "Masks between vectors",
    Axis("mask", ("ensemble", "decoder", "encoder"), "mask"),
    {
        "ensemble": (0.506, 0.794, 0.276, 0.602),
        "decoder": (0.465, 0.755, 0.262, 0.572),
        "encoder": (0.473, 0.765, 0.256, 0.573),
    },
    question="Should the vectors of a prompt token be separate votes, or see one another?",
    finding="Separate votes: the ensemble mask is 4 to 8 % ahead of the others.",
    note="Ours have 4 EPTs per prompt token, the paper's 100; it does not name the model.",
    model="100 EPTs",
    trains={"vectors": 4},
)

TABLE8 = ablation(
    8,
    "Learned weights of the vectors",
    Axis("learned", (False, True), "learned weights"),
    {False: (0.506, 0.794, 0.276, 0.602), True: (0.503, 0.779, 0.250, 0.576)},
    question="Do weights that are learned beside the vectors guess better than their average?",
    finding="No: 0.6 to 9.4 % worse.",
    note="Ours have 4 EPTs per prompt token, the paper's 100; it does not name the model.",
    model="100 EPTs",
    trains={"vectors": 4},
)

TABLE9 = ablation(
    9,
    "Multi-exit ensemble",
    Axis("exits", (1, 2, 3), "last layers whose states are averaged"),
    {
        1: (0.485, 0.779, 0.261, 0.586),
        2: (0.420, 0.723, 0.213, 0.518),
        3: (0.422, 0.723, 0.214, 0.517),
    },
    question="Does the average of the last layers' states, an ensemble that takes no rows, guess better than the last "
    "layer's state?",
    finding="No: 7 to 18 % worse, with two exits and with three.",
    note="The paper does not name the model. Ours averages what the layers hand on, before the final norm, which then "
    "reads the average; in the paper's code the last layer's state has been through that norm and the others have not.",
)

TYPICAL = PPD.recipe(
    "§5.1",
    "Typical acceptance",
    "typical",
    question="How much longer are steps if guesses may stand that are merely likely, and how good are the answers?",
    finding="With typical acceptance, the speedup grows with the temperature; the paper's answers are judged as good "
    "as plain decoding's.",
    note="At temperature 1, with trees of 24 rows. A guess stands above min(ε, α · exp(−entropy)), α = 0.3; exact "
    "match asks for the token that was drawn, and is lossless.",
    lines=(Line("typical", "ppd+typical", {"size": 24}), Line("exact match", "ppd", {"size": 24}, fixed=True)),
    axes=(Axis("epsilon", (1e-4, 1e-3, 0.01, 0.03, 0.09, 0.3), "threshold ε", log=True, paper=0.09),),
    prompts="demo:summary,text_edit,code_edit,quote",
    count=16,
    temperature=1.0,
    metrics=("tokens_per_step", "quality"),
)
