"""PPD fig. 8b: which tree size is best on this machine, by acceptance and latency alone?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specviz.experiments.experiment import Axis, Experiment, Line, Row
from specviz.experiments.guesses import acceptance_of
from specviz.experiments.quantities import Quantity

SIZES = (6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64)
DRAWS = 5  # random trees of each size


def measure(target: Any, params: Mapping[str, Any]) -> Iterator[Row]:
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


EXPERIMENT = Experiment(
    "ppd-fig8b",
    "Speedup in theory, by tree size",
    paper="ppd",
    figure="fig. 8b",
    question="Where do tokens per step stop paying for the longer forward on this machine?",
    finding="Each GPU has a best size of its own: the peak of tokens per step over latency.",
    note="The figure's values are drawn in the paper, not printed. Nothing is decoded here: acceptance is what was "
    "measured of these prompt tokens, the latency this machine's with this model.",
    lines=(Line("PPD", "ppd"),),
    axes=(Axis("size", SIZES, "rows of the verify forward", found=True),),
    metrics=("predicted", "tau", "latency_ms"),
    measure=measure,
    own=(
        Quantity("predicted", "Speedup in theory", "τ(n) · L(1) ÷ L(n)", "×", "Recording left out."),
        Quantity("tau", "Tokens per step in theory", "1 + Σ π_k f(T_k)", "tokens/step", "In the steady state."),
        Quantity("latency_ms", "Latency L(n)", "median time of a decode step of n rows", "ms", "Of pruned trees."),
    ),
)
