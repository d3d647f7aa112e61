"""Ratio-and-residual verification: the oracles of methods.md §8, and exactness in distribution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from decoders import Sampling
from decoders.draft.draft import Draft, Scored
from decoders.draft.tree import DraftTree
from decoders.trace import metrics
from decoders.trace.files import load
from decoders.trace.speedup import expected_speedup
from decoders.verifiers.residual import ResidualVerifier, overlap, residual
from decoders.verifiers.sampling import Chooser, drawn_token
from specviz.experiments.quantities import QUANTITIES

from .tiers import matrix

P, Q = torch.tensor([0.6, 0.4]), torch.tensor([0.3, 0.7])


def drawn(tokens: list[int], distributions: list[torch.Tensor]) -> Draft:
    """A chain after root 0 whose tokens were drawn from the given distributions."""
    return Draft(DraftTree.chain(0, tokens), distributions=dict(enumerate(distributions)), drawn=True)


def chooser(seed: int, **options) -> Chooser:
    return Chooser(Sampling(**{"temperature": 1.0, "seed": seed, **options}))


def test_the_oracle_of_one_token():
    """p = (.6, .4), q = (.3, .7), token 1 drafted: accepted with .571, and a reject always gives token 0."""
    scored = Scored(P.log().repeat(2, 1))
    verdicts = [ResidualVerifier(chooser(seed))(drawn([1], [Q]), scored) for seed in range(3000)]
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
    draft, scored = drawn([1, 2, 0, 1, 1], [p] * 5), Scored(p.log().repeat(6, 1))
    for seed in range(50):
        verdict = ResidualVerifier(chooser(seed))(draft, scored)
        assert verdict.accepted == 5 and verdict.bonus is not None  # γ + 1 tokens


def test_what_follows_a_reject_is_unreached_but_keeps_its_overlap():
    never = torch.tensor([1.0, 0.0])
    verdict = ResidualVerifier(chooser(0))(drawn([1, 1], [Q, Q]), Scored(never.clamp_min(1e-30).log().repeat(3, 1)))
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
        verdict = ResidualVerifier(choose)(drawn(tokens, told), Scored(torch.stack([p[0], p[1], p[0]])))
        emitted = [*tokens[: verdict.accepted], verdict.bonus]
        second = emitted[1] if len(emitted) > 1 else drawn_token(true[1], np.random.default_rng([seed, 2]).random())
        counts[emitted[0], second] += 1
        cheated[tokens[0] if seed % 4 == 0 else emitted[0]] += 1
    expected = torch.outer(true[0], true[1]).numpy() * runs
    assert counts[expected == 0].sum() == 0
    assert chisquare(counts[expected > 0], expected[expected > 0] * runs / expected.sum()).pvalue > 1e-3
    first = true[0].numpy()
    if not warped:
        assert chisquare(cheated, first * runs).pvalue < 1e-6, "the test must be able to fail"


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


@pytest.mark.parametrize(
    ("name", "chains"), [("6-class-docstring-glide", True), ("7-class-docstring-glide-cape", False)]
)
def test_a_speedup_is_expected_of_chains_alone(name, chains):
    """Of CAPE's trees a position holds several tokens, and a verify forward more rows than the formula has."""
    trace = load(Path(__file__).parent.parent / f"assets/gallery/{name}.spectrace")
    values, expected = metrics.compute(trace), QUANTITIES["expected_speedup"].of(trace, "")
    if chains:
        assert expected == pytest.approx(expected_speedup(values["beta"], values["draft_cost"], 5))
    assert (expected is not None) == chains and values["beta"] and values["draft_cost"]



def test_certain_acceptance_has_a_limit():
    assert expected_speedup(1.0, 0.0, 5) == 6
    assert expected_speedup(0.999999, 0.1, 5) == pytest.approx(expected_speedup(1.0, 0.1, 5), abs=1e-4)


def test_draws_stay_inside_the_distribution():
    p = torch.tensor([0.0, 0.5, 0.5, 0.0])
    assert {drawn_token(p, point) for point in (0.0, 0.3, 0.5, 0.999, 1.0)} == {1, 2}
