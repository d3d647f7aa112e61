"""PPD's trees tried out: what trees of several sizes or kinds are worth on this machine, decoding (PPD fig. 8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from decoders.draft.params import NoParams
from decoders.drafters.ppd import PpdDrafter
from decoders.engine.decoding import Decoding
from decoders.errors import UserError
from decoders.method.method import Method
from decoders.model.target import Target
from decoders.prompt.prompt import Prompt
from decoders.prompt_tokens.tokens import PromptTokens
from decoders.prompt_tokens.trees import PromptTrees

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Tried:
    """Tokens per step over all prompts, and the median over prompts of the speed against plain decoding."""

    tokens_per_step: float
    speedup: float


def try_trees(
    target: Target,
    prompt_tokens: PromptTokens,
    trees: Mapping[Key, PromptTrees],
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int = 64,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Key, Tried]:
    """Every trees and plain decoding on every prompt, in an order that turns from prompt to prompt, after a first run
    of each that is not counted. ``progress(done, total)`` counts runs. Raises UserError without prompts.
    """
    if not prompts:
        raise UserError("there is no prompt to try the trees on: give more prompts")
    names: list[Key | None] = [None, *trees]
    total, done = len(names) * (len(prompts) + 1), 0
    steps, tokens = dict.fromkeys(trees, 0), dict.fromkeys(trees, 0)
    ratios: dict[Key, list[float]] = {name: [] for name in trees}
    for number, prompt in enumerate([prompts[0], *prompts]):
        shift, took = number % len(names), {}
        for name in names[shift:] + names[:shift]:
            run = _run(target, prompt_tokens, None if name is None else trees[name], prompt, max_new_tokens)
            run.prefill()
            started = clock()
            written = [len(step.emitted) for step in run]
            took[name] = (clock() - started) / sum(written)
            if number and name is not None:
                steps[name] += len(written)
                tokens[name] += sum(written)
            done += 1
            if progress:
                progress(done, total)
        if number:
            for name in trees:
                ratios[name].append(took[None] / took[name])
    return {name: Tried(tokens[name] / steps[name], median(ratios[name])) for name in trees}


def steps_apart(sizes: Sequence[int], first: int, second: int) -> int:
    """How many of the sizes tried lie between two of them: 1 for neighbours.

    >>> steps_apart([5, 6, 8, 10], 8, 5)
    2
    """
    order = sorted(sizes)
    return abs(order.index(first) - order.index(second))


def _run(
    target: Target, prompt_tokens: PromptTokens, trees: PromptTrees | None, prompt: Prompt, max_new_tokens: int
) -> Decoding:
    if trees is None:
        return Decoding(target, prompt, "plain", max_new_tokens=max_new_tokens)

    def build(target: Target, params: Any) -> PpdDrafter:
        return PpdDrafter(prompt_tokens, trees, target.context_length)

    return Decoding(target, prompt, Method("ppd", "", "", "", NoParams, build), max_new_tokens=max_new_tokens)
