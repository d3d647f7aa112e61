"""Ratio-and-residual and block verification: the oracles of methods.md §8, and exactness in distribution."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch

from decoders import Sampling, UserError
from decoders.draft.draft import Draft, Scored
from decoders.draft.tree import DraftTree
from decoders.trace.speedup import expected_speedup
from decoders.verifiers import block
from decoders.verifiers.block import BlockVerifier
from decoders.verifiers.match import cut_at_stop
from decoders.verifiers.residual import ResidualVerifier, overlap, residual
from decoders.verifiers.sampling import Chooser, drawn_token
from decoders.verifiers.verifier import Verifier

from .chance import p_value
from .tiers import matrix

P, Q = torch.tensor([0.6, 0.4]), torch.tensor([0.3, 0.7])


def draw(tokens: list[int], distributions: list[torch.Tensor]) -> Draft:
    """A chain after root 0 whose tokens were drawn from the given distributions."""
    return Draft(DraftTree.chain(0, tokens), distributions=dict(enumerate(distributions)), drawn=True)


def chooser(seed: int, **options) -> Chooser:
    return Chooser(Sampling(**{"temperature": 1.0, "seed": seed, **options}))


def test_the_oracle_of_one_token():
    """p = (.6, .4), q = (.3, .7), token 1 drafted: accepted with .571, and a reject always gives token 0."""
    scored = Scored(P.log().repeat(2, 1))
    verdicts = [ResidualVerifier(chooser(seed))(draw([1], [Q]), scored) for seed in range(3000)]
    assert verdicts[0].terms["accept_ratio"][1] == pytest.approx(0.4 / 0.7)
    assert verdicts[0].terms["overlap"][1] == pytest.approx(0.7) == float(overlap(P, Q))
    accepted = [v for v in verdicts if v.accepted]
    assert len(accepted) / 3000 == pytest.approx(0.571, abs=0.03)
    assert {v.bonus for v in verdicts if not v.accepted} == {0}
    assert all((v.terms["draw"][1] < 0.4 / 0.7) == bool(v.accepted) for v in verdicts)
    rejected = next(v for v in verdicts if not v.accepted)
    assert rejected.status == ("root", "rejected") and "redrawn from the residual" in rejected.reasons[1]
    assert residual(P, Q).tolist() == [1.0, 0.0]


def test_a_drafter_that_is_the_target_is_always_believed():
    p = torch.tensor([0.2, 0.5, 0.3])
    draft, scored = draw([1, 2, 0, 1, 1], [p] * 5), Scored(p.log().repeat(6, 1))
    for seed in range(50):
        verdict = ResidualVerifier(chooser(seed))(draft, scored)
        assert verdict.accepted == 5 and verdict.bonus is not None  # γ + 1 tokens


def test_what_follows_a_reject_is_unreached_but_keeps_its_overlap():
    never = torch.tensor([1.0, 0.0])
    verdict = ResidualVerifier(chooser(0))(draw([1, 1], [Q, Q]), Scored(never.clamp_min(1e-30).log().repeat(3, 1)))
    assert verdict.status == ("root", "rejected", "unreached") and verdict.bonus == 0
    assert verdict.terms["overlap"][2] == pytest.approx(0.3) and np.isnan(verdict.terms["draw"][2])


@pytest.mark.parametrize(
    "warped", matrix([{"temperature": 0.7}, {}, {"top_k": 3}, {"top_p": 0.8}], 1, "thousands of draws each")
)
def test_tokens_come_out_as_the_target_would_have_drawn_them(warped):
    """Chi-square over first and second token together; the drafter is a bad one, with the same warpers."""
    generator = torch.Generator().manual_seed(1)
    p, q = torch.randn(2, 4, generator=generator) * 1.5, torch.randn(2, 4, generator=generator) * 1.5
    told = [Chooser(Sampling(**{"temperature": 1.0, **warped})).probabilities(row[None])[0] for row in q]
    true = [Chooser(Sampling(**{"temperature": 1.0, **warped})).probabilities(row[None])[0].double() for row in p]
    counts, runs = np.zeros((4, 4)), 4000
    cheated = np.zeros(4)
    for seed in range(runs):
        choose = chooser(seed, **warped)
        random = np.random.default_rng([seed, 1])
        tokens = [drawn_token(row, random.random()) for row in told]
        verdict = ResidualVerifier(choose)(draw(tokens, told), Scored(torch.stack([p[0], p[1], p[0]])))
        emitted = [*tokens[: verdict.accepted], verdict.bonus]
        second = emitted[1] if len(emitted) > 1 else drawn_token(true[1], np.random.default_rng([seed, 2]).random())
        counts[emitted[0], second] += 1
        cheated[tokens[0] if seed % 4 == 0 else emitted[0]] += 1
    expected = torch.outer(true[0], true[1]).numpy() * runs
    assert p_value(counts, expected) > 1e-3
    if not warped:
        assert p_value(cheated, true[0].numpy() * runs) < 1e-6, "the test must be able to fail"


def test_drafts_that_were_not_drawn_are_matched():
    p = torch.tensor([[0.1, 0.8, 0.1], [0.6, 0.3, 0.1]])
    told = {0: torch.tensor([0.5, 0.25, 0.25])}
    draft = Draft(DraftTree((2, 1, 0), (-1, 0, 0)), distributions=told)
    verdict = ResidualVerifier(Chooser(Sampling()))(draft, Scored(torch.cat([p, p[:1]]).log()))
    assert (verdict.path, verdict.bonus) == ((0, 1), 0)
    np.testing.assert_allclose(verdict.terms["overlap"], [np.nan, 0.45, 0.45], atol=1e-6)
    assert ResidualVerifier(Chooser(Sampling()))(Draft(DraftTree.chain(2)), Scored(p[:1].log())).bonus == 1


@pytest.mark.parametrize(
    ("acceptance", "cost", "speedup"),
    [(0.648, 0.067, 1.97), (0.516, 0.077, 1.46), (0.58, 0.49, 0.66), (0.693, 0.068, 2.16)],
)
def test_expected_speedups_of_the_paper(acceptance, cost, speedup):
    assert expected_speedup(acceptance, cost, 5) == pytest.approx(speedup, abs=0.006)


def test_certain_acceptance_has_a_limit():
    assert expected_speedup(1.0, 0.0, 5) == 6
    assert expected_speedup(0.999999, 0.1, 5) == pytest.approx(expected_speedup(1.0, 0.1, 5), abs=1e-4)


def test_draws_stay_inside_the_distribution():
    p = torch.tensor([0.0, 0.5, 0.5, 0.0])
    assert {drawn_token(p, point) for point in (0.0, 0.3, 0.5, 0.999, 1.0)} == {1, 2}


class Pair:
    """Target and drafter over ``vocab`` tokens whose distributions differ after every prefix, some with zeros."""

    def __init__(self, seed: int, vocab: int, count: int) -> None:
        self.vocab, self.count, random = vocab, count, np.random.default_rng(seed)
        self.p, self.q = {}, {}
        for length in range(count + 1):
            for prefix in product(range(vocab), repeat=length):
                for rows in (self.p, self.q):
                    row = random.dirichlet(np.full(vocab, random.choice([0.3, 1.0, 4.0])))
                    if random.random() < 0.15:
                        row[random.integers(vocab)] = 0
                    rows[prefix] = torch.tensor(row / row.sum(), dtype=torch.float64).float()

    def chain(self, tokens: tuple[int, ...]) -> tuple[Draft, Scored]:
        heads = [tokens[:i] for i in range(self.count + 1)]
        draft = draw(list(tokens), [self.q[head] for head in heads[:-1]])
        return draft, Scored(torch.stack([self.p[head] for head in heads]).log())

    def share(self, rows: dict, tokens: tuple[int, ...], start: int = 0) -> float:
        """Probability of tokens from ``start`` on, after those before."""
        return float(np.prod([float(rows[tokens[:i]][tokens[i]]) for i in range(start, len(tokens))]))


def enumerate_law(pair: Pair) -> tuple[np.ndarray, float, float]:
    """The exact law of the next count + 1 tokens by block verification, as the verifier records it, and the accepted
    tokens expected of it and of the ratio rule.
    """
    law, expected, by_ratio = np.zeros((pair.vocab,) * (pair.count + 1)), 0.0, 0.0
    for tokens in product(range(pair.vocab), repeat=pair.count):
        weight = pair.share(pair.q, tokens)
        if not weight:
            continue
        terms = BlockVerifier(chooser(0))(*pair.chain(tokens)).terms
        joint, accepts = terms["block_p"], np.append(1.0, terms["block_h"][1:])
        alone = [min(1.0, pair.share(pair.p, tokens[:i], i - 1) / pair.share(pair.q, tokens[:i], i - 1))
                 for i in range(1, pair.count + 1)]  # fmt: skip
        by_ratio += weight * float(np.cumprod(alone).sum())
        for accepted in range(pair.count + 1):
            stands = weight * accepts[accepted] * float(np.prod(1 - accepts[accepted + 1 :]))
            expected += accepted * stands
            if not stands:
                continue
            head = tokens[:accepted]
            follows = pair.p[head].double()
            if accepted < pair.count:
                follows = block.block_residual(torch.tensor(joint[accepted]), follows, pair.q[head])
                follows = follows / follows.sum()
            for rest in product(range(pair.vocab), repeat=pair.count + 1 - accepted):
                then = pair.share(pair.p, (*head, *rest), accepted + 1)
                law[(*head, *rest)] += stands * float(follows[rest[0]]) * then
    return law, expected, by_ratio


@pytest.mark.parametrize(("vocab", "count"), [(3, 2), (3, 3), (2, 4), (2, 5)])
def test_block_verification_is_exact_and_accepts_at_least_as_many(vocab, count, monkeypatch):
    """All drafts of a small vocabulary, weighted by q: no chance is left in it."""
    gains, wrong = [], []
    for seed in range(8):
        pair = Pair(seed, vocab, count)
        law, expected, by_ratio = enumerate_law(pair)
        true = np.array([pair.share(pair.p, tokens) for tokens in product(range(vocab), repeat=count + 1)])
        np.testing.assert_allclose(law.ravel(), true, atol=2e-6)
        gains.append(expected - by_ratio)
        with monkeypatch.context() as patched:  # a residual that forgets P
            patched.setattr(block, "block_residual", lambda joint, p, q: (p.double() - q.double()).clamp_min(0))
            wrong.append(np.abs(enumerate_law(pair)[0].ravel() - true).max())
    assert min(gains) > -1e-6 and max(gains) > 0.01
    assert max(wrong) > 0.01, "the test must be able to fail"


def written_counts(pair: Pair, verifier: Callable[[int], Verifier], runs: int, length: int) -> np.ndarray:
    """Counts of the first so many tokens of runs, each judged by its seed's verifier; the target goes on where a step
    was shorter.
    """
    counts = np.zeros((pair.vocab,) * length)
    for seed in range(runs):
        random, tokens = np.random.default_rng([seed, 1]), ()
        for _ in range(pair.count):
            tokens = (*tokens, drawn_token(pair.q[tokens], random.random()))
        verdict = verifier(seed)(*pair.chain(tokens))
        written = (*tokens[: verdict.accepted], verdict.bonus)
        while len(written) < length:
            written = (*written, drawn_token(pair.p[written], random.random()))
        counts[written[:length]] += 1
    return counts


@pytest.mark.parametrize("count", matrix([2, 3, 4, 5], (2,), "thousands of draws; the exact law is in the first tier"))
def test_blocks_come_out_as_the_target_would_have_drawn_them(count, monkeypatch):
    pair, runs, judge = Pair(5, 3, count), 2500, lambda seed: BlockVerifier(chooser(seed))
    expected = np.array([pair.share(pair.p, tokens) for tokens in product(range(3), repeat=3)]) * runs
    assert p_value(written_counts(pair, judge, runs, 3), expected) > 0.01
    monkeypatch.setattr(block, "block_residual", lambda joint, p, q: (p.double() - q.double()).clamp_min(0))
    assert p_value(written_counts(pair, judge, runs, 3), expected) < 1e-6, "the test must be able to fail"


def test_a_block_carries_on_over_a_token_that_would_have_failed():
    """By hand: P = (1, .5, .75), and S = 0 after token 1, so that the last draw alone lets both stand."""
    p = torch.tensor([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]])
    draft = draw([0, 0], [torch.tensor([0.4, 0.6]), torch.tensor([0.4, 0.6])])
    verdicts = [BlockVerifier(chooser(seed))(draft, Scored(p.log())) for seed in range(300)]
    np.testing.assert_allclose(verdicts[0].terms["block_p"], [1, 0.5, 0.75], atol=1e-6)
    # max(.5 · (.6, .4) - (.4, .6), 0) = 0: nothing is left of a block that ended after token 1
    np.testing.assert_allclose(verdicts[0].terms["block_h"], [np.nan, 0, 0.75], atol=1e-6)
    assert {v.accepted for v in verdicts} == {0, 2}
    assert sum(v.accepted == 2 for v in verdicts) / 300 == pytest.approx(0.75, abs=0.08)
    whole = next(v for v in verdicts if v.accepted)
    assert "inside the accepted block" in whole.reasons[1] and whole.status == ("root", "accepted", "accepted")
    none = next(v for v in verdicts if not v.accepted)
    assert none.bonus == 1 and none.status == ("root", "rejected", "unreached")
    assert "redrawn from the residual" in none.reasons[1] and "≥ h = 0.75" in none.reasons[2]
    assert np.isfinite(none.terms["draw"][1:]).all()


def test_block_verification_at_the_edges():
    half, first = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([1.0, 0.0, 0.0])
    for seed in range(30):
        same = BlockVerifier(chooser(seed))(draw([1, 0, 1], [half] * 3), Scored(half.log().repeat(4, 1)))
        assert same.accepted == 3 and same.bonus in (0, 1)  # p = q: no mass is left anywhere, and nothing is rejected
        never = BlockVerifier(chooser(seed))(draw([1, 0, 0], [half] * 3), Scored(first.log().repeat(4, 1)))
        assert never.accepted == 0 and never.bonus == 0  # p = 0 ends every block
        unsaid = BlockVerifier(chooser(seed))(draw([1], [first]), Scored(half.log().repeat(2, 1)))
        assert unsaid.accepted == 1  # q = 0: whoever drafted it, the target may write it
        neither = BlockVerifier(chooser(seed))(draw([2], [first]), Scored(half.log().repeat(2, 1)))
        assert neither.accepted == 0 and neither.bonus == 1
        one = BlockVerifier(chooser(seed))(draw([1], [Q]), Scored(P.log().repeat(2, 1)))
        assert one.terms["block_h"][1] == pytest.approx(0.4 / 0.7)  # of one token: the ratio rule
    draft = draw([1, 0, 1], [half] * 3)
    ended = cut_at_stop(draft, BlockVerifier(chooser(0))(draft, Scored(half.log().repeat(4, 1))), {0})
    assert ended.path == (0, 1, 2) and ended.bonus is None and ended.reasons[3] == "after stop"
    empty = Draft(DraftTree.chain(0), distributions={}, drawn=True)
    assert BlockVerifier(chooser(0))(empty, Scored(half.log()[None])).bonus in (0, 1)
    with pytest.raises(UserError, match="lacks 1 of its 3 distributions.*matched"):
        bare = Draft(draft.tree, distributions={0: half, 1: half}, drawn=True)
        BlockVerifier(chooser(0))(bare, Scored(half.log().repeat(4, 1)))


@pytest.mark.parametrize("kind", [ResidualVerifier, BlockVerifier])
def test_the_random_numbers_of_a_step_are_counted(kind):
    """A what-if takes up a run's draws by that count."""
    pair = Pair(2, 3, 3)
    for seed in range(40):
        choose, again = chooser(seed), chooser(seed)
        verdict = kind(choose)(*pair.chain((seed % 3, seed // 3 % 3, seed // 9 % 3)))
        again.random.random(kind(again).draws("drawn", 3, verdict.accepted))
        assert choose.random.random() == again.random.random()
    greedy = kind(Chooser(Sampling()))(Draft(DraftTree.chain(0, (1,))), Scored(P.log().repeat(2, 1)))
    assert greedy.accepted == 0 and greedy.bonus == 0 and kind(chooser(0)).draws("chain", 3, 1) == 2
