"""Measurements of AdaPLD's recipes beside runs: the prompts of each task, their number and kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

from specviz.groups import group

from ..experiments.experiment import Row

if TYPE_CHECKING:
    from decoders import Prompt, Target

COUNT_COLUMNS = ("prompt_tokens", "repeated")


def sample(target: Target, method: str, params: Mapping[str, Any], prompt: Prompt, new: int) -> Iterator[Row]:
    """One row: a prompt's tokens, and the share of them that stand earlier in it. Nothing is decoded."""
    tokens = len(prompt.tokens)
    yield {"samples": 1.0, "prompt_tokens": float(tokens), "repeated": 1 - len(set(prompt.tokens)) / tokens}


def samples(rows: list[Row]) -> list[Row]:
    """One row per task: the number of its prompts and the means over them; rows with an error stay as they are."""
    category_rows = [
        {
            **prompt_rows[0],
            "prompt": "",
            "samples": sum(row["samples"] for row in prompt_rows),
            **{key: fmean(row[key] for row in prompt_rows) for key in COUNT_COLUMNS},
        }
        for prompt_rows in group((row["category"], row) for row in rows if not row.get("error")).values()
    ]
    return [*category_rows, *(row for row in rows if row.get("error"))]
