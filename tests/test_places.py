"""Places of a run replayed: reach by drafter, the oracle, and steps over a text that is known."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from decoders import Prompt, UserError, record
from decoders.drafters.composite import CompositeDrafter
from decoders.study.look.places import (
    PlaceReplay,
    all_drafts,
    composite_of,
    frontier,
    replayed_steps,
    shortest_path,
    strip_of,
)
from decoders.verifiers.sampling import Sampling

from .models import prompt_ids, tiny_target

NEW, NAMES = 30, ["pld", "adapld"]


@pytest.fixture(scope="module")
def target() -> Any:
    return tiny_target("qwen3")


@pytest.fixture(scope="module")
def trace(target: Any) -> Any:
    return record(target, Prompt.from_ids(prompt_ids(3) * 2), "pld+h", max_new_tokens=NEW, stop_ids=())


def test_the_oracle_is_the_shortest_path():
    for seed in range(30):
        rng = random.Random(seed)
        count = rng.randrange(1, 7)
        reach = {name: [rng.choice([0, 0, 1, 3]) for _ in range(count)] for name in "ab"}
        places, choices = shortest_path(reach)
        fewest = count
        for picks in itertools.product("ab", repeat=count):  # a drafter for each place
            place = steps = 0
            while place < count:
                place, steps = place + reach[picks[place]][place] + 1, steps + 1
            fewest = min(fewest, steps)
        assert len(places) == len(choices) == fewest and places[0] == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_drafters_steps_by_place_are_those_of_its_own_run(target: Any, trace: Any, name: str):
    replay = PlaceReplay(target, trace)
    strip = strip_of(replay, *all_drafts(replay, [*NAMES, "recycling", "nothing"]))
    own = record(target, Prompt.from_ids(prompt_ids(3) * 2), name, max_new_tokens=NEW, stop_ids=())
    assert strip.steps_of(name) == own.rows("steps")
    ends = [context - own.run["prompt_length"] for context in own.tables["steps"]["context"]]
    assert [strip.reach[name][place] for place in ends][:-1] == own.tables["steps"]["accepted"][:-1]
    assert "learns from verdicts" in strip.missing["recycling"] and "no method" in strip.missing["nothing"]
    assert strip.regret == trace.rows("steps") - len(strip.oracle)
    assert len(strip.oracle) <= min(map(strip.steps_of, NAMES)) and set(strip.choices) <= {*NAMES}


def test_merged_drafts_are_walked_as_the_engine_does(target: Any, trace: Any):
    """A composite of replayed drafts takes the steps that a live one takes."""
    replay = PlaceReplay(target, trace)
    drafts = {name: dict(replay.drafts(name)) for name in NAMES}
    params = {"drafters": ",".join(NAMES), "rows": 8}
    live = record(target, Prompt.from_ids(prompt_ids(3) * 2), "composite", params, max_new_tokens=NEW, stop_ids=())
    walked = [verdict.accepted for _, verdict in replayed_steps(replay, composite_of(drafts, 8))]
    assert walked[:-1] == live.tables["steps"]["accepted"][:-1] and len(walked) == live.rows("steps")


def test_the_frontier_has_each_drafter_and_the_merge(target: Any, trace: Any):
    replay = PlaceReplay(target, trace)
    drafts = {name: dict(replay.drafts(name)) for name in NAMES}
    lines = frontier(replay, drafts, (4, 16))
    assert set(lines) == {*NAMES, "merged"} and all(len(line) == 2 and min(line) >= 1 for line in lines.values())
    assert isinstance(composite_of(drafts), CompositeDrafter)


def test_what_has_no_places_is_refused(target: Any, trace: Any):
    drawn = record(target, Prompt.from_ids(prompt_ids(1)), "pld", sampling=Sampling(1.0), max_new_tokens=6)
    with pytest.raises(UserError, match="greedy runs of a lossless method"):
        PlaceReplay(target, drawn)
    with pytest.raises(UserError, match="learns from verdicts"):
        all_drafts(PlaceReplay(target, trace), ["recycling"])
