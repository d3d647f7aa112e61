"""Draft length auto of a drafter in stages: later drafters are asked where they bring more than they take."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from decoders import Draft, Prompt, generate, record
from decoders.draft.survival import Estimate, Survival
from decoders.engine.length import AutoLength
from decoders.engine.row_costs import Curve, RowCosts
from decoders.engine.stages import TRY, Asking
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
        survival = [*self.first, *self.second[:depth]]
        self.estimate = Estimate([], survival, [], [], None)  # type: ignore[arg-type]
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
    asking = TimedAsking(length.best_surplus, length.depth_of_stage)
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
    asking = TimedAsking(length.best_surplus, length.depth_of_stage)
    asking.level = 0.1
    alone, beside = ScriptedDrafter((), (0.8, 0.7, 0.6)), ScriptedDrafter((0.99,) * 8, (0.05, 0.04, 0.03))
    for _ in range(40):
        for drafter in (alone, beside):
            asking.learn(asking.draft(drafter, None, 3, 1.0, 1.0))  # type: ignore[arg-type]
    assert all(alone.asked) and sum(map(bool, beside.asked)) < 8


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
