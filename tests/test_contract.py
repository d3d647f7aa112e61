"""What every registered method owes: lossless, seeded, inside the budget, provenance recorded, tracing changes nothing.
"""

from __future__ import annotations

import dataclasses

import pytest

from decoders import Prompt, Sampling, generate, methods, record
from decoders.draft.params import controls, make_params
from decoders.drafters.sps import offer_drafter, opened
from decoders.engine.decoding import Decoding, read_once
from decoders.parts import KINDS
from decoders.trace.files import load, save

from .drafts import save_tiny_part
from .models import network, prompt_ids, tiny_target, tiny_tokenizer

NEW = 28
NAMES = tuple(methods())


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A tiny target with untrained draft models and, for PPD on a drafter, a language model with prompt tokens offered
    as its drafter: every method has what it needs.
    """
    made, folder = tiny_target("qwen3"), tmp_path_factory.mktemp("drafter")
    network("qwen3", 2).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECVIZ_HOME", str(tmp_path_factory.mktemp("home")))
        for kind in KINDS:
            save_tiny_part(made, kind)
        offer_drafter(made, str(folder))
        save_tiny_part(opened(made, str(folder)), "ppd")
        yield made


@pytest.fixture(scope="module")
def prompt():
    words = "the old lamp at the station was sold to the city museum and the old lamp at the"
    return Prompt.from_segments(
        tiny_tokenizer(), instruction="Copy.", context=[words, words[::-1]], question="the old <b>lamp</b> 🤖?"
    )


@pytest.fixture(scope="module")
def plain(target, prompt):
    return generate(target, prompt, max_new_tokens=NEW)


@pytest.mark.parametrize("name", NAMES)
def test_lossless_and_repeatable(target, prompt, plain, name):
    method = methods()[name]
    assert method.available(target) is None
    outputs = [generate(target, prompt, name, max_new_tokens=NEW) for _ in range(2)]
    assert outputs[0] == outputs[1]
    if method.lossless:
        assert outputs[0] == plain
    sampling = Sampling(temperature=0.9, seed=4)
    assert generate(target, prompt, name, sampling=sampling, max_new_tokens=NEW) == generate(
        target, prompt, name, sampling=sampling, max_new_tokens=NEW
    )


def test_runs_behind_one_reading_of_the_prompt_are_the_same(target, prompt):
    """In any order, step by step: what one run left behind the prompt is never seen by the next."""

    def steps(run, read):
        run.prefill(read)
        return [(step.draft.tree, step.draft.origins, step.verdict.status, step.emitted) for step in run]

    def runs():
        return {name: Decoding.of(target, prompt, name, max_new_tokens=NEW) for name in NAMES}

    alone = {name: steps(run, None) for name, run in runs().items()}
    together = runs()
    read = read_once(list(together.values()))
    assert {name: steps(run, read) for name, run in together.items()} == alone
    again = runs()
    assert all(steps(again[name], read) == alone[name] for name in reversed(NAMES))
    assert again["plain"].prefill_ms < 1e3 and again["plain"].session.cache.store is read.cache.store


def test_a_prompt_that_may_be_read_again_is_read_by_every_run(target):
    class Turning:
        shape = dataclasses.replace(target.shape, rotary_switch=40)

    run = Decoding.of(target, Prompt.from_ids(prompt_ids(1)), max_new_tokens=NEW)
    run.target = Turning()
    assert read_once([run]) is None
    assert read_once([Decoding.of(target, Prompt.from_ids([5]), max_new_tokens=NEW)]) is None


@pytest.mark.parametrize("name", NAMES)
def test_drafts_carry_their_provenance(target, prompt, name):
    run = Decoding.of(target, prompt, name, max_new_tokens=NEW)
    for step in run:
        draft, tree = step.draft, step.draft.tree
        assert len(draft.origins) == len(draft.sources) == len(tree) and draft.origins[0] == "root"
        assert set(draft.origins[1:]) <= {origin.name for origin in methods()[name].origins}
        assert max(tree.depths) <= NEW and tree.tokens[0] == run.context.tokens[step.context_length - 1]
        assert bool(draft.reason) == (tree.drafted == 0), (
            "a step without a draft says why, one with a draft has nothing to excuse"
        )
        for node, source in enumerate(draft.sources):
            if source >= 0:
                assert source < step.context_length and run.context.tokens[source] == tree.tokens[node]


@pytest.mark.parametrize("name", NAMES)
def test_tracing_changes_nothing_and_misses_nothing(target, prompt, name):
    untraced = Decoding.of(target, prompt, name, max_new_tokens=NEW)
    steps = list(untraced)
    trace = record(target, prompt, name, max_new_tokens=NEW)
    assert trace.output_ids == [t for step in steps for t in step.emitted]
    assert trace.tables["steps"]["accepted"] == [s.accepted for s in steps]
    assert trace.rows("nodes") == sum(len(s.draft.tree) for s in steps)
    assert trace.rows("candidates") == sum(len(s.draft.candidates) for s in steps if s.draft.candidates is not None)
    assert trace.run["complete"] and trace.run["stop"] == untraced.stop
    assert load(save(trace, None)).to_json() == trace.to_json()


@pytest.mark.parametrize("name", NAMES)
def test_controls_describe_every_parameter(name):
    method = methods()[name]
    shown = controls(method.params)
    assert make_params(method.params, {c.name: c.default for c in shown}) == method.params()
    for c in shown:
        assert c.label and c.help.endswith(".") and c.allowed()
    assert method.title and method.summary.endswith(".")


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
