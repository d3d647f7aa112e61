"""The oracles of methods.md §1 and §2, on contexts made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from decoders.draft.params import make_params
from decoders.drafters import find_method
from decoders.drafters.pld import PldDrafter, PldParams
from decoders.drafters.pldplus import (
    AttentionCopier,
    AttentionParams,
    HiddenCopier,
    HiddenParams,
    hidden_layer,
    selected_heads,
)

from .models import tiny_target


class HandContext:
    """Tokens, hidden states and attention rows given by hand; positions count from 0."""

    def __init__(self, tokens, hidden=None, rows=None, prompt_length=None):
        self.tokens = np.asarray(tokens)
        self.root, self.root_position = int(self.tokens[-1]), len(tokens) - 1
        self.prompt_length = prompt_length or len(tokens)
        self.hidden = None if hidden is None else torch.as_tensor(hidden, dtype=torch.float32)
        self._rows = rows

    def attention(self):
        return torch.as_tensor(self._rows, dtype=torch.float32)


def tokens_of(draft):
    return list(draft.tree.tokens[1:])


@pytest.mark.parametrize(
    ("tokens", "params", "expected"),
    [
        ([*range(1, 14), 1, 2, 3], {}, list(range(4, 14))),
        ([1, 2, 3, 4, 1, 2, 3], {}, []),
        ([1, 2, 3, 4, 1, 2, 3], {"clip": True}, [4, 1, 2, 3]),
        ([1, 2, 3, 4, 1, 2, 3], {"k": 3}, [4, 1, 2]),
        ([7, 1, 2, 8, 9, 3, 1, 2, 6, 5, 3, 1, 2], {"k": 2}, [6, 5]),  # the longer n-gram beats the earlier match
        ([7, 1, 2, 8, 9, 3, 1, 2, 6, 5, 3, 1, 2], {"k": 2, "max_ngram": 2}, [8, 9]),  # on a tie the earliest
        ([7, 1, 2, 8, 9, 1, 4], {"k": 2}, []),
        ([5, 6, 5, 7], {"min_ngram": 2, "k": 1}, []),
        ([4, 4, 4], {"clip": True}, [4]),  # the last n tokens do not match themselves
    ],
)
def test_pld(tokens, params, expected):
    draft = PldDrafter(PldParams(**params)).propose(HandContext(tokens), 100)
    assert tokens_of(draft) == expected
    assert (draft.reason == "") == bool(expected)
    if expected:
        start = draft.sources[1]
        assert list(tokens[start : start + len(expected)]) == expected


def test_pld_records_losers_and_why():
    draft = PldDrafter(PldParams(k=3)).propose(HandContext([1, 9, 9, 9, 1, 8, 1]), 10)
    c = draft.candidates
    assert c.position.tolist() == [0, 4] and c.chosen == 0
    assert c.excluded == ("", "fewer than K = 3 tokens follow")


X = [5, 7, 9, 5, 8, 5]  # methods.md counts from 1: t = 6, candidates 1 and 4
HIDDEN = [[1, 0], [9, 9], [0, 1], [3, 3], [0, 2]]


def test_hidden_oracle():
    context = HandContext(X, hidden=HIDDEN)
    draft = HiddenCopier(HiddenParams()).propose(context, 100)
    assert draft.candidates.position.tolist() == [0, 3]
    np.testing.assert_allclose(draft.candidates.score, [-1, 1], atol=1e-6)
    assert tokens_of(draft) == [8, 5] and draft.sources == (-1, 4, 5)
    assert tokens_of(HiddenCopier(HiddenParams(k=1)).propose(context, 100)) == [8]
    assert tokens_of(HiddenCopier(HiddenParams()).propose(context, 1)) == [8]


def test_position_zero_is_eligible_where_it_is_all_there_is():
    draft = HiddenCopier(HiddenParams()).propose(HandContext([5, 7, 5], hidden=[[1, 0], [0, 1]]), 100)
    assert tokens_of(draft) == [7, 5] and draft.candidates.score.tolist() == [-1.0]


def test_ties_go_to_the_earliest():
    context = HandContext([1, 5, 7, 1, 5, 8, 1, 5], hidden=[[1, 0]] * 7)
    assert tokens_of(HiddenCopier(HiddenParams(k=1)).propose(context, 100)) == [7]


def test_theta_filters_everything():
    half = float(np.sqrt(1 - 0.4**2))
    hidden = [[0.4, half], [9, 9], [0.4, half], [3, 3], [1, 0]]
    context = HandContext([1, *X], hidden=[[0.4, half], *hidden])
    draft = HiddenCopier(HiddenParams(theta=0.5)).propose(context, 100)
    assert tokens_of(draft) == [] and draft.route == "filtered" and "θ = 0.5" in draft.reason
    assert all(draft.candidates.excluded) and draft.candidates.chosen == -1
    assert tokens_of(HiddenCopier(HiddenParams(theta=0.3)).propose(context, 100)) != []


def test_average_last_compares_means():
    hidden = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    tokens = [1, 2, 5, 3, 4, 5, 6, 7, 8, 5]
    draft = HiddenCopier(HiddenParams(average_last=3)).propose(HandContext(tokens, hidden=hidden.numpy()), 10)
    mean = lambda p: hidden[max(0, p - 2) : p + 1].mean(0)  # noqa: E731
    expected = [float(torch.cosine_similarity(mean(j - 1), mean(8), dim=0)) for j in (2, 5)]
    np.testing.assert_allclose(draft.candidates.score, expected, atol=1e-6)


def test_prompt_only_leaves_generated_text_out():
    context = HandContext([5, 7, 5, 8, 5], hidden=[[1, 0]] * 4, prompt_length=2)
    draft = HiddenCopier(HiddenParams(prompt_only=True)).propose(context, 10)
    assert draft.candidates.position.tolist() == [0]
    none = HiddenCopier(HiddenParams(prompt_only=True)).propose(
        HandContext([9, 7, 5, 8, 5], hidden=[[1, 0]] * 4, prompt_length=2), 10
    )
    assert none.reason == "the last token occurs nowhere in the prompt"


def test_attention_oracle():
    rows = [[0.2, 0, 0, 0.1, 0], [0.05, 0, 0, 0.3, 0]]
    both = AttentionCopier(AttentionParams(), ((0, 0), (1, 1))).propose(HandContext(X, rows=rows), 100)
    assert tokens_of(both) == [8, 5]
    assert both.candidates.terms["layer"].tolist() == [0, 1] and both.candidates.terms["head"].tolist() == [0, 1]
    alone = AttentionCopier(AttentionParams(), ((0, 0),)).propose(HandContext(X, rows=rows[:1]), 100)
    assert tokens_of(alone) == [7, 9, 5, 8, 5]
    summed = AttentionCopier(AttentionParams(aggregation="all sum"), ((0, 0), (1, 1))).propose(
        HandContext(X, rows=rows), 100
    )
    np.testing.assert_allclose(summed.candidates.score, [0.25, 0.4], atol=1e-6)


def test_layers_and_heads_chosen():
    target = tiny_target()
    assert hidden_layer(target, None) == round(0.3 * 3)
    with pytest.raises(ValueError, match="hidden states 0 to 3"):
        hidden_layer(target, 4)
    assert len(selected_heads(target, AttentionParams())) == 12  # uncalibrated: all of them
    assert selected_heads(target, AttentionParams(aggregation="layer sum", layer=2)) == tuple((2, h) for h in range(4))
    target.__dict__["calibration"] = SimpleNamespace(
        best_layer=2,
        head_counts=[[0] * 4, [5, 1, 0, 0], [9, 0, 0, 0]],
        top_heads=lambda n: [(2, 0), (1, 0), (1, 1)][:n],
    )
    assert hidden_layer(target, None) == 2
    assert selected_heads(target, AttentionParams(heads=2)) == ((2, 0), (1, 0))
    assert selected_heads(target, AttentionParams(aggregation="layer max"))[0] == (2, 0)


def test_parameter_errors_name_what_exists():
    with pytest.raises(ValueError, match=r"unknown parameter 'kk'.*max_ngram"):
        make_params(find_method("pld").params, {"kk": 3})
    with pytest.raises(ValueError, match=r"k='1000' is out of range: a whole number from 1 to 128"):
        make_params(find_method("pld").params, {"k": "1000"})
    with pytest.raises(ValueError, match="min_ngram=4 is above max_ngram=3"):
        make_params(find_method("pld").params, {"min_ngram": 4})
    with pytest.raises(ValueError, match=r"there is no method 'plq'.*pld\+h"):
        find_method("plq")
