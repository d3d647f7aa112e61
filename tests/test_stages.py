"""Draft length auto of a drafter in stages: later drafters are asked where they bring more than they take."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from decoders import Draft, Prompt, generate, record
from decoders.draft.survival import Estimate, Survival
from decoders.engine.decoding import Decoding
from decoders.engine.length import AutoLength
from decoders.engine.row_costs import Curve, RowCosts
from decoders.engine.stages import TRY, Asking, StageTimes
from decoders.method.drafter import StagedDrafter
from decoders.trace.check import check

from .models import prompt_ids, tiny_target

FREE_ROWS = Curve((1, 64, 256), (1.0, 1.0, 4.0), "simulated")
DEAR_ROWS = Curve((1, 8, 64), (1.0, 3.0, 20.0), "simulated")


class ScriptedDrafter(StagedDrafter):
    """Two stages: the first one's nodes survive as told, the second adds others."""

    def __init__(self, first: Sequence[float], second: Sequence[float]) -> None:
        self.first, self.second, self.asked = [1.0, *first], [*second], list[int]()
        self.survival = Survival()

    def draft_stages(self, context: Any, budget: int) -> Generator[Sequence[float], int, Draft]:
        assert (yield [1.0]) == budget
        depth = yield self.first
        self.asked.append(depth)
        self.staged_survival = [*self.first, *self.second[:depth]]
        self.estimate = Estimate([], self.staged_survival, [], [], None)  # type: ignore[arg-type]
        return Draft.empty(5, "scripted")

    def later_stages(self) -> list[tuple[int, int, Sequence[float]]]:
        depth = self.asked[-1]
        return [(1, depth, [*self.second, *[0.0] * depth][:depth])] if depth else []


class TimedAsking(Asking):
    """Asking with a clock that says what a level takes."""

    level = 0.0

    def stage_ms(self, draft: Draft, number: int, depth: int) -> float:
        return self.level * depth


def asked_steps(first: Sequence[float], second: Sequence[float], level: float, curve: Curve = FREE_ROWS) -> list[int]:
    """The depths to which the second stage was asked in 40 steps; a plain step takes 1, and ρ stays 1."""
    length = AutoLength(RowCosts(curve, follows=False))
    asking = TimedAsking(length.stage_gain, length.depth_of_stage)
    asking.level = level
    drafter = ScriptedDrafter(first, second)
    for _ in range(40):
        draft = asking.draft(drafter, None, 8, 1.0, 1.0)  # type: ignore[arg-type]
        asking.learn(draft)
    return drafter.asked


def test_a_drafter_that_costs_nothing_is_asked_in_every_step():
    assert asked_steps((0.9, 0.8), (0.3, 0.2), 0.0) == [8] * 40


def test_a_drafter_that_brings_less_than_it_takes_is_asked_now_and_then():
    asked = asked_steps((0.9, 0.8), (0.3, 0.1), 0.2)
    places = [place for place, depth in enumerate(asked) if depth]
    assert 2 <= len(places) <= 4 and max(b - a for a, b in pairwise(places)) == TRY + 1


def test_a_drafter_that_pays_is_asked_to_the_depth_that_pays():
    asked = asked_steps((), (0.9, 0.8, 0.05, 0.04, 0.03), 0.2)
    assert all(asked) and set(asked[-10:]) <= {2, 4}  # now and then two deeper


def test_rows_that_are_dear_count_against_a_drafter():
    cheap, dear = (asked_steps((0.9,), (0.4, 0.3), 0.15, curve) for curve in (FREE_ROWS, DEAR_ROWS))
    assert sum(map(bool, dear)) < sum(map(bool, cheap)) == 40


def test_what_was_promised_before_decides():
    """A drafter is worth asking where nothing is copied, and not beside a long copy."""
    length = AutoLength(RowCosts(FREE_ROWS, follows=False))
    asking = TimedAsking(length.stage_gain, length.depth_of_stage)
    asking.level = 0.1
    alone, beside = ScriptedDrafter((), (0.8, 0.7, 0.6)), ScriptedDrafter((0.99,) * 8, (0.05, 0.04, 0.03))
    for _ in range(40):
        for drafter in (alone, beside):
            asking.learn(asking.draft(drafter, None, 3, 1.0, 1.0))  # type: ignore[arg-type]
    assert all(alone.asked) and sum(map(bool, beside.asked)) < 8


def test_what_a_drafter_confirms_is_no_gain():
    """Both by the later survival: that a second drafter proposes the same tokens makes them likelier, not more."""
    length = AutoLength(RowCosts(FREE_ROWS, follows=False))
    copied, agreed = [1.0, 0.6, 0.5, 0.4], [1.0, 0.95, 0.9, 0.85]
    assert length.stage_gain(copied, agreed) == pytest.approx(0)
    assert length.stage_gain(copied, [*agreed, 0.3]) == pytest.approx(0.3)
    dear = AutoLength(RowCosts(DEAR_ROWS, follows=False))  # .29 a row
    assert dear.stage_gain([1.0, 0.2], [1.0, 0.9]) == pytest.approx(0.9 - 2 / 7)  # would not have been verified


def test_drafts_so_deep_have_their_own_mean():
    """Few drafts go deep: the first of them is not weighed down by those that did not."""
    times = StageTimes()
    for _ in range(20):
        times.observe(1, 1.0, [0.5])
    times.observe(3, 3.0, [0.5, 0.4, 0.3])
    assert times.worth == pytest.approx([0.5, 0.4, 0.3])


def test_levels_cost_though_some_drafts_are_empty():
    times = StageTimes()
    for depth in (1, 1, 1, 0) * 10:
        times.observe(depth, 2.0 * depth, [0.5] * depth)
    assert times.drafting.level_ms > 1.0


def test_who_is_asked_goes_on_from_run_to_run():
    target, prompt = tiny_target(), Prompt.from_ids(prompt_ids(3) * 2)
    method = "composite pld+h recycling"
    first = AutoLength.of(target, method)
    assert not len(first.asking.history) and AutoLength.of(target, "composite pld").asking.history is not (
        first.asking.history
    )
    params = {"drafters": "pld+h,recycling"}
    list(Decoding.of(target, prompt, "composite", params, max_new_tokens=40, stop_ids=(), length="auto"))
    assert len(first.asking.history) and AutoLength.of(target, method).asking.history is first.asking.history


@pytest.mark.parametrize("method", [{"drafters": "pld+h,recycling"}, {"drafters": "adapld,pld,lookahead"}])
def test_a_run_records_who_was_asked(method: dict[str, str]):
    target, prompt = tiny_target(), Prompt.from_ids(prompt_ids(3) * 2)
    options: dict[str, Any] = {"max_new_tokens": 40, "stop_ids": ()}
    trace = record(target, prompt, "composite", method, length="auto", **options)
    check(trace)
    assert list(trace.output_ids) == generate(target, prompt, **options)
    steps = trace.tables["steps"]
    for place in range(1, len(method["drafters"].split(",")) + 1):
        assert set(steps[f"term:asked{place}"]) <= {0.0, 1.0, None}
        for asked, proposed in zip(steps[f"term:asked{place}"], steps[f"term:proposed{place}"], strict=True):
            assert asked or not proposed
    assert trace.run["length"]["policy"] == "auto"
    fixed = record(target, prompt, "composite", method, **options)
    assert set(fixed.tables["steps"]["term:asked2"]) <= {1.0, None}
