"""Losslessness, measured: every method's output against plain decoding, and plain against generate()."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import Any

from decoders.drafters import select_method
from decoders.engine.decoding import Decoding, read_once
from decoders.method.method import Method
from decoders.model.files.catalog import format_of
from decoders.model.target_model.own_settings import NEUTRAL
from decoders.model.target_model.target import Target
from decoders.prompt.prompt import Prompt
from decoders.study.judge.divergences import (
    LOSSY,
    SAMPLING,
    Divergence,
    first_difference,
    judge_difference,
    tolerance_of,
)
from decoders.study.judge.tool_calls import judged_calls
from decoders.study.measure.peers import GENERATE
from decoders.study.measure.stock import StockModel
from decoders.verifiers.sampling import Sampling

from .contenders import run_unrecorded
from .plan import PLAIN, Contender, Failure, Measurement, Outcome, Sample, attempt, execute, in_order

# any difference fails there, a near tie too: fp32 rounds far below a choice, and rows on such weights are the same bits
FULL_PRECISION = ("float32", "float64", "int8", "int4")


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
    run_list = list(runs)
    steps = sum(run.steps for run in run_list)
    return sum(run.accepted for run in run_list) / steps + 1 if steps else None


@dataclass(slots=True)
class MethodCheck:
    """One method over all prompts. ``against`` names the reference. ``tokens_per_step`` pools all steps. ``errors`` are
    the prompts on which it ended with one, each with its sentence: they count as ``failed``. ``calls``: of each output,
    what it is beside the reference's to a program that reads calls or JSON (``tool_calls.MEANINGS``).
    """

    method: str
    against: str
    lossless: bool = True
    identical: int = 0
    total: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    failed: int = 0
    runs: list[RunCounts] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

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

    def count(self, index: int, outcome: Outcome) -> None:
        """Enter a run of a prompt: its counts, or why it failed."""
        if isinstance(outcome, Failure):
            self.failed += 1
            self.errors.append({"prompt": index, "error": outcome.reason})
        if not isinstance(outcome, Measurement):
            return
        sample = outcome.sample
        self.runs.append(
            RunCounts(index, sample.tokens, sample.steps or 0, sample.accepted or 0, dict(outcome.engines))
        )

    def compare(
        self,
        target: Target,
        prompt: Prompt,
        index: int,
        expected: Outcome,
        outcome: Outcome,
        allowance: float,
        is_sampled: bool,
    ) -> None:
        """Enter whether a run's output is the reference's; ``allowance`` (logits) is what rounding may do."""
        self.total += 1
        if not isinstance(outcome, Measurement):
            return
        if not isinstance(expected, Measurement):
            self.failed += 1
            self.errors.append({"prompt": index, "error": f"{self.against} failed, so that nothing is known of this"})
            return
        plain, output = expected.output, outcome.output
        if target.tokenizer is not None:
            texts = (target.tokenizer.decode(list(ids), skip_special_tokens=False) for ids in (plain, output))
            self.calls.append(judged_calls(*map(partial(_bare, target), texts)))
        if output == plain:
            self.identical += 1
            return
        at = first_difference(plain, output)
        if is_sampled:  # no fault, and no logits tell more
            expected_token, output_token = (tokens[at] if at < len(tokens) else None for tokens in (plain, output))
            verdict = SAMPLING if self.lossless else LOSSY
            self.divergences.append(Divergence(at, expected_token, output_token, verdict, prompt=index))
            return
        divergence = judge_difference(
            target, prompt.tokens, plain, output, at, lossless=self.lossless, tolerance=allowance or None, number=index
        )
        self.failed += self.lossless and (allowance == 0 or (divergence.shortfall or 0.0) > allowance)
        self.divergences.append(divergence)


def _bare(target: Target, text: str) -> str:
    """An output without the special token that ends it; tags of tool calls, which may be special ones too, stay."""
    for token in target.stop_ids:
        text = text.removesuffix(target.tokenizer.decode([token]))
    return text


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
    on_check: Callable[[int, Sequence[MethodCheck]], None] | None = None,
) -> list[MethodCheck]:
    """Decode every prompt by plain decoding and by each of ``methods`` (name → parameters), and compare.

    Full precision: any difference fails. Half precision: a difference fails only where some token lies more than
    ``tolerance`` below the best logit at its place, teacher-forced. Lossy methods never fail, nor does any where
    ``sampling`` draws tokens: methods that match drafted tokens with the target's own draws write the same from the
    same seed, those that accept by chance write others. A run that ends with an error fails, and the others go on. With
    ``stock``, plain greedy decoding itself is checked against generate(): the first outcome. The engine processes a
    prompt once for all methods. ``progress(done, total)`` counts runs; ``on_check`` gets a prompt's number and the
    checks so far when all runs of the prompt are done.
    """
    numbers, is_sampled = format_of(target.info), sampling is not None and not sampling.greedy
    assert not (is_sampled and stock), "generate() draws otherwise"
    allowance = tolerance if tolerance is not None else 0.0 if numbers in FULL_PRECISION else tolerance_of(numbers)
    settings = {name: select_method(name, methods.get(name)) for name in (PLAIN, *methods)}
    options = {"sampling": sampling, "max_new_tokens": max_new_tokens, "generation": NEUTRAL}
    checks = {name: MethodCheck(name, PLAIN, method.lossless) for name, (method, _) in settings.items()}
    checks[PLAIN].against = GENERATE if stock else ""
    all_checks = list(checks.values())
    peers = [Contender(GENERATE, "peer", True, _generate(stock, target, max_new_tokens))] if stock else []
    runs, total = count(1), len(prompts) * (len(all_checks) + len(peers))
    for index, prompt in enumerate(prompts):
        outcomes = dict[str, Outcome]()
        contenders = [*_behind_one_reading(target, prompt, settings, options), *peers]
        for turn, outcome in execute(in_order(contenders, [prompt])):
            outcomes[turn.contender.name] = outcome
            if progress:
                progress(next(runs), total)
        for check in all_checks:
            check.count(index, outcomes[check.method])
            if check.against:
                check.compare(
                    target, prompt, index, outcomes[check.against], outcomes[check.method], allowance, is_sampled
                )
        if on_check:
            on_check(index, all_checks)
    return all_checks


def _behind_one_reading(
    target: Target, prompt: Prompt, settings: Mapping[str, tuple[Method, Any]], options: Mapping[str, Any]
) -> list[Contender]:
    """Runs of methods on a prompt that the engine processes once for all of them."""
    begun = {name: attempt(lambda _, setting=setting: Decoding.of(target, prompt, *setting, **options), prompt)
             for name, setting in settings.items()}  # fmt: skip
    alike = [
        candidate for candidate in begun.values() if isinstance(candidate, Decoding) and candidate.prompt is prompt
    ]
    read = read_once(alike) if alike else None

    def run(name: str) -> Outcome:
        decoding = begun.pop(name)
        if not isinstance(decoding, Decoding):
            return decoding
        return run_unrecorded(name, lambda: decoding, read if decoding.prompt is prompt else None)

    return [Contender(name, "method", method.lossless, lambda _, name=name: run(name))
            for name, (method, _) in settings.items()]  # fmt: skip


def _generate(stock: StockModel, target: Target, limit: int) -> Callable[[Prompt], Measurement]:
    def run(prompt: Prompt) -> Measurement:
        output = stock.generate(prompt.tokens, limit, target.stop_ids)
        return Measurement(Sample.without_time(GENERATE, output), output)

    return run
