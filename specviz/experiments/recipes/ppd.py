"""What PPD's recipes measure beside runs: its trained parts, trees of every size, the training's loss."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.experiments.experiment import Row
from specviz.experiments.guesses import acceptance_of, part_of
from specviz.experiments.quantities import learning

if TYPE_CHECKING:
    from decoders import Prompt

NAMES = {
    "ppd": "PPD", "glide": "GLIDE", "drafter": "Vanilla drafter", "medusa": "Medusa", "hydra": "Hydra",
    "eagle": "EAGLE", "eagle3": "EAGLE-3",
}  # fmt: skip
METHODS = {**{kind: kind for kind in NAMES}, "drafter": "sps"}  # that draft with a part of this kind


def trained_parts(target: Any, params: Mapping[str, Any]) -> Iterator[Row]:
    """A row per part that there is for the target, counted from its file.

    Memory while decoding: the part's numbers, and the keys and values that a draft model keeps of a full context, all
    in the target's type. Prompt tokens keep none, as theirs are dropped after each step, nor do parallel heads.
    """
    parameters = float(target.info["parameters"])
    for name, folder in _parts(target, params):
        numbers, cached = _numbers(target, folder)
        yield {
            "series": name, "trained_percent": 100 * numbers / parameters,
            "memory_percent": 100 * (numbers + cached) / parameters,
        }  # fmt: skip


def _parts(target: Any, params: Mapping[str, Any], every: bool = False) -> Iterator[tuple[str, Any]]:
    """Name and folder of the parts that there are for a target; of ``every`` kind, None where there is none."""
    from decoders.parts import find_part

    for kind, name in NAMES.items():
        named = params.get("part") if kind == "ppd" else None
        folder = part_of(target, params)[0] if named else find_part(target.key, kind)
        if folder is not None or every:
            yield name, folder


def _numbers(target: Any, folder: Path) -> tuple[int, int]:
    """How many numbers a part has, and how many its cache of a full context."""
    from safetensors import safe_open

    from decoders.draft_models.eagle_head import EagleConfig
    from decoders.draft_models.network import DraftConfig
    from decoders.parts import WEIGHTS, read_part

    with safe_open(folder / WEIGHTS, framework="pt") as stored:
        numbers = sum(math.prod(stored.get_slice(key).get_shape()) for key in stored.keys())  # noqa: SIM118
    config = read_part(folder).config
    if isinstance(config, DraftConfig):
        width = config.layers * config.hidden
    elif isinstance(config, EagleConfig):
        width = config.layers * config.kv_heads * config.head_dim
    else:
        width = 0  # nothing of it is kept from step to step
    return numbers, 2 * width * target.context_length


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


def _memory_percent(target: Any, folder: Path) -> float:
    """The memory that a part takes while decoding, in per cent of the target's weights (``trained_parts``)."""
    return 100 * sum(_numbers(target, folder)) / float(target.info["parameters"])


def training_time(target: Any, params: Mapping[str, Any]) -> Iterator[Row]:
    """A row per part that there is for the target, as its own training log has it."""
    for name, folder in _parts(target, params):
        training = _training(folder)
        if training.get("seconds"):
            yield {"series": name, "training_hours": training["seconds"] / 3600, "steps_trained": training["steps"]}


def cost_and_speed(target: Any, params: Mapping[str, Any], prompt: Prompt, max_new_tokens: int) -> Iterator[Row]:
    """A row per part that there is for the target: the speedup of decoding with it over plain decoding of the same
    prompt, timed one after the other, beside its memory and its training.
    """
    plain = _tokens_per_s(target, prompt, "plain", max_new_tokens)
    for kind, (name, folder) in zip(METHODS, _parts(target, params, every=True), strict=True):
        if folder is None:
            continue
        speed = _tokens_per_s(target, prompt, METHODS[kind], max_new_tokens)
        hours = _training(folder).get("seconds", 0) / 3600
        speedup = speed / plain if speed and plain else None
        yield {
            "series": name, "speedup": speedup, "memory_percent": _memory_percent(target, folder),
            "training_hours": hours or None,
        }  # fmt: skip


def _training(folder: Path) -> Mapping[str, Any]:
    from decoders.parts import read_part

    return read_part(folder).training


def _tokens_per_s(target: Any, prompt: Prompt, method: str, new: int) -> float | None:
    from decoders import Decoding

    run = Decoding.of(target, prompt, method, max_new_tokens=new)
    run.prefill()
    started = time.perf_counter()
    count = sum(len(step.emitted) for step in run)
    return count / (time.perf_counter() - started) if count else None
