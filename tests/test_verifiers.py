"""Verifiers as plug-ins: the registry, every rule's chances and distributions, and methods under another verifier."""

from __future__ import annotations

from itertools import islice, product

import numpy as np
import pytest
import torch

from decoders import Prompt, Sampling, find_method, find_verifier, record
from decoders.draft.draft import Draft, Scored
from decoders.draft.params import controls, make_params
from decoders.draft.tree import DraftTree
from decoders.drafters import add_plugin, methods, verifiers
from decoders.engine.decoding import Decoding, read_once
from decoders.errors import UserError
from decoders.method.plugins import Unusable
from decoders.verifiers.sampling import Chooser, drawn_token
from decoders.verifiers.verifier import Verifier
from specviz.cli import main

from .chance import p_value
from .command import refusal
from .models import prompt_ids, session_behind
from .test_residual import Pair, chooser, draw, written_counts

NAMES = ("match", "target-only", "ratio", "block", "typical", "fly", "relaxed", "threshold", "diverse")
LOSSLESS = NAMES[:4]


@pytest.fixture(scope="module")
def bundle():
    from decoders import load_target

    return load_target("assets/demo/target")


def judge(name: str, choose: Chooser, **params) -> Verifier:
    card = find_verifier(name)
    return card.build(make_params(card.params, params), choose, frozenset())


def test_the_registry_has_a_card_of_every_verifier():
    cards = verifiers()
    assert tuple(cards) == NAMES and [name for name, card in cards.items() if card.lossless] == list(LOSSLESS)
    for card in cards.values():
        assert card.title and card.source and card.summary.endswith(".")
        values = card.params()
        for control in controls(card.params):
            assert control.check(control.default) == getattr(values, control.name) and control.help
    with pytest.raises(UserError, match="no verifier 'typicl': choose one of match, target-only, ratio"):
        find_verifier("typicl")


def tree_of(pair: Pair) -> tuple[Draft, Scored]:
    """Two branches, none drawn: 0 → (0 → 1, 1)."""
    heads = [(), (0,), (0, 1), (1,)]
    draft = Draft(DraftTree((5, 0, 1, 1), (-1, 0, 1, 0)))
    return draft, Scored(torch.stack([pair.p[head] for head in heads]).clamp_min(1e-30).log())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["drawn", "chain", "tree"])
def test_chances_are_what_a_verifier_does(name, kind):
    """Accepted nodes counted over many seeds, against what the verifier says of them."""
    for seed, runs in ((1, 300), (4, 300)):
        pair = Pair(seed, 3, 4)
        draft, scored = pair.chain((0, 1, 2, 1)) if kind != "tree" else tree_of(pair)
        if kind == "chain":
            draft = Draft(draft.tree)
        own = {"fly_window_size": 2, "fly_entropy_threshold": 0.2} if name == "fly" else {}
        verifier = judge(name, chooser(0), **own)
        assert verifier.exact_chances
        said, counts = verifier.chances(draft, scored), np.zeros(len(draft.tree))
        verifier.chooser.random = random = np.random.default_rng(7)
        if hasattr(verifier, "match"):
            assert verifier.match.chooser is verifier.chooser
        for _ in range(runs):
            verdict = verifier(draft, scored)
            assert verdict.bonus is not None and len(verdict.reasons) == len(draft.tree)
            counts[list(verdict.path)] += 1
        assert verifier.chooser.random is random, "a verdict takes its numbers from the chooser"
        np.testing.assert_allclose(counts / runs, said, atol=0.1)
        assert said[0] == 1 and (said <= 1 + 1e-9).all()


