"""PPD's trees: the numbers of the paper's formulas by hand, brute force on small cases, and what always holds."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.errors import UserError
from decoders.prompt_tokens.design import (
    assumed_acceptance,
    best_size,
    candidates,
    compare_sizes,
    design,
    design_sizes,
    naive_trees,
    prune,
    random_trees,
    sizes_up_to,
    split_trees,
    trees_for,
    wide_trees,
)
from decoders.prompt_tokens.trees import (
    FILE,
    MOST_ROWS,
    PromptTree,
    PromptTrees,
    least_size,
    load_trees,
    save_trees,
    steady_state,
    transition,
)

TABLE = ((0.6, 0.2), (0.5, 0.1))
ONE = PromptTree(((0,), (1,)), (2, 2, 1))
TWO = PromptTree(((0,), (0, 0), (1,)), (2, 2, 2, 1))
ORACLE = PromptTrees((PromptTree((), (2,)), ONE, TWO), TABLE)


@st.composite
def tables(draw, most_distances=3, most_ranks=4):
    """Acceptance tables: chances of distinct tokens per distance, the first guess at distance 1 never impossible."""
    rows = []
    for _ in range(draw(st.integers(1, most_distances))):
        weights = draw(st.lists(st.integers(0, 20), min_size=1, max_size=most_ranks))
        rows.append([w / (sum(weights) + draw(st.integers(1, 30))) for w in weights])
    rows[0][0] = max(rows[0][0], 0.01)
    scale = max(1.0, sum(rows[0]))
    rows[0] = [p / scale for p in rows[0]]
    return rows


class Linear:
    """A latency: so many milliseconds, and some more per row."""

    def __init__(self, start: float, per_row: float, largest: int = 64) -> None:
        self.start, self.per_row, self.largest = start, per_row, largest

    def ms(self, rows: int) -> float:
        assert 1 <= rows <= self.largest
        return self.start + self.per_row * rows


def test_the_oracle_of_the_candidate_tree():
    """methods.md §5: [0] .6, [0,0] .3, [1] .2; f = 1.1, τ = 2.1; stops .3/.3/.2, nothing .2."""
    assert candidates(TABLE, 3, 2) == [(0,), (0, 0), (1,)]
    assert TWO.probabilities(TABLE) == pytest.approx([0.6, 0.3, 0.2])
    assert TWO.expected_tokens(TABLE) == pytest.approx(1.1)
    assert TWO.stops(TABLE) == pytest.approx([0.2, 0.3, 0.3, 0.2])
    only = PromptTrees((PromptTree((), (2,)), ONE, PromptTree(TWO.paths, (2, 2, 2, 2))), TABLE)
    assert only.pi == pytest.approx((0, 0, 1)) and only.tokens_per_step == pytest.approx(2.1)


def test_the_oracle_of_the_steady_state():
    """f = (.8, 1.1), π = (.2, .8), R = 1.04; what is accepted nowhere goes to state m."""
    assert ORACLE.f == pytest.approx((0, 0.8, 1.1))
    assert transition(ONE, TABLE) == pytest.approx([0, 0.2, 0.8]) == transition(TWO, TABLE)
    assert ORACLE.pi == pytest.approx((0, 0.2, 0.8)) and abs(ORACLE.R - 1.04) < 1e-9
    assert ORACLE.tokens_per_step == pytest.approx(2.04) and ORACLE.size == 11 and ORACLE.m == 2


def test_the_oracle_of_the_removal():
    """ΔF is .3 · .3 on [0] and [0,0] and .2 · .3 on [1], so [1] loses the first prompt token."""
    full = PromptTree(TWO.paths, (2, 2, 2, 2))
    assert prune(full, 6, ORACLE.f, TABLE) == full
    assert prune(full, 5, ORACLE.f, TABLE) == TWO
    assert prune(full, 0, ORACLE.f, TABLE).prompts == (2, 0, 0, 0)


def test_no_prefix_closed_tree_has_a_larger_f():
    chance = random.Random(3)
    for _ in range(6):
        table = [[chance.uniform(0, 0.5) for _ in range(2)] for _ in range(3)]
        nodes = [path for depth in (1, 2, 3) for path in itertools.product(range(2), repeat=depth)]
        for count in (1, 2, 3, 4, 5):
            whole = (
                PromptTree(subset, (3,) * (count + 1))
                for subset in itertools.combinations(nodes, count)
                if all(len(path) == 1 or path[:-1] in subset for path in subset)
            )
            best = max(tree.expected_tokens(table) for tree in whole)
            greedy = PromptTree(tuple(candidates(table, count, 3)), (3,) * (count + 1))
            assert greedy.expected_tokens(table) == pytest.approx(best)


def test_the_chosen_split_is_the_best_of_all():
    table = [[0.5, 0.2, 0.1], [0.3, 0.15, 0.1], [0.2, 0.1, 0.05]]
    for size in (5, 8, 13, 21, 30):
        every = [split_trees(table, n, rows) for rows in range(5, size + 1) for n in range(1, rows - 3)]
        assert all(trees.size <= size for trees in every)
        assert abs(design(table, size, wide=True).R - max(trees.R for trees in every)) < 1e-9
        if size == 5:  # no room for a guess with a prompt token
            continue
        paper = [
            split_trees(table, n, rows, min_prompts=1) for rows in range(6, size + 1) for n in range(1, (rows - 2) // 2)
        ]
        assert all(min(tree.prompts) >= 1 for trees in paper for tree in trees.states)
        paper = [trees for trees in paper if trees.size <= size]
        assert abs(design(table, size).R - max(trees.R for trees in paper)) < 1e-9


def test_a_guess_keeps_a_prompt_token_unless_the_wider_search_is_asked_for():
    """The paper's states are 1 … m; a node without a prompt token would lead to a step without a draft."""
    table = [[0.5, 0.2, 0.1], [0.02, 0.01, 0.01], [0.01, 0.01, 0.01]]
    for size in (6, 8, 13, 21, 64):
        trees = design(table, size)
        assert all(min(tree.prompts) >= 1 for tree in trees.states) and trees.pi[0] == pytest.approx(0, abs=1e-9)
        assert trees.R <= design(table, size, wide=True).R + 1e-9
    assert min(design(table, 5).states[3].prompts) == 0
    assert wide_trees(table, 16).label == "wide"


