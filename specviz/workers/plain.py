"""Prompts as plain JSON, and a hash of the code: what workers are told, and what they compare before they work."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoders.method.plugin_files import plugin_files

if TYPE_CHECKING:
    from decoders import Prompt

SOURCES = ("*.py", "*.toml", "*.txt")


@functools.cache
def code_of(packages: Sequence[str]) -> str:
    """A hash of the code of some packages ("specviz/server"), and of the versions of what computes for them."""
    import torch
    import transformers

    root = Path(__file__).resolve().parents[2]
    files = sorted(path for name in packages for form in SOURCES for path in (root / name).rglob(form))
    named = hashlib.sha256(f"{torch.__version__.partition('+')[0]} {transformers.__version__}".encode())
    for path in [*files, *plugin_files()]:
        named.update(path.name.encode() + path.read_bytes())
    return named.hexdigest()[:24]


def prompt_to_json(prompt: Prompt) -> dict[str, Any]:
    """A prompt with all that a run of it may read."""
    pool, kept = prompt.pool, None
    if pool is not None:
        positions = None if pool.positions is None else pool.positions.tolist()
        kept = {
            "tokens": pool.tokens.tolist(),
            "starts": list(pool.starts),
            "positions": positions,
            "label": pool.label,
        }
    return {
        "tokens": list(map(int, prompt.tokens)),
        "segments": [[s.name, s.start, s.stop, s.passage] for s in prompt.segments], "pool": kept,
        "compression": prompt.compression, "reference": prompt.reference, "reference_of": prompt.reference_of,
    }  # fmt: skip


def prompt_from_json(data: Mapping[str, Any]) -> Prompt:
    """Back from ``prompt_to_json``."""
    import numpy as np

    from decoders.prompt.prompt import Pool, Prompt, Segment

    pool = data["pool"]
    if pool is not None:
        positions = None if pool["positions"] is None else np.asarray(pool["positions"], dtype=np.int64)
        pool = Pool(np.asarray(pool["tokens"], dtype=np.int64), tuple(pool["starts"]), positions, pool["label"])
    return Prompt(
        tuple(data["tokens"]), tuple(Segment(*segment) for segment in data["segments"]), pool, data["compression"],
        data["reference"], data["reference_of"],
    )  # fmt: skip