def first_tokens(name: str, p: torch.Tensor, q: torch.Tensor, runs: int, **params) -> np.ndarray:
    """Counts of the tokens that came out of a draft of one token drawn from q."""
    counts, random, verifier = np.zeros(len(p)), np.random.default_rng(5), judge(name, chooser(11), **params)
    for _ in range(runs):
        token = drawn_token(q, random.random())
        verdict = verifier(draw([token], [q]), Scored(p.log().repeat(2, 1)))
        counts[token if verdict.accepted else verdict.bonus] += 1
    return counts


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fly"])
def test_what_a_verifier_emits_is_what_comes_out(name):
    p, q, runs = torch.tensor([0.52, 0.28, 0.12, 0.08]), torch.tensor([0.1, 0.3, 0.2, 0.4]), 1200
    params = {"threshold_single": 0.5, "threshold_acc": 0.6} if name == "threshold" else {}
    params |= {"relaxed_topk": 3, "relaxed_delta": 0.3} if name == "relaxed" else {}
    verifier = judge(name, chooser(0), **params)
    emits = verifier.emits(p[None].double(), q[None].double())[0].numpy()
    emits = emits / emits.sum()
    counts = first_tokens(name, p, q, runs, **params)
    assert p_value(counts, emits * runs) > 0.01
    away = float(np.abs(emits - p.numpy()).sum()) / 2
    assert (away < 1e-6) == find_verifier(name).lossless
    if name == "diverse":
        assert away == pytest.approx(0.3 * float((p - q).abs().sum()) / 2)


@pytest.mark.parametrize(("name", "params"), [("typical", {}), ("relaxed", {"relaxed_delta": 0.25})])
def test_a_token_that_top_k_cuts_off_may_stand_and_counts_as_another(name, params):
    """The rule reads p at the run's temperature alone; the target would never have drawn the token."""
    draft, scored = Draft(DraftTree.chain(9, (2, 0))), Scored(torch.tensor([0.4, 0.3, 0.2, 0.1]).log().repeat(3, 1))
    verifier = judge(name, chooser(0, top_k=2), **params)
    assert verifier(draft, scored).accepted == 2
    np.testing.assert_allclose(verifier.distances(draft, scored), [np.nan, 1, 3 / 7], atol=1e-6)


def test_at_its_mildest_a_lossy_verifier_is_a_lossless_one():
    p, q = torch.tensor([[0.6, 0.3, 0.1]]).double(), torch.tensor([[0.2, 0.2, 0.6]]).double()
    mildest = {"threshold": {"threshold_single": 1, "threshold_acc": 1}, "diverse": {"ensemble_weight": 1}}
    for name, params in mildest.items():
        verifier = judge(name, chooser(0), **params)
        assert verifier.lossless
        np.testing.assert_allclose(verifier.emits(p, q), p)


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_verifiers_have_the_targets_distribution(name):
    """Drawn chains of two, and what follows, enumerated against p by counting: no verifier may show in the text."""
    pair, runs = Pair(5, 3, 2), 900
    expected = np.array([pair.share(pair.p, tokens) for tokens in product(range(3), repeat=2)]) * runs

    def count(verifier: Verifier) -> float:
        def begin_anew(seed: int) -> Verifier:
            verifier.chooser.random = np.random.default_rng([seed, 2])
            return verifier

        return p_value(written_counts(pair, begin_anew, runs, 2), expected)

    assert count(judge(name, chooser(0))) > 0.01
    if name == "ratio":
        assert count(judge("diverse", chooser(0), ensemble_weight=0.2)) < 1e-6, "the test must be able to fail"


