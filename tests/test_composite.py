"""Composite: drafts merged by hand, who proposed what, the budget, and each drafter as it would be alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from decoders import Draft, Prompt, UserError, generate, methods, record, register
from decoders.draft.draft import PrunedNodes, Scored
from decoders.draft.merging import (
    copied_matches,
    drafter_share,
    highest,
    merge_trees,
    own_probabilities,
    own_ranks,
)
from decoders.draft.pruning import RANK, pruned_draft
from decoders.draft.tree import DraftTree
from decoders.drafters import find_method, select_method
from decoders.drafters.composite import CompositeDrafter, Part, Proposal
from decoders.engine.decoding import Decoding
from decoders.method.registry import REGISTRY
from decoders.study.judge import contract
from decoders.study.look.whatif import ReadRun
from decoders.verifiers.match import judged
from decoders.verifiers.sampling import Sampling

from .drafts import target_with_parts
from .models import prompt_ids
from .tiers import matrix

NEW = 28
PAIRS = (
    "pld+h,recycling", "recycling,pld+h", "suffix,adapld", "pld+h,glide", "sps,ppd", "lookahead,ppd", "sam,lookahead",
    "pld+h,suffix,recycling",
)  # fmt: skip
FIRST_PAIRS = ("pld+h,recycling", "pld+h,glide")


@pytest.fixture(scope="module")
def target(module_home: Any) -> Any:
    return target_with_parts(("glide", "drafter", "ppd"), "qwen3")


@pytest.fixture(scope="module")
def prompt() -> Prompt:
    return Prompt.from_ids(prompt_ids(3) * 2)


def tree_of(root: int, *edges: tuple[int, int], **fields: Any) -> Draft:
    """A draft of nodes given as (parent, token)."""
    tokens, parents = (root, *(token for _, token in edges)), (-1, *(parent for parent, _ in edges))
    count = len(tokens)
    fields = {"origins": ("root",) + ("main",) * (count - 1), "sources": (-1,) * count, **fields}
    return Draft(DraftTree(tokens, parents), **fields)


COPY = tree_of(5, (0, 8), (1, 2), (2, 4), sources=(-1, 11, 12, 13))
MODEL = tree_of(
    5, (0, 8), (1, 3), (1, 2), (0, 9), (4, 1),
    origins=("root", *("drafter",) * 5), probabilities=(1.0, 0.7, 0.5, 0.25, 0.2, 0.9),
)  # fmt: skip


def test_two_trees_are_merged_as_by_hand() -> None:
    """The copy 8 2 4 and the model's (8 (3, 2)), (9 1): 8 and 2 are both's, 4 the copy's, with no guess beside it."""
    merged = merge_trees([COPY, MODEL])
    assert merged.tree.tokens == (5, 8, 2, 4, 3, 9, 1) and merged.tree.parents == (-1, 0, 1, 2, 1, 0, 5)
    assert merged.masks == (0, 3, 3, 1, 2, 2, 2)
    assert merged.numbers == ((0, 1, 2, 3, -1, -1, -1), (0, 1, 3, -1, 2, 4, 5))
    assert merged.classes == ("root", "3 of 3", "3 of 3", "1 of 1", "2 of 3", "2 of 3", "2 of 2")
    ordered, order = merged.depth_first([1, 0.6, 0.3, 0.2, 0.4, 0.7, 0.1])
    assert order == [0, 5, 6, 1, 4, 2, 3], "the likeliest child and all behind it first"
    assert ordered.tree.tokens == (5, 9, 1, 8, 3, 2, 4) and ordered.tree.parents == (-1, 0, 1, 0, 3, 3, 5)
    q = ordered.per_drafter([own_probabilities(COPY), own_probabilities(MODEL)])
    np.testing.assert_equal(q[0], [np.nan] * 7)
    np.testing.assert_equal(q[1], [np.nan, 0.2, 0.9, 0.7, 0.5, 0.25, np.nan])
    draft = ordered.draft([1.0, *highest(q)[1:]])
    assert draft.origins == ("root", "drafter", "drafter", "main", "drafter", "main", "main")
    assert draft.sources == (-1, -1, -1, 11, -1, 12, 13), "of a node of both, the first one's"


