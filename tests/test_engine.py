"""Decoding: stop tokens, budgets, cancelling, sampling, and what the cache keeps."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from decoders import Prompt, Sampling, UserError, generate
from decoders.draft.draft import Draft, Scored
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.engine.decoding import Decoding
from decoders.verifiers.match import MatchVerifier, cut_at_stop, judged
from decoders.verifiers.sampling import Chooser

from .chance import first_tokens, p_value
from .drafters_for_tests import WildTrees, method_of
from .models import VOCAB, prompt_ids, session_behind, tiny_target

NEW = 30


@pytest.fixture(scope="module")
def plain(target):
    return generate(target, Prompt.from_ids(prompt_ids(3)), max_new_tokens=NEW)


def logits_for(rows: list[int]) -> Scored:
    """Logits whose argmax after node i is rows[i]."""
    logits = torch.zeros(len(rows), VOCAB)
    logits[torch.arange(len(rows)), torch.tensor(rows)] = 5.0
    return Scored(logits)


def test_match_verification_walks_by_the_targets_choice():
    draft = Draft(DraftTree((1, 7, 8, 0, 9), (-1, 0, 1, 0, 3)))
    verify = MatchVerifier(Chooser(Sampling()))
    verdict = verify(draft, logits_for([7, 5, 6, 6, 6]))
    assert (verdict.path, verdict.bonus) == ((0, 1), 5)
    assert verdict.status == ("root", "accepted", "rejected", "rejected", "unreached")
    assert verdict.reasons == ("root", "match", "mismatch", "mismatch", "parent rejected")
    assert verify(draft, logits_for([2, 5, 6, 6, 6])).path == (0,)
    # token 0 is a token like any other: it is accepted only where it stands
    assert verify(draft, logits_for([0, 5, 6, 9, 3])).path == (0, 3, 4)


def test_a_stop_token_inside_the_path_ends_it():
    draft = Draft(DraftTree((1, 7, 2, 8, 9), (-1, 0, 1, 2, 2)))
    verdict = cut_at_stop(draft, judged(draft, [0, 1, 2, 3], 4), {2})
    assert (verdict.path, verdict.bonus) == ((0, 1, 2), None)
    assert verdict.status == ("root", "accepted", "accepted", "unreached", "unreached")
    assert verdict.reasons[3:] == ("after stop", "after stop")


@pytest.mark.parametrize("method", ["plain", "pld", "pld+h", "pld+a"])
def test_stop_tokens_end_the_output_wherever_they_come(target, plain, method):
    for position in (0, 3, 11):
        stop = plain[position]
        first = plain.index(stop)
        run = Decoding.of(target, Prompt.from_ids(prompt_ids(3)), method, max_new_tokens=NEW, stop_ids=[stop])
        out = [t for step in run for t in step.emitted]
        assert out == plain[: first + 1] and run.stop == "eos"


def test_a_stop_token_drafted_among_others(target, plain):
    stop = plain[4]
    wild = WildTrees(plain, VOCAB, seed=2)
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(3)), method_of(wild), max_new_tokens=NEW, stop_ids=[stop])
    assert [t for step in run for t in step.emitted] == plain[: plain.index(stop) + 1]


@pytest.mark.parametrize("budget", [1, 2, 3, 7])
def test_output_never_passes_the_budget(target, plain, budget):
    for method in ("plain", "pld", "pld+h", method_of(WildTrees(plain, VOCAB))):
        run = Decoding.of(target, Prompt.from_ids(prompt_ids(3)), method, max_new_tokens=budget)
        assert [t for step in run for t in step.emitted] == plain[:budget]
        assert run.stop == "max tokens"


def test_a_drafter_that_ignores_the_budget_is_named(target, plain):
    class Greedy(WildTrees):
        def propose(self, context, budget):
            return Draft(DraftTree.chain(context.root, [5] * 10), ("root",) + ("main",) * 10, (-1,) * 11)

    with pytest.raises(ValueError, match="Greedy drafted 10 tokens deep; its budget was 2"):
        generate(target, Prompt.from_ids(prompt_ids(3)), method_of(Greedy(plain, VOCAB)), max_new_tokens=3)


def test_the_models_context_is_never_passed(target):
    ids = prompt_ids(1, 505)
    run = Decoding.of(target, Prompt.from_ids(ids), "pld", max_new_tokens=50)
    out = [t for step in run for t in step.emitted]
    assert len(out) == 512 - 505 and run.stop == "context full"
    with pytest.raises(UserError, match=r"has 512 tokens, but tiny-llama reads at most 512"):
        Decoding.of(target, Prompt.from_ids(prompt_ids(1, 512)), "plain")


def test_prompts_of_one_token_and_none(target):
    assert len(generate(target, Prompt.from_ids([7]), "pld+h", max_new_tokens=4)) == 4
    assert generate(target, Prompt.from_ids([7]), "pld+a", max_new_tokens=4) == generate(
        target, Prompt.from_ids([7]), max_new_tokens=4
    )
    with pytest.raises(UserError, match="the prompt is empty"):
        Prompt.from_ids([])


def test_cancel_stops_between_steps(target):
    cancel = threading.Event()
    run = Decoding.of(target, Prompt.from_ids(prompt_ids(3)), "plain", max_new_tokens=NEW, cancel=cancel)
    steps = []
    for step in run:
        steps.append(step)
        if len(steps) == 3:
            cancel.set()
    assert len(steps) == 3 and run.stop == "cancelled"


def test_same_seed_same_tokens_whatever_the_method(target):
    ids = prompt_ids(3)
    sampling = Sampling(temperature=0.8, top_k=50, top_p=0.95, seed=11)
    expected = generate(target, Prompt.from_ids(ids), "plain", sampling=sampling, max_new_tokens=NEW)
    for method in ("pld", "pld+h", "pld+a", method_of(WildTrees(expected, VOCAB))):
        assert generate(target, Prompt.from_ids(ids), method, sampling=sampling, max_new_tokens=NEW) == expected
    other = Sampling(temperature=0.8, top_k=50, top_p=0.95, seed=12)
    assert generate(target, Prompt.from_ids(ids), "plain", sampling=other, max_new_tokens=NEW) != expected


def test_sampling_matches_the_targets_distribution():
    """Chi-square on a toy target: whatever is drafted, tokens come out as the target would have drawn them."""
    probabilities, runs = torch.tensor([0.05, 0.45, 0.2, 0.25, 0.05]), 4000
    row = probabilities.log()[None]

    def honest(seed: int) -> MatchVerifier:
        return MatchVerifier(Chooser(Sampling(temperature=1.0, seed=seed)))

    for tokens, parents in [((0, 1, 2), (-1, 0, 1)), ((0, 3, 4, 1), (-1, 0, 0, 0))]:
        counts = first_tokens(Draft(DraftTree(tokens, parents)), Scored(row.repeat(len(tokens), 1)), honest, runs)
        assert p_value(counts, probabilities * runs) > 1e-3
    draft = Draft(DraftTree((0, 3, 1), (-1, 0, 1)))

    def lenient(seed: int) -> Any:
        """Every fourth lets the draft stand, whatever the target says."""
        return honest(seed) if seed % 4 else lambda draft, _: judged(draft, [0, 1], 0)

    cheated = first_tokens(draft, Scored(row.repeat(3, 1)), lenient, runs)
    assert p_value(cheated, probabilities * runs) < 1e-6, "the test must be able to fail"


def test_top_k_and_top_p_limit_what_can_be_drawn():
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    assert Chooser(Sampling(temperature=1, top_k=2)).probabilities(logits)[0].tolist() == pytest.approx(
        [4 / 7, 3 / 7, 0, 0], abs=1e-6
    )
    assert Chooser(Sampling(temperature=1, top_p=0.65)).probabilities(logits)[0].tolist() == pytest.approx(
        [4 / 7, 3 / 7, 0, 0], abs=1e-6
    )
    assert Chooser(Sampling(temperature=0.5)).probabilities(logits)[0].tolist() == pytest.approx(
        [16 / 30, 9 / 30, 4 / 30, 1 / 30], abs=1e-6
    )


@pytest.mark.parametrize(
    "bad", [{"temperature": -1}, {"temperature": 99}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.5}, {"seed": -1}]
)
def test_sampling_out_of_range(bad):
    with pytest.raises(UserError, match=next(iter(bad))):
        Sampling(**bad)


def test_memory_after_commits_equals_a_fresh_prefill(target, plain):
    """Accepted branches leave the same keys, hidden states and top tokens as processing the text in one go."""
    ids = prompt_ids(3)
    needs = Needs(layers=(2,), heads=((0, 0), (2, 1)), top_tokens=6)
    run = Decoding(target, Prompt.from_ids(ids), WildTrees(plain, VOCAB, seed=5), needs=needs, max_new_tokens=NEW)
    moved = [step for step in run if list(step.verdict.path) != list(range(len(step.verdict.path)))]
    assert moved, "no branch was accepted: the gather was not tested"
    grown = run.context
    fresh_session = session_behind(target, grown.tokens.tolist(), 200, needs)
    fresh = fresh_session.context
    for layer in range(3):
        torch.testing.assert_close(grown.keys(layer), fresh.keys(layer), atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(grown.values(layer), fresh.values(layer), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(grown.hidden, fresh.hidden, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(grown.top_logprobs, fresh.top_logprobs, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(grown.attention(), fresh.attention(), atol=1e-5, rtol=1e-4)
    cut = grown.cut(70)
    assert cut.root == int(grown.tokens[69]) and cut.hidden.shape[0] == 69
    torch.testing.assert_close(cut.attention(), fresh.cut(70).attention(), atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="cannot be cut at 500"):
        grown.cut(500)


def test_two_runs_may_be_open_at_once(target, plain):
    first = iter(Decoding.of(target, Prompt.from_ids(prompt_ids(3)), "pld+h", max_new_tokens=NEW))
    out = list(next(first).emitted)
    second = generate(target, Prompt.from_ids(prompt_ids(4)), "pld+a", max_new_tokens=NEW)
    out += [t for step in first for t in step.emitted]
    assert out == plain and second == generate(target, Prompt.from_ids(prompt_ids(4)), max_new_tokens=NEW)


def test_a_forward_that_fails_leaves_nothing_armed(monkeypatch):
    """Requests of one run to keep states do not reach the next."""
    target, needs = tiny_target("llama"), Needs(layers=(1,), heads=((0, 1),), top_tokens=2)
    asked = Prompt.from_ids(prompt_ids(3))

    def failing(*args, **kwargs):
        honest(*args, **kwargs)
        raise MemoryError("out of memory")

    honest = type(target).forward
    for prefilled in (False, True):
        session = target.session(needs, 64)
        if prefilled:
            session.prefill(asked)
        with monkeypatch.context() as patch, pytest.raises(MemoryError):
            patch.setattr(type(target), "forward", failing)
            session.score(Draft.empty(session.context.root, "")) if prefilled else session.prefill(asked)
        plain = session_behind(target, asked, 64)
        assert not plain.memory.hidden and not plain.memory.queries and plain.memory.top_ids is None
        assert not target.taps.hooks and target.head.split_weight is None and not target.head.keep
