"""Static forwards: padded rows, buckets, taps. A graph is one that calls the forward again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from decoders import Prompt, generate, record
from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.model.engines.engines import Engines
from decoders.model.engines.graphs import GraphForward
from decoders.model.engines.static import StaticForward, StaticRows, bucket_of
from decoders.model.state.attention import Masks
from decoders.model.state.cache import TreeCache
from decoders.model.target_model.target import Target

from .models import network, session_behind, tiny_tokenizer

NEEDS = Needs(layers=(0, 2, 3), heads=((0, 1), (2, 0), (2, 3)))


class Again:
    """A captured graph that is none: it calls the forward again."""

    def __init__(self, function) -> None:
        self.replay = function


class AgainForward(GraphForward):
    graph = Again


def target_of(family: str = "llama", weights: str | None = None) -> Target:
    return Target(network(family), tiny_tokenizer(), f"tiny {family}", weights=weights)


def replay(target: Target) -> Engines:
    made = Engines(target)
    made.engine, made.static, made._is_checked = "graph", AgainForward(target), True
    return made


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
    for one in (eager, made, made):  # a graph is captured where a size returns
        target.engines = one
        results.append(score(session := session_of(target, length), tree_of(session, rows)))
        if one is made and isinstance(made.static, GraphForward):
            results[-1] = score(session, tree_of(session, rows))
    target.engines = eager
    return results[0], results[-1]


@pytest.mark.parametrize("rows, bucket", [(1, 1), (2, 4), (4, 4), (5, 8), (16, 16), (17, 32), (128, 128), (129, None)])
def test_rows_go_to_the_next_bucket(rows, bucket):
    found = bucket_of(rows, 40, 4096, 128)
    assert (found and found.rows) == bucket


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gemma2", "gemma3", "gpt2", "phi", "olmo2", "opt"])
@pytest.mark.parametrize("length, rows", [(40, 1), (40, 5), (250, 17)])
def test_a_graph_gives_what_stock_code_gives(family, length, rows):
    target = target_of(family)
    (_, stock, taps), (ran, ours, own_taps) = both(target, replay(target), length, rows)
    assert ran.engine == "graph" and ran.rows >= rows and ran.keys in (256, 512)
    assert [sorted(kind) for kind in taps] == [sorted(kind) for kind in own_taps]
    for one, other in zip(stock[:1] + stock[-1:], ours[:1] + ours[-1:], strict=True):
        torch.testing.assert_close(other, one, atol=1e-5 * max(1.0, float(one.std())), rtol=1e-5)
    for kind, own in zip(taps, own_taps, strict=True):
        for layer in kind:
            torch.testing.assert_close(own[layer], kind[layer], atol=1e-5 * float(kind[layer].std()), rtol=1e-5)


@torch.inference_mode()
def with_garbage(target: Target, engine: Engines, seed: int):
    """A padded forward over a cache and buffers whose unused places hold random numbers."""
    target.engines = engine
    session = session_of(target, 40)
    generator = torch.Generator().manual_seed(seed)
    store = session.cache.store
    assert store is not None
    store[:, :, :, session.cache.length :].normal_(0, 100, generator=generator)
    buffers = engine.static.buffers(8)  # type: ignore[union-attr]
    buffers.embeddings.normal_(0, 100, generator=generator)
    buffers.positions.random_(0, 200, generator=generator)
    tree = tree_of(session, 5)
    return score(session, tree)[1]


def two_with_garbage(way):
    """Two forwards by an engine whose unused places hold other numbers, padded from the first one on."""
    target = target_of("mistral-window")
    engine = way(target)
    engine.static.bucket = lambda rows: bucket_of(rows.count, rows.cache.length, rows.cache.capacity, 128)
    return zip(*(with_garbage(target, engine, seed) for seed in (1, 2)), strict=True)


def test_padding_and_unused_slots_change_no_bit():
    assert all(torch.equal(first, second) for first, second in two_with_garbage(replay))


@pytest.mark.parametrize("way", [StaticForward, GraphForward])
def test_masks_of_several_windows_are_filled_together_at_any_size(way):
    target, windows = target_of(), frozenset({5, 9})
    forward, addresses = way(target), dict[tuple[int, ...], int]()
    forward.windows = windows
    for length in (*range(20, 140, 8), 40):
        for count in (1, 3):
            keys, at, cache = length + 12, np.arange(length, length + count), TreeCache(target.shape, 200)
            cache.length = length
            buffers = forward.buffers(4)
            buffers.fill(StaticRows(cache, Masks(target.dtype, target.device), [7] * count, at, None), keys, windows,
                         target.embeddings)  # fmt: skip
            for window in (None, 5, 9):
                mask, back = buffers.mask(keys, window), torch.tensor(at)[:, None] - torch.arange(keys)
                assert torch.equal(mask[:count] == 0, (back >= 0) & (back < (window or keys))), (length, window)
                assert bool((mask[count:] == buffers.lowest).all())
                assert addresses.setdefault((keys, window or 0), mask.data_ptr()) == mask.data_ptr() or not way.fixed
    assert len(forward._masks.stores) == (len(addresses) if way.fixed else 3)


def test_a_mask_that_shows_the_padding_would_be_seen(home, monkeypatch):
    """The control of the test above."""
    from decoders.model.engines.static import Buffers

    fill = Buffers.fill

    def careless(self, rows, *others):
        fill(self, rows, *others)
        for store in self.masks.stores.values():
            store.zero_()

    monkeypatch.setattr(Buffers, "fill", careless)
    assert not all(torch.equal(first, second) for first, second in two_with_garbage(replay))


@pytest.mark.parametrize("method", ["plain", "pld+h", "pld+a", "recycling"])
def test_methods_write_the_same_over_the_edges_of_buckets(method):
    write_over_edges(replay, method)


def write_over_edges(way, method):
    """The text grows past 256 keys while it is written by an engine."""
    target = target_of()
    prompt = Prompt.from_ids(([5, 6, 7, 8, 9, 10, 11] * 40)[:235])
    expected = generate(target, prompt, method, max_new_tokens=40)
    target.engines = way(target)
    trace = record(target, prompt, method, max_new_tokens=40)
    assert trace.output_ids == expected
    steps = trace.tables["steps"]
    used = {keys for keys in steps["engine_keys"] if keys}
    sizes = {*zip(steps["engine_rows"], steps["engine_keys"], strict=True)}
    first = len(sizes) if isinstance(target.engines.static, GraphForward) else 0
    assert len(used) >= 2 and steps["engine"].count("eager") <= first  # a graph is captured where a size returns
    buckets = zip(steps["engine_rows"], steps["engine_keys"], strict=True)
    assert target.engines.static is not None
    assert all(rows in target.engines.static.sizes for rows, keys in buckets if keys)
