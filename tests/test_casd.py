"""CASD: the rule's oracles, drafts from pools, δ = 1 is plain decoding on every family."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from decoders import Prompt, Sampling, UserError, generate, record
from decoders.draft.draft import Draft, Scored
from decoders.draft.params import make_params
from decoders.draft.tree import DraftTree
from decoders.drafters import find_method
from decoders.drafters.casd import CasdDrafter, CasdParams
from decoders.engine.decoding import Decoding
from decoders.prompt.prompt import Pool, Segment
from decoders.verifiers.conditional import RULES, ConditionalVerifier
from decoders.verifiers.sampling import Chooser

from .models import EVERY_FAMILY, prompt_ids, tiny_target, tiny_tokenizer

A, B, C, EOS, REST = 0, 1, 2, 3, 4
GREEDY = Sampling()


def verify(tree, rows, *, stop_ids=(EOS,), sampling=GREEDY, **options):
    """The verdict on a tree, given the target's distribution after each node."""
    logits = torch.tensor([[row.get(t, 0.0) for t in range(5)] for row in rows], dtype=torch.float64).log()
    verifier = ConditionalVerifier(Chooser(sampling), stop_ids, **options)
    return verifier(Draft(tree), Scored(logits.float()))


def one(token, p_eos, **options):
    """p(A) = .15, p(B) = .60, the rest to EOS and another token."""
    row = {A: 0.15, B: 0.60, EOS: p_eos, REST: 0.25 - p_eos}
    return verify(DraftTree.chain(9, (token,)), [row, {C: 1.0}], **options)


def test_oracle_of_the_rule():
    """methods.md §4, δ = .1: p(EOS) = .20 rejects A, .12 accepts it."""
    rejected, accepted = one(A, 0.20), one(A, 0.12)
    assert rejected.path == (0,) and rejected.bonus == B
    assert rejected.status == ("root", "rejected") and rejected.reasons[1] == "p = 0.15 ≤ p(EOS) = 0.2"
    np.testing.assert_allclose(rejected.terms["p_eos"], [np.nan, 0.2], rtol=1e-5)
    assert accepted.path == (0, 1) and accepted.bonus == C
    assert accepted.status == ("root", "accepted") and accepted.reasons[1] == "p = 0.15 > p(EOS) = 0.12"
    assert one(A, 0.05).reasons[1] == "p = 0.15 > δ = 0.1"
    assert one(A, 0.05, delta=0.2).reasons[1] == "p = 0.15 ≤ δ = 0.2"


def test_the_likeliest_of_several_stop_tokens_counts_and_none_counts_nothing():
    row = [{A: 0.25, EOS: 0.125, REST: 0.375, B: 0.25}, {A: 1.0}]
    tree = DraftTree.chain(9, (A,))
    assert verify(tree, row).accepted == 1
    assert verify(tree, row, stop_ids=(EOS, REST)).reasons[1] == "p = 0.25 ≤ p(EOS) = 0.375"
    none = verify(tree, row, stop_ids=())
    assert none.accepted == 1 and np.isnan(none.terms["p_eos"]).all()


def test_the_rule_is_strict():
    row = [{A: 0.25, B: 0.5, EOS: 0.25}, {C: 1.0}]
    tree = DraftTree.chain(9, (A,))
    assert verify(tree, row).accepted == 0  # p = p(EOS)
    assert verify(tree, row, stop_ids=(), delta=0.25).accepted == 0
    assert verify(tree, row, stop_ids=(), delta=0.2499).accepted == 1
    assert verify(DraftTree.chain(9, (EOS,)), row).accepted == 0  # the end of text is never more likely than itself


def test_mixed_and_top_k_only():
    row = {A: 0.15, B: 0.2, C: 0.35, REST: 0.3}
    tree, rows = DraftTree.chain(9, (A,)), [row, {C: 1.0}]
    assert verify(tree, rows).accepted == 1
    assert verify(tree, rows, rule="mixed", top_k=3).reasons[1] == "not in the top 3"
    assert verify(tree, rows, rule="mixed", top_k=4).reasons[1] == "p = 0.15 > δ = 0.1"
    assert verify(tree, rows, rule="mixed", top_k=4, delta=0.2).reasons[1] == "p = 0.15 ≤ δ = 0.2"
    assert verify(tree, rows, rule="top-k only", top_k=4, delta=0.9).reasons[1] == "in the top 4"
    assert verify(tree, rows, rule="top-k only", top_k=3).reasons[1] == "not in the top 3"
    with pytest.raises(ValueError, match="one of fixed, mixed, top-k only"):
        ConditionalVerifier(Chooser(GREEDY), rule="strict")


