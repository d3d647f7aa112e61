"""AdaPLD: the oracles of methods.md §3 on contexts made by hand, and what real runs owe."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from decoders import Prompt, generate, record
from decoders.draft.draft import Draft
from decoders.drafters import find_method
from decoders.drafters.adapld import RECORDED, AdaPldDrafter, AdaPldParams, UnitEmbeddings
from decoders.engine.decoding import Decoding
from decoders.model.target_model.target import SPARE_ROWS
from decoders.trace.metrics import outcomes, routes, step_term_shares

from .models import prompt_ids, tiny_target
from .tiers import matrix

NEW = 40


class HandContext:
    """Tokens, hidden states and stored top tokens given by hand; positions count from 0."""

    def __init__(self, tokens, hidden=None, top=None, *, memory=None):
        processed = len(tokens) - 1
        self.tokens = np.asarray(tokens, dtype=np.int64)
        self.root, self.root_position = int(tokens[-1]), processed
        if memory is None:
            hidden = [[1.0, 0.0]] * processed if hidden is None else hidden
            width = max((len(row) for row in (top or {}).values()), default=1)
            ids = torch.full((processed, width), 900)
            for position, row in (top or {}).items():
                ids[position] = torch.as_tensor(row)
            memory = SimpleNamespace(
                hidden=torch.as_tensor(hidden, dtype=torch.float32),
                top_ids=ids,
                top_logprobs=torch.log(0.5 ** torch.arange(1, width + 1)).expand(processed, width),
            )
        self.memory: Any = memory

    def cut(self, length):
        return HandContext(self.tokens[:length].tolist(), memory=self.memory)

    @property
    def hidden(self):
        return self.memory.hidden[: self.root_position]

    @property
    def top_ids(self):
        return self.memory.top_ids[: self.root_position]

    @property
    def top_logprobs(self):
        return self.memory.top_logprobs[: self.root_position]


def hand_target(embeddings=None, vocab=1000) -> Any:
    """A target that is its embedding table; tokens without a row of their own are at right angles to all others."""
    table = torch.zeros(vocab, vocab + 2)
    table[:, 2:] = torch.eye(vocab)
    for token, row in (embeddings or {}).items():
        table[token] = 0
        table[token, : len(row)] = torch.as_tensor(row, dtype=torch.float32)
    return SimpleNamespace(embeddings=SimpleNamespace(weight=table))


def drafter(embeddings=None, **params):
    params = AdaPldParams(**params)
    return AdaPldDrafter(params, UnitEmbeddings(hand_target(embeddings), params.center_embeddings))


def tree(draft):
    """(token, depth, origin) of the drafted nodes, in order."""
    t = draft.tree
    return list(zip(t.tokens[1:], t.depths[1:], draft.origins[1:], strict=True))


X = [5, 7, 9, 5, 8, 5]  # methods.md counts from 1: candidates 1 and 4
HIDDEN = [[1, 0], [9, 9], [0, 1], [3, 3], [0, 2]]  # candidate 4 wins, as in PLD+'s oracle


# --- construction -----------------------------------------------------------------------------------------------------


def test_main_copy_and_branches_of_the_anchor():
    draft = drafter(k=3).propose(HandContext(X, HIDDEN, {3: [8, 2, 3]}), 100)
    assert tree(draft) == [(8, 1, "main"), (5, 2, "main"), (2, 1, "branch"), (3, 1, "branch")]
    assert len(draft.tree) == 5 and draft.tree.depths == (0, 1, 2, 1, 1)
    assert draft.sources == (-1, 4, 5, -1, -1) and draft.route == "lexical" and draft.reason == ""
    assert draft.terms["branch_rank"][3:].tolist() == [1, 2] and draft.terms["branch_anchor"][3:].tolist() == [3, 3]
    assert np.isnan(draft.terms["branch_rank"][:3]).all()
    np.testing.assert_allclose(draft.terms["branch_logprob"][3:], np.log([0.25, 0.125]), rtol=1e-6)
    assert draft.probabilities is not None
    np.testing.assert_allclose(draft.probabilities, [1, math.nan, math.nan, 0.25, 0.125], rtol=1e-6)


def test_branches_are_not_refilled():
    draft = drafter(k=3).propose(HandContext(X, HIDDEN, {3: [2, 3, 4]}), 100)
    assert draft.tree.children()[0].keys() == {8, 2, 3, 4} and draft.tree.drafted == 5
    wider = drafter(k=3).propose(HandContext(X, HIDDEN, {3: [8, 2, 3, 4]}), 100)
    assert wider.tree.children()[0].keys() == {8, 2, 3}


def test_candidates_and_their_offers():
    c = drafter(k=1, copy_length=3).propose(HandContext(X, HIDDEN, {3: [2]}), 100).candidates
    assert c.position.tolist() == [0, 3] and c.chosen == 1
    np.testing.assert_allclose(c.score, [-1, 1], atol=1e-6)  # nothing stands before position 0
    np.testing.assert_array_equal(c.terms["cosine"], c.score)
    assert np.isnan(c.terms["embedding"]).all()
    assert c.length.tolist() == [3, 2]


def test_copy_length_and_budget():
    tokens = [1, 5, *range(10, 60), 1, 5]
    top = {1: [10, 70]}
    assert drafter(k=2).propose(HandContext(tokens, top=top), 100).tree.depths[-2:] == (30, 1)
    assert max(drafter(k=2, copy_length=7).propose(HandContext(tokens, top=top), 100).tree.depths) == 7
    assert tree(drafter(k=2).propose(HandContext(tokens, top=top), 1)) == [(10, 1, "main"), (70, 1, "branch")]


def test_ties_go_to_the_earliest():
    draft = drafter(branches=False, copy_length=1).propose(HandContext([1, 5, 7, 1, 5, 8, 1, 5]), 100)
    assert draft.tree.tokens == (5, 7) and draft.candidates.chosen == 0


# --- semantic fallback ------------------------------------------------------------------------------------------------

QUERY = 50  # its embedding is (1, 0)
LIKE = {QUERY: [1, 0], 51: [0.05, math.sqrt(1 - 0.05**2)], 52: [0.2, math.sqrt(1 - 0.2**2)], 53: [0.1, math.sqrt(0.99)]}


def test_tau_keeps_exactly_tau():
    context = HandContext([51, 52, 53, 54, QUERY], top={1: [7], 2: [7]})
    draft = drafter(LIKE, k=1).propose(context, 100)
    assert draft.route == "semantic" and draft.candidates.position.tolist() == [1, 2]
    assert draft.candidates.terms["embedding"].tolist() == [0.2, 0.1] and draft.candidates.length.tolist() == [0, 0]
    assert draft.notes["semantic_seen"] == 4 and draft.notes["semantic_passed"] == 2
    stricter = drafter(LIKE, k=1, tau=0.15).propose(context, 100)
    assert stricter.candidates.position.tolist() == [1]


@pytest.mark.parametrize("numerator", range(1, 100, 7))
def test_exactly_tau_survives_rounding(numerator):
    tau = numerator / 100
    like = {QUERY: [3.7, 0], 51: [tau * 2.3, math.sqrt(1 - tau**2) * 2.3]}
    assert drafter(like, k=1, tau=tau).propose(HandContext([51, QUERY], top={0: [7]}), 9).route == "semantic"


def test_semantic_branches_and_successors():
    """K=2: b1 was seen before 44, b2 nowhere: b1→44 and b2, four nodes with the root."""
    context = HandContext([60, 44, 52, QUERY], top={2: [60, 61]})
    draft = drafter(LIKE, k=2).propose(context, 100)
    assert tree(draft) == [(60, 1, "branch"), (44, 2, "successor"), (61, 1, "branch")] and len(draft.tree) == 4
    assert draft.sources == (-1, -1, 1, -1)
    assert draft.terms["successor_cosine"][2] == -1  # nothing stands before position 0
    assert np.isnan(draft.terms["successor_embedding"]).all()  # it holds the branch's own token
    assert draft.terms["branch_rank"].tolist()[1::2] == [0, 1]


def test_semantic_branches_are_the_full_top_k():
    context = HandContext([1, 52, 70, QUERY], top={1: [70, 3, 4]})
    draft = drafter(LIKE, k=3, successors=False).propose(context, 100)
    assert tree(draft) == [(70, 1, "branch"), (3, 1, "branch"), (4, 1, "branch")]


@pytest.mark.parametrize("branch", [63, 64])
def test_successors_are_reranked_against_the_anchor(branch):
    """63 stands at 1 and 4, 64 nowhere but is like it. What is before 1 is like what is before the root, what is before
    4 is like the anchor (6): 4 wins.
    """
    like = {QUERY: [1, 0, 0], 52: [0.2, math.sqrt(0.96), 0], 63: [0, 0, 1], 64: [0, 0.05, math.sqrt(1 - 0.05**2)]}
    tokens = [9, 63, 31, 8, 63, 32, 52, 7, QUERY]
    hidden = [[0, 1], [3, 3], [3, 3], [1, 0.1], [3, 3], [1, -1], [1, 0], [0, 1]]
    draft = drafter(like, k=1).propose(HandContext(tokens, hidden, {6: [branch]}), 100)
    assert draft.route == "semantic" and draft.candidates.position.tolist() == [6]
    assert tree(draft) == [(branch, 1, "branch"), (32, 2, "successor")] and draft.sources[2] == 5
    assert draft.terms["successor_cosine"][2] == pytest.approx(1 / np.hypot(1, 0.1), abs=2e-6)
    alike = draft.terms["successor_embedding"][2]
    assert math.isnan(alike) if branch == 63 else alike == pytest.approx(math.sqrt(1 - 0.05**2), abs=2e-6)


def test_the_last_copied_token_may_be_the_root_itself():
    draft = drafter(LIKE, k=1).propose(HandContext([1, 2, 52, QUERY], top={2: [52]}), 100)
    assert tree(draft) == [(52, 1, "branch"), (QUERY, 2, "successor")] and draft.sources[2] == 3


def test_the_root_has_no_following_token():
    """The branch is the root's own token, which stands nowhere else, and nothing is alike but 52 at 2."""
    draft = drafter(LIKE, k=1).propose(HandContext([1, 2, 52, 3, QUERY], top={2: [QUERY]}), 100)
    assert tree(draft) == [(QUERY, 1, "branch"), (3, 2, "successor")]
    assert draft.terms["successor_embedding"][2] == pytest.approx(0.2)


