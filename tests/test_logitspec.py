"""LogitSpec: its drafts are those of the released rule, written down naively, for scripted texts and logits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from decoders.drafters.logitspec import LogitSpecDrafter, LogitSpecParams, branch_length, places_after

from .work import lines

NEW = 24


def naive_pool(text: list[int], longest: int, length: int) -> dict[tuple[int, ...], list[int]]:
    """A later place replaces an earlier one if as many tokens or more follow it."""
    pool: dict[tuple[int, ...], list[int]] = {}
    for start in range(len(text)):
        for n in range(1, longest + 1):
            end = start + n
            if end < len(text):
                key, more = tuple(text[start:end]), text[end : end + length]
                if key not in pool or len(more) >= len(pool[key]):
                    pool[key] = more
    return pool


def naive_drafts(
    text: list[int], root: int, tried: list[int], longest: int, length: int, capacity: int
) -> list[list[int]]:
    pool, drafts, count = naive_pool(text, longest, length), [], 0

    def retrieve(last: list[int]) -> list[int]:
        found = (pool[tuple(last[-n:])] for n in range(longest, 0, -1) if tuple(last[-n:]) in pool)
        return next(found, [])

    if chain := retrieve([*text, root]):
        drafts.append(chain[: capacity - 1])
        count += len(drafts[-1])
    for index, token in enumerate(tried):
        if token == root:
            continue
        if count >= capacity - 1:
            break
        draft = [token, *retrieve([*text, root, token])][: branch_length(index)][: capacity - 1 - count]
        drafts.append(draft)
        count += len(draft)
    return drafts


def context_of(text: list[int], root: int, tried: list[int]) -> Any:
    tokens = np.array([*text, root])
    return SimpleNamespace(
        tokens=tokens, root=root, length=len(tokens), top_ids=torch.tensor([tried] * len(text)),
        top_logprobs=torch.linspace(-0.1, -9, len(tried)).expand(len(text), -1),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_drafts_are_those_of_the_released_rule(seed: int) -> None:
    chance = np.random.default_rng(seed)
    vocab, capacity = int(chance.integers(3, 12)), int(chance.integers(4, 65))
    params = LogitSpecParams(capacity=capacity, max_ngram=3, copy_length=int(chance.integers(1, 8)))
    drafter, text = LogitSpecDrafter(params), chance.integers(0, vocab, 3).tolist()
    for _ in range(12):  # one drafter along a growing text
        root, tried = int(chance.integers(0, vocab)), chance.permutation(64).tolist()
        draft = drafter.propose(context_of(text, root, tried), 64)
        drafts = naive_drafts(text, root, tried, 3, params.copy_length, capacity)
        assert sum(map(len, drafts)) <= capacity - 1
        tree = draft.tree
        paths = {tuple(tree.tokens[n] for n in tree.path(node)[1:]) for node in range(1, len(tree))}
        assert paths == {tuple(one[:n]) for one in drafts for n in range(1, len(one) + 1)}
        for node, source in enumerate(draft.sources):
            assert source < 0 or text[source] == tree.tokens[node]
        tried_nodes = [node for node, origin in enumerate(draft.origins) if origin == "logit"]
        assert all(tried[int(draft.terms["rank"][node])] == tree.tokens[node] for node in tried_nodes)
        text = [*text, root, *chance.integers(0, vocab, int(chance.integers(0, 9))).tolist()]


def test_places_are_those_of_the_released_pool() -> None:
    text = np.random.default_rng(0).integers(0, 4, 200)
    for length in (1, 2, 9, 10, 40, 41, 200):
        pool = naive_pool(text[:length].tolist(), 3, 6)
        for last in ([], [1], [2, 3], [0, 3, 3]):
            places, sizes = places_after(text[:length], last, [2, 0, 3, 1], 3, 6)
            for token, place, n in zip([2, 0, 3, 1], places.tolist(), sizes.tolist(), strict=True):
                ngram = [*last, token]
                longest = next((k for k in range(min(3, len(ngram)), 0, -1) if tuple(ngram[-k:]) in pool), 0)
                assert n == longest and (place >= 0) == (n > 0)
                assert not n or text[place : min(place + 6, length)].tolist() == pool[tuple(ngram[-n:])]


def test_a_long_prompt_costs_no_more_than_a_few_passes_over_it() -> None:
    """Of numpy: the lines of Python are as many for ten times the prompt."""
    counted = []
    for tokens in (3_000, 30_000):
        text = np.random.default_rng(0).zipf(1.2, tokens) % 50_000
        context, drafter = context_of(text.tolist(), 1, list(range(64))), LogitSpecDrafter(LogitSpecParams())
        counted.append(lines(lambda d=drafter, c=context: (d.prepare(c), [d.propose(c, 64) for _ in range(5)])))
    assert counted[1] < 1.1 * counted[0] < 12_000
