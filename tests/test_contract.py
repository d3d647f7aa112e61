"""The contract of every registered method (``decoders.study.judge.contract``), and that a breach is found."""

from __future__ import annotations

import dataclasses

import pytest
from torch.nn.modules.module import register_module_forward_pre_hook

from decoders import Prompt, generate, methods, record
from decoders.drafters.sps import offer_drafter, open_drafter
from decoders.engine.decoding import Decoding, read_once
from decoders.method.part import kinds
from decoders.study.judge import contract
from decoders.study.judge.contract import NEW

from .drafts import save_tiny_part
from .models import prompt_ids, save_model, tiny_target
from .tiers import matrix

NAMES = tuple(methods())
FIRST = {"plain", "pld", "pld+h", "adapld", "casd", "recycling", "sps", "glide+cape", "ppd"}


@pytest.fixture(scope="module")
def target(module_home, tmp_path_factory):
    """A tiny target with untrained draft models and, for PPD on a drafter, a language model with prompt tokens offered
    as its drafter: every method has what it needs.
    """
    made, folder = tiny_target("qwen3"), save_model(tmp_path_factory.mktemp("drafter"), "qwen3", 2)
    for kind in kinds():
        save_tiny_part(made, kind)
    offer_drafter(made, folder)
    save_tiny_part(open_drafter(made, folder), "ppd")
    return made


@pytest.fixture(scope="module")
def plain(target, prompt):
    return generate(target, prompt, max_new_tokens=NEW)


@pytest.mark.parametrize("name", matrix(NAMES, FIRST, "the other methods"))
def test_lossless_and_repeatable(target, prompt, plain, name):
    assert methods()[name].missing(target) is None
    assert list(contract.output_faults(target, prompt, name, plain)) == []


@pytest.mark.slow("every method twice, step by step")
def test_runs_behind_one_reading_of_the_prompt_are_the_same(target, prompt):
    """In any order, step by step: what one run left behind the prompt is never seen by the next."""
    assert list(contract.alternating_faults(target, prompt, NAMES)) == []
    again = {name: Decoding.of(target, prompt, name, max_new_tokens=NEW) for name in NAMES}
    read = read_once(list(again.values()))
    forwards: list[object] = []
    with register_module_forward_pre_hook(lambda module, _: forwards.append(module)):
        again["plain"].prefill(read)
        assert not forwards and again["plain"].session.cache.store is read.cache.store, "nothing is read again"
        again["plain"].prefill()
        assert forwards, "without that it reads by itself"


def test_a_prompt_that_may_be_read_again_is_read_by_every_run(target):
    class Turning:
        shape = dataclasses.replace(target.shape, rotary_switch=40)

    run = Decoding.of(target, Prompt.from_ids(prompt_ids(1)), max_new_tokens=NEW)
    run.target = Turning()
    assert read_once([run]) is None
    assert read_once([Decoding.of(target, Prompt.from_ids([5]), max_new_tokens=NEW)]) is None


@pytest.mark.parametrize("name", NAMES)
def test_drafts_carry_their_provenance(target, prompt, name):
    assert list(contract.provenance_faults(target, prompt, name)) == []


@pytest.mark.parametrize("name", matrix(NAMES, FIRST, "the other methods"))
def test_tracing_changes_nothing_and_misses_nothing(target, prompt, name):
    assert list(contract.tracing_faults(target, prompt, name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_controls_describe_every_parameter(name):
    assert list(contract.controls_faults(name)) == []


def test_negative_control_a_lossy_method_is_caught(target, prompt, plain, monkeypatch):
    """A verifier that accepts everything is not lossless, and the comparison above would say so."""
    from decoders.method import method as cards
    from decoders.verifiers.match import judged

    class Gullible:
        lossless = True

        def __init__(self, chooser): ...

        def __call__(self, draft, scored):
            last = len(draft.tree) - 1
            return judged(draft, draft.tree.path(last), int(scored.logits[last].argmax()))

    monkeypatch.setattr(cards, "MatchVerifier", Gullible)
    assert generate(target, prompt, "pld+h", max_new_tokens=NEW) != plain


def test_would_accept_and_regret_are_filled(target):
    trace = record(target, Prompt.from_ids(prompt_ids(3)), "pld+h", max_new_tokens=NEW)
    c, tokens = trace.tables["candidates"], trace.tables["tokens"]["id"]
    assert min(c["would_accept"]) >= -1 and len(c["step"]) > 0
    contexts = trace.tables["steps"]["context"]
    for step, position, length, would in zip(c["step"], c["position"], c["length"], c["would_accept"], strict=True):
        truth, begin = 0, contexts[step]
        while truth < length and begin + truth < len(tokens) and tokens[position + 1 + truth] == tokens[begin + truth]:
            truth += 1
        assert would == (truth if begin < len(tokens) else -1)
    assert trace.run["metrics"]["ranking_regret"] >= 0