def test_a_budget_of_one_leaves_no_room_for_successors():
    draft = drafter(LIKE, k=2).propose(HandContext([60, 44, 52, QUERY], top={2: [60, 61]}), 1)
    assert tree(draft) == [(60, 1, "branch"), (61, 1, "branch")] and "successors_ms" not in draft.notes


def test_nothing_found_says_why():
    draft = drafter().propose(HandContext([1, 2, 3]), 100)
    assert draft.tree.drafted == 0 and draft.route == "none" and draft.candidates is None
    assert draft.reason == "the last token occurs nowhere before, and no earlier token is as alike as τ = 0.1"
    assert draft.notes["semantic_seen"] == 2 and draft.notes["semantic_passed"] == 0
    alone = drafter().propose(HandContext([3]), 100)
    assert alone.route == "none" and alone.reason


def test_many_candidates_are_all_ranked_but_the_best_recorded():
    count = 3 * RECORDED
    hidden = torch.randn(count, 8, generator=torch.Generator().manual_seed(0)).numpy()
    hidden[: 2 * RECORDED] = hidden[0]  # two thirds are tied, across the border of what is recorded
    tokens = [52] * count + [QUERY]
    draft = drafter(LIKE, k=1).propose(HandContext(tokens, hidden, {p: [7] for p in range(count)}), 100)
    c = draft.candidates
    states = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    cosines = np.concatenate([[-1.0], (states @ states[-1])[:-1]]).round(5)
    expected = np.sort(np.argsort(-cosines, kind="stable")[:RECORDED])
    assert 0 < (expected <= 2 * RECORDED).sum() < 2 * RECORDED
    assert c.position.tolist() == expected.tolist() and len(c) == RECORDED
    assert c.position[c.chosen] == cosines.argmax() and c.score[c.chosen] == c.score.max()
    assert draft.notes["semantic_passed"] == count


