"""EAGLE-1, -2 and -3: the trees of the equations, the head's cache as a function of the context, what is recorded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decoders import Prompt, Sampling, generate, load, record, save
from decoders.draft.draft import Draft, emitted_tokens
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.drafters import select_method
from decoders.engine.decoding import Decoding
from decoders.parts import load_part
from decoders.trace.metrics import measure
from decoders.verifiers.sampling import Chooser
from specviz.extras.heads.eagle_trees import EAGLE_TREE
from tests.chance import p_value
from tests.drafts import draft_behind, save_tiny_part
from tests.models import own_forward, prompt_ids, tiny_target
from tests.tiers import matrix

from . import eagle_oracle as oracle
from .eagle_oracle import LLAMA, publish, speculators, tensors

pytestmark = pytest.mark.usefixtures("home")
NEW, DRAFTED, NEAR = 20, 90, 2e-4  # transformers' norms and rotary positions are in fp32
THIRD = ("eagle3", "speculators", "specforge", "whole vocabulary", "norm before residual")
# of the variants: more of the configuration, further norms in the file, and the oracle's options
EACH, WINDOW = ("fc_norm.0.weight", "fc_norm.1.weight", "fc_norm.2.weight"), 5
SLIDING = {**LLAMA, "sliding_window": WINDOW, "layer_types": ["sliding_attention"]}
VARIANTS = {
    "eagle-3.1": ({"norm_output": True}, (), {"normed": True}),
    "fc_norm": ({"fc_norm": True, "norm_output": True}, EACH, {"normed": True}),
    "norm_before_fc": ({"norm_before_fc": True}, ("input_norm.weight",), {}),
    "sliding window": ({"transformer_layer_config": SLIDING}, (), {"window": WINDOW}),
    "full attention": (
        {"transformer_layer_config": {**SLIDING, "layer_types": ["full_attention"]}}, (), {},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def target():
    return tiny_target("llama", dtype=torch.float64)


def checkpoint(folder, form):
    """A checkpoint in one of the public forms, its tensors, and the states it reads of a target of three layers."""
    if form.startswith("eagle-1"):
        weights = tensors(False, bias=form == "eagle-1")
        return publish(folder, LLAMA, weights, pickled=form == "eagle-1"), weights, (3,)
    if form in VARIANTS:
        more, norms, _ = VARIANTS[form]
        weights = tensors(True, drafted=DRAFTED, norms=norms)
        return publish(folder, *speculators(LLAMA, weights, **more)), weights, (2, 1, 0)
    weights = tensors(True, drafted=0 if form == "whole vocabulary" else DRAFTED)
    if form == "speculators":
        more = {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}
        return publish(folder, *speculators(LLAMA, weights, **more)), weights, (1, 2, 3)
    if form == "norm before residual":
        return publish(folder, *speculators(LLAMA, weights, norm_before_residual=True)), weights, (2, 1, 0)
    if form == "specforge":  # layers, whose outputs are read
        config = {
            **LLAMA,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1], "use_aux_hidden_state": True},
        }
        return publish(folder, config, weights), weights, (1, 2, 2)
    return (
        publish(folder, {**LLAMA, "draft_vocab_size": len(weights["lm_head.weight"])}, weights, form == "eagle3"),
        weights,
        (2, 1, 0),
    )


def states_of(target, tokens, layers):
    """The target's states by transformers' own forward, [positions, states joined]."""
    states = own_forward(target, tokens).hidden_states
    return torch.cat([states[layer][0] for layer in layers], -1)


def paths_of(draft):
    """Tokens from the root on → node."""
    tree = draft.tree
    return {tuple(tree.tokens[node] for node in tree.path(i)[1:]): i for i in range(len(tree))}


def head_of(target, weights, tokens, layers, **options):
    embedding = target.embeddings.weight.detach()
    head = oracle.Head(weights, embedding, target.head.weight.detach(), **options)
    return head, head.commit(states_of(target, tokens, layers), tokens)


@pytest.mark.parametrize("form", ["eagle-1", "eagle-1 without bias"])
def test_eagle_fills_the_tree_of_the_equations(target, tmp_path, form):
    place, weights, layers = checkpoint(tmp_path / "head", form)
    tokens = prompt_ids(4, 14)
    draft, _ = draft_behind(target, "eagle", tokens, part=place)
    made = oracle.settle(*head_of(target, weights, tokens, layers), list(EAGLE_TREE))
    paths = paths_of(draft)
    assert paths.keys() == made.keys() and len(paths) == 26
    for path, (score, depth) in made.items():
        assert draft.tree.depths[paths[path]] == depth
        if path:
            assert draft.terms["path_logprob"][paths[path]] == pytest.approx(score, abs=NEAR)


@pytest.mark.parametrize("form", matrix(["eagle-1", *THIRD, *VARIANTS], 2, "variants of the heads"))
def test_dynamic_trees_are_those_of_the_equations(target, tmp_path, form):
    """Tokens, parents, scores, what was reranked away, and (by rotary positions and what rows see) their places."""
    place, weights, layers = checkpoint(tmp_path / "head", form)
    tokens, method = prompt_ids(6, 12), "eagle2" if form == "eagle-1" else "eagle3"
    draft, drafter = draft_behind(target, method, tokens, part=place, depth=3, top_k=4, total_tokens=18)
    assert drafter.config.features == layers
    options = {"before": True} if form == "norm before residual" else VARIANTS.get(form, ({}, (), {}))[2]
    kept, scored = oracle.dynamic(*head_of(target, weights, tokens, layers, **options), 3, 4, 18)
    if options:  # negative control
        assert kept != pytest.approx(oracle.dynamic(*head_of(target, weights, tokens, layers), 3, 4, 18)[0], abs=NEAR)
    paths = paths_of(draft)
    assert paths.keys() - {()} == kept.keys() and len(paths) == 18
    for path, score in kept.items():
        assert draft.terms["path_logprob"][paths[path]] == pytest.approx(score, abs=NEAR)
        above = scored[path[:-1]]
        assert draft.probabilities[paths[path]] == pytest.approx(np.exp(score - above), abs=NEAR)
    cut, line = draft.pruned, {node: path for path, node in paths.items()}
    for i, (token, parent, score) in enumerate(zip(cut.tokens, cut.parents, cut.scores, strict=True)):
        line[len(paths) + i] = (*line[parent], token)
        assert score == pytest.approx(scored[line[len(paths) + i]], abs=NEAR)
    assert {*line.values()} == scored.keys() and len(line) == 1 + 4 + 3 * 16 == 1 + draft.notes["scored"]
    assert list(cut.scores) == sorted(cut.scores, reverse=True)


def test_the_tree_of_the_first_eagle():
    by_depth = np.bincount([len(path) for path in EAGLE_TREE]).tolist()
    assert by_depth == [0, 4, 8, 8, 3, 2]


@pytest.mark.parametrize("name", matrix(["eagle2", "eagle", "eagle3"], 1, "the other heads"))
def test_what_was_read_before_makes_no_difference(target, name):
    """A draft behind any cut of a run, after other drafts, is a fresh drafter's: committed pairs alone stay."""
    save_tiny_part(target, "eagle3" if name == "eagle3" else "eagle")
    entry, params = select_method(name, {})
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(2)), name, max_new_tokens=NEW)
    drafts = [step.draft for step in run]
    assert len(drafts) > 2
    context, drafter = run.context, run.drafter
    lengths = [len(prompt_ids(2)) + 1, context.length - 1, len(prompt_ids(2)), context.length, 2]
    for length in lengths:
        cut, fresh = context.cut(length), entry.build(target, params)
        again, anew = drafter.propose(cut, 8), fresh.propose(cut, 8)
        assert again.tree == anew.tree
        assert np.allclose(again.terms["path_logprob"], anew.terms["path_logprob"], atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("name", ["eagle", "eagle2", "eagle3"])
def test_trees_keep_to_their_sizes(target, name):
    save_tiny_part(target, "eagle3" if name == "eagle3" else "eagle")
    tokens = prompt_ids(3)
    for budget in (1, 2, 4):
        draft, _ = draft_behind(target, name, tokens, budget)
        assert max(draft.tree.depths) == budget if name == "eagle" else max(draft.tree.depths) <= budget
    params = {"depth": 2} if name == "eagle" else {"depth": 2, "top_k": 3, "total_tokens": 7}
    draft, _ = draft_behind(target, name, tokens, **params)
    assert len(draft.tree) == (13 if name == "eagle" else 7)
    assert max(draft.tree.depths) <= (2 if name == "eagle" else 3)
    draft, _ = draft_behind(target, name, tokens[:1])
    assert draft.reason == "the head reads the target's states, and there is none before this token"


def test_the_likeliest_chain_is_the_main_one(target):
    save_tiny_part(target, "eagle")
    draft, _ = draft_behind(target, "eagle2", prompt_ids(3))
    chain = draft.origins.count("drafter")
    assert draft.origins[: chain + 1] == ("root", *("drafter",) * chain)
    assert draft.tree.parents[1 : chain + 1] == tuple(range(chain)) and not draft.terms["draft_rank"][1:2].any()


def test_a_trace_has_all_that_the_head_thought_of(target, tmp_path):
    save_tiny_part(target, "eagle3", draft_vocab=DRAFTED)
    prompt = Prompt.from_ids(prompt_ids(5))
    trace = record(target, prompt, "eagle3", {"depth": 2, "total_tokens": 20}, max_new_tokens=NEW)
    pruned, steps, head = trace.tables["pruned"], trace.tables["steps"], load_part(target, "eagle3")
    assert steps["term:scored"][0] == 10 + 2 * 100 and steps["term:draft_forwards"][0] == 3.0
    ran, cost = [n for n in steps["term:draft_forwards"] if n], measure(trace)["draft_cost"]
    assert cost.parts["forwards"] == sum(ran) > sum(steps["depth"]), "those that ran, not what is left of their tree"
    spent = sum(ms for ms in steps["term:forward_ms"] if ms)
    assert cost.value == pytest.approx(spent / sum(ran) / trace.run["timings"]["one_row_ms"])
    assert pruned["step"].count(0) == 64 and max(pruned["parent"]) <= 19 + 64
    can = set(head.drafted.tolist())
    assert {*pruned["token"]} <= can
    for outside, bonus, drafted in zip(steps["term:outside"], steps["bonus"], steps["drafted"], strict=True):
        assert outside == (float(bonus not in can) if drafted else None)
    assert 1.0 in steps["term:outside"]
    assert trace.run["part"]["kind"] == "eagle3" and len(trace.run["part"]["fingerprint"]) == 24
    guesses = trace.tables["guesses"]
    assert {*guesses["step"]} == {i for i, n in enumerate(steps["drafted"]) if n}
    assert all(q == 0.0 for q, token in zip(guesses["draft_prob"], guesses["token"], strict=True) if token not in can)
    save(trace, tmp_path / "run.spectrace")
    assert load(tmp_path / "run.spectrace").tables["pruned"] == pruned


def test_the_cosine_is_of_the_states_that_the_target_came_to(target, tmp_path):
    place, weights, _ = checkpoint(tmp_path / "head", "eagle-1")
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(7, 16)), "eagle", {"part": place}, max_new_tokens=6)
    steps = list(run)
    tokens = run.context.tokens.tolist()
    truth = states_of(target, tokens, (3,))
    alone = [step for step in steps if step.observation and not step.accepted]  # of the root's state alone
    assert len(alone) > 2
    for step in alone:
        head, last = head_of(target, weights, tokens[: step.context_length], (3,))
        cosine = torch.cosine_similarity(head.rows[last].state, truth[step.context_length - 1].double(), 0)
        assert step.observation.notes["feature_cosine"] == pytest.approx(float(cosine), abs=1e-4)


