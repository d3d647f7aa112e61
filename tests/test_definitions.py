"""Acceptance by every definition, confidences against what came true, and what drafting is expected to gain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from decoders import Prompt, Sampling, record
from decoders.trace import metrics
from decoders.trace.acceptance import DEFINITIONS, Acceptance
from decoders.trace.decisions import decisions
from decoders.trace.files import load
from decoders.trace.reliability import OFFER, PATH, Reliability, Signal, outcomes, pool_runs, signals
from decoders.trace.speedup import RowTimes, expected_speedup, expected_tokens, forecasts
from decoders.trace.trace import Trace

from . import recordings
from .drafts import needs_kinds, save_tiny_part
from .models import prompt_ids, tiny_target
from .work import lines

GALLERY = Path(__file__).resolve().parent.parent / "assets/gallery"


def acceptance(traces: list[Trace]) -> Acceptance:
    """Of some runs, pooled and each."""
    counted = Acceptance()
    for trace in traces:
        counted += Acceptance.of(trace)
    return counted


def made_run(*steps: list[tuple[int, str]], context: int = 10) -> Trace:
    """A run of steps, each given as its drafted nodes: (parent, status)."""
    trace = Trace.new({"prompt_length": 2, "method": {"name": "made"}})
    words = {1: b"name", 2: b" 12", 3: b"):"}
    trace.extend({"pieces": {"id": [*words], "hex": [w.hex() for w in words.values()], "special": [False] * 3}})
    trace.extend({"tokens": {"id": [1, 2], "segment": ["context", "question"]}})
    for number, drafted in enumerate(steps):
        depths = [0]
        for parent, _ in drafted:
            depths.append(depths[parent] + 1)
        accepted = sum(status == "accepted" for _, status in drafted)
        rows = len(drafted) + 1
        trace.extend({
            "steps": {
                "context": [context * (number + 1)], "drafted": [len(drafted)], "depth": [max(depths)],
                "accepted": [accepted], "emitted": [accepted + 1],
            },
            "nodes": {
                "step": [number] * rows, "token": [1 + n % 3 for n in range(rows)], "depth": depths,
                "parent": [-1, *(parent for parent, _ in drafted)], "status": ["root", *(s for _, s in drafted)],
                "origin": ["root", *["main"] * len(drafted)], "source": [-1, *[0] * len(drafted)],
                "pool": [-1] * rows, "draft_prob": [None] * rows,
            },
        })  # fmt: skip
    return trace


# a chain of three of which two stood; a tree whose second branch stood; no draft; one wrong token
CHAIN = [(0, "accepted"), (1, "accepted"), (2, "rejected")]
TREE = [(0, "rejected"), (1, "unreached"), (0, "accepted"), (3, "accepted")]
RUN = made_run(CHAIN, TREE, [], [(0, "rejected")])


def test_decided_positions_are_those_after_what_stood_and_siblings_are_one():
    made = decisions(RUN)
    assert list(zip(made.step.tolist(), made.depth.tolist(), made.is_accepted.tolist(), strict=True)) == [
        (0, 1, True), (0, 2, True), (0, 3, False), (1, 1, True), (1, 2, True), (3, 1, False),
    ]  # fmt: skip
    assert RUN.tables["nodes"]["status"][made.node[3]] == "accepted"  # what stood speaks for its siblings


def test_every_definition_by_hand():
    counted = acceptance([RUN])
    assert counted.pooled.values() == pytest.approx({
        "tokens_per_step": (4 + 4) / 4, "emitted_per_step": 8 / 4, "acceptance_length": 1 + 4 / 3,
        "draft_acceptance": 4 / 8, "depth_acceptance": 4 / 6, "tested_acceptance": 4 / 6, "first_acceptance": 2 / 3,
        "beta": None,
    })  # fmt: skip
    assert [d.key for d in DEFINITIONS] == [*counted.pooled.values()]
    assert sorted(counted.lengths.items()) == [(0, 1), (2, 2)]
    rates = [(d["depth"], d["stood"], d["decided"], d["unconditional"]) for d in counted.depths()]
    assert rates == [(1, 2, 3, 2 / 3), (2, 2, 2, 2 / 3), (3, 0, 1, 0.0)]


def test_a_stop_token_that_ends_a_path_counts_a_bonus_in_the_papers_tau_and_none_in_sglangs():
    """Spec-Bench counts accepted + 1 before it cuts; SGLang divides completion tokens by verify steps."""
    ended = made_run([(0, "accepted")], [], [(0, "accepted"), (1, "accepted")])
    ended.tables["steps"]["emitted"][-1] = 2  # the second accepted token is a stop token
    values = acceptance([ended]).pooled.values()
    assert (values["tokens_per_step"], values["emitted_per_step"]) == (6 / 3, 5 / 3)
    assert metrics.compute(ended)["tokens_per_step"] == 2


def test_what_is_drafted_behind_the_end_of_the_run_is_not_decided():
    ended = made_run([(0, "accepted"), (1, "unreached"), (2, "unreached")])
    assert decisions(ended).is_accepted.tolist() == [True]
    assert acceptance([ended]).pooled.values()["tested_acceptance"] == 1.0


def test_the_work_of_classing_grows_with_the_tokens():
    counted = []
    for count in (1_000, 4_000):
        trace = made_run([(n, "accepted") for n in range(count)])
        hexes = {"hex": ["61"] * (count + 1), "special": [False] * (count + 1)}
        trace.tables["pieces"] = {"id": [*range(count + 1)], **hexes}
        trace.tables["nodes"]["token"] = [*range(count + 1)]
        assert acceptance([trace]).to_json()["groups"]["class"][0]["decided"] == count
        counted.append(lines(lambda trace=trace: acceptance([trace]).to_json()))
    assert counted[1] < 5 * counted[0]


def test_pooled_and_mean_of_runs_can_order_two_methods_differently():
    """The reason why vLLM's and SpecForge's numbers of one pair of heads disagreed in sign."""
    one, full = [(0, "accepted")], [(0, "accepted"), (1, "accepted"), (2, "accepted")]
    long, short = made_run(*[one] * 30), made_run(full)
    other_long, other_short = made_run(*([one] * 20 + [full] * 4)), made_run(one)
    a, b = acceptance([long, short]), acceptance([other_long, other_short])
    assert a.pooled.values()["tokens_per_step"] < b.pooled.values()["tokens_per_step"]
    assert a.means["tokens_per_step"] > b.means["tokens_per_step"]


def test_groups_add_up_to_what_was_decided():
    groups = acceptance([RUN, made_run(CHAIN, context=100)]).to_json()["groups"]
    assert {sum(row["decided"] for row in rows) for rows in groups.values()} == {9}
    assert [row["key"] for row in groups["context"]] == [0, 64]
    assert {row["key"] for row in groups["class"]} == {"word", "number", "punctuation"}
    assert [row["key"] for row in groups["segment"]] == ["context"]
    assert [row["key"] for row in groups["origin"]] == ["chosen copy"]  # the label of "main"


@pytest.mark.parametrize("path", sorted(GALLERY.glob("*.spectrace")), ids=lambda path: path.stem)
def test_a_runs_own_metrics_are_these_definitions(path):
    trace = load(path)
    mine, reported = acceptance([trace]).pooled.values(), metrics.compute(trace)
    for key, metric in (("tokens_per_step",) * 2, ("draft_acceptance", "draft_efficiency"), ("beta", "beta")):
        assert mine[key] == pytest.approx(reported[metric]), key
    assert metrics.acceptance_by_depth(trace) == [
        (d["depth"], d["decided"], d["stood"]) for d in acceptance([trace]).depths()
    ]


def test_nothing_drafted_leaves_rates_open():
    values = acceptance([made_run([], [])]).pooled.values()
    assert values.pop("tokens_per_step") == values.pop("emitted_per_step") == 1.0
    assert set(values.values()) == {None} and acceptance([]).to_json()["depths"] == []


def test_reliability_by_hand():
    told = np.array([0.95, 0.95, 0.95, 0.05, 0.15])
    made = Reliability.of(told, np.array([True, True, False, False, False]), low=0, high=1)
    rows = np.array([(row["count"], row["told"], row["right"]) for row in made.bins])
    assert rows == pytest.approx(np.array([(1, 0.05, 0.0), (1, 0.15, 0.0), (3, 0.95, 2 / 3)]))
    assert made.ece == pytest.approx((0.05 + 0.15 + 3 * (0.95 - 2 / 3)) / 5)
    assert made.brier == pytest.approx((2 * 0.05**2 + 0.95**2 + 0.05**2 + 0.15**2) / 5)
    assert made.auroc == pytest.approx((4 + 2 * 0.5) / 6)  # six pairs, two of them ties
    assert Reliability.of(told, np.ones(5, dtype=bool), low=0, high=1).auroc is None
    with pytest.raises(ValueError, match="no confidence was recorded"):
        Reliability.of(np.zeros(0), np.zeros(0, dtype=bool), low=0, high=1)


def test_a_drafter_that_knows_its_chances_is_calibrated_and_one_that_boasts_is_not():
    rng = np.random.default_rng(3)
    chance = rng.uniform(size=20_000)
    right = rng.uniform(size=20_000) < chance
    honest, boasting = (Reliability.of(told, right, low=0, high=1) for told in (chance, chance**0.3))
    assert honest.ece < 0.02 < 0.2 < boasting.ece
    assert honest.brier < boasting.brier and honest.auroc == pytest.approx(boasting.auroc)


@pytest.mark.parametrize(
    ("name", "key", "outcome"),
    [
        ("6-class-docstring-glide", "term:confidence", "the token was accepted"),
        ("9-class-docstring-ppd", "term:path_prob", PATH),
        ("2-class-docstring-pld-h", "term:cosine", OFFER),
    ],
)
def test_the_gallerys_confidences_are_found(name, key, outcome):
    trace = load(GALLERY / f"{name}.spectrace")
    signal = next(signal for signal in signals([trace]) if signal.key == key)
    assert signal.outcome.startswith(outcome)
    made = pool_runs([outcomes(trace, signal)], signal)
    assert made.count > 0 and 0 <= made.rate <= 1 and sum(row["count"] for row in made.bins) == made.count
    assert (made.to_json(signal)["ece"] is None) == (key == "term:cosine")
    assert not any(one.key == "term:overlap" for one in signals([trace]))  # that is the target's


@pytest.mark.parametrize(("kind", "name"), [
    pytest.param(kind, name, marks=needs_kinds(kind))
    for kind, name in (("medusa", "medusa"), ("hydra", "hydra"), ("eagle", "eagle2"))
])  # fmt: skip
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.usefixtures("home")
def test_confidence_is_held_against_first_choices_alone(kind, name, temperature):
    """Recounted step by step: at every place that was reached, the first choice there, on whichever branch it hangs."""
    target = tiny_target("llama")
    save_tiny_part(target, kind)
    sampling = Sampling(temperature=temperature, seed=2)
    trace = record(target, Prompt.from_ids(prompt_ids(5)), name, max_new_tokens=40, sampling=sampling)
    nodes, told, everything = trace.tables["nodes"], [], 0
    for step in range(trace.rows("steps")):
        rows = [row for row, of in enumerate(nodes["step"]) if of == step]
        for row in rows[1:]:
            parent = rows[nodes["parent"][row]]
            if nodes["status"][parent] in ("root", "accepted"):
                everything += 1
                if nodes["term:draft_rank"][row] == 0 and nodes["status"][row] != "unreached":
                    told.append((nodes["term:confidence"][row], nodes["status"][row] == "accepted"))
    signal = next(one for one in signals([trace]) if one.key == "term:confidence")
    values, right = outcomes(trace, signal)
    assert sorted(zip(values.tolist(), right.tolist(), strict=True)) == sorted(told)
    assert trace.rows("steps") - 1 <= len(told) < everything / 3, "one place, not each of its choices"
    if name == "eagle2":  # its tree has first choices beside the main chain
        rest = zip(nodes["origin"], nodes["term:draft_rank"], strict=True)
        assert any(origin == "expansion" and rank == 0 for origin, rank in rest)


@pytest.mark.usefixtures("home")
def test_what_was_drawn_says_nothing_of_q():
    """A drawn draft stands with min(1, p/q): neither q nor confidence says how often."""
    target = tiny_target("llama")
    save_tiny_part(target, "drafter")
    keys = []
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, seed=2)
        trace = record(target, Prompt.from_ids(prompt_ids(5)), "sps", max_new_tokens=30, sampling=sampling)
        keys.append({signal.key for signal in signals([trace])})
        q = Signal("draft_prob", "nodes", "", "", 0, 1, "")
        assert (len(outcomes(trace, q)[0]) > 0) == (temperature == 0)
    assert {"draft_prob", "term:confidence"} <= keys[0] and not {"draft_prob", "term:confidence"} & keys[1]


def test_what_lies_behind_a_stop_token_is_not_wrong():
    trace = made_run([(0, "accepted"), (1, "unreached"), (0, "rejected"), (3, "unreached")])
    trace.run["node_terms"] = [{"key": "path_prob", "low": 0, "high": 1}]
    nodes = trace.tables["nodes"]
    nodes["term:path_prob"] = [None, 0.9, 0.8, 0.1, 0.05]
    nodes["reason"] = ["root", "match", "after stop", "mismatch", "parent rejected"]
    (signal,) = signals([trace])
    values, right = outcomes(trace, signal)
    assert (values.tolist(), right.tolist()) == ([0.9, 0.1, 0.05], [True, False, False])


def test_a_signal_that_no_run_tells_is_refused():
    with pytest.raises(ValueError, match="no confidence was recorded"):
        signal = Signal("term:confidence", "nodes", "", "", 0, 1, "")
        pool_runs([outcomes(recordings.chain(), signal)], signal)


@pytest.mark.parametrize(("low", "high"), [("a", 1), (None, 1), ([], {}), (True, 1), (0, 2**63)])
def test_a_term_with_odd_limits_is_no_confidence(low, high):
    trace = load(GALLERY / "6-class-docstring-glide.spectrace")
    term = next(term for term in trace.run["node_terms"] if term["key"] == "confidence")
    trace.run["node_terms"] = [{**term, "low": low, "high": high}]
    assert not [signal for signal in signals([trace]) if signal.key == "term:confidence"]


def test_expected_tokens_and_forecasts():
    drawn = np.random.default_rng(0).uniform(size=(40_000, 5)) < 0.7
    assert expected_tokens(0.7, 5) == pytest.approx(np.cumprod(drawn, axis=1).sum(1).mean() + 1, abs=0.03)
    assert expected_tokens(1.0, 5) == 6 and expected_tokens(0.0, 5) == 1
    times = RowTimes.read("1:30, 4:33, 8:45")
    assert (times.at(2), times.at(10), times.relative(4)) == pytest.approx((31, 51, 1.1))
    made = forecasts(0.8, 0.1, (1, 3, 7), times.relative)
    assert [one.gamma for one in made] == [1, 3, 7]
    assert made[1].speedup == pytest.approx(expected_speedup(0.8, 0.1, 3, 1.1)) == pytest.approx(2.952 / 1.4)
    assert all(one.speedup <= one.tokens for one in made)


HUGE_ROWS = f"1:30, {10**400}:40"


@pytest.mark.parametrize(
    "text", ["", "30", "1:x", "2:30", "1:30, 1:31", "1:0", "1:30, 4:nan", "1:2:3", HUGE_ROWS, "1:1e-320, 8:1"]
)
def test_row_times_that_cannot_be_read_say_what_is_needed(text):
    with pytest.raises(ValueError, match="write (it as 1:30|rows:ms)"):
        RowTimes.read(text)