# --- options and ablations --------------------------------------------------------------------------------------------


def test_ablations():
    lexical = HandContext([8, 3, *X], [[1, 0], [1, 1], *HIDDEN], {5: [8, 2, 3]})
    semantic = HandContext([60, 44, 52, QUERY], top={2: [60, 61]})
    origins = lambda context, **p: set(drafter(LIKE, k=2, **p).propose(context, 100).origins)  # noqa: E731
    assert origins(lexical) == {"root", "main", "branch"}
    assert origins(lexical, branches=False) == {"root", "main"}
    assert origins(lexical, semantic=False) == origins(lexical, successors=False) == {"root", "main", "branch"}
    assert origins(semantic) == {"root", "branch", "successor"}
    assert origins(semantic, successors=False) == {"root", "branch"}
    off = drafter(LIKE, semantic=False).propose(semantic, 100)
    assert off.route == "none" and off.reason == "the last token occurs nowhere before"
    assert "semantic_seen" not in off.notes
    bare = drafter(LIKE, branches=False).propose(semantic, 100)
    assert bare.tree.drafted == 0 and bare.route == "semantic" and bare.reason.endswith("they are off")


def test_successors_on_lexical_branches():
    context = HandContext([2, 6, *X], [[1, 0], [1, 1], *HIDDEN], {5: [8, 2, 3]})
    draft = drafter(k=3, successor_on_lexical=True).propose(context, 100)
    assert tree(draft) == [
        (8, 1, "main"),
        (5, 2, "main"),
        (2, 1, "branch"),
        (6, 2, "successor"),
        (3, 1, "branch"),
    ]
    assert draft.sources[4] == 1 and "successors_ms" in draft.notes
    assert "successors_ms" not in drafter(k=3).propose(context, 100).notes
    assert tree(drafter(k=3, successor_on_lexical=True, successors=False).propose(context, 100)) == tree(
        drafter(k=3).propose(context, 100)
    )