def test_classes_of_a_pair_are_five_and_of_three_say_who_is_beside() -> None:
    first, second = tree_of(1, (0, 2), (0, 3), (1, 4)), tree_of(1, (0, 2), (0, 5), (2, 6))
    assert merge_trees([first, second]).classes == ("root", "3 of 3", "1 of 3", "1 of 1", "2 of 3", "2 of 2")
    third = tree_of(1, (0, 2), (0, 7))
    assert merge_trees([first, second, third]).classes[1] == "7 of 7"
    assert set(merge_trees([first, second, third]).classes) == {"root", "7 of 7", "1 of 7", "1 of 1", "2 of 7",
                                                               "2 of 2", "4 of 7"}  # fmt: skip


def test_numbers_of_a_drafters_nodes() -> None:
    assert own_ranks(MODEL) == [0, 0, 0, 1, 1, 0]
    counts = tree_of(5, (0, 8), (1, 2), terms={"path_prob": np.array([np.nan, 0.5, 0.1])})
    assert own_probabilities(counts) == [1.0, 0.5, 0.2]
    text = np.array([7, 5, 8, 2, 9, 7, 5])
    copy = tree_of(5, (0, 8), (1, 2), (0, 9), sources=(-1, 2, 3, -1))
    np.testing.assert_equal(copied_matches(copy, text), [np.nan, 2, 2, np.nan])


def test_a_drafters_share_is_the_verdict_that_it_would_have_alone() -> None:
    merged = merge_trees([COPY, MODEL])
    draft = merged.draft([1.0] * 7)
    verdict = judged(draft, [0, 1, 2, 3], 6)
    scored = Scored(torch.arange(7.0)[:, None])
    share, scores, own = drafter_share(COPY, (0, 1, 2, 3), 0, draft, scored, verdict)
    assert share is COPY and own.path == (0, 1, 2, 3) and own.bonus == 6
    assert scores.logits.ravel().tolist() == [0, 1, 2, 3]
    share, scores, own = drafter_share(MODEL, (0, 1, 4, 2, 5, 6), 0, draft, scored, verdict)
    assert own.path == (0, 1, 3) and own.bonus == 4, "the copy's 4 came next"
    assert scores.logits.ravel().tolist() == [0, 1, 4, 2, 5, 6]
    assert own.status == ("root", "accepted", "rejected", "accepted", "rejected", "unreached")
    share, _, own = drafter_share(MODEL, (0, 1, -1, 2, -1, -1), 0, draft, scored, verdict)
    assert share.tree.tokens == (5, 8, 2) and share.proposed is MODEL and own.path == (0, 1, 2)
    assert list(share.proposed_nodes(own.path)) == [0, 1, 3]


def test_one_that_is_not_asked_changes_nothing_of_the_tree() -> None:
    first, empty = Draft(DraftTree((5, 8, 2, 3), (-1, 0, 1, 1))), Draft.empty(5, "not asked")
    tree = merge_trees([first]).with_empty(empty)
    assert tree == merge_trees([first, empty]) and tree.classes == ("root", "1 of 1", "1 of 1", "1 of 1")


@pytest.mark.parametrize("drafters", matrix(PAIRS, FIRST_PAIRS, "further pairs"))
def test_it_writes_what_plain_decoding_writes(target: Any, prompt: Prompt, drafters: str) -> None:
    for rows in (2, 16, None):
        for sampling in (Sampling(), Sampling(temperature=0.9, seed=4)):
            options = {"sampling": sampling, "max_new_tokens": NEW}
            plain = generate(target, prompt, **options)
            params = {"drafters": drafters, "rows": rows}
            assert generate(target, prompt, "composite", params, **options) == plain
            assert generate(target, prompt, "composite", params, **options, length="auto") == plain


