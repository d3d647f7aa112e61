"""Metrics against numbers worked out by hand, and the vectorised parts against the obvious loops."""

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.folders import ASSETS
from decoders.trace import files as tracefile
from decoders.trace.baseline import baseline
from decoders.trace.metrics import (
    METRICS,
    acceptance_by_depth,
    compute,
    confidence_bins,
    fill_would_accept,
    metric_help,
    ranking_regret,
    target_ranks,
)
from decoders.trace.trace import Trace


def trace_of(prompt_length: int = 1, **tables: dict[str, list[Any]]) -> Trace:
    """A trace with only the columns that a test is about."""
    trace = Trace.new({"prompt_length": prompt_length, "timings": {}})
    for table, columns in tables.items():
        trace.tables[table].update(columns)
    candidates = trace.tables["candidates"]
    rows = len(candidates["would_accept"] or candidates["position"])
    candidates["pool"] = candidates["pool"] or [-1] * rows
    candidates["length"] = candidates["length"] or [1] * rows
    return trace


def test_the_worked_example():
    """Accepted drafts [2, 0, 1] give 2.0 tokens per step (methods.md, CASD); 6 output tokens, 3 of them copied."""
    trace = trace_of(
        2,
        steps={
            "accepted": [2, 0, 1], "drafted": [4, 0, 2], "draft_ms": [1.0, 0.5, 0.5], "verify_ms": [10.0, 8.0, 12.0],
            "decide_ms": [0.5, 0.25, 0.75],
            "elapsed_ms": [15.0, 25.0, 40.0],
        },
        tokens={
            "id": [5, 6, 7, 8, 9, 1, 2, 3], "source": [-1, -1, 0, 1, -1, -1, 0, -1],
            "rank": [-1, -1, 0, 0, 0, 3, 0, 1], "pool": [-1] * 8,
        },
    )  # fmt: skip
    trace.run["timings"] = {"prefill_ms": 12.5}
    assert compute(trace, plain_tokens_per_s=75.0) == {
        "tokens": 6,
        "steps": 3,
        "drafted": 6,
        "accepted": 3,
        "tokens_per_step": 2.0,
        "tokens_per_s": 150.0,
        "speedup": 2.0,
        "prefill_ms": 12.5,
        "prepare_ms": None,
        "kv_mb": None,
        "draft_mb": None,
        "draft_ms": 2.0 / 3,
        "verify_ms": 10.0,
        "decide_ms": 0.5,
        "draft_share": 2.0 / 30.0,
        "beta": None,
        "draft_cost": None,
        "draft_efficiency": 0.5,
        "depth_efficiency": None,  # no depth was given
        "copied_share": 0.5,
        "no_draft_steps": 1,
        "ranking_regret": None,
        "ranking_cost": None,
        "differs": 2,
        "other_share": None,
        "divergence": None,
        "quality_f1": None,
        "quality_rouge_l": None,
        "quality_edit": None,
        "candidate_recall": None,
        "selector_accuracy": None,
        "oracle_length": None,
    }
    trace.run["timings"]["decode_ms"] = 60.0
    assert compute(trace)["tokens_per_s"] == 100.0
    assert compute(trace)["speedup"] is None


def test_nothing_decoded_yet():
    values = compute(trace_of())
    assert [values[key] for key in ("tokens", "steps", "drafted", "accepted", "no_draft_steps")] == [0] * 5
    undefined = ("tokens_per_step", "tokens_per_s", "speedup", "draft_share", "draft_efficiency", "copied_share")
    assert all(values[key] is None for key in (*undefined, "ranking_regret"))
    assert acceptance_by_depth(trace_of()) == []
    fill_would_accept(trace_of())


def test_plain_decoding_has_one_token_per_step():
    trace = trace_of(steps={"accepted": [0, 0], "drafted": [0, 0], "draft_ms": [None, None], "verify_ms": [1.0, None]})
    values = compute(trace)
    assert values["tokens_per_step"] == 1.0 and values["no_draft_steps"] == 2
    assert values["draft_efficiency"] is None and values["draft_share"] is None