def test_lexical_only_successors_stay_lexical():
    tokens = [53, 31, 5, 8, 5]
    top = {2: [8, 52]}
    both = drafter(LIKE, k=2, successor_on_lexical=True).propose(HandContext(tokens, top=top), 100)
    assert (31, 2, "successor") in tree(both)  # 53 is like the branch 52
    only = drafter(LIKE, k=2, successor_on_lexical=True, semantic=False).propose(HandContext(tokens, top=top), 100)
    assert "successor" not in only.origins


def test_centering_takes_off_what_all_tokens_share():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(400, 16, generator=generator) + 5
    target: Any = SimpleNamespace(embeddings=SimpleNamespace(weight=table))
    tokens = [3, 9, 3, 200]
    both = (UnitEmbeddings(target, center) for center in (False, True))
    plain, centred = ((unit.rows(tokens) @ unit.rows([7])[0]).numpy().astype(np.float64).round(6) for unit in both)
    rows, query, mean = table[tokens].double(), table[7].double(), table.double().mean(0)
    expected = torch.cosine_similarity(rows, query[None]).numpy()
    np.testing.assert_allclose(plain, expected, atol=2e-6)
    np.testing.assert_allclose(centred, torch.cosine_similarity(rows - mean, (query - mean)[None]).numpy(), atol=2e-6)
    assert plain.min() > 0.8 and abs(centred).max() < 0.8 and plain[0] == plain[2]
    context = HandContext([3, 9, 200, 7], top={p: [1] for p in range(3)})
    offers = AdaPldDrafter(AdaPldParams(tau=0.8), UnitEmbeddings(target)).propose(context, 9)
    none = AdaPldDrafter(AdaPldParams(tau=0.8), UnitEmbeddings(target, True)).propose(context, 9)
    assert len(offers.candidates) == 3 and none.route == "none"
    np.testing.assert_array_equal(offers.candidates.terms["embedding"], plain[[0, 1, 3]])  # the Lab's histogram