def test_a_run_drawn_from_the_table_accepts_what_was_predicted():
    trees = design([[0.5, 0.2, 0.1], [0.4, 0.15, 0.1], [0.3, 0.1, 0.05]], 16)
    chance = random.Random(0)
    state, accepted, steps = 0, 0, 20_000
    for _ in range(steps):
        tree, node = trees.states[state], ()
        for row in trees.acceptance:
            (rank,) = chance.choices(range(len(row) + 1), [*row, 1 - sum(row)])
            if (*node, rank) not in tree.paths:
                break
            node = (*node, rank)
        accepted += len(node)
        state = tree.prompts[((), *tree.paths).index(node)]
    assert accepted / steps == pytest.approx(trees.R, rel=0.03)


def test_the_steady_state_is_that_of_many_steps_from_state_m():
    chain = np.array([[0, 0, 1], [0.1, 0.5, 0.4], [0.2, 0.3, 0.5]])
    assert steady_state(chain) == pytest.approx(np.linalg.matrix_power(chain, 200)[-1])
    apart = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])  # each state stays: a run begins in the last one
    assert steady_state(apart) == pytest.approx([0, 0, 1])
    stacked = steady_state(np.stack([chain, apart]))
    assert stacked[0] == pytest.approx(steady_state(chain)) and stacked[1] == pytest.approx([0, 0, 1])


@settings(max_examples=40, deadline=None)
@given(tables(), st.integers(1, 2))
def test_more_rows_never_cost_tokens(table, ensemble):
    least = least_size(len(table), ensemble)
    sizes = range(least, least + 14)
    designed = design_sizes(table, sizes, ensemble)
    gains = [designed[n].R for n in sizes]
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(gains))
    for n, trees in designed.items():
        assert trees.size <= n and trees.states[0].paths == () and sum(trees.pi) == pytest.approx(1)
        assert trees.R >= naive_trees(table, n, ensemble).R - 1e-9
        for k, tree in enumerate(trees.states):
            assert tree.depth <= k and list(tree.paths) == sorted(tree.paths)
            assert sum(tree.stops(table)) == pytest.approx(1)