@pytest.mark.slow("1,000 runs of the bundled target for each verifier")
@pytest.mark.parametrize("name", LOSSLESS)
def test_text_of_the_bundled_target_under_each_lossless_verifier(name, bundle):
    """Two tokens of 1,000 seeds against the target's own probabilities."""
    prompt = Prompt.from_text(bundle.tokenizer, "Say it twice: the old lamp. the old")
    seeds, settings = 1000, {"temperature": 1.0, "top_k": 6}
    session = session_behind(bundle, prompt, len(prompt.tokens) + 8, find_method("plain").needs(bundle, None))
    warp = Chooser(Sampling(**settings))
    first = warp.probabilities(session.score(Draft.empty(session.context.root, "first")).logits)[0]
    often = first.nonzero()[:, 0].tolist()
    below = session.score(Draft(DraftTree((session.context.root, *often), (-1, *[0] * len(often)))))
    second = warp.probabilities(below.logits[1:])
    runs = [Decoding.of(bundle, prompt, f"sps@{name}", sampling=Sampling(**settings, seed=seed), max_new_tokens=4)
            for seed in range(seeds)]  # fmt: skip
    read = read_once(runs[:1])
    counts: dict[tuple[int, ...], int] = {}
    for run in runs:
        run.prefill(read)
        written = tuple(islice((token for step in run for token in step.emitted), 2))  # steps behind them are not run
        counts[written] = counts.get(written, 0) + 1
    expected = {}
    for place, token in enumerate(often):
        if token in bundle.stop_ids:
            expected[(token,)] = float(first[token]) * seeds
        else:
            expected |= {(token, int(then)): float(first[token] * second[place, then]) * seeds
                         for then in second[place].nonzero()[:, 0]}  # fmt: skip
    assert set(counts) <= set(expected), "nothing is written that the target would not write"
    assert sum(wanted >= 5 for wanted in expected.values()) > 4
    assert p_value([counts.get(key, 0) for key in expected], [*expected.values()]) > 0.01


def test_block_verification_accepts_at_least_as_many_as_the_ratio():
    """Of all drafts of two tokens, weighted by q."""
    for seed in range(6):
        pair, sums = Pair(seed, 3, 2), {"ratio": 0.0, "block": 0.0}
        for tokens in product(range(3), repeat=2):
            if weight := pair.share(pair.q, tokens):
                for name in sums:
                    sums[name] += weight * judge(name, chooser(0)).chances(*pair.chain(tokens))[1:].sum()
        assert sums["block"] >= sums["ratio"] - 1e-9


def test_fly_by_hand():
    """A greedy draft of four: token 2 is not the first choice."""
    sure, doubt = [0.98, 0.01, 0.01], [0.4, 0.35, 0.25]
    rows = lambda *which: Scored(torch.tensor([*which, sure]).log())  # noqa: E731
    chain = Draft(DraftTree.chain(5, (0, 1, 0, 0)))
    fly = lambda **params: judge("fly", Chooser(Sampling()), fly_window_size=2, **params)  # noqa: E731
    deferred = fly()(chain, rows(sure, doubt, sure, sure))
    assert deferred.accepted == 4
    assert "deferred: entropy 1.08 ≥ 0.3 (threshold), and the next W = 2 pass" in deferred.reasons[2]
    certain = fly()(chain, rows(sure, sure, sure, sure))
    assert certain.accepted == 1 and certain.bonus == 0 and "entropy 0.112 < 0.3 (threshold)" in certain.reasons[2]
    late = fly()(Draft(DraftTree.chain(5, (0, 0, 1, 0))), rows(sure, sure, doubt, sure))
    assert late.accepted == 2 and "fewer than W = 2 tokens follow it" in late.reasons[3]
    twice = fly()(Draft(DraftTree.chain(5, (1, 1, 0, 0))), rows(doubt, doubt, sure, sure))
    assert twice.accepted == 0 and "not all of the next W = 2 pass" in twice.reasons[1]
    assert fly(fly_entropy_threshold=1.2)(chain, rows(sure, doubt, sure, sure)).accepted == 1
    impossible = [0.5, 0.0, 0.5]
    assert fly()(chain, Scored(torch.tensor([sure, impossible, sure, sure, sure]).log())).accepted == 1