def test_what_it_reads():
    target, method = tiny_target(), find_method("adapld")
    needs = method.needs(target, AdaPldParams())
    assert needs.top_tokens == 64 and needs.layers == (round(0.3 * 3),) and needs.heads == ()
    assert method.needs(target, AdaPldParams(branches=False, layer=2)).layers == (2,)
    with pytest.raises(ValueError, match="hidden states 0 to 3"):
        method.needs(target, AdaPldParams(layer=4))
    widest = AdaPldParams(k=64, copy_length=256)
    assert 1 + widest.copy_length + 2 * widest.k <= SPARE_ROWS


# --- whole runs -------------------------------------------------------------------------------------------------------


def same_but_for_times(a: Draft, b: Draft) -> None:
    assert (a.tree, a.origins, a.sources, a.route, a.reason) == (b.tree, b.origins, b.sources, b.route, b.reason)
    for key in a.terms:
        np.testing.assert_array_equal(a.terms[key], b.terms[key])
    counts = [{key: value for key, value in d.notes.items() if not key.endswith("_ms")} for d in (a, b)]
    assert counts[0] == counts[1]
    assert (a.candidates is None) == (b.candidates is None)
    if a.candidates is not None and b.candidates is not None:
        assert a.candidates.position.tolist() == b.candidates.position.tolist()
        assert a.candidates.chosen == b.candidates.chosen
        np.testing.assert_array_equal(a.candidates.score, b.candidates.score)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"tau": -1.0, "successor_on_lexical": True, "k": 20},
    {"branches": False},
    {"successors": False, "copy_length": 4},
    {"semantic": False, "layer": 0},
    {"center_embeddings": True, "tau": 0.05, "k": 64},
]


def wide_prompt(seed: int = 3) -> Prompt:
    """Ids from a wide range, so that the last token is often new and the semantic route is taken."""
    return Prompt.from_ids(prompt_ids(seed, 50, 250))


@pytest.mark.parametrize("family", matrix(["llama", "gemma3", "opt", "gpt2"], 1, "every setting once more"))
def test_lossless_with_every_setting(family):
    target = tiny_target(family)
    for prompt in (Prompt.from_ids(prompt_ids(3)), wide_prompt()):
        plain = generate(target, prompt, max_new_tokens=NEW)
        for params in SETTINGS:
            assert generate(target, prompt, "adapld", params, max_new_tokens=NEW) == plain, params


@pytest.mark.parametrize("params", matrix(SETTINGS, 2, "the other settings"))
def test_cut_contexts_equal_fresh_ones_and_drafters_repeat_themselves(params):
    """A drafter that has seen the whole run, asked about an earlier point, says what it said then."""
    target = tiny_target("qwen3")
    run = Decoding.of(target, wide_prompt(), "adapld", params, max_new_tokens=NEW)
    steps = list(run)
    seen: Any = run.drafter
    for step in [*steps[::-1], *steps[::3]]:
        context, budget = run.context.cut(step.context_length), NEW - (step.context_length - 50) - 1
        if budget < 1:
            continue
        fresh = find_method("adapld").build(target, seen.params)
        same_but_for_times(seen.propose(context, budget), step.draft)
        same_but_for_times(fresh.propose(context, budget), step.draft)
    assert {s.draft.route for s in steps} >= {"lexical"}


