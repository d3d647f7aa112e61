"""What PPD's recipes measure beside runs: its trained parts, trees of every size, the training's loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from specviz.experiments.experiment import Row
from specviz.experiments.guesses import acceptance_of, part_of
from specviz.experiments.quantities import learning

NAMES = {"ppd": "PPD", "glide": "GLIDE", "drafter": "Vanilla drafter"}


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


def loss(target: Any, params: Mapping[str, Any]) -> Iterator[Row]:
    """The loss by step, from the part's own log."""
    yield learning(part_of(target, params)[1].training.get("log") or ())
