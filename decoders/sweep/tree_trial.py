"""PPD's trees on trial: what trees of several sizes or kinds are worth on this machine, decoding (PPD fig. 8)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from decoders.drafters.ppd import PpdDrafter
from decoders.engine.decoding import Decoding
from decoders.errors import UserError
from decoders.model.target_model.own_settings import NEUTRAL
from decoders.model.target_model.target import Target
from decoders.prompt.prompt import Prompt
from decoders.prompt_tokens.tokens import PromptTokens
from decoders.prompt_tokens.trees import PromptTrees

from .bench import summarise
from .contenders import run_unrecorded, timer
from .plan import PLAIN, Contender, Failure, Measurement, Sample, alternate, execute

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Worth:
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
    progress: Callable[[int, int], None] | None = None,
) -> dict[Key, Worth]:
    """All trees and plain decoding on every prompt, in an order that turns from prompt to prompt, after a first run
    of each that is not counted. ``progress(done, total)`` counts runs. Raises UserError without prompts.
    """
    if not prompts:
        raise UserError("there is no prompt to try the trees on: give more prompts")

    def contender(name: str, trees: PromptTrees) -> Contender:
        def run(prompt: Prompt) -> Measurement:
            drafter = PpdDrafter(prompt_tokens, trees, target.context_length)
            return run_unrecorded(name, lambda: Decoding(target, prompt, drafter, max_new_tokens=max_new_tokens))

        return Contender(name, "method", True, run)

    plain = Contender(PLAIN, "method", True, timer(target, PLAIN, None, max_new_tokens, generation=NEUTRAL))
    tree_contenders = {key: contender(f"trees {number}", tree) for number, (key, tree) in enumerate(trees.items())}
    contenders, samples = [plain, *tree_contenders.values()], list[Sample]()
    for count, (turn, outcome) in enumerate(execute(alternate(contenders, prompts, 1), tidy=True), 1):
        if isinstance(outcome, Failure):
            raise outcome.problem
        assert isinstance(outcome, Measurement)
        if turn.round >= 0:
            samples.append(replace(outcome.sample, prompt=turn.prompt))
        if progress:
            progress(count, len(contenders) * (len(prompts) + 1))
    worth = {}
    for key, tree_contender in tree_contenders.items():
        row = summarise(tree_contender, samples)
        assert row.tokens_per_step is not None and row.speedup is not None
        worth[key] = Worth(row.tokens_per_step, row.speedup.median)
    return worth


def steps_apart(sizes: Sequence[int], first: int, second: int) -> int:
    """Distance between two of the trial's sizes, counted in sizes: 1 for neighbours.

    >>> steps_apart([5, 6, 8, 10], 8, 5)
    2
    """
    order = sorted(sizes)
    return abs(order.index(first) - order.index(second))