def test_every_metric_is_described_and_computed(trace: Trace):
    values = compute(trace)
    assert list(values) == [metric.key for metric in METRICS] == [row["key"] for row in metric_help()]
    assert all(value is None or type(value) in (int, float) for value in values.values())
    for metric in METRICS:
        assert metric.label and metric.formula and metric.help
        assert metric.unit in {"tokens", "steps", "tokens/step", "tokens/s", "ms", "share", "×", "MB"}


def test_formulas_hold_on_honest_traces(trace: Trace):
    values, steps = compute(trace), trace.tables["steps"]
    assert values["tokens"] == sum(steps["emitted"]) == len(trace.output_ids)
    assert values["tokens_per_step"] == pytest.approx(sum(a + 1 for a in steps["accepted"]) / trace.rows("steps"))
    sources = trace.tables["tokens"]["source"][trace.run["prompt_length"] :]
    assert values["copied_share"] == pytest.approx(sum(s >= 0 for s in sources) / len(sources))
    assert values["no_draft_steps"] == steps["outcome"].count("plain")


# --- acceptance by depth ----------------------------------------------------------------------------------------------


def test_siblings_count_once_per_visited_parent():
    nodes = {
        # step 0: two children, the second accepted; below it two rejected; below the rejected one an unreached child
        # step 1: one rejected child; step 2: no draft; step 3: a chain of two, both accepted
        "step": [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3],
        "parent": [-1, 0, 1, 0, 3, 3, -1, 0, -1, -1, 0, 1],
        "depth": [0, 1, 2, 1, 2, 2, 0, 1, 0, 0, 1, 2],
        "status": [
            "root", "rejected", "unreached", "accepted", "rejected", "rejected", "root", "rejected", "root", "root",
            "accepted", "accepted",
        ],
    }  # fmt: skip
    assert acceptance_by_depth(trace_of(nodes=nodes)) == [(1, 3, 2), (2, 2, 1)]


def test_acceptance_by_depth_against_the_obvious_loop(trace: Trace):
    nodes, reached, accepted = trace.tables["nodes"], Counter(), Counter()
    starts: dict[int, int] = {}
    visited: set[tuple[int, int]] = set()
    for row, step in enumerate(nodes["step"]):
        start = starts.setdefault(step, row)
        if nodes["parent"][row] < 0:
            continue
        above, depth = start + nodes["parent"][row], nodes["depth"][row]
        decided = nodes["status"][row] != "unreached"  # nothing is, behind a stop token
        if decided and nodes["status"][above] in ("root", "accepted") and (step, above) not in visited:
            visited.add((step, above))
            reached[depth] += 1
        accepted[depth] += nodes["status"][row] == "accepted"
    assert acceptance_by_depth(trace) == [(depth, reached[depth], accepted[depth]) for depth in sorted(reached)]
    assert sum(accepted.values()) == sum(trace.tables["steps"]["accepted"])


# --- what would have been ---------------------------------------------------------------------------------------------


def obvious(ids: list[int], context: int, position: int, length: int) -> int:
    if context >= len(ids):
        return -1
    right = 0
    while right < length and context + right < len(ids) and ids[position + 1 + right] == ids[context + right]:
        right += 1
    return right


def test_would_accept_by_hand():
    # prompt 1 2 3 1, output 2 3 9: after step 0 (context 4) comes 2 3 9, after step 1 (context 6) comes 9
    trace = trace_of(
        4,
        tokens={"id": [1, 2, 3, 1, 2, 3, 9]},
        steps={"context": [4, 6]},
        candidates={
            "step": [0, 0, 0, 1, 1],
            "position": [0, 0, 1, 2, 1],
            "length": [3, 1, 2, 3, 0],
            "chosen": [False, True, False, True, False],
            "would_accept": [-1] * 5,
        },
    )
    fill_would_accept(trace)
    assert trace.tables["candidates"]["would_accept"] == [2, 1, 0, 0, 0]
    assert ranking_regret(trace) == 0.5  # step 0: best 2, chosen 1; step 1: best 0, chosen 0


