"""The record of what was measured of a model (copying heads, best layer), kept beside the user's settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from decoders.folders import read_own, reading, settings_folder, write_json

from .catalog import CALIBRATION, SHIPPED, current_key
from .shape import ModelShape, rotaries

SCHEMA = "speccalibration/1"
PACKAGE_FILES = tuple(folder / CALIBRATION for folder in SHIPPED.values())
SHAPE_EXTRAS = (  # of a shape: they say where a text ends, not what follows another, or are in the weights' sizes
    "context_length", "stop_ids", "kv_layers", "recurrent_layers", "state_bytes", "row_bytes",
)  # fmt: skip
FINGERPRINT_SETTINGS = (  # settings outside the shape that make a model's numbers
    "hidden_act", "hidden_activation", "activation_function", "query_pre_attn_scalar", "embedding_multiplier",
    "attention_multiplier", "residual_multiplier", "clip_qkv", "parallel_residual", "use_parallel_residual",
    "num_local_experts", "num_experts", "num_experts_per_tok", "norm_topk_prob",
)  # fmt: skip
ROTARY = (
    "rope_type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
    "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "short_factor", "long_factor",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Calibration:
    """A model's measurements: its copying heads and its best layer.

    ``tokens_per_step[k]`` is PLD+(h)'s at hidden state k (0 = embeddings), over all prompts' steps, with drafts of
    ``draft_length`` tokens; ``best_layer`` has the most (on a tie the lowest). ``head_counts[layer][head]`` says how
    often a head's strongest position was the one copied from, out of ``tokens_counted`` output tokens that occur in
    their prompts.
    """

    model_key: str
    model: str
    tokens_per_step: tuple[float, ...]
    best_layer: int
    head_counts: tuple[tuple[int, ...], ...]
    tokens_counted: int
    prompts: int
    draft_length: int

    def top_heads(self, count: int | None) -> list[tuple[int, int]]:
        """The ``count`` (layer, head) pairs that copied most often (None: all), best first."""
        return rank_heads(self.head_counts)[:count]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> Calibration:
        """Back from ``to_json``. Raises ValueError in one sentence for anything else."""
        with reading(data, SCHEMA, "calibration"):
            steps = tuple(float(x) for x in data["tokens_per_step"])
            counts = tuple(tuple(int(n) for n in row) for row in data["head_counts"])
            numbers = {key: int(data[key]) for key in ("best_layer", "tokens_counted", "prompts", "draft_length")}
            calibration = cls(
                current_key(str(data["model_key"])), str(data["model"]), steps, head_counts=counts, **numbers
            )
        if (
            not 0 <= calibration.best_layer < len(steps)
            or len(steps) != len(counts) + 1
            or len(set(map(len, counts))) != 1
        ):
            raise ValueError("a damaged calibration (its layers and heads do not fit together)")
        return calibration


def fingerprint(config: Any, parameters: Iterable[Tensor]) -> str:
    """A model's key: what its configuration says of the function that it computes, and a sample of every weight of its
    decoder stack, in their order, whatever dtype it was loaded in. Where it lies, what it is called and which version
    of transformers opened it make no difference.
    """
    settings = json.dumps(_function_of(config), sort_keys=True, default=str)
    digest = hashlib.sha256(settings.encode())
    for parameter in parameters:
        # a diagonal, as GPT-2's weights are turned when they are packed
        sample = parameter.detach().diagonal()[:64] if parameter.ndim == 2 else parameter.detach().flatten()[:64]
        digest.update(sample.to("cpu", torch.bfloat16).view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:24]


def _function_of(config: Any) -> dict[str, Any]:
    """The settings that make a model's numbers; floats to six digits, as some files keep them in fp32."""
    shape = {name: value for name, value in asdict(ModelShape.of(config)).items() if name not in SHAPE_EXTRAS}
    counts = {name: value for name in FINGERPRINT_SETTINGS if (value := getattr(config, name, None)) is not None}
    ropes = [{name: rope[name] for name in ROTARY if rope.get(name) is not None} for rope in rotaries(config)]
    return _round({**shape, **counts, "ropes": ropes})


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _round(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_round(item) for item in value]
    return f"{value:.6g}" if isinstance(value, float) else value


def calibration_folder() -> Path:
    return settings_folder() / "calibration"


def save_calibration(calibration: Calibration, path: Path | None = None) -> Path:
    """Write it where ``load_calibration`` finds it (or to ``path``), whole or not at all."""
    return write_json(path or calibration_folder() / f"{calibration.model_key}.json", calibration.to_json())


def has_calibration(key: str) -> bool:
    """True where the model with this fingerprint was calibrated, whatever its shape."""
    return any(True for _ in _calibrations(key))


def load_calibration(key: str, layers: int, heads: int) -> Calibration | None:
    """The user's own calibration of the model with this fingerprint and shape, else one that is shipped; None if
    it has none.
    """
    fitting = (c for c in _calibrations(key) if (len(c.head_counts), len(c.head_counts[0])) == (layers, heads))
    return next(fitting, None)


def _calibrations(key: str) -> Iterator[Calibration]:
    """Calibrations of the model with this fingerprint: the user's own first."""
    for path in (calibration_folder() / f"{key}.json", *PACKAGE_FILES):
        calibration = read_own(path, Calibration.from_json)
        if calibration is not None and calibration.model_key == key:
            yield calibration


def rank_heads(counts: Int[np.ndarray, "layers heads"] | Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """All (layer, head) pairs, those that copied most often first; on a tie the lower layer, then the lower head.

    >>> rank_heads([[0, 3], [5, 3]])
    [(1, 0), (0, 1), (1, 1), (0, 0)]
    """
    array = np.asarray(counts)
    order = np.argsort(-array, axis=None, kind="stable")
    return [(int(i) // array.shape[1], int(i) % array.shape[1]) for i in order]