def test_or_argmax_accepts_the_first_choice():
    """A failing first choice comes back as the bonus anyway; accepted, it lets its children stand."""
    tree = DraftTree.chain(9, (A, B))
    rows = [{A: 0.4, B: 0.3, C: 0.3}, {B: 0.9, C: 0.1}, {C: 1.0}]
    assert verify(tree, rows, delta=0.5).path == (0,) and verify(tree, rows, delta=0.5).bonus == A
    both = verify(tree, rows, delta=0.5, or_argmax=True)
    assert both.path == (0, 1, 2) and both.reasons[1:] == ("the target's first choice",) * 2


def test_the_longest_path_wins_and_ties_go_to_the_likelier():
    #      root → A → C      root → B → C, B → A
    tree = DraftTree((9, A, C, B, C, A), (-1, 0, 1, 0, 3, 3))
    rows = [{A: 0.6, B: 0.4}, {C: 0.05, B: 0.95}, {A: 1.0}, {C: 0.3, A: 0.5, B: 0.2}, {A: 1.0}, {REST: 1.0}]
    longest = verify(tree, rows)
    assert longest.path == (0, 3, 5) and longest.bonus == REST
    assert longest.status == ("root", "rejected", "unreached", "accepted", "rejected", "accepted")
    assert longest.reasons == (
        "root", "passes, but a longer or likelier path won", "p = 0.05 ≤ δ = 0.1", "p = 0.4 > δ = 0.1",
        "passes, but a longer or likelier path won", "p = 0.5 > δ = 0.1",
    )  # fmt: skip
    strict = verify(tree, rows, delta=0.55)
    assert strict.path == (0, 1) and strict.reasons[3:] == ("p = 0.4 ≤ δ = 0.55", "parent rejected", "parent rejected")
    sums = [{A: 0.6, B: 0.4}, {C: 0.5, B: 0.5}, {A: 1.0}, {C: 0.9, A: 0.1}, {A: 1.0}, {REST: 1.0}]
    assert verify(tree, sums).path == (0, 3, 4)  # .4 · .9 over .6 · .5


def test_the_rule_reads_temperature_one_and_the_bonus_is_drawn():
    tree, rows = DraftTree.chain(9, (A,)), [{A: 0.3, B: 0.7}, {B: 0.5, C: 0.5}]
    drawn = set()
    for seed in range(20):
        verdict = verify(tree, rows, sampling=Sampling(temperature=0.1, seed=seed), delta=0.2)
        assert verdict.accepted == 1  # at temperature .1, p(A) would be .0002
        drawn.add(verdict.bonus)
    assert drawn == {B, C}


def test_no_draft_gives_the_targets_own_token():
    verdict = verify(DraftTree.chain(9), [{B: 0.6, A: 0.4}])
    assert verdict.path == (0,) and verdict.bonus == B and verdict.reasons == ("root",)


def letters(text):
    return [ord(c) for c in text]


class HandContext:
    def __init__(self, tokens, pool):
        self.tokens, self.pool = np.asarray(tokens), pool
        self.root = int(self.tokens[-1])


def draft_of(query, passages, positions=None, budget=100, **params):
    ids = [letters(p) for p in passages]
    starts = np.cumsum([0, *(len(p) for p in ids[:-1])]).tolist()
    pool = Pool(np.asarray([t for p in ids for t in p]), tuple(starts), positions)
    drafter = CasdDrafter(CasdParams(**params))
    context = HandContext(letters(query), pool)
    drafter.prepare(context)
    return drafter.propose(context, budget)


def test_oracle_of_the_draft():
    """methods.md §4: abcd|abce|abf, query ab, two nodes: c (2), f (1)."""
    draft = draft_of("ab", ["abcd", "abce", "abf"], nodes=2)
    assert draft.tree.tokens == (ord("b"), ord("c"), ord("f")) and draft.tree.parents == (-1, 0, 0)
    np.testing.assert_array_equal(draft.terms["count"], [np.nan, 2, 1])
    assert draft.pool == (-1, 2, 10) and draft.sources == (-1, -1, -1)
    assert draft.origins == ("root", "datastore", "datastore") and draft.notes == {"matched": 2, "hits": 3}
    c = draft.candidates
    assert c.pool.tolist() == [1, 5, 9] and c.position.tolist() == [-1] * 3 and c.length.tolist() == [2, 2, 1]
    assert c.score.tolist() == [2, 2, 1] and c.terms["matched"].tolist() == [2] * 3 and c.chosen == 0


