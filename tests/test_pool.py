"""The pool's index: against a search by hand, its oracle, and its cost."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders import UserError
from decoders.prompt.pool import PoolIndex, merge
from decoders.prompt.prompt import Pool

from .work import calls, lines, peak_bytes


def pool_of(*passages: list[int] | str) -> Pool:
    ids = [[ord(c) for c in p] if isinstance(p, str) else p for p in passages]
    starts = np.cumsum([0, *(len(p) for p in ids[:-1])]).tolist()
    return Pool(np.asarray([t for p in ids for t in p], dtype=np.int64), tuple(starts), None, "test")


def text(query: str) -> np.ndarray:
    return np.asarray([ord(c) for c in query])


def by_hand(passages, query, longest, depth, limit):
    """The same retrieval, written the slow way over lists."""
    hits, length, offset = [], 0, 0
    for m in range(min(longest, len(query)), 0, -1):
        offset, hits = 0, []
        for p in passages:
            for end in range(m - 1, len(p) - 1):
                if p[end - m + 1 : end + 1] == query[len(query) - m :]:
                    hits.append((offset + end, p[end + 1 : end + 1 + depth]))
            offset += len(p)
        if hits:
            length = m
            break
    counts: Counter = Counter()
    first: dict[tuple, int] = {}
    for end, follow in hits:
        for d in range(1, len(follow) + 1):
            counts[tuple(follow[:d])] += 1
            first.setdefault(tuple(follow[:d]), end)
    best = sorted(counts, key=lambda path: (-counts[path], len(path), first[path]))[:limit]
    return length, [end for end, _ in hits], {p: (counts[p], first[p] + len(p)) for p in best}


def paths(trie):
    found = {}
    made: list[tuple] = []
    for token, parent, count, place in zip(trie.tokens, trie.parents, trie.counts, trie.places, strict=True):
        made.append((*(made[parent] if parent >= 0 else ()), token))
        found[made[-1]] = (count, place)
    return found


@settings(max_examples=200)
@given(
    passages=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=30), min_size=1, max_size=4),
    query=st.lists(st.integers(0, 4), min_size=1, max_size=20),
    longest=st.integers(1, 18),
    depth=st.integers(1, 6),
    limit=st.integers(1, 12),
)
def test_equal_to_a_search_by_hand(passages, query, longest, depth, limit):
    index = PoolIndex(pool_of(*passages), longest)
    match = index.find(np.asarray(query))
    length, ends, nodes = by_hand(passages, query, longest, depth, limit)
    assert (match.length, match.hits, match.ends.tolist()) == (length, len(ends), ends)
    if ends:
        assert paths(index.continuations(match.ends, depth, limit)) == nodes
        assert index.lengths(match.ends, 2).min() >= 1


def test_oracle_of_the_three_documents():
    """methods.md §4: abcd|abce|abf after "ab", two nodes: c twice, f once."""
    index = PoolIndex(pool_of("abcd", "abce", "abf"))
    match = index.find(text("xab"), shortest=2)
    assert match.length == 2 and match.hits == 3
    trie = index.continuations(match.ends, 10, 2)
    assert trie.tokens == (ord("c"), ord("f")) and trie.counts == (2, 1) and trie.parents == (-1, -1)
    whole = index.continuations(match.ends, 10, 64)
    assert "".join(map(chr, whole.tokens)) == "cdef" and whole.parents == (-1, 0, 0, -1)
    assert whole.places == (2, 3, 7, 10)


def test_nothing_crosses_a_boundary():
    joined, parted = PoolIndex(pool_of("abcdef")), PoolIndex(pool_of("abc", "def"))
    assert joined.find(text("bcd")).length == 3
    crossing = parted.find(text("bcd"))
    assert crossing.length == 1 and crossing.ends.tolist() == [3]  # "d" alone: "cd" would cross
    assert parted.find(text("bc")).length == 0  # "c" ends its passage: nothing follows
    assert "".join(map(chr, parted.continuations(parted.find(text("ab")).ends, 10, 64).tokens)) == "c"


def test_shortest_and_longest_bound_the_suffix():
    index = PoolIndex(pool_of("abcabd"), longest=2)
    assert index.find(text("cab"), shortest=2).length == 2
    assert index.find(text("cab"), shortest=2).hits == 2  # with three tokens there would be one
    assert index.find(text("zb"), shortest=2).length == 0 and index.find(text("zb")).length == 1
    assert index.find(text("a"), shortest=2).length == 0


def test_more_hits_than_allowed_are_spread_over_all():
    index = PoolIndex(pool_of(*(["xab" + chr(110 + i % 4) for i in range(40)])))
    match = index.find(text("ab"), max_hits=8)
    assert match.hits == 40 and len(match.ends) == 8 and len(set(match.ends.tolist())) == 8
    assert match.ends.tolist() == sorted(match.ends.tolist()) and match.ends[-1] > 20 * 4
    assert index.find(text("ab"), max_hits=8).ends.tolist() == match.ends.tolist()


def test_a_parent_always_stays_with_its_child():
    rows = np.asarray([[1, 2, 3], [1, 2, 4], [5, 6, -1], [7, -1, -1]])
    for limit in range(1, 9):
        trie = merge(rows, np.asarray([0, 10, 20, 30]), limit)
        assert all(parent < node for node, parent in enumerate(trie.parents)) and len(trie.tokens) == min(limit, 7)
    assert merge(rows, np.asarray([0, 10, 20, 30]), 4).tokens == (1, 2, 5, 7)  # shallow before deep at one count


def test_an_empty_pool_is_refused():
    with pytest.raises(UserError, match="the pool is empty"):
        PoolIndex(Pool(np.zeros(0, dtype=np.int64), (0,), None, "notes.txt"))


def test_large_token_ids_and_long_pools_sort_right():
    """Ids above 16 bits need more doublings; a planted sentence must be found whole among a million look-alikes."""
    random = np.random.default_rng(0)
    tokens = (random.zipf(1.3, 200_000) % 150_000).astype(np.int64)
    planted = np.arange(140_000, 140_030)
    tokens[77_000:77_030] = planted
    index = PoolIndex(Pool(tokens, (0, 50_000), None, "test"))
    match = index.find(planted[:20])
    assert match.length == 16 and match.ends.tolist() == [77_019]
    assert index.continuations(match.ends, 10, 64).tokens == tuple(planted[20:30].tolist())
    pair = tokens[1000:1002]
    where = np.flatnonzero((tokens[:-2] == pair[0]) & (tokens[1:-1] == pair[1])) + 1
    where = where[~np.isin(where, [50_000, 49_999])]
    assert index.find(np.append(999_999, pair)).ends.tolist() == where.tolist()


def test_lookup_does_not_grow_with_the_pool():
    """64 times the pool, and the most frequent pair of tokens in it: as much memory, and what bisecting costs."""
    work = []
    for size in (4_000, 256_000):
        tokens = np.random.default_rng(1).integers(0, 4, size)
        index = PoolIndex(Pool(tokens, (0,), None, "test"), longest=6)

        def look(tokens=tokens, index=index):
            for at in range(20, 80):
                match = index.find(tokens[at - 6 : at], max_hits=64)
                index.continuations(match.ends, 10, 64)

        work.append((calls(look), lines(look), peak_bytes(look)))
    (few, short, small), (many, long, large) = work
    assert many < 3 * few and long < 3 * short and large < small + 100_000, "a pass over it takes 256 kB"
