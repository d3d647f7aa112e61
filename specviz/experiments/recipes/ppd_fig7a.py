"""PPD fig. 7a and table 1: what do trained parts add to the target?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from specviz.experiments.experiment import Experiment, Line, PaperSeries, Row
from specviz.experiments.guesses import part_of
from specviz.experiments.quantities import Quantity

NAMES = {"ppd": "PPD", "glide": "GLIDE", "drafter": "Vanilla drafter"}
SHARES = {  # table 1: P_tr, in percent
    "MobileLLaMA": (("PPD", 4.5e-4),),
    "7B": (("PPD", 1.82e-4), ("Medusa", 8.07)),
    "13B": (("PPD", 7.87e-5), ("Medusa", 5.52)),
}


def measure(target: Any, params: Mapping[str, Any]) -> Iterator[Row]:
    """A row per part that there is for the target, counted from its file.

    Memory while decoding: the part's numbers, and the keys and values that a draft model keeps of a full context, all
    in the target's type. Prompt tokens keep none: theirs are dropped after each step.
    """
    from safetensors import safe_open

    from decoders.draft_models.network import DraftConfig
    from decoders.parts import WEIGHTS, find_part, read_part

    held = float(target.info["parameters"])
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
            "trained_percent": 100 * numbers / held,
            "memory_percent": 100 * (numbers + cached) / held,
        }


EXPERIMENT = Experiment(
    "ppd-fig7a",
    "Trained parameters and memory",
    paper="ppd",
    figure="fig. 7a, table 1",
    question="How many numbers are trained for a target, and how much memory do they take while decoding?",
    finding="PPD trains 0.0002 % of Vicuna-7B's parameters and takes 0.0004 % of memory; Medusa trains 8 %.",
    note="Counted from the parts that there are for this target, not run. The smaller the target, the larger the share "
    "of the same few vectors. The memory of fig. 7a is drawn in the paper, not printed.",
    lines=(Line("PPD", "ppd"),),
    metrics=("trained_percent", "memory_percent"),
    x="line",
    chart="bar",
    measure=measure,
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
    papers=tuple(
        PaperSeries(model, "table 1", "trained_percent", values, "Vicuna, MobileLLaMA")
        for model, values in SHARES.items()
    ),
)  # fmt: skip
