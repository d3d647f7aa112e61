"""Input-guided tasks with made-up names: their answers can only be had by copying from the prompt."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from .code import code_edit
from .example import Family, TaskExample
from .prose import quote, summary, text_edit
from .talk import chat, sums

GENERATORS: dict[Family, Callable[[random.Random], TaskExample]] = {
    "summary": summary, "quote": quote, "text_edit": text_edit, "code_edit": code_edit, "chat": chat, "sums": sums,
}  # fmt: skip
# Shares of the examples: most for what takes longest to learn, to change what is copied and to find what answers.
MIXTURE: dict[Family, float] = {
    "summary": 0.08, "quote": 0.30, "text_edit": 0.24, "code_edit": 0.28, "chat": 0.06, "sums": 0.04,
}  # fmt: skip


def draw(rng: random.Random, mixture: dict[Family, float] | None = None) -> TaskExample:
    """One example of a family chosen by `mixture`; everything random comes from `rng`.

    >>> draw(random.Random(1)) == draw(random.Random(1))
    True
    """
    shares = MIXTURE if mixture is None else mixture
    family = rng.choices(list(shares), list(shares.values()))[0]
    return GENERATORS[family](rng)


def stream(split: str, seed: int, chunk: int = 0, mixture: dict[Family, float] | None = None) -> Iterator[TaskExample]:
    """Endless examples of one split ("train", "held_out", "tokenizer"); splits never share a seed.

    >>> next(stream("train", 0)) == next(stream("held_out", 0))
    False
    """
    if split not in ("train", "held_out", "tokenizer"):
        raise ValueError(f'split {split!r} is unknown: use "train", "held_out" or "tokenizer"')
    rng = random.Random(f"specviz {split} {seed} {chunk}")
    while True:
        yield draw(rng, mixture)
