"""Static forwards: buckets of rows; and what tests of engines have in common."""

from __future__ import annotations

import numpy as np
import pytest

from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.model.engines.engines import Engines
from decoders.model.engines.static import bucket_of
from decoders.model.target_model.target import Target

from .models import network, session_behind, tiny_tokenizer

NEEDS = Needs(layers=(0, 2, 3), heads=((0, 1), (2, 0), (2, 3)))


def target_of(family: str = "llama", weights: str | None = None) -> Target:
    return Target(network(family), tiny_tokenizer(), f"tiny {family}", weights=weights)


def session_of(target: Target, length: int = 40, needs: Needs = NEEDS, room: int = 260):
    return session_behind(target, np.random.default_rng(length).integers(3, 300, length).tolist(), room, needs)


def tree_of(session, rows: int) -> DraftTree:
    """A root and others below it, in branches of three."""
    tokens = [session.context.root, *((7 * n) % 300 + 3 for n in range(1, rows))]
    return DraftTree(tuple(tokens), tuple(-1 if n == 0 else 0 if n % 3 == 1 else n - 1 for n in range(rows)))


def score(session, tree: DraftTree):
    """A forward's results: logits, hidden states, queries, the run's keys behind it, and how it ran."""
    out = session.score(Draft(tree))
    taps = session._captured
    store, length = session.cache.store, session.cache.length
    keys = store[:, :, :, length : length + len(tree)].clone()
    return out.ran, [out.logits, *taps.hidden.values(), *taps.queries.values(), keys], (taps.hidden, taps.queries)


def both(target: Target, made: Engines, length: int, rows: int):
    """The same forward through the stock code and through an engine."""
    eager, results = Engines(target), []
    for one in (eager, made):
        target.engines = one
        results.append(score(session := session_of(target, length), tree_of(session, rows)))
    target.engines = eager
    return results[0], results[-1]


@pytest.mark.parametrize("rows, bucket", [(1, 1), (2, 4), (4, 4), (5, 8), (16, 16), (17, 32), (128, 128), (129, None)])
def test_rows_go_to_the_next_bucket(rows, bucket):
    found = bucket_of(rows, 40, 4096, 128)
    assert (found and found.rows) == bucket
