"""Divergences from plain decoding: agreement, ties made by hand, a method that is really wrong, lossy rules."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import decoders
from decoders import Prompt, generate, record
from decoders.errors import UserError
from decoders.model.target_model.target import Target
from decoders.study.judge.divergences import (
    BUG,
    LOSSY,
    NEAR_TIE,
    SAMPLING,
    Divergence,
    divergence,
    recorded_divergence,
    tolerance_of,
    verdict_on,
)
from decoders.verifiers.sampling import Sampling

from .drafters_for_tests import WildTrees, credulous, method_of
from .models import network, prompt_ids

PROMPT = Prompt.from_ids(prompt_ids(3, 40))
NEW = 24


@pytest.fixture(scope="module")
def plain(target: Target) -> list[int]:
    return generate(target, PROMPT, max_new_tokens=NEW)


def find(target: Target, output: object, **more: object) -> Divergence:
    one = divergence(target, output, **more)  # type: ignore[arg-type]
    assert one is not None
    return one


def agreements(*values: float | None) -> tuple[float, ...]:
    assert None not in values
    return tuple(value for value in values if value is not None)


def test_lossless_runs_do_not_diverge(target: Target, plain: list[int]) -> None:
    assert decoders.divergence is divergence
    for method in ("plain", "pld", "adapld"):
        trace = record(target, PROMPT, method, max_new_tokens=NEW)
        assert divergence(target, trace) is None and recorded_divergence(trace, plain) is None
    assert divergence(target, plain, PROMPT) is None
    drawn = record(target, PROMPT, "pld", sampling=Sampling(0.8, seed=5), max_new_tokens=NEW)
    assert divergence(target, drawn) is None  # one draw per token, from the same seed
    cut = record(target, PROMPT, "pld", max_new_tokens=NEW)
    for stop in ("cancelled", "interrupted", "trace full"):
        cut.run["stop"] = stop
        assert divergence(target, cut, plain=[*plain, 5, 6]) is None  # compared as far as it came


def test_a_method_that_is_really_wrong_is_a_bug(target: Target, plain: list[int]) -> None:
    wrong = credulous(WildTrees([t + 1 for t in plain], 300, seed=2))
    trace = record(target, PROMPT, wrong, max_new_tokens=NEW)
    assert trace.run["method"]["lossless"]
    one = find(target, trace)
    assert one.verdict == BUG and one.source == "teacher-forced"
    assert plain[: one.position] == trace.output_ids[: one.position]
    assert (one.expected, one.got) == (plain[one.position], trace.output_ids[one.position])
    logits = target.reference_logits([*PROMPT.tokens, *plain[: one.position]])[-1]
    assert one.gap == pytest.approx(float(logits.topk(2).values.diff().abs()), abs=1e-4)
    assert one.expected_prob == pytest.approx(float(logits.softmax(-1)[one.expected]), abs=1e-5)
    assert one.got_prob == pytest.approx(float(logits.softmax(-1)[one.got]), abs=1e-5)
    expected, got, shortfall = agreements(one.expected_prob, one.got_prob, one.shortfall)
    assert expected > got and shortfall > one.tolerance == tolerance_of("float32")
    assert find(target, trace, plain=plain) == one  # the reference may be given
    assert find(target, trace.output_ids, prompt=PROMPT, plain=plain) == one
    honest = record(target, PROMPT, method_of(WildTrees([t + 1 for t in plain], 300, seed=2)), max_new_tokens=NEW)
    assert divergence(target, honest) is None  # the same drafts, checked


def test_a_near_tie_made_by_hand_is_one_and_a_later_fault_is_not(plain: list[int]) -> None:
    model = network()
    rows = model.get_output_embeddings().weight
    at = 7
    twin = next(t for t in range(200, 300) if t not in plain)
    with torch.no_grad():
        rows[twin] = rows[plain[at]]  # two tokens that the target cannot tell apart
        rows[twin][0] -= 1e-7
    tied = Target(model, None, "tied")
    tied.__dict__["calibration"] = None
    expected = generate(tied, PROMPT, max_new_tokens=NEW)
    assert expected[:at] == plain[:at] and expected[at] in (plain[at], twin)
    other = twin if expected[at] == plain[at] else plain[at]
    start = [*expected[:at], other]
    rest = generate(tied, Prompt.from_ids([*PROMPT.tokens, *start]), max_new_tokens=NEW - len(start))
    one = find(tied, [*start, *rest], prompt=PROMPT)
    assert (one.verdict, one.position, one.got) == (NEAR_TIE, at, other)
    assert max(agreements(one.gap, one.shortfall)) <= one.tolerance
    assert one.expected_prob == pytest.approx(one.got_prob, abs=1e-4)
    later = find(tied, [*start, *[5] * len(rest)], prompt=PROMPT)  # after the tie it writes what it likes
    assert later.verdict == BUG and later.position == at and agreements(later.shortfall_at)[0] > at
    assert find(tied, [*start, *rest], prompt=PROMPT, tolerance=0.0).verdict in (NEAR_TIE, BUG)


def test_lossy_and_drawn_outputs_are_called_so(target: Target, plain: list[int]) -> None:
    wrong = replace(credulous(WildTrees([t + 1 for t in plain], 300, seed=2)), lossless=False)
    trace = record(target, PROMPT, wrong, max_new_tokens=NEW)
    assert find(target, trace).verdict == LOSSY
    drawn = record(target, PROMPT, "pld", sampling=Sampling(1.0, seed=5), max_new_tokens=NEW)
    assert find(target, drawn, plain=plain).verdict == SAMPLING
    short = find(target, plain[:5], prompt=PROMPT, plain=plain)
    assert (short.position, short.got, short.verdict) == (5, None, BUG)  # it ended where plain decoding went on


def test_what_a_run_recorded_judges_without_a_model(target: Target, plain: list[int]) -> None:
    wrong = credulous(WildTrees([t + 1 for t in plain], 300, seed=2))
    trace = record(target, PROMPT, wrong, max_new_tokens=NEW)
    judged, told = find(target, trace), recorded_divergence(trace, plain)
    assert told is not None and told.source == "recorded" and told.verdict == BUG
    assert (told.position, told.expected, told.got) == (judged.position, judged.expected, judged.got)
    assert told.gap == pytest.approx(judged.gap, abs=1e-3) and told.got_prob == pytest.approx(judged.got_prob, abs=1e-4)
    assert told.expected_prob == pytest.approx(judged.expected_prob, abs=1e-4)


def test_the_definition_by_dtype() -> None:
    assert tolerance_of("float64") < tolerance_of("float32") < tolerance_of("float16") < tolerance_of("bfloat16")
    assert tolerance_of("int4") == tolerance_of("float32"), "rows on such weights are the same bit for bit"
    assert tolerance_of("int3") == 0 and verdict_on((0.0,), 0) == NEAR_TIE
    assert verdict_on((0.0, None), math.inf) == BUG  # a missing token is no tie


def test_other_models_and_given_answers_are_refused(target: Target) -> None:
    trace = record(target, PROMPT, "pld", max_new_tokens=4)
    with pytest.raises(UserError, match="give it as prompt"):
        divergence(target, [1, 2])
    trace.run["model"] = {**trace.run["model"], "dtype": "bfloat16"}
    with pytest.raises(UserError, match="load that model"):
        divergence(target, trace)
    trace.run.update(model=dict(target.info), forced=True)
    with pytest.raises(UserError, match="given answer"):
        divergence(target, trace)