@pytest.mark.parametrize("window", [2, 3, 6, 64])
def test_flys_window_does_not_shrink_on_short_drafts(window):
    """With fewer than W tokens behind it a rejected token is never deferred: by one verdict and by the chances."""
    doubt, sure = [0.4, 0.35, 0.25], [0.98, 0.01, 0.01]
    for behind in range(5):
        chain = Draft(DraftTree.chain(5, (1, *[0] * behind)))
        scored = Scored(torch.tensor([doubt, *[sure] * (behind + 1)]).log())
        rule = judge("fly", Chooser(Sampling()), fly_window_size=window)
        assert rule(chain, scored).accepted == (1 + behind if behind >= window else 0)
        assert rule.chances(chain, scored)[1:].sum() == (1 + behind if behind >= window else 0)
        drawn = judge("fly", Chooser(Sampling(temperature=1.0)), fly_window_size=window)
        own = drawn.chances(chain, scored)[1]
        assert own == pytest.approx(1 - (1 - 0.35) * (1 - 0.98**window) if behind >= window else 0.35)


def test_relaxed_and_thresholds_by_hand():
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log().repeat(2, 1)
    one = lambda token: Draft(DraftTree.chain(7, (token,)))  # noqa: E731
    greedy = Chooser(Sampling())
    taken = lambda token, **params: judge("relaxed", greedy, **params)(one(token), Scored(p)).accepted  # noqa: E731
    assert [taken(token, relaxed_topk=2, relaxed_delta=0.6) for token in range(4)] == [1, 1, 0, 0]
    assert [taken(token, relaxed_topk=4, relaxed_delta=0.35) for token in range(4)] == [1, 1, 1, 0]
    assert [taken(token, relaxed_topk=4, relaxed_delta=0) for token in range(4)] == [1, 0, 0, 0]
    said = judge("relaxed", greedy, relaxed_topk=2)(one(2), Scored(p)).reasons[1]
    assert said == "rank 3, not in the top 2"
    near = judge("relaxed", greedy, relaxed_topk=4, relaxed_delta=0.35)(one(2), Scored(p)).reasons[1]
    assert near == "p = 0.15 ≥ highest p − margin δ = 0.5 − 0.35"
    sure = judge("threshold", chooser(0), threshold_single=0.3)
    assert [round(float(sure.chances(one(token), Scored(p))[1]), 3) for token in range(4)] == [1, 1, 0.15, 0.05]
    fallen = judge("threshold", chooser(0), threshold_single=0.3)(
        Draft(DraftTree((7, 3, 2), (-1, 0, 0))), Scored(p[:1].repeat(3, 1))
    )
    draw = fallen.terms["draw"][1]
    assert fallen.reasons[1:] == (
        f"draw {draw:.3g} ≥ p ÷ acceptance threshold = 0.05",
        f"draw {draw:.3g} ≥ Σ p so far ÷ acceptance threshold = 0.2",
    )
    eased = judge("threshold", chooser(0), threshold_single=1, threshold_acc=0.5)
    assert [round(float(eased.chances(one(token), Scored(p))[1]), 3) for token in range(4)] == [1, 0.6, 0.3, 0.1]


def test_a_method_under_another_verifier(target):
    """It is there by name, though no list has it; it has the parameters of both; its record says that it is lossy."""
    entry = find_method("pld+h@relaxed")
    assert "Relaxed acceptance" in entry.title.partition(":")[0], "where titles are shortened"
    assert "pld+h@relaxed" in methods() and "pld+h@relaxed" not in list(methods()) and "pld+h@none" not in methods()
    assert find_method("pld+h@relaxed") is entry, "one class of parameters"
    names = {control.name for control in controls(entry.params)}
    assert {"k", "relaxed_topk", "relaxed_delta"} <= names
    assert "rule" not in {control.name for control in controls(find_method("sps@typical").params)}
    ids = prompt_ids(3, 24)
    prompt = Prompt.from_ids([*ids, *ids])
    trace = record(target, prompt, "pld+h@relaxed", {"relaxed_topk": 3}, max_new_tokens=12)
    about = trace.run["method"]
    assert about["name"] == "pld+h@relaxed" and about["lossless"] is False and about["params"]["relaxed_topk"] == 3
    assert "relaxed.py RelaxedVerifier" in about["code"]["verifies"] and "term:relaxed" in trace.tables["nodes"]
    plain = record(target, prompt, "plain", max_new_tokens=12)
    for name in LOSSLESS:
        same = record(target, prompt, f"pld+h@{name}", max_new_tokens=12)
        assert same.output_ids == plain.output_ids and same.run["method"]["lossless"] is True
    with pytest.raises(UserError, match="there is no verifier 'nope': choose one of match"):
        find_method("pld+h@nope")
    with pytest.raises(UserError, match="there is no method 'nope@block'"):
        find_method("nope@block")