def test_sources_are_places_in_the_prompt_where_the_pool_stands_there():
    draft = draft_of("xab", ["abcd", "qabq"], positions=np.asarray([3, 4, 5, 6, 11, 12, 13, 14]))
    assert [draft.pool[i] for i in range(4)] == [-1, 2, 3, 7] and draft.sources == (-1, 5, 6, 14)
    assert draft.candidates.position.tolist() == [4, 13]


def test_the_chosen_candidate_gives_the_first_chain():
    draft = draft_of("ab", ["abx", "abyz", "aby"])
    assert draft.tree.tokens[1:3] == tuple(letters("yz")) and draft.candidates.chosen == 1
    assert draft.candidates.score.tolist() == [1, 2, 2]


def test_budget_depth_and_misses():
    assert draft_of("ab", ["abcdefgh"], budget=3).tree.tokens[1:] == tuple(letters("cde"))
    assert draft_of("ab", ["abcdefgh"], depth=2).tree.tokens[1:] == tuple(letters("cd"))
    miss = draft_of("zb", ["abcdefgh"])
    assert miss.tree.drafted == 0 and miss.reason == "the last 2 tokens occur nowhere in the pool"
    assert draft_of("zb", ["abcdefgh"], shortest_suffix=1).tree.drafted == 6
    assert draft_of("zz", ["abc"], shortest_suffix=1).reason == "the last token occurs nowhere in the pool"
    assert draft_of("gh", ["abcdefgh", "xyz"]).reason  # the passage ends there


def test_parameters_are_checked():
    params = find_method("casd").params
    for given, message in [
        ({"delta": "1.5"}, "from 0 to 1"),
        ({"rule": "loose"}, "one of fixed, mixed, top-k only"),
        ({"compression": "2x"}, "one of off, 3x, 5x, 10x"),
        ({"shortest_suffix": 20}, "shortest_suffix=20 is above longest_suffix=16"),
    ]:
        with pytest.raises(ValueError, match=message):
            make_params(params, given)
    assert make_params(params, {"delta": "1e-5", "rule": "top-k only"}) == CasdParams(delta=1e-5, rule=RULES[2])


def context_prompt(ids, question=10):
    """All but the last ids are a context of two passages."""
    n = len(ids)
    cut = (n - question) // 2
    return Prompt(
        tuple(ids),
        (
            Segment("context", 0, cut, 0),
            Segment("context", cut, n - question, 1),
            Segment("question", n - question, n),
        ),
    )


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_delta_one_is_plain_decoding_on_every_family(family):
    """p > 1 never holds: whatever is drafted, the output is the target's own."""
    target, prompt = tiny_target(family), context_prompt(prompt_ids(3, 60, 8))
    expected = generate(target, prompt, "plain", max_new_tokens=10)
    for params in ({"delta": 1}, {"delta": 1, "rule": "mixed", "or_argmax": True}):
        run = Decoding.of(target, prompt, "casd", {**params, "shortest_suffix": 1, "nodes": 20}, max_new_tokens=10)
        steps = list(run)
        assert [t for s in steps for t in s.emitted] == expected
        assert sum(s.draft.tree.drafted for s in steps) > 0, "nothing was drafted: nothing was tested"
        assert all(s.accepted == 0 for s in steps) or params.get("or_argmax")


def test_delta_one_sampled_is_plain_sampling():
    target, prompt = tiny_target(), context_prompt(prompt_ids(3, 60, 8))
    sampling = Sampling(temperature=0.8, seed=3)
    assert generate(target, prompt, "casd", {"delta": 1}, sampling=sampling, max_new_tokens=16) == generate(
        target, prompt, "plain", sampling=sampling, max_new_tokens=16
    )


