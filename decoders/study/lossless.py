"""Losslessness, measured: every method's output against plain decoding, and plain against generate()."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from decoders.drafters import find_method
from decoders.engine.decoding import Decoding, read_once
from decoders.model.catalog import precision_of
from decoders.model.target import Session, Target
from decoders.names import BASELINE
from decoders.prompt.prompt import Prompt
from decoders.verifiers.sampling import Sampling

from .divergences import DRAWN, LOSSY, Divergence, first_difference, judged, tolerance_of
from .stock import StockModel

FULL_PRECISION = ("float32", "float64")  # there any difference fails, a near tie too


@dataclass(frozen=True, slots=True)
class RunCounts:
    """One method on one prompt (its number). ``accepted`` counts draft tokens, the target's own excluded; ``engines``
    counts steps by the engine that ran the target's forward (``draft.Ran``).
    """

    prompt: int
    tokens: int
    steps: int
    accepted: int
    engines: Mapping[str, int] = field(default_factory=dict)


def tokens_per_step(runs: Iterable[RunCounts]) -> float | None:
    """Of the steps of several runs, pooled: accepted draft tokens and the target's own; None where there is no step.

    >>> tokens_per_step([RunCounts(0, 4, 2, 2), RunCounts(1, 4, 4, 0)])
    1.3333333333333333
    """
    counted = list(runs)
    steps = sum(run.steps for run in counted)
    return sum(run.accepted for run in counted) / steps + 1 if steps else None


@dataclass(slots=True)
class Outcome:
    """One method over all prompts. ``against`` names the reference. ``tokens_per_step`` pools all steps."""

    method: str
    against: str
    lossless: bool = True
    identical: int = 0
    total: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    failed: int = 0
    runs: list[RunCounts] = field(default_factory=list)

    @property
    def tokens_per_step(self) -> float | None:
        return tokens_per_step(self.runs)

    @property
    def engines(self) -> Counter[str]:
        """Steps of all runs by the engine that ran them."""
        return sum((Counter(run.engines) for run in self.runs), Counter())

    def to_json(self) -> dict[str, Any]:
        sums = {name: sum(getattr(run, name) for run in self.runs) for name in ("tokens", "steps", "accepted")}
        return {**asdict(self), **sums, "engines": self.engines, "tokens_per_step": self.tokens_per_step}


def check_lossless(
    target: Target,
    prompts: Sequence[Prompt],
    methods: Mapping[str, Any],
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    stock: StockModel | None = None,
    tolerance: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    checked: Callable[[int, Sequence[Outcome]], None] | None = None,
) -> list[Outcome]:
    """Decode every prompt by plain decoding and by each of ``methods`` (name → parameters), and compare.

    Full precision: any difference fails. Half precision: a difference fails only where some token lies more than
    ``tolerance`` below the best logit at its place, teacher-forced. Lossy methods never fail, nor does any where
    ``sampling`` draws tokens: methods that match drafted tokens with the target's own draws write the same from the
    same seed, those that accept by chance write others. With ``stock``, plain greedy decoding itself is checked against
    generate(): the first outcome. The engine processes a prompt once for all methods. ``progress(done, total)`` counts
    runs; ``checked`` gets a prompt's number and the outcomes so far when all runs of the prompt are done.
    """
    dtype, drawn = precision_of(target.info), sampling is not None and not sampling.greedy
    assert not (drawn and stock), "generate() draws otherwise"
    allowed = tolerance if tolerance is not None else 0.0 if dtype in FULL_PRECISION else tolerance_of(dtype)
    reference = Outcome(BASELINE, "generate()" if stock else "")
    others = {name: Outcome(name, BASELINE, find_method(name).lossless) for name in methods if name != BASELINE}
    outcomes = [reference, *others.values()]
    runs = count(1)
    total = len(prompts) * (len(outcomes) + bool(stock))
    tick = (lambda: progress(next(runs), total)) if progress else (lambda: None)
    for index, prompt in enumerate(prompts):
        decodings = [
            Decoding.of(
                target, prompt, outcome.method, methods.get(outcome.method), sampling=sampling,
                max_new_tokens=max_new_tokens,
            )
            for outcome in outcomes
        ]  # fmt: skip
        read = read_once([decoding for decoding in decodings if decoding.prompt is prompt])
        expected: list[int] = []
        for outcome, decoding in zip(outcomes, decodings, strict=True):
            output = _decode(outcome, index, decoding, read if decoding.prompt is prompt else None)
            tick()
            if outcome is not reference:
                _compare(outcome, target, prompt, index, expected, output, allowed, drawn)
                continue
            expected = output
            if stock:
                peer = stock.generate(prompt.tokens, max_new_tokens, target.stop_ids)
                _compare(reference, target, prompt, index, peer, expected, allowed, drawn)
                tick()
        if checked:
            checked(index, outcomes)
    return outcomes


def _decode(outcome: Outcome, index: int, decoding: Decoding, read: Session | None) -> list[int]:
    """The output of a run, counted; ``read`` has processed its prompt."""
    decoding.prefill(read)
    output: list[int] = []
    accepted, engines = 0, Counter[str]()
    for step in decoding:
        output += step.emitted
        accepted += step.accepted
        engines[step.scored.ran.engine] += 1
    outcome.runs.append(RunCounts(index, len(output), engines.total(), accepted, dict(engines)))
    return output


def _compare(
    outcome: Outcome, target: Target, prompt: Prompt, index: int, expected: list[int], output: list[int],
    allowed: float, drawn: bool,
) -> None:  # fmt: skip
    outcome.total += 1
    if output == expected:
        outcome.identical += 1
        return
    at = first_difference(expected, output)
    if drawn:  # no fault, and no logits tell more
        wanted, got = (tokens[at] if at < len(tokens) else None for tokens in (expected, output))
        outcome.divergences.append(Divergence(at, wanted, got, DRAWN if outcome.lossless else LOSSY, prompt=index))
        return
    divergence = judged(
        target, prompt.tokens, expected, output, at, lossless=outcome.lossless, tolerance=allowed or None, number=index
    )
    outcome.failed += outcome.lossless and (allowed == 0 or (divergence.shortfall or 0.0) > allowed)
    outcome.divergences.append(divergence)
