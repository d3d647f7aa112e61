"""Measurements of PPD's recipes beside runs: its trained parts, trees of every size, the training's loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.errors import UserError

from ..experiments.experiment import Row, methods_by_name
from ..experiments.guesses import acceptance_of, part_of
from ..experiments.quantities import learning

if TYPE_CHECKING:
    from decoders import Prompt


def trained_parts(target: Any, method: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """One row: the part that a method drafts with, counted from its file.

    Memory while decoding: the part's numbers, and the keys and values that a draft model keeps of a full context, all
    in the target's type. Prompt tokens keep none, as theirs are dropped after each step, nor do parallel heads.
    """
    parameters = float(target.info["parameters"])
    numbers, cached = _numbers(target, _place(target, method, params))
    yield {
        "trained_percent": 100 * numbers / parameters, "memory_percent": 100 * (numbers + cached) / parameters,
    }  # fmt: skip


def _place(target: Any, method: str, params: Mapping[str, Any]) -> Path:
    """The folder of the part that a method drafts with. Raises UserError where it drafts with none."""
    from decoders.parts import find_part

    part = methods_by_name()[method].part
    kind, location = part.kind.name, params.get(part.parameter)
    folder = Path(str(location)).expanduser() if location else find_part(target.key, kind)
    if folder is None:
        raise UserError(f"{method} drafts with no trained part here: train one with `specviz train {kind}`")
    return folder


def _numbers(target: Any, folder: Path) -> tuple[int, int]:
    """Count the numbers of a part, and those of its cache for a full context."""
    from safetensors import safe_open

    from decoders.parts import WEIGHTS, read_part

    with safe_open(folder / WEIGHTS, framework="pt") as tensors:
        numbers = sum(math.prod(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
    width = getattr(read_part(folder).config, "cache_width", 0)  # without it, nothing is kept from step to step
    return numbers, 2 * width * target.context_length


SIZES = (6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64)
DRAWS = 5  # random trees of each size


def by_tree_size(target: Any, _: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """A row per size and kind of trees: τ from the acceptance measured of the prompt tokens, L(n) as kept for this
    machine and model, measured now where it is not.
    """
    from decoders.parts import load_part
    from decoders.prompt_tokens.design import design_sizes, naive_trees, random_trees
    from decoders.prompt_tokens.trees import least_size
    from decoders.study.measure.latency import latency_for

    vectors = load_part(target, "ppd", params.get("part")).config.vectors
    table = acceptance_of(target, params)
    sizes = [size for size in SIZES if size >= least_size(len(table), vectors)]
    latency = latency_for(target, SIZES[-1])
    for size, pruned_trees in design_sizes(table, sizes, vectors).items():
        random_designs = [("random", random_trees(table, size, vectors, seed)) for seed in range(DRAWS)]
        for name, trees in (("pruned", pruned_trees), ("naive", naive_trees(table, size, vectors)), *random_designs):
            ms, tau = latency.ms(trees.size), trees.tokens_per_step
            row = {"series": name, "param:size": str(size), "tau": tau, "predicted": tau * latency.ms(1) / ms}
            yield {**row, "latency_ms": ms} if name == "pruned" else row


def loss(target: Any, _: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """The loss by step, from the part's own log."""
    yield learning(part_of(target, params)[1].training.get("log") or ())


def training_time(target: Any, method: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """One row: how long a method's part was trained, as its own log has it; empty for a part without one."""
    training = _training(_place(target, method, params))
    if training.get("seconds"):
        yield {"training_hours": training["seconds"] / 3600, "steps_trained": training["steps"]}


def cost_and_speed(
    target: Any, method: str, params: Mapping[str, Any], prompt: Prompt, max_new_tokens: int
) -> Iterator[Row]:
    """One row: the speedup of a method over plain decoding of the same prompt, timed one after the other, beside its
    part's memory (``trained_parts``) and training.
    """
    from decoders.sweep.contenders import timer

    folder = _place(target, method, params)
    plain, speed = (timer(target, name, None, max_new_tokens)(prompt).sample.tokens_per_s for name in ("plain", method))
    (part_info,) = trained_parts(target, method, params)
    yield {
        "speedup": speed / plain if speed and plain else None, "memory_percent": part_info["memory_percent"],
        "training_hours": _training(folder).get("seconds", 0) / 3600 or None,
    }  # fmt: skip


def _training(folder: Path) -> Mapping[str, Any]:
    from decoders.parts import read_part

    return read_part(folder).training


BATCHES, BATCHED, BATCHED_NEW = (1, 2, 3, 4), 12, 32  # sizes; prompts, a multiple of each; tokens of an answer at most


def batches(target: Any, method: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """A row per batch size: the speedup over plain decoding in batches of that size. Each size takes the same twelve
    prompts, plain and drafted batch by batch in turn; a first batch of each is not counted.
    """
    from decoders.study.measure.together import decode_together
    from specviz.views.prompts import cases, records

    prompts = [case.prompt for case in cases(target.tokenizer, records("demo:chat,summary", BATCHED))]
    lines: dict[str, Mapping[str, Any]] = {"plain": {}, method: params}
    for name, method_params in lines.items():
        decode_together(target, prompts[:2], name, method_params, max_new_tokens=8)
    for size in BATCHES:
        groups = [prompts[at : at + size] for at in range(0, len(prompts), size)]
        decodings = [
            [
                decode_together(target, group, name, line_params, max_new_tokens=BATCHED_NEW)
                for name, line_params in lines.items()
            ]
            for group in groups
        ]
        plain, drafted = zip(*decodings, strict=True)
        speeds = [
            sum(decoding.tokens for decoding in side) / sum(decoding.seconds for decoding in side)
            for side in (plain, drafted)
        ]
        forwards = sum(decoding.forwards for decoding in drafted)
        measures = {
            "speedup": speeds[1] / speeds[0],
            "tokens_per_forward": sum(decoding.tokens for decoding in drafted) / forwards,
        }
        yield {"param:batch": str(size), **measures}