PLUGIN = '''
from dataclasses import dataclass
from decoders import VerifierCard, Verifier
from decoders.draft.params import param
from decoders.verifiers.match import judged

@dataclass(frozen=True)
class Params:
    most: int = param(1, "Most", "Tokens accepted at most.", low=0)

class Kind(Verifier):
    lossless = False
    def __init__(self, chooser, most):
        self.chooser, self.most = chooser, most
    def __call__(self, draft, scored):
        path = [*range(min(self.most, draft.tree.drafted) + 1)] if draft.tree.is_chain else [0]
        return judged(draft, path, int(scored.logits[path[-1]].argmax()))

VERIFIER = VerifierCard("kind", "Kind", "nobody", "Takes what it is given.",
                        lambda params, chooser, stops: Kind(chooser, params.most), lossless=False, params=Params)
'''


def test_a_verifier_from_a_file(tmp_path, target, registry):
    """A plug-in may bring verifiers alone; what it does wrongly is a sentence that names it."""
    file = tmp_path / "kind.py"
    file.write_text(PLUGIN)
    assert [card.name for card in add_plugin(file).verifiers] == ["kind"]
    ids = prompt_ids(3, 24)
    prompt = Prompt.from_ids([*ids, *ids])
    trace = record(target, prompt, "pld@kind", {"most": 2}, max_new_tokens=8)
    assert max(trace.tables["steps"]["accepted"]) == 2 and trace.run["method"]["lossless"] is False
    chances = find_verifier("kind").build(find_verifier("kind").params(), chooser(0), frozenset())
    assert chances.chances(Draft(DraftTree.chain(1, (2, 3))), Scored(torch.zeros(3, 8))).tolist() == [1, 1, 0]
    for wrong, message in (
        ("path = [2]", "its path .* is no path of the draft"),
        ("raise KeyError('x')", "failed in its verifier: KeyError: .*line .* of kind.py"),
        ("return 3", "it returned int, and a Verdict is wanted"),
    ):
        file.write_text(PLUGIN.replace("path = [*range", f"{wrong}; path = [*range" if "path" not in wrong else
                                       f"{wrong} if draft.tree.drafted else [0]; _ = [*range"))  # fmt: skip
        add_plugin(file)
        with pytest.raises(UserError, match=message):
            record(target, prompt, "pld@kind", max_new_tokens=8)
    for broken, message in (
        (PLUGIN.replace('"kind", "Kind"', '"block", ""'), "its verifier is called 'block', and so is one of specviz"),
        (PLUGIN.replace('"kind", "Kind"', '"a@b", "Kind"'), "a name has letters, digits"),
        ("VERIFIER = 3\n", "VERIFIER is a int, and a decoders.VerifierCard is wanted"),
    ):
        file.write_text(broken)
        with pytest.raises(Unusable, match=message):
            add_plugin(file)
    (tmp_path / "none.py").write_text("x = 1\n")
    with pytest.raises(Unusable, match="or a VERIFIER"):
        add_plugin(tmp_path / "none.py")


def test_verifiers_on_the_command_line(capsys):
    assert main(["methods", "typical"]) == 0
    out = capsys.readouterr().out
    assert "Typical acceptance (lossy)" in out and "typical_epsilon" in out
    run = ["run", "--prompt", "a", "--model", "bundled", "--method", "pld", "--verifier"]
    assert "there is no verifier 'typicl': choose one of match" in refusal(capsys, *run, "typicl")
    narrow = refusal(capsys, *run, "fly", "--set", "fly_window_size=0")
    assert "fly_window_size='0' is out of range: a whole number from 1 to 64" in narrow
