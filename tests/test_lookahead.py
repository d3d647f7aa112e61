"""Lookahead decoding: its window is an independent Jacobi iteration's, its n-grams are what the target wrote there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from decoders import Prompt, generate, record
from decoders.drafters.lookahead import LookaheadParams, NgramCache, rows_of, window_probes
from decoders.engine.decoding import Decoding

from .models import prompt_ids, tiny_target

FAMILY = "qwen3"  # of the tiny target
NEW = 20


def writes(target: Any, text: list[int], window: list[list[int]]) -> list[int]:
    """The target's tokens behind the last row of the window, each column asked alone: the prefix, the first row up to
    the column, and the column's own tokens.
    """
    columns = range(len(window[-1])) if len(window) > 1 else range(len(window[0]) + 1)
    tokens = []
    for column in columns:
        read = [*text, *window[0][:column], *(row[column] for row in window[1:])]
        tokens.append(int(target.reference_logits(read, 1)[0].argmax()))
    return tokens


@pytest.mark.parametrize(("n", "w", "g"), [(5, 4, 3), (3, 5, 2), (2, 4, 2), (4, 1, 1)])
def test_the_window_is_that_of_an_independent_jacobi_iteration(target: Any, n: int, w: int, g: int) -> None:
    """Released rules, written down again: windows, pool and accepted tokens of every step."""
    prompt = Prompt.from_ids(prompt_ids(3))
    run = Decoding.of(target, prompt, "lookahead", {"n": n, "w": w, "g": g}, max_new_tokens=NEW)
    run.prefill()
    drafter: Any = run.drafter
    window, pool = [list(drafter.window[0])], NgramCache(g)
    assert len(window[0]) == w + n - 3 and set(window[0]) <= set(prompt.tokens)
    text = list(prompt.tokens)
    for step in run:
        root, filled = text[-1], len(window) == n - 1
        tails = pool.of(root)[::-1] if filled else []
        tree = step.draft.tree
        budget = NEW - (len(text) - len(prompt.tokens)) - 1
        paths = {tuple(tree.tokens[i] for i in tree.path(node)[1:]) for node in range(1, len(tree))}
        assert paths == {tail[:k] for tail in tails for k in range(1, min(len(tail), budget) + 1)}
        said = writes(target, text, window)
        if not filled:
            window = [*(row[1:] for row in window), said[1:]]
        else:
            for column, token in enumerate([root, *window[0]]):
                pool.add(token, (*(row[column] for row in window[1:]), said[column]))
            rows = [*window[1:], said]
            window = [rows[0][1:], *rows[1:]]
        assert drafter.window == window
        text += step.emitted
    assert len(window) == n - 1 and [len(row) for row in window] == [w - 1, *[w] * (n - 2)]
    assert text[len(prompt.tokens) :] == generate(target, prompt, max_new_tokens=NEW)


def test_positions_and_what_the_rows_see() -> None:
    """Row l of column i stands l + i behind the root; it sees the first row up to its column, and its own column."""
    rows = window_probes((2, 3, 3))
    assert [offset for offset, _ in rows] == [1, 2, 1, 2, 3, 2, 3, 4]
    assert [sees for _, sees in rows] == [(), (0,), (), (0,), (0, 1), (2,), (0, 3), (0, 1, 4)]


def test_near_the_end_of_the_models_context_the_window_rests() -> None:
    target = tiny_target("qwen3")
    tokens = (prompt_ids(3) * (target.context_length // 16 + 2))[: target.context_length - 6]
    run = Decoding.of(target, Prompt.from_ids(tokens), "lookahead", max_new_tokens=NEW)
    steps = list(run)
    assert run.stop == "context full" and all(not step.draft.probes for step in steps)


def test_without_guesses_every_step_writes_one_token(target: Any) -> None:
    trace = record(target, Prompt.from_ids(prompt_ids(3)), "lookahead", {"n": 2, "g": 0}, max_new_tokens=NEW)
    assert trace.rows("steps") == NEW and set(trace.tables["steps"]["drafted"]) == {0}
    assert set(trace.tables["probes"]["kind"]) == {"window"}


def test_the_last_seen_ngrams_stay() -> None:
    pool = NgramCache(2)
    for tail in ((1, 2), (3, 4), (1, 2), (5, 6)):
        pool.add(9, tail)
    assert pool.of(9) == [(1, 2), (5, 6)] and len(pool) == 2 and pool.of(8) == []


def test_too_many_rows_are_refused_with_the_largest_allowed() -> None:
    with pytest.raises(ValueError, match=r"n=15, w=60, g=60 take 1680 rows, and a forward has 512: .* is n=5$"):
        LookaheadParams(n=15, w=60, g=60)
    with pytest.raises(ValueError, match="the others as they are, is n=3 or w=28 or g=28"):
        LookaheadParams(n=5, w=100, g=100)
    assert LookaheadParams(n=5, w=28, g=100) and LookaheadParams(n=5, w=100, g=28)
    assert rows_of(5, 7, 7) == 56 and rows_of(7, 20, 20) == 240


def test_probes_see_the_root_alone_of_the_tree(target: Any) -> None:
    """The window's logits do not depend on what is drafted beside it."""
    prompt = Prompt.from_ids(prompt_ids(3))
    run = Decoding.of(target, prompt, "lookahead", {"prompt": True, "n": 3, "w": 3}, max_new_tokens=NEW)
    run.prefill()
    assert run.session is not None
    drafter: Any = run.drafter
    while not drafter.is_full:
        attempt = run.attempt(run.session)
        run.session.commit(attempt.verdict)
        drafter.observe(attempt.draft, attempt.scored, attempt.verdict)
    root = run.context.root
    drafter.pool.add(root, (7, 9))
    with_guess = run.attempt(run.session)
    drafter.pool = NgramCache(0)
    without = run.attempt(run.session)
    assert with_guess.draft.tree.drafted and not without.draft.tree.drafted
    torch.testing.assert_close(with_guess.scored.probe_logits, without.scored.probe_logits, rtol=0, atol=1e-4)
    assert np.isfinite(with_guess.draft.terms["age"][1:]).all()