def test_would_accept_where_nothing_followed():
    trace = trace_of(
        3,
        tokens={"id": [7, 7, 7]},
        steps={"context": [3]},
        candidates={
            "step": [0, 0], "position": [0, 1], "length": [2, 1], "chosen": [True, False], "would_accept": [5, 5],
        },
    )  # fmt: skip
    fill_would_accept(trace)
    assert trace.tables["candidates"]["would_accept"] == [-1, -1]
    assert ranking_regret(trace) is None


def test_would_accept_on_honest_traces(trace: Trace):
    expected = copy.copy(trace.tables["candidates"]["would_accept"])
    trace.tables["candidates"]["would_accept"] = [-1] * len(expected)
    assert ranking_regret(trace) is None
    fill_would_accept(trace)
    assert trace.tables["candidates"]["would_accept"] == expected
    chain = [r for r in range(len(expected)) if trace.tables["candidates"]["chosen"][r]]
    accepted = [trace.tables["steps"]["accepted"][trace.tables["candidates"]["step"][r]] for r in chain]
    if trace.run["method"]["name"] == "pld+h":
        # a chain stands as far as it is right, but for the stop token, which is drafted by nobody
        assert [min(expected[r], a) for r, a in zip(chain, accepted, strict=True)] == accepted


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_would_accept_against_the_obvious_loop(data: st.DataObject):
    ids = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=30))
    contexts = sorted(data.draw(st.lists(st.integers(1, len(ids)), min_size=1, max_size=4)))
    rows = []
    for step, context in enumerate(contexts):
        for _ in range(data.draw(st.integers(0, 4))):
            position = data.draw(st.integers(0, context - 1))
            rows.append((step, position, data.draw(st.integers(0, context - 1 - position))))
    step, position, length = ([row[i] for row in rows] for i in range(3))
    trace = trace_of(
        tokens={"id": ids},
        steps={"context": contexts},
        candidates={"step": step, "position": position, "length": length, "would_accept": [-1] * len(rows)},
    )
    fill_would_accept(trace)
    expected = [obvious(ids, contexts[s], p, n) for s, p, n in rows]
    assert trace.tables["candidates"]["would_accept"] == expected
    assert all(type(value) is int for value in trace.tables["candidates"]["would_accept"])


def test_regret_counts_only_steps_with_a_chosen_candidate():
    columns = {
        "step": [0, 0, 2, 2, 3, 3],
        "would_accept": [4, 1, 3, 9, 2, 2],
        "chosen": [False, True, False, False, True, False],
    }
    assert ranking_regret(trace_of(candidates=columns)) == 1.5  # step 0: 4 − 1, step 3: 2 − 2; step 2 chose none
    assert ranking_regret(trace_of(candidates={**columns, "chosen": [False] * 6})) is None


CHAIN = {
    "step": [0] * 5 + [1] * 2,
    "parent": [-1, 0, 1, 2, 1, -1, 0],
    "term:overlap": [None, 0.9, 0.5, 0.1, 0.5, None, 0.3],
    "status": ["root", "accepted", "rejected", "unreached", "rejected", "root", "accepted"],
    "origin": ["root", "drafter", "drafter", "drafter", "expansion", "root", "drafter"],
}
# a step whose second guess stood and whose next three did not: two positions, not five nodes nor a chain's one
TREE = {
    "step": [0] * 7 + [1] * 2,
    "parent": [-1, 0, 0, 1, 2, 2, 2, -1, 0],
    "term:overlap": [None, 0.9, 0.9, 0.2, 0.5, 0.5, 0.5, None, 0.1],
    "status": ["root", "rejected", "accepted", "unreached", *["rejected"] * 3, "root", "rejected"],
    "origin": ["root", "drafter", "expansion", "drafter", *["expansion"] * 3, "root", "head"],
}