@pytest.mark.parametrize("name", matrix(["eagle3", "eagle", "eagle2"], 1, "the other heads"))
def test_half_precision_and_other_families_run(name):
    for family, dtype in (("qwen3", torch.bfloat16), ("gpt2", torch.float32)):
        target = tiny_target(family, dtype=dtype)
        save_tiny_part(target, "eagle3" if name == "eagle3" else "eagle")
        assert len(generate(target, Prompt.from_ids(prompt_ids(2)), name, max_new_tokens=8)) == 8


def test_needs_name_the_states_that_the_head_reads(target):
    save_tiny_part(target, "eagle")
    save_tiny_part(target, "eagle3")
    for name, layers in (("eagle", (3,)), ("eagle2", (3,)), ("eagle3", (0, 1, 2))):
        entry, params = select_method(name, {})
        assert entry.needs(target, params) == Needs(layers=layers)


@pytest.mark.parametrize("rule", ["match", "in turn"])
def test_both_rules_have_the_targets_distribution(target, rule):
    """Tokens 1 and 2 behind a prompt, drawn many times: chi-square against the target's own probabilities."""
    entry, params = select_method("eagle3", {"rule": rule})
    chooser = Chooser(Sampling(temperature=0.5, seed=3))
    verifier, session = entry.verifier(params, chooser, frozenset()), target.session(Needs(), 64)
    session.prefill(prompt_ids(8, 12))
    first = session.score(Draft.empty(5, "to see what is likely")).logits[0].topk(3).indices.tolist()
    draft = Draft(DraftTree((prompt_ids(8, 12)[-1], *first), (-1, 0, 0, 0)))
    below = session.score(draft).logits[1].topk(2).indices.tolist()
    draft = Draft(DraftTree((*draft.tree.tokens, *below), (*draft.tree.parents, 1, 1)))
    scored = session.score(draft)
    p = chooser.probabilities(scored.logits).double()
    counts: dict[tuple[int, ...], int] = {}
    rounds = 4000
    for _ in range(rounds):
        verdict = verifier(draft, scored)
        emitted = tuple(emitted_tokens(draft.tree.tokens, verdict)[:2])
        counts[emitted] = counts.get(emitted, 0) + 1
    after = {draft.tree.tokens[node]: node for node in range(1, len(draft.tree)) if draft.tree.parents[node] == 0}
    expected: dict[tuple[int, ...], float] = {}
    for first, share in enumerate(p[0].tolist()):
        if first not in after:
            expected[(first,)] = share
        else:
            expected |= {(first, second): share * q for second, q in enumerate(p[after[first]].tolist())}
    often = [way for way, share in expected.items() if share * rounds >= 5]
    assert len(often) > 15 and set(counts) <= set(expected)
    assert p_value([counts.get(way, 0) for way in expected], [share * rounds for share in expected.values()]) > 1e-3
    assert any(len(way) == 2 for way in often)


def test_children_are_tried_in_turn(target):
    """The order of the children is recorded, and a run by this rule repeats under its seed."""
    save_tiny_part(target, "eagle")
    prompt, sampling = Prompt.from_ids(prompt_ids(2)), Sampling(temperature=1.0, seed=6)
    options = {"sampling": sampling, "max_new_tokens": NEW}
    trace = record(target, prompt, "eagle2", {"rule": "in turn"}, **options)
    again = record(target, prompt, "eagle2", {"rule": "in turn"}, **options)
    assert trace.output_ids == again.output_ids and trace.run["method"]["lossless"]
    nodes = trace.tables["nodes"]
    for accept, draw, status in zip(nodes["term:accept_ratio"], nodes["term:draw"], nodes["status"], strict=True):
        if accept is not None:
            assert (draw < accept) == (status == "accepted")
    assert any(accept is not None for accept in nodes["term:accept_ratio"])
    greedy = generate(target, prompt, "eagle2", {"rule": "in turn"}, max_new_tokens=NEW)
    assert greedy == generate(target, prompt, "plain", max_new_tokens=NEW)
