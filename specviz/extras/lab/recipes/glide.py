"""Measurements of GLIDE's recipes beside runs: throughput by the number of prompts that are decoded side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..experiments.experiment import Row

SIZES = (1, 2, 4, 8, 16)
NEW = 48  # tokens of each answer, at most
METHODS = {"Plain decoding": "plain", "GLIDE": "glide"}


def batches(target: Any, _: str, params: Mapping[str, Any]) -> Iterator[Row]:
    """A row per batch size and method, of the same different prompts (the held-out ones) for both; a first batch is not
    counted. Every size takes the 16 prompts' first ones.
    """
    from decoders import methods
    from decoders.study.measure.together import decode_together
    from specviz.views.prompts import cases, records

    prompts = [case.prompt for case in cases(target.tokenizer, records("demo:chat,summary", SIZES[-1]))]
    method_names = {label: name for label, name in METHODS.items() if not methods()[name].missing(target)}
    for name in method_names.values():
        decode_together(target, prompts[:1], name, max_new_tokens=8)
    for size in SIZES:
        for label, name in method_names.items():
            decoding = decode_together(target, prompts[:size], name, max_new_tokens=NEW)
            speed = decoding.tokens / decoding.seconds
            measures = {
                "throughput": speed,
                "per_prompt": speed / size,
                "tokens_per_forward": decoding.tokens / decoding.forwards,
            }
            yield {"series": label, "param:batch": str(size), **measures}