@pytest.mark.parametrize("drafters", matrix(PAIRS, FIRST_PAIRS, "further pairs"))
def test_the_contract_holds_for_pairs(target: Any, prompt: Prompt, drafters: str) -> None:
    method = find_method("composite")
    entry = replace(method, needs=lambda t, p: method.needs(t, values), build=lambda t, p:
                    method.build(t, values), declares=lambda p: method.declares(values))  # fmt: skip
    values = method.params(drafters=drafters, rows=None if drafters == PAIRS[0] else 16)
    assert [finding.words for finding in contract.check(entry, target, [prompt])] == []


def parts_of(run: Decoding) -> tuple[Part, ...]:
    drafter = run.drafter
    assert isinstance(drafter, CompositeDrafter)
    return drafter.parts


def proposal_of(run: Decoding) -> Proposal:
    """The last step's."""
    drafter = run.drafter
    assert isinstance(drafter, CompositeDrafter) and drafter.proposal is not None
    return drafter.proposal


@pytest.mark.parametrize("drafters", ["pld+h,adapld", "suffix,logitspec", "pld+a,glide", "adapld,pld+h"])
def test_each_drafter_sees_what_it_would_see_alone(target: Any, prompt: Prompt, drafters: str) -> None:
    """At every step, each one's draft is that which it makes alone after the same text."""
    run = Decoding.of(target, prompt, "composite", {"drafters": drafters, "rows": None}, max_new_tokens=NEW)
    seen: list[list[Draft]] = []
    for _ in run:
        seen.append(list(proposal_of(run).tree.drafts))
    for i, name in enumerate(drafters.split(",")):
        alone = Decoding.of(target, prompt, name, max_new_tokens=NEW)
        alone.prefill()
        at = {step.context_length: step.draft for step in alone}
        lengths = [step.context_length for step in Decoding.of(
            target, prompt, "composite", {"drafters": drafters, "rows": None}, max_new_tokens=NEW)]  # fmt: skip
        both = [(draft[i], at[length]) for draft, length in zip(seen, lengths, strict=True) if length in at]
        assert len(both) > 1
        for draft, own in both:
            assert (draft.tree, draft.origins, draft.sources) == (own.tree, own.origins, own.sources)


def test_the_budget_is_kept_and_what_was_left_out_is_recorded(target: Any, prompt: Prompt) -> None:
    whole = record(target, prompt, "composite", {"rows": None}, max_new_tokens=NEW)
    assert max(whole.tables["steps"]["drafted"]) > 16 and not whole.tables["pruned"]["step"]
    run = Decoding.of(target, prompt, "composite", {"rows": 6}, max_new_tokens=NEW)
    for step in run:
        proposal, draft = proposal_of(run), step.draft
        assert len(draft.tree) == min(6, len(proposal.tree.tree))
        out = draft.left_out or PrunedNodes((), (), (), ())
        assert len(out.tokens) == len(proposal.tree.tree) - len(draft.tree) and not {*out.reasons} - {"rank"}
        assert list(out.scores) == sorted(out.scores, reverse=True)
        kept = draft.terms["estimate"][1:]
        assert not len(kept) or not out.scores or min(kept) >= max(out.scores), "the likeliest stay"
        tokens, parents = [*draft.tree.tokens, *out.tokens], [*draft.tree.parents, *out.parents]

        def paths(tokens: Any, parents: Any) -> set[tuple[int, ...]]:
            of: dict[int, tuple[int, ...]] = {-1: ()}
            while len(of) <= len(tokens):
                of |= {n: (*of[p], tokens[n]) for n, p in enumerate(parents) if p in of}
            return set(of.values())

        assert paths(tokens, parents) == paths(proposal.tree.tree.tokens, proposal.tree.tree.parents)
    trace = record(target, prompt, "composite", {"rows": 6}, max_new_tokens=NEW)
    assert set(trace.tables["pruned"]["why"]) == {"rank"}


def test_what_the_engine_leaves_out_comes_before_what_was_beyond_the_budget() -> None:
    """A draft that was cut twice records both: by cost first, then by rank, each behind its parent."""
    draft = tree_of(5, (0, 8), (1, 2), (2, 4), (0, 9))
    first = replace(pruned_draft(draft, (0, 1, 2, 4), (1, 0.9, 0.5, 0.1, 0.4), cause=RANK), nodes=())
    second = pruned_draft(first, (0, 1), (1, 0.9, 0.5, 0.4), proposal=first)
    out = second.left_out
    assert out is not None and second.tree.tokens == (5, 8) and out.tokens == (2, 9, 4)
    assert out.parents == (1, 0, 2) and out.reasons == ("cost", "cost", "rank")
    assert first.left_out is not None and first.left_out.reasons == ("rank",)