@pytest.mark.parametrize("size", [8, 12, 16, 24, 32, 48, 64])
def test_designed_trees_beat_naive_and_random_ones(size):
    table = assumed_acceptance(3)
    designed = design(table, size)
    naive, drawn = naive_trees(table, size), [random_trees(table, size, seed=seed) for seed in range(5)]
    assert designed.R > naive.R and all(designed.R >= other.R - 1e-9 for other in drawn)
    assert max(naive.size, *(other.size for other in drawn)) <= size
    assert (naive.label, drawn[0].label) == ("naive", "random")
    hung = {prompts for tree in naive.states[1:] for prompts in tree.prompts[1:]}
    assert len(hung) == 1
    counts = [[len(tree.paths) for tree in trees.states] for trees in (designed, drawn[0])]
    assert counts[0] == counts[1]
    assert [sum(t.prompts) for t in designed.states] == [sum(t.prompts) for t in drawn[0].states]


def test_an_ensemble_takes_more_rows_per_prompt_token():
    single, triple = design(TABLE, 20), design(TABLE, 20, ensemble=3)
    assert triple.size <= 20 and triple.R < single.R
    tree = triple.states[2]
    assert tree.rows(3) == 1 + len(tree.paths) + 3 * sum(tree.prompts)


def test_ranks_that_never_held_are_not_offered():
    table = [[0.5, 0.0, 0.2], [0.0, 0.0, 0.0]]
    trees = design(table, 30)
    assert trees.states[2].paths == ((0,), (2,)) and trees.size == 7  # nothing is guessed at distance 2
    with pytest.raises(UserError, match="no guess at distance 1 was ever accepted"):
        design([[0.0], [0.4]], 12)


def test_the_best_size_weighs_tokens_against_time():
    designed = design_sizes(assumed_acceptance(3), sizes_up_to(64, 3))
    assert best_size(designed, Linear(10, 0)) == max(designed, key=lambda n: designed[n].R)
    assert best_size(designed, Linear(0, 1)) == 5
    middle = best_size(designed, Linear(10, 0.2))
    assert 5 < middle < 64
    ratio = {n: t.tokens_per_step / Linear(10, 0.2).ms(t.size) for n, t in designed.items()}
    assert ratio[middle] == max(ratio.values())
    assert best_size(designed, Linear(10, 0, largest=12)) <= 12
    with pytest.raises(UserError, match="up to 3 rows"):
        best_size(designed, Linear(10, 0, largest=3))


def test_sizes_are_compared_with_their_time():
    table = assumed_acceptance(3)
    points = compare_sizes(table, [8, 16, 24], latency=Linear(10, 0.5, largest=20))
    assert [p.size for p in points] == [8, 16, 24]
    for point in points[:2]:
        tau = design(table, point.size).tokens_per_step
        assert point.tokens_per_ms == pytest.approx(tau / (10 + point.size / 2))
        assert point.speedup == pytest.approx(tau * 10.5 / (10 + point.size / 2))
        assert point.naive < tau and point.random <= tau
    data = json.loads(json.dumps(points[2].to_json()))
    assert (data["size"], data["ms"], data["speedup"], data["tokens_per_ms"]) == (24, None, None, None)
    last = points[2].trees.states[-1]
    assert data["candidates"] == len(last.paths) and data["rows"] == 1 + data["candidates"] + data["prompts"]


def test_trees_without_a_measured_table():
    trees = trees_for(None, 3, 24)
    assert trees.m == 3 and trees.size <= 24 and trees.label == "assumed acceptance"


@pytest.mark.parametrize("size", [4, 0, -3, MOST_ROWS + 1])
def test_sizes_that_no_tree_has(size):
    with pytest.raises(UserError, match=f"tree size of {size} is not allowed.* at least 5 rows"):
        design(assumed_acceptance(3), size)


def test_the_largest_size_is_that_of_a_forward():
    from decoders.model.target_model.target import SPARE_ROWS

    assert MOST_ROWS == SPARE_ROWS


def test_files_keep_everything(tmp_path):
    path = save_trees(ORACLE, tmp_path / FILE)
    assert load_trees(path) == ORACLE
    data = json.loads(path.read_text("utf-8"))
    assert data["R"] == pytest.approx(1.04) and data["states"][2]["stop"] == pytest.approx([0.2, 0.3, 0.3, 0.2])
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def breaks(**changes):
    return json.dumps({**ORACLE.to_json(), **changes})


