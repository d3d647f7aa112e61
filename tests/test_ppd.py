"""PPD: prompt tokens, their probes and masks, the drafter's states, typical acceptance, and losslessness."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from decoders import Prompt, Sampling, UserError, find_method, generate, record
from decoders.draft.draft import Draft, Reading, Scored
from decoders.draft.tree import DraftTree
from decoders.drafters.ppd import NO_GUESSES, PpdDrafter, PpdParams, chain, trees_of
from decoders.engine.decoding import Decoding
from decoders.model.state.attention import NAME
from decoders.model.state.cache_name import cache_input
from decoders.names import TREE_KINDS
from decoders.parts import load_part, read_part
from decoders.prompt_tokens.design import trees_for
from decoders.prompt_tokens.tokens import PromptConfig, PromptTokens, visibility
from decoders.prompt_tokens.trees import PromptTree, PromptTrees, save_trees
from decoders.trace.files import load, save
from decoders.verifiers.sampling import Chooser
from decoders.verifiers.typical import TypicalVerifier

from .drafters_for_tests import WildTrees, method_of
from .drafts import save_tiny_part, tiny_prompts
from .models import EVERY_FAMILY, VOCAB, prompt_ids, session_behind, tiny_target

NEW = 24
APART = {  # the ablations of appendix D.3, D.4 and D.7
    "prefix": {"prefix": 2},
    "head": {"head": True},
    "exits": {"exits": 2},
    "all": {"prefix": 1, "head": True, "exits": 3, "learned": True, "vectors": 2},
}


pytestmark = pytest.mark.usefixtures("home")


# --- prompt tokens


def test_masks_are_those_of_the_appendix():
    """Rows: token 1 vector 1, token 1 vector 2, token 2 vector 1, …"""
    seen = {mask: visibility(PromptConfig(2, 2, 8, mask)).astype(int).tolist() for mask in ("decoder", "encoder")}
    assert seen["decoder"] == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert seen["encoder"] == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    ensemble = visibility(PromptConfig(3, 2, 8))
    for j in range(2):
        assert ensemble[j::2, j::2].tolist() == np.tri(3, dtype=bool).tolist()
        assert not ensemble[j::2, 1 - j :: 2].any()


def test_probes_name_their_places_and_what_they_see(target):
    prompts = tiny_prompts(target, vectors=2)
    probes = prompts.probes(4, 2, 10)
    assert [(p.parent, p.offset, p.kind) for p in probes] == [(4, i, "prompt") for i in (1, 1, 2, 2)]
    assert [p.sees for p in probes] == [(), (), (10,), (11,)]
    for row, probe in enumerate(probes):
        assert probe.embedding is not None
        assert torch.equal(probe.embedding, prompts.embeddings[row // 2, row % 2])
    assert prompts.probes(0, 0, 0) == ()
    with pytest.raises(ValueError, match="4 prompt tokens were asked for; there are 3"):
        prompts.probes(0, 4, 0)


def test_guesses_are_averages_or_learned_sums(target):
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(0))
    plain = tiny_prompts(target, vectors=2)
    torch.testing.assert_close(plain.guesses(logits)[1], (logits[2] + logits[3]) / 2)
    learned = tiny_prompts(target, vectors=2, learned=True)
    assert learned.weights is not None
    expected = learned.weights[0] * logits[0] + learned.weights[1] * logits[1]
    torch.testing.assert_close(learned.guesses(logits)[0], expected)


@pytest.mark.parametrize("mask", ["ensemble", "decoder", "encoder"])
def test_probes_read_what_a_plain_forward_of_the_same_rows_reads(target, mask):
    """Prompt tokens on a branch of a tree against each path on its own, with embeddings, positions and mask by hand."""
    prompts = tiny_prompts(target, vectors=2, mask=mask)
    tokens = prompt_ids(1, 20)
    tree = DraftTree((tokens[-1], 7, 9, 11), (-1, 0, 1, 0))
    probes = (*prompts.probes(2, 3, 0), *prompts.probes(0, 1, 6), *prompts.probes(3, 2, 8))
    session = session_behind(target, tokens, 64)
    got = session.score(Draft(tree, probes=probes)).probe_logits
    sees = visibility(prompts.config)
    for node, count, first in ((2, 3, 0), (0, 1, 6), (3, 2, 8)):
        path = [*tokens[:-1], *(tree.tokens[i] for i in tree.path(node))]
        rows, length = count * 2, len(path)
        embedded = torch.cat([target.embeddings(torch.tensor(path)), prompts.embeddings.flatten(0, 1)[:rows]])[None]
        allowed = np.tri(length + rows, dtype=bool)
        allowed[length:, length:] = sees[:rows, :rows]
        mask4 = torch.zeros(1, 1, *allowed.shape).masked_fill_(torch.from_numpy(~allowed), torch.finfo().min)
        places = torch.tensor([[*range(length), *(length + row // 2 for row in range(rows))]])
        with torch.no_grad():
            logits = target.model(
                inputs_embeds=embedded, attention_mask=mask4, position_ids=places, use_cache=False
            ).logits[0, length:]
        torch.testing.assert_close(got[first : first + rows], logits, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gemma2", "gpt2"])
@pytest.mark.parametrize("ablation", APART)
def test_probes_read_apart_are_read_as_defined(family, ablation):
    """Against transformers' own cache that begins with the prefix tokens, and states joined and read by hand."""
    target, tokens = tiny_target(family), prompt_ids(1, 30)
    prompts = tiny_prompts(target, **APART[ablation])
    n, each, length = prompts.config.vectors, prompts.config.prefix, len(tokens)
    session = session_behind(target, tokens, 64)
    got = session.score(Draft(DraftTree.chain(tokens[-1]), probes=prompts.probes(0, 2, 0))).probe_logits
    rows, extra = 2 * n, 3 * each
    allowed = np.tri(length + rows, extra + length + rows, extra, dtype=bool)
    allowed[:, :extra] = False
    for row in range(rows):
        allowed[length + row, row // n * each : (row // n + 1) * each] = True
    allowed[length:, extra + length :] = visibility(prompts.config)[:rows, :rows]
    places = np.asarray([*range(length), *(length + row // n for row in range(rows))])
    masks = {}
    for window in set(target.shape.layer_windows):
        near = np.ones_like(allowed)
        if window is not None:
            near[:, extra:] = places[None] > places[:, None] - window
        masks[window] = torch.zeros(1, 1, *allowed.shape).masked_fill_(
            torch.from_numpy(~(allowed & near)), torch.finfo().min
        )
    mask = masks[target.shape.layer_windows[0]]
    if len(masks) > 1:
        mask = {"full_attention": masks[None], "sliding_attention": mask}
    cache = DynamicCache()
    if prompts.prefix is not None:
        for layer, (keys, values) in enumerate(zip(*prompts.prefix, strict=True)):
            cache.update(keys[None], values[None], layer)
    embedded = torch.cat([target.embeddings(torch.tensor(tokens)), prompts.embeddings.flatten(0, 1)[:rows]])[None]
    last: list[Any] = []
    hooks = [layer.register_forward_hook(lambda module, args, out: last.append(out)) for layer in target.layers]
    with torch.no_grad():
        logits = target.model(
            inputs_embeds=embedded, attention_mask=mask, position_ids=torch.from_numpy(places)[None],
            **cache_input(target.model, cache), use_cache=True,
        ).logits[0, length:]  # fmt: skip
        for hook in hooks:
            hook.remove()
        if ablation != "prefix":
            states = [(out if isinstance(out, torch.Tensor) else out[0])[0, length:] for out in last]
            joining = torch.ones(1) if prompts.joining is None else prompts.joining
            joined = sum(w * s for w, s in zip(joining, states[-len(joining) :], strict=True))
            state = next(m for name, m in target.stack.named_children() if name in ("norm", "ln_f"))(joined)
            logits = target.head(state) if prompts.head is None else state @ prompts.head.T
            if target.head.softcap and prompts.head is None:
                logits = target.head.softcap * torch.tanh(logits / target.head.softcap)
    torch.testing.assert_close(got, logits, atol=2e-4, rtol=1e-4)


# --- the target's own output


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_prompt_tokens_leave_the_targets_logits_alone(family):
    """Same rows, other prompt tokens: the nodes' logits have the same bits, also where these are read apart. Another
    number of rows, or of keys, may round otherwise, and nothing more."""
    target = tiny_target(family)
    tokens = prompt_ids(1, 40)
    tree = DraftTree((tokens[-1], 7, 9, 11), (-1, 0, 1, 0))

    def logits(seed: int, count: int = 3, **options) -> torch.Tensor:
        prompts = tiny_prompts(target, seed=seed, **options)
        session = session_behind(target, tokens, 64)
        probes = (*prompts.probes(0, count, 0), *prompts.probes(2, count, count))
        scored = session.score(Draft(tree, probes=probes))
        assert (scored.probe_logits is None) == (not count) and session.cache.prefix is None
        return scored.logits

    plain = logits(1)
    for same in (logits(2), logits(2, head=True), logits(2, exits=3)):
        assert torch.equal(plain, same)
    prefixed = logits(1, prefix=2)
    assert torch.equal(prefixed, logits(2, prefix=2, head=True, exits=2))
    for other in (logits(3, 0), prefixed):
        torch.testing.assert_close(plain, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_lossless_on_every_family_with_random_prompt_tokens(family):
    """Random embeddings guess badly; a small top k of a small vocabulary still accepts now and then."""
    target = tiny_target(family)
    save_tiny_part(target, "ppd", vectors=2 if family == "llama" else 1)
    prompt = Prompt.from_ids(prompt_ids(2))
    plain = generate(target, prompt, max_new_tokens=NEW)
    steps = list(Decoding.of(target, prompt, "ppd", {"size": 40}, max_new_tokens=NEW))
    assert [t for step in steps for t in step.emitted] == plain
    sampling = Sampling(temperature=0.9, seed=4)
    assert generate(target, prompt, "ppd", sampling=sampling, max_new_tokens=NEW) == generate(
        target, prompt, sampling=sampling, max_new_tokens=NEW
    )


class Knowing(PpdDrafter):
    """Guesses that are right: the known continuation is the first guess at every distance."""

    known: tuple[int, ...] = ()
    prompt_length = 0

    def observe(self, draft, scored, verdict):
        super().observe(draft, scored, verdict)
        if self.guesses is not None:
            at = len(self.guesses.text) - self.prompt_length
            for distance, row in enumerate(self.guesses.tokens):
                truth = self.known[at + distance] if at + distance < len(self.known) else row[0]
                self.guesses.tokens[distance] = [truth, *(t for t in row if t != truth)][: len(row)]


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_lossless_where_everything_is_accepted(family):
    """Also the cache after accepted paths beside dropped prompt rows and prefix tokens; sliding windows are passed."""
    target = tiny_target(family)
    prompt = Prompt.from_ids(prompt_ids(2))
    plain = generate(target, prompt, max_new_tokens=NEW)
    for options in ({}, *(APART.values() if family == "qwen3" else [APART["all"]])):
        prompts = tiny_prompts(target, **options)
        drafter = Knowing(prompts, trees_for(None, 3, 30, ensemble=prompts.config.vectors), target.context_length)
        drafter.known, drafter.prompt_length = tuple(plain), len(prompt.tokens)
        steps = list(Decoding.of(target, prompt, method_of(drafter), max_new_tokens=NEW))
        assert [t for step in steps for t in step.emitted] == plain
        assert sum(step.accepted for step in steps) > NEW // 3


def test_negative_control_prefix_tokens_that_nodes_can_see_change_the_output(target, monkeypatch):
    save_tiny_part(target, "ppd", prefix=2)
    prompt = Prompt.from_ids(prompt_ids(2))
    plain = generate(target, prompt, max_new_tokens=NEW)
    assert generate(target, prompt, "ppd", max_new_tokens=NEW) == plain
    monkeypatch.setattr(Reading, "visibility", lambda self, draft: np.ones(
        (len(draft.tree) + len(draft.probes), self.prefixes), dtype=bool
    ))  # fmt: skip
    assert generate(target, prompt, "ppd", max_new_tokens=NEW) != plain


def test_a_draft_has_one_reading_and_room_for_its_prefix_tokens(target):
    one, other = tiny_prompts(target, exits=2), tiny_prompts(target, prefix=16)
    session = session_behind(target, prompt_ids(1, 8), 64)
    tree = DraftTree.chain(5)
    with pytest.raises(ValueError, match="are read in 2 ways"):
        session.score(Draft(tree, probes=(*one.probes(0, 1, 0), *other.probes(0, 1, 1))))
    many = [probe for row in range(160) for probe in other.probes(0, 3, 3 * row)]
    with pytest.raises(UserError, match="a draft has 529 rows; at most 512 fit"):
        session.score(Draft(tree, probes=tuple(many)))


def test_negative_control_prompt_tokens_that_nodes_can_see_change_the_output(target, monkeypatch):
    from decoders.draft import draft as module

    honest = module._visibility

    def leaking(draft):
        sees = honest(draft)
        sees[: len(draft.tree), len(draft.tree) :] = True
        return sees

    save_tiny_part(target, "ppd")
    prompt = Prompt.from_ids(prompt_ids(2))
    plain = generate(target, prompt, max_new_tokens=NEW)
    assert generate(target, prompt, "ppd", max_new_tokens=NEW) == plain
    monkeypatch.setattr(module, "_visibility", leaking)
    assert generate(target, prompt, "ppd", max_new_tokens=NEW) != plain


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama"])
def test_prompt_tokens_keep_inside_the_context(family):
    """At the end of the context no position is left for them (learned positions would not exist)."""
    target = tiny_target(family)
    save_tiny_part(target, "ppd")
    prompt = Prompt.from_ids(prompt_ids(2, target.context_length - 7))
    steps = list(Decoding.of(target, prompt, "ppd", max_new_tokens=50))
    assert [t for s in steps for t in s.emitted] == generate(target, prompt, max_new_tokens=50)
    for step in steps:
        depths = step.draft.tree.depths
        for probe in step.draft.probes:
            assert step.context_length - 1 + depths[probe.parent] + probe.offset < target.context_length


# --- states and trees


def drafter_of(target, trees: PromptTrees | None = None, **options) -> PpdDrafter:
    return PpdDrafter(tiny_prompts(target, **options), trees or trees_for(None, 3, 20), target.context_length)


def test_states_follow_the_accepted_nodes_prompt_tokens(target):
    trees = PromptTrees(
        (PromptTree((), (2,)), PromptTree(((0,), (1,)), (2, 2, 1)), PromptTree(((0,), (1,), (0, 0)), (2, 1, 0, 2))),
        ((0.5, 0.2), (0.4, 0.1)),
    )
    drafter = drafter_of(target, trees, tokens=2)
    steps = list(Decoding.of(target, Prompt.from_ids(prompt_ids(3)), method_of(drafter), max_new_tokens=30))
    assert steps[0].draft.notes["state"] == 0 and steps[0].draft.reason == NO_GUESSES
    assert steps[0].draft.tree.drafted == 0 and [p.offset for p in steps[0].draft.probes] == [1, 2]
    states = set()
    for before, after in pairwise(steps[:-1]):
        draft, verdict = before.draft, before.verdict
        state = int(after.draft.notes["state"])
        states.add(state)
        assert draft.terms["next_state"][verdict.path[-1]] == before.observation.notes["next_state"] == state
        hung = [sum(p.parent == node for p in draft.probes) for node in range(len(draft.tree))]
        assert hung == draft.terms["next_state"].tolist()
        mine = [i for i, p in enumerate(draft.probes) if p.parent == verdict.path[-1]]
        assert before.scored.probe_logits is not None and after.draft.probabilities is not None
        told, probabilities = before.scored.probe_logits[mine].softmax(-1), after.draft.probabilities
        tree = after.draft.tree
        for node in range(1, len(tree)):
            distance, rank = int(after.draft.terms["distance"][node]), int(after.draft.terms["guess_rank"][node])
            assert tree.tokens[node] == told[distance - 1].topk(4).indices[rank]
            assert probabilities[node] == pytest.approx(float(told[distance - 1, tree.tokens[node]]))
        assert max(tree.depths) == min(state, 30 - (after.context_length - 60) - 1)
        product = [math.prod(probabilities[i] for i in tree.path(node)) for node in range(len(tree))]
        assert after.draft.terms["path_prob"].tolist() == pytest.approx(product)
    assert 2 in states


def test_trees_are_listed_depth_first_and_cut_to_the_budget(target):
    drafter = drafter_of(target, trees_for(None, 3, 40))
    plan = drafter.plan(3, 9, 99)
    tree = DraftTree(tuple(range(len(plan.parents))), plan.parents)
    assert all(tree.path(node) == sorted(tree.path(node)) for node in range(len(tree)))
    main = [node for node in range(len(tree)) if all(plan.ranks[i] == 0 for i in tree.path(node)[1:])]
    assert main == list(range(len(main))), "the first guesses stand first: keeping them moves nothing"
    short = drafter.plan(3, 1, 99)
    shallow = [path for path in drafter.trees.states[3].paths if len(path) == 1]
    assert short.distances == (0, *[1] * len(shallow))
    few = PpdDrafter(drafter.prompts, drafter.trees, 512, top_k=1)
    assert set(few.plan(3, 9, 99).ranks) == {-1, 0}


def test_guesses_of_another_text_are_not_used(target):
    drafter = drafter_of(target)
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(3)), method_of(drafter), max_new_tokens=12)
    list(run)
    context = run.context
    assert drafter.propose(context.cut(context.length - 2), 5).notes["state"] == 0
    assert drafter.guesses is None or drafter.propose(context, 5).notes["state"] > 0
    other = Decoding.of(target, Prompt.from_ids(prompt_ids(4)), method_of(drafter), max_new_tokens=12)
    assert [t for s in other for t in s.emitted] == generate(target, Prompt.from_ids(prompt_ids(4)), max_new_tokens=12)


def test_a_chain_instead_of_a_tree(target):
    save_tiny_part(target, "ppd")
    prompt = Prompt.from_ids(prompt_ids(2))
    steps = list(Decoding.of(target, prompt, "ppd", {"tree": False}, max_new_tokens=NEW))
    assert all(s.draft.tree.is_chain for s in steps)
    assert [s.draft.tree.drafted for s in steps[:3]] == [0, 3, 3]
    assert chain(3, 1).states[2].prompts == (3, 3, 3)


def test_trees_from_files(target, home):
    save_tiny_part(target, "ppd", tokens=2)
    prompt = Prompt.from_ids(prompt_ids(2))
    file = save_trees(trees_for(None, 2, 12), home / "trees.json")
    steps = list(Decoding.of(target, prompt, "ppd", {"trees": str(file)}, max_new_tokens=6))
    assert len(steps[1].draft.tree) + len(steps[1].draft.probes) == 12
    wide = save_trees(trees_for(None, 3, 12), home / "wide.json")
    refused = {
        "want 3 prompt tokens per node; there are 2": {"trees": str(wide)},
        "there is no tree file": {"trees": str(home / "none.json")},
        "a tree size of 3 is not allowed": {"size": 3},
        "leave size, tree and kind as they are": {"trees": str(file), "size": 20},
        "kind='naive' is a kind of trees, and tree is off": {"tree": False, "kind": "naive"},
        "the chain of 2 prompt tokens": {"tree": False, "size": 4},
    }
    for reason, params in refused.items():
        with pytest.raises(ValueError, match=reason):
            generate(target, prompt, "ppd", params, max_new_tokens=4)


def test_kinds_of_trees_have_the_same_size(target):
    """The table, the size and the split of the designed trees; the naive ones hang as many prompt tokens on each."""
    save_tiny_part(target, "ppd")
    prompts, made = load_part(target, "ppd"), {}
    for kind in TREE_KINDS:
        made[kind] = trees_of(target, prompts, PpdParams(size=30, kind=kind))
        assert made[kind].size <= 30 and made[kind].acceptance == made["designed"].acceptance
    assert len(set(made["naive"].states[3].prompts)) == 1
    assert made["random"].states[3].paths == made["designed"].states[3].paths
    assert made["random"].states[3].prompts != made["designed"].states[3].prompts
    assert max(made["naive"].R, made["random"].R) < made["designed"].R
    loose = trees_of(target, prompts, PpdParams(kind="naive"))
    assert loose.size <= trees_of(target, prompts, PpdParams()).size and loose.label == "naive"


# --- what is recorded of prompt tokens that were read


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gemma2"])
def test_where_prompt_tokens_look_is_the_targets_own_attention(family):
    """Against eager attention over the text and the prompt tokens behind it; nothing else changes."""
    target, layer = tiny_target(family), 1
    save_tiny_part(target, "ppd")
    prompts, prompt = load_part(target, "ppd"), Prompt.from_ids(prompt_ids(2))
    run = Decoding.of(target, prompt, "ppd", {"watch": layer, "size": 14}, max_new_tokens=8)
    steps = [(step, step.observation and step.observation.looks, run.context.length) for step in run]
    assert [t for step, *_ in steps for t in step.emitted] == generate(target, prompt, max_new_tokens=8)
    text = run.context.tokens.tolist()
    for step, looks, length in steps[:3]:
        assert looks is not None and looks.layers == (layer,)
        weights, count, read = looks.weights()[0], len(looks.nodes), length - 1
        last, nodes = step.verdict.path[-1], len(step.draft.tree)
        assert looks.nodes == tuple(nodes + i for i, p in enumerate(step.draft.probes) if p.parent == last)
        embedded = torch.cat([target.embeddings(torch.tensor(text[:read])), prompts.embeddings[:count, 0]])[None]
        for module in target.model.modules():
            if getattr(module, "config", None) is not None:
                module.config._attn_implementation = "eager"
        try:
            with torch.no_grad():
                told = target.model(inputs_embeds=embedded, use_cache=False, output_attentions=True)
        finally:
            for module in target.model.modules():
                if getattr(module, "config", None) is not None:
                    module.config._attn_implementation = NAME
        expected = told.attentions[layer][0, :, read:, :read]
        torch.testing.assert_close(weights, expected, atol=1e-5, rtol=1e-3)


def test_what_prompt_tokens_guess_together_and_where_they_look_is_recorded(target):
    save_tiny_part(target, "ppd", vectors=2)
    prompt = Prompt.from_ids(prompt_ids(2))
    trace = record(target, prompt, "ppd", {"watch": 2, "size": 30}, max_new_tokens=NEW)
    assert load(save(trace, None) or b"").to_json() == trace.to_json()
    assert trace.run["attention"]["layers"] == [2] and trace.run["attention"]["probes"]
    probes, nodes, looks = trace.tables["probes"], trace.tables["nodes"], trace.tables["attention"]
    joint = [row for row, kind in enumerate(probes["kind"]) if kind == "joint"]
    offered = {
        (step, distance): token
        for step, distance, rank, token in zip(
            nodes["step"], nodes["term:distance"], nodes["term:guess_rank"], nodes["token"], strict=True
        )
        if rank == 0
    }
    told = {(probes["step"][row] + 1, probes["offset"][row]): probes["token"][row] for row in joint}
    assert offered and all(told[place] == token for place, token in offered.items())
    assert sum(kind == "prompt" for kind in probes["kind"]) == 2 * sum(
        int(count or 0) for count in nodes["term:next_state"]
    )
    drafted = trace.tables["steps"]["drafted"]
    assert looks["step"] and all(node > drafted[step] for step, node in zip(looks["step"], looks["node"], strict=True))
    plain = record(target, prompt, "ppd", {"size": 30}, max_new_tokens=NEW)
    assert plain.output_ids == trace.output_ids and not plain.tables["attention"]["step"]
    with pytest.raises(UserError, match=r"watch=9 is not allowed: tiny-llama has the layers 0 to \d"):
        generate(target, prompt, "ppd", {"watch": 9}, max_new_tokens=4)


# --- typical acceptance


def scored_of(*rows: list[float]) -> Scored:
    return Scored(torch.tensor(rows).log())


def test_typical_acceptance_by_hand():
    """min(ε, α e^-H): certain rows are held to ε, flat ones to less."""
    flat, sure = [0.25, 0.25, 0.25, 0.25], [0.88, 0.04, 0.04, 0.04]
    draft = Draft(DraftTree((0, 1, 2, 3), (-1, 0, 1, 0)))
    chooser = Chooser(Sampling(temperature=1.0, top_k=1))  # top_k: the bonus is certain
    verdict = TypicalVerifier(chooser, epsilon=0.09, alpha=0.3)(draft, scored_of(flat, sure, flat, flat))
    assert verdict.terms["entropy"][1] == pytest.approx(math.log(4), abs=1e-6)
    assert verdict.terms["typical"][1] == pytest.approx(0.3 / 4)
    entropy = -(0.88 * math.log(0.88) + 3 * 0.04 * math.log(0.04))
    assert verdict.terms["typical"][2] == pytest.approx(min(0.09, 0.3 * math.exp(-entropy)), abs=1e-6) == 0.09
    assert verdict.status == ("root", "accepted", "rejected", "rejected")
    assert verdict.reasons[1:] == (
        "p = 0.25 > 0.075 (threshold α · exp(−entropy))", "p = 0.04 ≤ 0.09 (threshold ε)",
        "passes, but a longer or likelier path won",
    )  # fmt: skip
    assert verdict.path == (0, 1) and verdict.bonus == 0, "the target's first choice after the accepted path"


def test_typical_acceptance_looks_at_the_runs_temperature():
    """p ∝ q^(1/T): what is likely at T = 1 is not at T = 0.5; at T = 0 nothing but the target's choice stands."""
    row, draft = [0.5, 0.2, 0.2, 0.1], Draft(DraftTree.chain(0, (1,)))

    def verdict(temperature):
        chooser = Chooser(Sampling(temperature=temperature, top_k=1))
        return TypicalVerifier(chooser, epsilon=0.15, alpha=10.0)(draft, scored_of(row, row))

    squares = [p * p for p in row]
    assert verdict(1.0).accepted == 1 and verdict(1.0).reasons[1] == "p = 0.2 > 0.15 (threshold ε)"
    half = verdict(0.5)
    assert half.accepted == 0 and half.reasons[1] == f"p = {squares[1] / sum(squares):.3g} ≤ 0.15 (threshold ε)"
    shares = [p / sum(squares) for p in squares]
    assert half.terms["entropy"][1] == pytest.approx(-sum(p * math.log(p) for p in shares), abs=1e-6)
    cold = verdict(0.0)
    assert (cold.accepted, cold.bonus, cold.reasons[1]) == (0, 0, "mismatch")


def test_the_longest_accepted_path_wins():
    flat = [0.25, 0.25, 0.25, 0.25]
    draft = Draft(DraftTree((0, 1, 2, 3), (-1, 0, 0, 2)))
    verdict = TypicalVerifier(Chooser(Sampling(temperature=1.0)))(draft, scored_of(flat, flat, flat, flat))
    assert verdict.path == (0, 2, 3)
    assert verdict.status == ("root", "rejected", "accepted", "accepted")


def test_typical_acceptance_is_declared_lossy_and_loses(target):
    save_tiny_part(target, "ppd")
    prompt = Prompt.from_ids(prompt_ids(2))
    lenient, warm = {"epsilon": 0.0001, "size": 60}, Sampling(temperature=1.0, seed=3)
    assert generate(target, prompt, "ppd+typical", lenient, max_new_tokens=NEW) == generate(
        target, prompt, max_new_tokens=NEW
    ), "at temperature 0 it is exact match"
    plain = generate(target, prompt, sampling=warm, max_new_tokens=NEW)
    run = Decoding.of(target, prompt, "ppd+typical", lenient, sampling=warm, max_new_tokens=NEW)
    steps = list(run)
    assert [t for s in steps for t in s.emitted] != plain and not find_method("ppd+typical").lossless
    strict = {"epsilon": 1.0, "alpha": 10.0}
    assert not run.verifier.lossless
    assert len(generate(target, prompt, "ppd+typical", strict, max_new_tokens=NEW)) == NEW


# --- parts


def test_prompt_tokens_are_a_part(target, home):
    folder = save_tiny_part(target, "ppd", vectors=2, learned=True, mask="encoder")
    part = read_part(folder)
    assert part.config == PromptConfig(3, 2, target.shape.hidden, "encoder", True)
    assert isinstance(part.config, PromptConfig) and part.config.parameters == 3 * 2 * 64 + 2
    whole = read_part(save_tiny_part(target, "ppd", home / "all", **APART["all"])).config
    assert isinstance(whole, PromptConfig) and whole == PromptConfig.of(target.shape, **APART["all"])
    made = load_part(target, "ppd", home / "all")
    assert whole.parameters == sum(p.numel() for p in made.parameters())
    assert made.prefix[0].shape == (3, 2, 3, 16) and made.head.shape == (VOCAB, 64) and len(made.exit_weights) == 3
    prompts = load_part(target, "ppd")
    assert prompts.reading is None
    assert isinstance(prompts, PromptTokens) and torch.equal(
        prompts.embeddings, tiny_prompts(target, vectors=2).embeddings
    )


def test_a_part_follows_its_target_into_half_precision(target, home):
    half = tiny_target("llama", dtype=torch.bfloat16)
    prompts = load_part(half, "ppd", save_tiny_part(half, "ppd", home / "half", **APART["all"]))
    assert prompts.prefix[0].dtype == torch.bfloat16 and prompts.reading.head.dtype == torch.float32
    guesses = []
    for target_, made in ((half, prompts), (target, tiny_prompts(target, **APART["all"]))):
        session = session_behind(target_, prompt_ids(1, 20), 64)
        scored = session.score(Draft(DraftTree.chain(7), probes=made.probes(0, 3, 0)))
        assert scored.probe_logits is not None and scored.probe_logits.dtype == torch.float32
        guesses.append(made.guesses(scored.probe_logits))
    assert float((guesses[0] - guesses[1]).abs().max()) < 0.1 * float(guesses[1].std())


@pytest.mark.parametrize(
    "bad", [{"tokens": 0}, {"tokens": 17}, {"vectors": 0}, {"mask": "none"}, {"prefix": 17}, {"prefix": 1},
            {"exits": 0}, {"vocab": -1}, {"cached": (3, 2, 16)}],
)  # fmt: skip
def test_impossible_shapes_are_refused(bad):
    allowed = r"1 to 16 tokens of 1 to 128 vectors|one of ensemble, decoder, encoder|0 to 16|rows are not possible"
    with pytest.raises(ValueError, match=allowed):
        replace(PromptConfig(3, 1, 64), **bad)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"mask": "decoder"}, "mask='decoder' makes no difference to prompt tokens of one vector"),
        ({"learned": True}, "nothing to weigh with one vector per prompt token and one exit"),
        ({"exits": 4}, "4 exits are not possible: the model has 3 layers"),
    ],
)
def test_settings_that_mean_nothing_are_refused(target, asked, reason):
    with pytest.raises(ValueError, match=reason):
        PromptConfig.of(target.shape, **asked)


def test_probes_among_wild_trees_change_nothing(target):
    """The engine's own check of probes, with branching trees and accepted paths."""
    prompt = Prompt.from_ids(prompt_ids(5))
    plain = generate(target, prompt, max_new_tokens=NEW)
    wild = WildTrees(plain, VOCAB, probes=4)
    assert generate(target, prompt, method_of(wild), max_new_tokens=NEW) == plain
