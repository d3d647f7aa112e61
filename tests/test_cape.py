"""Expansion of chains and beam search: the oracles of methods.md §7."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from decoders import Sampling
from decoders.draft.draft import Draft, Scored
from decoders.draft_models.expansion import BINS, beam_search, bin_of, expand, extras
from decoders.verifiers.residual import ResidualVerifier
from decoders.verifiers.sampling import Chooser

VOCAB = 12


def confident(*tops: float) -> torch.Tensor:
    """Distributions whose first choices are tokens 0, 1, … with these probabilities, the rest falling."""
    rows = []
    for i, top in enumerate(tops):
        rest = torch.arange(VOCAB - 1, 0, -1).float()
        row = torch.cat([torch.tensor([top]), rest / rest.sum() * (1 - top)])
        rows.append(row.roll(i))
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("confidence", "more"), [(0.3, 5), (0.05, 7), (0.45, 5), (0.65, 3), (0.95, 1), (1.0, 1), (0.0, 7), (0.8, 1)]
)
def test_bins(confidence, more):
    assert extras(confidence) == more and BINS[bin_of(confidence)] == more + 1


def test_the_tree_of_the_oracle():
    """T = [A, B], X1 = {C}, X2 = {D, E}: depths 1, 2, 1, 2, 2, and each sees root, draft ancestors and itself."""
    a, b, c, d, e = range(5)
    told = torch.zeros(2, 8)
    told[0, [a, c]], told[1, [b, d, e]] = torch.tensor([0.6, 0.3]), torch.tensor([0.5, 0.3, 0.1])
    made = expand(7, [a, b], told, "fixed", 3)
    keep = [n for n in range(len(made.tree)) if made.probabilities[n] > 0]
    tree, _ = made.tree.subtree(keep)
    assert tree.tokens == (7, a, b, c, d, e) and tree.depths == (0, 1, 2, 1, 2, 2)
    sees = tree.ancestors()
    assert [np.flatnonzero(row).tolist() for row in sees[1:]] == [[0, 1], [0, 1, 2], [0, 3], [0, 1, 4], [0, 1, 5]]
    logits = torch.zeros(6, 8)
    logits[0, a] = logits[1, d] = logits[4, 6] = 9.0
    verdict = ResidualVerifier(Chooser(Sampling()))(Draft(tree), Scored(logits))
    assert verdict.accepted == 2 and verdict.path == (0, 1, 4) and verdict.bonus == 6


def test_expansion_follows_confidence():
    told = confident(0.15, 0.5, 0.7, 0.9)
    made = expand(9, [0, 1, 2, 3], told, "confidence")
    depths = np.asarray(made.tree.depths)
    assert [int((depths == i).sum()) for i in range(1, 5)] == [8, 6, 4, 2]
    assert made.tree.tokens[:5] == (9, 0, 1, 2, 3) and made.is_expanded == (False,) * 5 + (True,) * 16
    for node in range(5, len(made.tree)):
        row = told[made.tree.parents[node]]
        assert made.probabilities[node] == pytest.approx(float(row[made.tree.tokens[node]]))
        assert made.ranks[node] == int((row > row[made.tree.tokens[node]]).sum())
    worst = expand(9, [0, 1, 2, 3], confident(*[0.12] * 4), "confidence")
    assert len(worst.tree) == 33  # γ = 4: at most 32 nodes and the root


def test_a_small_vocabulary_is_enough():
    made = expand(1, [0], torch.tensor([[0.25, 0.25, 0.25, 0.25]]), "confidence")
    assert sorted(made.tree.tokens[1:]) == [0, 1, 2, 3]


def test_without_expansion_the_rank_of_drawn_tokens_is_told():
    made = expand(9, [3], torch.tensor([[0.4, 0.3, 0.2, 0.1]]), "none")
    assert made.ranks == (0, 3) and made.tree.is_chain and made.rows == {0: 0}


def markov(seed: int, vocab: int = 5) -> torch.Tensor:
    return torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize("seed", range(4))
def test_beam_search_finds_the_best_of_its_beams(seed):
    """On a chain of order one, against a search over all continuations pruned level by level."""
    table, width, depth = markov(seed), 3, 3
    logp = table.log_softmax(-1)
    given: list[int] = []

    def extend(tokens, parents):
        before = [0, *given]
        for parent in parents:
            assert -1 <= parent < len(given)
        given.extend(tokens)
        assert len(before) <= len(given)
        return table[tokens]

    made, told = beam_search(0, table[0], extend, width, depth)
    beams = [((), 0.0)]
    for _ in range(depth):
        longer = [
            ((*path, token), score + float(logp[path[-1] if path else 0, token]))
            for (path, score), token in itertools.product(beams, range(len(table)))
        ]
        beams = sorted(longer, key=lambda b: -b[1])[:width]
    tree = made.tree
    leaves = [n for n in range(len(tree)) if n not in tree.parents]
    found = {tuple(tree.tokens[n] for n in tree.path(leaf)[1:]) for leaf in leaves}
    assert found == {path for path, _ in beams}
    assert tree.tokens[1 : depth + 1] == beams[0][0], "the best beam comes first"
    assert made.is_expanded[: depth + 1] == (False,) * (depth + 1) and all(made.is_expanded[depth + 1 :])
    for node in range(1, len(tree)):
        row = told[made.rows[tree.parents[node]]]
        torch.testing.assert_close(row, table[tree.tokens[tree.parents[node]]].softmax(-1))
        assert made.probabilities[node] == pytest.approx(float(row[tree.tokens[node]]))


def test_a_beam_of_one_is_greedy():
    table = markov(7)
    made, _ = beam_search(0, table[0], lambda tokens, parents: table[tokens], 1, 4)
    token, chain = 0, []
    for _ in range(4):
        token = int(table[token].argmax())
        chain.append(token)
    assert made.tree.is_chain and list(made.tree.tokens[1:]) == chain