@pytest.mark.parametrize(("nodes", "beta"), [(CHAIN, (0.9 + 0.5 + 0.3) / 3), (TREE, (0.9 + 0.5 + 0.1) / 3), ({}, None)])
def test_acceptance_counts_every_position_up_to_the_first_rejection(nodes, beta):
    assert compute(trace_of(nodes=nodes))["beta"] == (beta if beta is None else pytest.approx(beta))


def test_the_cost_of_a_draft_forward_is_in_forwards_of_the_target():
    steps = {
        "term:forward_ms": [6.0, None, 2.0], "depth": [3, 0, 1], "verify_ms": [9.0, 50.0, 11.0],
        "route": ["chain", "none", "chain"],
    }  # fmt: skip
    trace = trace_of(steps=steps)
    assert compute(trace)["draft_cost"] is None, "a verify forward has many rows and is no measure"
    trace.run.setdefault("timings", {})["one_row_ms"] = 8.0
    assert compute(trace)["draft_cost"] == pytest.approx((8 / 4) / 8), "a forward per token of a chain"
    assert compute(trace_of())["draft_cost"] is None
    trace.tables["steps"]["term:draft_forwards"] = [5.0, None, 3.0]
    assert compute(trace)["draft_cost"] == pytest.approx((8 / 8) / 8), "of a tree that was cut, those that ran"
    trace.tables["steps"]["term:draft_forwards"] = [None, None, None]
    trace.tables["steps"]["route"] = ["dynamic tree", "none", "dynamic tree"]
    assert compute(trace)["draft_cost"] is None, "of an old run, how many ran is not known"


LIKE = {
    "prompt_length": 2, "model": {"name": "a", "key": "k", "parameters": 5, "dtype": "float32", "device": "cpu"},
    "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0},
    "machine": {"processor": "x", "engine": "eager", "threads": 1}, "timings": {"decode_ms": 100.0},
}  # fmt: skip


def like(tokens: tuple[int, ...] = (5, 6, 7, 8), **other: Any) -> Trace:
    trace = Trace.new(copy.deepcopy(LIKE))
    for name, value in other.items():
        trace.run[name] = {**trace.run[name], **value} if isinstance(value, dict) else value
    trace.extend({"tokens": {"id": list(tokens), "source": [-1] * 4, "pool": [-1] * 4, "rank": [0] * 4}})
    return trace


def test_a_speedup_is_formed_of_runs_that_are_alike_in_all_but_the_method():
    assert baseline(like(), like()).tokens_per_s == 20.0
    drawn = {"temperature": 1.0, "seed": 3}
    assert baseline(like(sampling=drawn), like(sampling=drawn)).tokens_per_s == 20.0
    assert baseline(like(sampling={"seed": 1}), like()).tokens_per_s == 20.0, "greedy runs draw nothing"
    for reason, run, plain in (
        ("another prompt", like(), like((5, 9, 7, 8))),
        ("model differs", like(), like(model={"name": "b"})),
        ("fingerprint differs", like(), like(model={"key": "l"})),
        ("dtype differs", like(), like(model={"dtype": "bfloat16"})),
        ("weights differs (int8, and full", like(model={"weights": "int8"}), like()),
        ("rows differs (int8, and full", like(model={"activations": "int8"}), like()),
        ("device differs", like(), like(model={"device": "cuda"})),
        ("device differs (x, and y", like(), like(machine={"processor": "y"})),
        ("engine differs (auto, and eager", like(machine={"engine": "auto"}), like()),
        ("number of threads differs", like(), like(machine={"threads": 2})),
        ("sampling differs", like(sampling=drawn), like()),
        ("sampling differs", like(sampling=drawn), like(sampling={**drawn, "seed": 4})),
        ("not recorded, as in runs of earlier versions", like(), like(machine={"threads": None})),
        ("another prompt", like(given_prompt="of more tokens"), like()),
        ("plain decoding was not run", like(), None),
    ):
        found = baseline(run, plain)
        assert found.tokens_per_s is None and reason in found.why, (reason, found)