STATES = ORACLE.to_json()["states"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no usable tree file"),
        ("[]", "not a tree file of this version"),
        (breaks(schema="spectrees/9"), "not a tree file of this version"),
        (breaks(states=None), "damaged"),
        (breaks(states=STATES[:2]), "as many distances"),
        (breaks(states=[STATES[0], STATES[2], STATES[2]]), "guess no further"),
        (breaks(states=[*STATES[:2], {"paths": [[0, 0]], "prompts": [2, 1]}]), "after its parent"),
        (breaks(states=[*STATES[:2], {"paths": [[0], [0]], "prompts": [2, 1, 1]}]), "each candidate once"),
        (breaks(states=[*STATES[:2], {"paths": [[7]], "prompts": [2, 1]}]), "does not have"),
        (breaks(states=[*STATES[:2], {"paths": [[0]], "prompts": [2, 3]}]), "0 to 2 prompt tokens"),
        (breaks(states=[*STATES[:2], {"paths": [[0]], "prompts": [2]}]), "one number of prompt tokens"),
        (breaks(states=[*STATES[:2], {"paths": [[0]], "prompts": [1, 1]}]), "always has all 2"),
        (breaks(states=[*STATES[:2], {"paths": [["0"]], "prompts": [2, 1]}]), "not a whole number"),
        (breaks(acceptance=[[0.6, 0.6], [0.1]]), "add up to 1.200"),
        (breaks(acceptance=[[float("nan"), 0.6], [0.1, 0.1]]), "is not allowed"),
        (breaks(ensemble=0), "at least one row"),
    ],
)
def test_malformed_files_are_refused_in_one_sentence(tmp_path, text, says):
    path = tmp_path / FILE
    path.write_text(text, "utf-8")
    with pytest.raises(UserError, match=says) as refusal:
        load_trees(path)
    assert "\n" not in str(refusal.value) and str(path) in str(refusal.value)


def test_files_that_are_missing_too_large_or_too_small(tmp_path):
    with pytest.raises(UserError, match="specviz tree design"):
        load_trees(tmp_path / "none.json")
    path = save_trees(ORACLE, tmp_path / FILE)
    with pytest.raises(UserError, match="take 11 rows; at most 10"):
        load_trees(path, max_rows=10)
    save_trees(PromptTrees(tuple(PromptTree((), (2,)) for _ in range(3)), TABLE), path)
    with pytest.raises(UserError, match="take 3 rows; with a candidate they take at least 4"):
        load_trees(path)
    path.write_bytes(b" " * (5 << 20))
    with pytest.raises(UserError, match="no tree file is larger"):
        load_trees(path)


def test_the_table_of_the_training_serves_until_trees_are_designed(tmp_path):
    def log(*rows):
        lines = [{"step": n, **({"ranks": row} if row else {})} for n, row in enumerate(rows)]
        (tmp_path / "part.json").write_text(json.dumps({"training": {"log": lines}}), "utf-8")

    log(((0.1,), (0.1,)), TABLE, None)
    trees = trees_for(tmp_path, 2, 9)
    assert trees.label == "acceptance in training" and trees.acceptance == TABLE
    assert trees.states == design(TABLE, 9).states and trees_for(tmp_path, 1).acceptance == TABLE[:1]
    for nothing in ((), (None,), (((0.7, 0.7),),), (TABLE[:1],), (((0.0,), (0.1,)),)):
        log(*nothing)
        assert trees_for(tmp_path, 2, 9).label == "assumed acceptance"
    log(TABLE)
    save_trees(design(((0.5,), (0.2,)), 9), tmp_path / FILE)
    assert trees_for(tmp_path, 2, 9).acceptance == ((0.5,), (0.2,)), "what was measured in answers goes before"


def test_what_a_run_uses(tmp_path):
    """Kept trees as they are; another size, m, ensemble or machine from the kept table; else the assumed one."""
    assert trees_for(None, 3) == trees_for(tmp_path, 3)
    assert trees_for(tmp_path, 3, 12).size == 12
    kept = design(TABLE, 9)
    save_trees(kept, tmp_path / FILE)
    assert trees_for(tmp_path, 2) == kept == trees_for(tmp_path, 2, kept.size)
    assert trees_for(tmp_path, 2, 20) == design(TABLE, 20)
    assert trees_for(tmp_path, 1).acceptance == TABLE[:1]
    assert trees_for(tmp_path, 2, ensemble=2).size <= 9
    assert trees_for(tmp_path, 2, latency=Linear(0, 1)).size == least_size(2)
    assert trees_for(tmp_path, 2, latency=Linear(1, 0)).size > kept.size
    assert trees_for(tmp_path, 2, latency=Linear(1, 0, largest=2)) == kept
    with pytest.raises(UserError, match="designed for 2 prompt tokens, not 3"):
        trees_for(tmp_path, 3)