def test_one_drafter_on_two_runs():
    """The cache of one run is not taken for another's."""
    target = tiny_target("qwen3")
    runs = [Decoding.of(target, wide_prompt(seed), "adapld", max_new_tokens=NEW) for seed in (3, 4)]
    steps = [list(run) for run in runs]
    for _ in range(2):
        for run, taken in zip(runs, steps, strict=True):
            context = run.context.cut(taken[0].context_length)
            same_but_for_times(runs[0].drafter.propose(context, NEW - 1), taken[0].draft)


@pytest.mark.parametrize("params", SETTINGS)
def test_drafts_keep_to_the_budget_and_to_what_is_processed(params):
    target = tiny_target("qwen3")
    run = Decoding.of(target, wide_prompt(), "adapld", params, max_new_tokens=20)
    list(run)
    for length in range(1, run.context.length + 1, 3):
        context = run.context.cut(length)
        for budget in (1, 2, 5):
            draft = run.drafter.propose(context, budget)
            assert max(draft.tree.depths) <= budget and len(draft.tree) <= SPARE_ROWS
            assert bool(draft.reason) == (draft.tree.drafted == 0)
            for node, source in enumerate(draft.sources):
                assert source < length and (source < 0 or context.tokens[source] == draft.tree.tokens[node])
            anchors = draft.terms.get("branch_anchor", np.zeros(0))
            assert (anchors[np.isfinite(anchors)] < length - 1).all()


def test_what_a_trace_holds():
    target = tiny_target("qwen3")
    trace = record(target, wide_prompt(), "adapld", {"tau": 0.2}, max_new_tokens=120)
    steps, nodes, candidates = (trace.tables[name] for name in ("steps", "nodes", "candidates"))
    taken = routes(trace)
    assert set(taken) >= {"lexical", "semantic"} and sum(taken.values()) == trace.rows("steps")
    assert sum(outcomes(trace).values()) == trace.rows("steps")
    for i, origin in enumerate(nodes["origin"]):
        assert (nodes["term:branch_rank"][i] is not None) == (origin == "branch")
        assert (nodes["term:branch_logprob"][i] is not None) == (origin == "branch")
        assert (nodes["term:successor_cosine"][i] is not None) == (origin == "successor")
        assert nodes["source"][i] >= 0 if origin in ("main", "successor") else nodes["source"][i] == -1
        if origin == "branch":
            assert nodes["draft_prob"][i] == pytest.approx(math.exp(nodes["term:branch_logprob"][i]), abs=1e-5)
    for i, step in enumerate(candidates["step"]):
        semantic = steps["route"][step] == "semantic"
        assert (candidates["term:embedding"][i] is not None) == semantic
        if semantic:
            assert candidates["term:embedding"][i] >= 0.2 and candidates["length"][i] == 0
    for i, reason in enumerate(steps["reason"]):
        asked = reason != "only one more token may be written"
        semantic = asked and steps["route"][i] != "lexical"
        assert (steps["term:retrieval_ms"][i] is not None) == asked
        assert {steps[f"term:semantic_{key}"][i] is not None for key in ("seen", "passed")} == {semantic}
        if semantic:
            assert steps["term:semantic_seen"][i] == steps["context"][i] - 1
            assert steps["term:semantic_passed"][i] == candidates["step"].count(i)
    assert all(share and share > 0 for share in step_term_shares(trace).values())


def test_routes_and_recovery():
    """6 / 3 / 1 steps of 10: shares 60, 30 and 10 %, recovery 75 % (AdaPLD eq. 17 and 18)."""
    lexical, semantic, none = [1, 5, 7, 5], [1, 52, 7, QUERY], [1, 2, 3, 4]
    contexts = [lexical] * 6 + [semantic] * 3 + [none]
    taken = [
        drafter(LIKE, k=1).propose(HandContext(tokens, top={p: [9] for p in range(3)}), 9).route for tokens in contexts
    ]
    shares = {route: 100 * taken.count(route) / len(taken) for route in ("lexical", "semantic", "none")}
    assert shares == {"lexical": 60, "semantic": 30, "none": 10}
    assert taken.count("semantic") / (taken.count("semantic") + taken.count("none")) == 0.75
