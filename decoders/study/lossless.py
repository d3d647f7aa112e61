"""Losslessness, measured: every method's output against plain decoding, and plain against generate()."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from decoders.drafters import find_method
from decoders.engine.decoding import Decoding
from decoders.model.target import Target
from decoders.prompt.prompt import Prompt

from .divergences import Divergence, first_difference, judged, tolerance_of
from .stock import StockModel

FULL_PRECISION = ("float32", "float64")  # there any difference fails, a near tie too


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
    dtype = target.info["dtype"]
    allowed = tolerance if tolerance is not None else 0.0 if dtype in FULL_PRECISION else tolerance_of(dtype)
    reference = Outcome("plain", "generate()" if stock else "")
    others = {name: Outcome(name, "plain", find_method(name).lossless) for name in methods if name != "plain"}
    runs = count(1)
    total = len(prompts) * (len(others) + 1 + bool(stock))
    tick = (lambda: progress(next(runs), total)) if progress else (lambda: None)
    for index, prompt in enumerate(prompts):
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
    for step in Decoding.of(target, prompt, outcome.method, params, max_new_tokens=max_new_tokens):
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
    divergence = judged(
        target, prompt.tokens, expected, output, at, lossless=outcome.lossless, tolerance=allowed or None, number=index
    )
    outcome.failed += outcome.lossless and (allowed == 0 or (divergence.shortfall or 0.0) > allowed)
    outcome.divergences.append(divergence)