def test_a_low_threshold_departs_from_greedy_and_the_trace_says_where():
    target = tiny_target("llama")
    prompt = context_prompt(prompt_ids(3, 90, 12))
    plain = generate(target, prompt, "plain", max_new_tokens=24)
    trace = record(target, prompt, "casd", {"delta": 0, "shortest_suffix": 1}, max_new_tokens=24)
    assert trace.output_ids != plain
    ranks, kinds = trace.tables["tokens"]["rank"], trace.tables["tokens"]["kind"]
    assert max(ranks) > 0 and all(rank == 0 for rank, kind in zip(ranks, kinds, strict=True) if kind == "bonus")
    assert trace.run["method"]["lossless"] is False
    nodes = trace.tables["nodes"]
    assert {"term:count", "term:p_eos"} <= set(nodes) and max(nodes["source"]) >= 0
    for position, source in enumerate(trace.tables["tokens"]["source"]):
        if source >= 0:
            assert trace.tables["tokens"]["id"][source] == trace.tables["tokens"]["id"][position]
    steps = trace.tables["steps"]
    mean = sum(steps["accepted"]) / len(steps["accepted"]) + 1
    assert trace.run["metrics"]["tokens_per_step"] == pytest.approx(mean) and mean > 1


def test_mean_acceptance_length_oracle():
    """methods.md §4: accepted drafts [2, 0, 1] → MAL 2.0."""
    from decoders.trace.metrics import compute
    from decoders.trace.trace import Trace

    trace = Trace.new({"prompt_length": 1})
    trace.extend({"steps": {"accepted": [2, 0, 1], "drafted": [9, 0, 9]}})
    assert compute(trace)["tokens_per_step"] == 2.0


def test_an_end_of_text_inside_the_pool_never_ends_the_answer_early():
    """A stop token among the continuations is only emitted where the target itself chooses it."""
    target = tiny_target("llama")
    ids = prompt_ids(3, 90, 12)
    plain = generate(target, context_prompt(ids), "plain", max_new_tokens=24)
    target.model.generation_config.eos_token_id = plain[9]
    run = Decoding.of(target, context_prompt(ids), "casd", {"delta": 1, "or_argmax": True}, max_new_tokens=24)
    output = [t for step in run for t in step.emitted]
    assert output == plain[: plain.index(plain[9]) + 1] and run.stop == "eos"


def test_casd_needs_a_context_or_a_pool():
    target = tiny_target()
    with pytest.raises(UserError, match="CASD needs a context"):
        generate(target, Prompt.from_ids(prompt_ids(1)), "casd")
    lonely = Prompt((5, 6, 7), (Segment("context", 0, 1, 0), Segment("question", 1, 3)))
    with pytest.raises(UserError, match="at least two tokens"):
        generate(target, lonely, "casd")
    own = Prompt((5, 6, 7), (Segment("text", 0, 3),), pool=Pool(np.asarray([6, 7, 8, 9]), (0,), None, "notes.txt"))
    step = next(iter(Decoding.of(target, own, "casd", max_new_tokens=8)))
    assert step.draft.tree.tokens == (7, 8, 9) and step.draft.sources == (-1,) * 3
    with pytest.raises(UserError, match="no context to compress"):
        generate(target, own, "casd", {"compression": "3x"})
    with pytest.raises(UserError, match="CASD needs a context"):
        CasdDrafter(CasdParams()).propose(SimpleNamespace(pool=None), 5)


def test_compression_shortens_the_prompt_and_keeps_the_pool():
    tokenizer, target = tiny_tokenizer(), tiny_target()
    passage = "the old lamp at the station was sold.\nthe city museum was old. it was sold to the city museum. "
    prompt = Prompt.from_segments(tokenizer, instruction="Answer.", context=passage * 2, question="who has the lamp")
    run = Decoding.of(target, prompt, "casd", {"compression": "3x", "shortest_suffix": 1}, max_new_tokens=8)
    assert run.prompt.compression["kept_tokens"] <= run.prompt.compression["context_tokens"] / 3
    assert len(run.prompt.tokens) < len(prompt.tokens)
    np.testing.assert_array_equal(run.prompt.pool.tokens, prompt.context_pool().tokens)
    for step in run:
        assert set(step.draft.sources) == {-1}
    trace = record(target, prompt, "casd", {"compression": "3x", "shortest_suffix": 1}, max_new_tokens=8)
    assert trace.run["compression"]["compressor"] == "extractive"
    nodes, pool = trace.tables["nodes"], trace.tables["pool"]
    ids = dict(zip(pool["position"], pool["id"], strict=True))
    copied = [(place, token) for place, token in zip(nodes["pool"], nodes["token"], strict=True) if place >= 0]
    assert copied and all(ids[place] == token for place, token in copied)
