"""Losslessness, measured: every method's output against plain decoding, and plain against generate()."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from .drafters import find_method
from .engine import Decoding
from .prompt import Prompt
from .stock import StockModel
from .target import Target

# how far below the best logit a token of a half-precision run may lie, teacher-forced, to pass as a near tie
TOLERANCES = {"bfloat16": 0.5, "float16": 0.1}


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where an output first left the reference. ``gap`` is the difference of the two best logits there, teacher-forced:
    a small one is a near tie. ``shortfall``: the most any output token lies below the best logit at its place."""

    prompt: int
    position: int
    expected: int | None
    got: int | None
    gap: float
    shortfall: float


@dataclass(slots=True)
class Outcome:
    """One method over all prompts. ``against`` names the reference. ``tokens_per_step`` pools all steps."""

    method: str
    against: str
    lossless: bool = True
    identical: int = 0
    total: int = 0
    tokens: int = 0
    steps: int = 0
    accepted: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    failed: int = 0

    @property
    def tokens_per_step(self) -> float | None:
        return self.accepted / self.steps + 1 if self.steps else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "tokens_per_step": self.tokens_per_step}


def check_lossless(
    target: Target,
    prompts: Sequence[Prompt],
    methods: Mapping[str, Any],
    *,
    max_new_tokens: int,
    stock: StockModel | None = None,
    tolerance: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Decode every prompt greedily by plain decoding and by each of ``methods`` (name → parameters), and compare.

    Full precision: any difference fails. Half precision: a difference fails only where some token lies more than
    ``tolerance`` below the best logit at its place, teacher-forced. Lossy methods never fail. With ``stock``, plain
    decoding itself is checked against generate(): the first outcome. ``progress(done, total)`` counts runs.
    """
    allowed = tolerance if tolerance is not None else TOLERANCES.get(target.info["dtype"], 0.0)
    reference = Outcome("plain", "generate()" if stock else "")
    others = {name: Outcome(name, "plain", find_method(name).lossless) for name in methods if name != "plain"}
    done, total = 0, len(prompts) * (len(others) + 1 + bool(stock))
    for index, prompt in enumerate(prompts):

        def tick() -> None:
            nonlocal done
            done += 1
            if progress:
                progress(done, total)

        expected = _decode(reference, target, prompt, methods.get("plain"), max_new_tokens)
        tick()
        if stock:
            peer = stock.generate(prompt.tokens, max_new_tokens, target.stop_ids)
            _compare(reference, target, prompt, index, peer, expected, allowed)
            tick()
        for name, outcome in others.items():
            output = _decode(outcome, target, prompt, methods[name], max_new_tokens)
            _compare(outcome, target, prompt, index, expected, output, allowed)
            tick()
    return [reference, *others.values()]


def _decode(outcome: Outcome, target: Target, prompt: Prompt, params: Any, max_new_tokens: int) -> list[int]:
    output: list[int] = []
    for step in Decoding(target, prompt, outcome.method, params, max_new_tokens=max_new_tokens):
        output += step.emitted
        outcome.steps += 1
        outcome.accepted += step.accepted
    outcome.tokens += len(output)
    return output


def _compare(
    outcome: Outcome, target: Target, prompt: Prompt, index: int, expected: list[int], output: list[int], allowed: float
) -> None:
    outcome.total += 1
    if output == expected:
        outcome.identical += 1
        return
    at = first_difference(expected, output)
    gap, shortfall = _teacher_forced(target, prompt, output, at)
    outcome.failed += outcome.lossless and (allowed == 0 or shortfall > allowed)
    given = [tokens[at] if at < len(tokens) else None for tokens in (expected, output)]
    outcome.divergences.append(Divergence(index, at, given[0], given[1], gap, shortfall))


def first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    """Where two outputs part: the first index at which they differ, or the end of the shorter one.

    >>> first_difference([1, 2, 3], [1, 2]), first_difference([1, 2], [3])
    (2, 0)
    """
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _teacher_forced(target: Target, prompt: Prompt, output: list[int], at: int) -> tuple[float, float]:
    """(gap of the two best logits before output token ``at``, the output's largest shortfall), of a plain forward."""
    start = len(prompt.tokens)
    logits = target.reference_logits([*prompt.tokens, *output])[start - 1 :]
    best = logits[at].topk(2).values if at < len(logits) else logits[-1].topk(2).values
    chosen = logits[: len(output)].gather(1, torch.as_tensor(output)[:, None])[:, 0]
    return float(best[0] - best[1]), float((logits[: len(output)].max(-1).values - chosen).max())