def test_what_a_run_recorded_of_plain_decoding_counts_where_tokens_were_chosen_alike():
    own = {"plain_tokens_per_s": 8.0}
    assert baseline(like(timings=own)).tokens_per_s == baseline(like(timings=own), like((1, 2, 3, 4))).tokens_per_s == 8
    earlier = like(timings=own, sampling={"temperature": 0.7})
    assert baseline(earlier).tokens_per_s is None and "was greedy" in baseline(earlier).why
    earlier.run["plain_sampling"] = earlier.run["sampling"]
    assert baseline(earlier).tokens_per_s == 8


def draft_trace() -> Trace:
    """Two steps of a chain of two with an expansion beside each token: the first is accepted and its expansion replaces
    the second; then nothing is accepted.
    """
    return trace_of(
        steps={"bonus": [7, 9]},
        nodes={
            "step": [0, 0, 0, 0, 0, 1, 1, 1], "token": [1, 4, 5, 40, 50, 7, 6, 60],
            "parent": [-1, 0, 1, 0, 1, -1, 0, 0], "depth": [0, 1, 2, 1, 2, 0, 1, 1],
            "origin": ["root", "drafter", "drafter", "expansion", "expansion", "root", "drafter", "expansion"],
            "status": ["root", "accepted", "rejected", "rejected", "accepted", "root", "rejected", "rejected"],
            "term:confidence": [None, 1.0, 0.35, 1.0, 0.35, None, 0.31, 0.31],
        },
        guesses={
            "step": [0, 0, 0, 0, 1, 1, 1], "node": [0, 0, 1, 1, 0, 0, 0], "token": [4, 40, 5, 50, 6, 60, 9],
            "rank": [0, 1, 0, 1, 0, 1, 5],
        },
    )  # fmt: skip


def test_acceptance_by_tenth_of_confidence():
    """Of three chain tokens whose parent stood, one at 100 % was accepted, two in the thirties were not."""
    trace = draft_trace()
    assert confidence_bins(trace) == [(3, 2, 0), (9, 1, 1)]
    del trace.tables["nodes"]["term:confidence"]
    assert confidence_bins(trace) == []


def test_first_choices_count_wherever_they_hang():
    """Behind the expansion that stood, the drafter's first choice counts, too; the other choices never."""
    trace = draft_trace()
    trace.tables["nodes"]["term:draft_rank"] = [None, 1, 0, 0, 1, None, 1, 0]
    assert confidence_bins(trace) == [(3, 2, 0), (9, 1, 0)]
    trace.tables["steps"]["route"] = ["drawn", "drawn"]
    assert confidence_bins(trace) == [(3, 4, 1), (9, 2, 1)]


def test_ranks_of_what_the_target_wrote():
    """Rank 0, then 1 (the expansion) at depths 1 and 2 of the first step, 5 (the bonus) at depth 1 of the second."""
    assert target_ranks(draft_trace()) == {(1, 0): 1, (2, 1): 1, (1, 5): 1}
    assert target_ranks(trace_of()) == {}


@pytest.mark.parametrize("path", sorted(ASSETS.glob("*/*.spectrace")), ids=lambda path: path.stem)
def test_what_comes_along_stores_its_metrics_as_they_are_defined(path: Path) -> None:
    trace = tracefile.load(path)
    stored, computed = trace.run["metrics"], compute(trace, baseline(trace).tokens_per_s)
    wrong = {key: (value, computed[key]) for key, value in stored.items() if value != pytest.approx(computed[key])}
    assert not wrong, "the run's own record is from before the definition: store it anew"