def test_a_run_records_who_proposed_what(target: Any, prompt: Prompt) -> None:
    trace = record(target, prompt, "composite", {"drafters": "pld+h,glide"}, max_new_tokens=NEW)
    nodes, steps = trace.tables["nodes"], trace.tables["steps"]
    names = [origin["name"] for origin in trace.run["origins"]]
    assert names == ["main", "drafter", "expansion"], "the drafters' own origins"
    assert trace.run["part"]["kind"] == "glide"
    labels = {term["key"]: term["label"] for term in trace.run["node_terms"]}
    assert labels["q1"] == "pld+h q" and labels["rank2"] == "glide rank" and len(labels) == len(trace.run["node_terms"])
    masks = {mask for mask in nodes["term:who"] if mask is not None}
    assert masks <= {1, 2, 3} and {1, 2} <= masks
    for origin, mask, q1, q2, rank2 in zip(
        nodes["origin"], *(nodes[f"term:{key}"] for key in ("who", "q1", "q2", "rank2")), strict=True
    ):
        if origin == "root":
            continue
        assert origin == ("main" if int(mask) & 1 else "drafter") and q1 is None
        assert (q2 is not None) == (rank2 is not None) == bool(int(mask) & 2)
    for step in range(len(steps["drafted"])):
        rows = [n for n, at in enumerate(nodes["step"]) if at == step and nodes["origin"][n] != "root"]
        for i, bit in ((1, 1), (2, 2)):
            mine = [n for n in rows if int(nodes["term:who"][n]) & bit]
            assert (steps[f"term:verified{i}"][step] or 0) == len(mine) <= (steps[f"term:proposed{i}"][step] or 0)
            accepted = sum(nodes["status"][n] == "accepted" for n in mine)
            assert (steps[f"term:accepted{i}"][step] or 0) == accepted
            assert not mine or steps[f"term:ms{i}"][step] > 0
    assert trace.rows("candidates") > 0 and "term:cosine" in trace.tables["candidates"]


def test_a_learner_observes_the_merged_draft_and_others_their_share(target: Any, prompt: Prompt) -> None:
    """Recycling is shown every row. A drafter that does not say so is shown the nodes that it proposed alone."""
    run = Decoding.of(target, prompt, "composite", {"drafters": "recycling,ppd"}, max_new_tokens=NEW)
    seen: dict[str, list[Any]] = {"recycling": [], "ppd": []}
    for part in parts_of(run):
        observe = part.drafter.observe

        def watch(draft: Draft, scored: Any, verdict: Any, name: str = part.name, observe: Any = observe) -> Any:
            seen[name].append((draft, scored, verdict))
            return observe(draft, scored, verdict)

        part.drafter.observe = watch  # type: ignore[method-assign]
    own: list[Draft] = []
    steps = []
    for step in run:
        steps.append(step)
        own.append(proposal_of(run).tree.drafts[1])
    assert all(draft is step.draft for (draft, _, _), step in zip(seen["recycling"], steps, strict=True))
    guessed = 0
    for (draft, scored, verdict), proposed, step in zip(seen["ppd"], own, steps, strict=True):
        assert draft.proposed is proposed and len(scored.logits) == len(draft.tree)
        assert len(draft.probes) == (0 if scored.probe_logits is None else len(scored.probe_logits))
        for node, at in enumerate(verdict.status):
            assert at in ("root", "accepted", "rejected", "unreached") and draft.tree.tokens[node] is not None
        emitted = [draft.tree.tokens[n] for n in verdict.path[1:]] + [verdict.bonus]
        assert tuple(emitted) == step.emitted[: len(emitted)], "what came next is what the run wrote"
        guessed += draft.tree.drafted
    assert guessed, "PPD learnt from its prompt tokens' rows and drafted"


