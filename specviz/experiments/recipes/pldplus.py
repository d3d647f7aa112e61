"""What PLD+'s recipes measure beside runs: how long the prompts are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from specviz.experiments.experiment import Row

if TYPE_CHECKING:
    from decoders import Prompt, Target


def lengths(target: Target, method: str, params: Mapping[str, Any], prompt: Prompt, new: int) -> Iterator[Row]:
    """One row: the words and tokens of a prompt. Nothing is decoded."""
    text = target.tokenizer.decode(list(prompt.tokens), skip_special_tokens=True)
    yield {"words": float(len(text.split())), "prompt_tokens": float(len(prompt.tokens))}