def test_negative_control_a_head_that_is_given_the_merged_draft_is_seen(target: Any, prompt: Prompt) -> None:
    """PPD drafts nothing where it is shown drafts that are not its own: the test above would fail."""
    run = Decoding.of(target, prompt, "composite", {"drafters": "recycling,ppd"}, max_new_tokens=NEW)
    for part in parts_of(run):
        part.drafter.learns_from_any_draft = True
    drafted = 0
    for _ in run:
        drafted += proposal_of(run).tree.drafts[1].tree.drafted
    assert not drafted


@pytest.mark.parametrize(
    "drafters", ["pld+h,recycling", "pld+h,suffix", "pld+h,lookahead", "recycling,ppd", "glide,pld+h"]
)
@pytest.mark.parametrize("length", ["fixed", "auto"])
def test_a_step_is_drafted_again_as_it_was(target: Any, prompt: Prompt, drafters: str, length: str) -> None:
    trace = record(target, prompt, "composite", {"drafters": drafters}, max_new_tokens=NEW, length=length)
    read = ReadRun(target, trace)
    last = len(trace.tables["steps"]["drafted"]) - 1
    if length == "fixed":
        assert [read.redraft(step).same for step in range(0, last + 1, 3)] == [True] * len(range(0, last + 1, 3))
    else:
        read.redraft(last)
    other = record(target, prompt, "pld", max_new_tokens=NEW)
    assert ReadRun(target, other).redraft(1, "composite", {"drafters": drafters}).trace.output_ids


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"drafters": "pld+h"}, "names 1: name two or three methods"),
        ({"drafters": "pld,pld+h,suffix,sam"}, "names 4: name two or three methods"),
        ({"drafters": "pld+h,pld+h"}, "'pld.h' twice: each drafter proposes once"),
        ({"drafters": "pld+h, pld+h"}, "'pld.h' twice"),
        ({"drafters": "pld+h,eagle9"}, "names 'eagle9', which is no method: choose two or three of pld, pld.h"),
        ({"drafters": "pld+h,"}, "names '', which is no method"),
        ({"drafters": "pld+h,plain"}, "names 'plain', which drafts nothing"),
        ({"drafters": "composite,pld+h"}, "names 'composite', which merges drafts itself"),
        ({"drafters": "pld+h,casd"}, "names 'casd', which is lossy"),
        ({"drafters": "pld+h,sps@block"}, "has a verifier of its own"),
        ({"drafters": ""}, "drafters needs a value"),
        ({"rows": 1}, "rows=1 is out of range: a whole number from 2 to 256, or 'off'"),
        ({"rows": 257}, "rows=257 is out of range"),
        ({"rows": "many"}, "rows='many' is not allowed"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_a_sentence(params: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        select_method("composite", params)


def test_what_a_drafter_lacks_is_said(target: Any, prompt: Prompt, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path))
    said = "glide: there is no .*`specviz (train|parts add).* or choose another method than glide"
    with pytest.raises(UserError, match=said):
        generate(target, prompt, "composite", {"drafters": "pld+h,glide"}, max_new_tokens=4)


def test_what_a_prompt_lacks_for_one_of_the_drafters_is_said(target: Any, prompt: Prompt) -> None:
    try:
        register(replace(find_method("pld"), name="picky", applies=lambda prompt: "this prompt has no question"))
        with pytest.raises(UserError, match="this prompt has no question"):
            generate(target, prompt, "composite", {"drafters": "picky,pld+h"}, max_new_tokens=4)
    finally:
        del REGISTRY["picky"]


def test_a_method_that_is_registered_later_can_be_one_of_the_drafters(target: Any, prompt: Prompt) -> None:
    """By its name alone, its origins among the run's."""
    entry = replace(find_method("suffix"), name="mine")
    try:
        register(entry)
        trace = record(target, prompt, "composite", {"drafters": "mine,pld"}, max_new_tokens=NEW)
    finally:
        del REGISTRY["mine"]
    assert "mine" not in methods() and trace.run["origins"][0]["name"] == "local"
    assert trace.output_ids == generate(target, prompt, max_new_tokens=NEW)
