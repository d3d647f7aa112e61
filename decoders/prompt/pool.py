"""Retrieval from a pool of text (REST §3, used by CASD): the longest suffix that occurs there, and what follows it.

>>> from decoders.prompt.prompt import Pool
>>> index = PoolIndex(Pool(np.array([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 6]), (0, 4, 8)))
>>> match = index.find(np.array([9, 1, 2]))
>>> match.length, match.hits, match.ends.tolist()
(2, 3, [1, 5, 9])
>>> trie = index.continuations(match.ends, depth=2, limit=2)
>>> trie.tokens, trie.parents, trie.counts
((3, 6), (-1, -1), (2, 1))
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from decoders.errors import UserError

from .prompt import Pool

SEPARATOR = -1


@dataclass(frozen=True, slots=True)
class Match:
    """Places of a suffix of ``length`` tokens in the pool: ``hits`` in all, and ``ends`` are those of its last token
    that are looked at, in the pool's order. Nothing found: length 0.
    """

    length: int
    hits: int
    ends: np.ndarray


@dataclass(frozen=True, slots=True)
class Trie:
    """Continuations merged, depth-first with the most frequent chain first; the root is not in it (parent -1 is the
    root). ``counts``: continuations through a node; ``places``: where the pool has the node's token first.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    counts: tuple[int, ...]
    places: tuple[int, ...]


class PoolIndex:
    """A suffix array over a pool, read backwards from each token that has a follower in its passage.

    Sorted once by the last ``longest`` tokens (prefix doubling, one sort per doubling); the places where a suffix
    occurs are then one interval, found by bisection, so that a lookup costs no more in a longer pool. A matched span
    never crosses the start of a passage: ``text`` has a separator between them. ``ended`` also takes the last token of
    a passage for a place.
    """

    def __init__(self, pool: Pool, longest: int = 16, *, with_ends: bool = False) -> None:
        if not len(pool.tokens):
            raise UserError(f"the pool is empty ({pool.label}): give a text with at least two tokens")
        self.pool, self.longest = pool, longest
        starts = np.asarray(pool.starts)
        self.text = np.append(np.insert(pool.tokens.astype(np.int64), starts, SEPARATOR), SEPARATOR)
        self.place = np.cumsum(self.text != SEPARATOR) - 1  # in the pool, of each token of text
        self.order = sorted_ends(
            self.text, longest, with_ends
        )  # places in text, by the tokens up to them, newest first
        self._fast_text, self._fast_ends = self.text.data, self.order.data  # faster where single items are read

    def find(self, sequence: Int[np.ndarray, " tokens"], shortest: int = 1, max_hits: int | None = None) -> Match:
        """The longest suffix of ``sequence`` that occurs in the pool with a token after it, if it has at least
        ``shortest`` tokens.

        Of more hits than ``max_hits``, that many are looked at, spread evenly over all of them in the order of what
        stands before them; ``Match.hits`` counts all.
        """
        matches = list(self.intervals(sequence))
        (low, high), length = matches[-1] if matches else (0, 0), len(matches)
        if length < shortest or not length:
            return Match(0, 0, np.zeros(0, dtype=np.int64))
        hits = high - low
        sample_size = hits if max_hits is None else min(hits, max_hits)
        return Match(length, hits, np.sort(self.place[self.order[low + np.arange(sample_size) * hits // sample_size]]))

    def intervals(self, sequence: Int[np.ndarray, " tokens"]) -> Iterator[tuple[int, int]]:
        """Of the suffixes of 1, 2, … tokens that occur, as long as one does: which places of ``order`` have them."""
        return intervals(self._fast_text, self._fast_ends, sequence[: -self.longest - 1 : -1].tolist())

    def lengths(self, ends: Int[np.ndarray, " hits"], depth: int) -> Int[np.ndarray, " hits"]:
        """Count the tokens that follow each place in its passage, at most ``depth``."""
        return (self._rows(ends, depth) != SEPARATOR).sum(1)

    def continuations(
        self, ends: Int[np.ndarray, " hits"], depth: int, limit: int, max_places: int | None = None
    ) -> Trie:
        """The continuations of ``ends`` (up to ``depth`` tokens, inside the passage) as a trie of the ``limit`` best
        nodes; of more places than ``max_places`` those whose continuations come first in suffix order.

        Nodes rank by count, then by depth (the shallower first), then by first occurrence; a parent always ranks before
        its children, so what is kept is a trie.
        """
        return merge(self._rows(ends, depth), ends, limit, max_places)

    def _rows(self, ends: np.ndarray, depth: int) -> Int[np.ndarray, "hits depth"]:
        at = np.searchsorted(self.place, ends)[:, None] + np.arange(1, depth + 1)
        rows = self.text[np.minimum(at, len(self.text) - 1)]
        return np.where(np.logical_and.accumulate(rows != SEPARATOR, axis=1), rows, SEPARATOR)


def merge(
    rows: Int[np.ndarray, "hits depth"], ends: Int[np.ndarray, " hits"], limit: int, max_places: int | None = None
) -> Trie:
    """Continuations (padded with -1) that follow ``ends``, merged into a trie of the ``limit`` best nodes; of more than
    ``max_places`` the first in lexicographic order.
    """
    if max_places is not None and len(rows) > max_places:
        first = first_rows(rows, max_places)
        rows, ends = rows[first], ends[first]
    order = np.lexsort(rows.T[::-1])
    rows, ends = rows[order].T, ends[order]  # rows: [depth, hits] now, equal prefixes next to each other
    depth, hits = rows.shape
    begins = np.ones((depth, hits), dtype=bool)
    begins[:, 1:] = np.logical_or.accumulate(rows[:, 1:] != rows[:, :-1], axis=0)
    node_of = np.cumsum(begins).reshape(depth, hits) - 1
    flat = np.flatnonzero(begins)
    level, row = np.divmod(flat, hits)
    counts = np.diff(flat, append=depth * hits)
    places = np.minimum.reduceat(np.tile(ends, depth), flat) + level + 1
    tokens = rows[level, row]
    parents = np.where(level > 0, node_of[level - 1, row], -1)
    real = np.flatnonzero(tokens != SEPARATOR)
    # on one level the first place decides as the first occurrence does
    best = real[np.lexsort((places[real], level[real], -counts[real]))][:limit].tolist()
    children: dict[int, list[int]] = {}
    for node in reversed(best):
        children.setdefault(int(parents[node]), []).append(node)
    preorder: list[int] = []
    new_index = {-1: -1}
    stack = children.get(-1, [])
    while stack:
        node = stack.pop()
        new_index[node] = len(preorder)
        preorder.append(node)
        stack += children.get(node, [])
    return Trie(
        tuple(tokens[preorder].tolist()),
        tuple(new_index[int(parents[node])] for node in preorder),
        tuple(counts[preorder].tolist()),
        tuple(places[preorder].tolist()),
    )


def first_rows(rows: Int[np.ndarray, "hits depth"], count: int) -> Int[np.ndarray, " count"]:
    """The first ``count`` of more rows in lexicographic order, by their numbers, ascending: sorted nowhere, one
    selection per column among the rows that are equal so far.

    >>> first_rows(np.array([[2, 1], [1, 7], [2, 0], [1, 3]]), 3)
    array([1, 2, 3])
    """
    chosen_rows, equal = [], np.arange(len(rows))
    for column in rows.T:
        values = column[equal]
        last = np.partition(values, count - 1)[count - 1]
        sure = equal[values < last]
        chosen_rows.append(sure)
        equal, count = equal[values == last], count - len(sure)
        if len(equal) == count:
            break
    return np.sort(np.concatenate([*chosen_rows, equal[:count]]))


def sorted_ends(text: Int[np.ndarray, " text"], longest: int, with_ends: bool = False) -> Int[np.ndarray, " ends"]:
    """Places with a follower in their passage (``with_ends``: all), sorted by the ``longest`` tokens up to them,
    newest first.
    """
    token_flags = np.zeros(int(text.max()) + 2, dtype=bool)
    token_flags[text + 1] = True
    rank = (np.cumsum(token_flags) - 1)[text + 1].astype(np.uint64)  # separators rank 0, before every token
    bits = int(rank.max()).bit_length()
    sorted_by = min(64 // bits, longest)
    key = np.zeros(len(text), dtype=np.uint64)
    for distance in range(sorted_by):  # the newest token in the highest bits
        key |= _shift(rank, distance) << np.uint64(bits * (sorted_by - 1 - distance))
    rank = _ranks(key)
    while sorted_by < longest:
        step = min(sorted_by, longest - sorted_by)
        rank = _ranks(rank << np.uint64(32) | _shift(rank, step))
        sorted_by += step
    ends = np.flatnonzero((text[:-1] != SEPARATOR) & (with_ends | (text[1:] != SEPARATOR)))
    sorted_keys = np.sort(rank[ends] << np.uint64(32) | ends.astype(np.uint64))
    return (sorted_keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


def intervals(text: memoryview, ends: memoryview, newest_first: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Of the suffixes of 1, 2, … tokens that occur, as long as one does: the interval of ``ends`` (``sorted_ends`` of
    ``text``) that has them. The suffix is given from its last token back.
    """
    low, high = 0, len(ends)
    for distance, token in enumerate(newest_first):
        first = bisect_left(ends, token, low, high, key=lambda end: text[end - distance])
        last = bisect_right(ends, token, first, high, key=lambda end: text[end - distance])
        if first == last:
            return
        low, high = first, last
        yield low, high


def _shift(values: np.ndarray, by: int) -> np.ndarray:
    """Each place's value ``by`` places earlier, 0 where there is none."""
    return np.concatenate([np.zeros(by, dtype=values.dtype), values])[: len(values)]


def _ranks(key: np.ndarray) -> np.ndarray:
    """Dense ranks of the keys, equal ones alike."""
    order = np.argsort(key)
    sorted_keys = key[order]
    rank = np.empty_like(key)
    rank[order] = np.cumsum(np.concatenate([[False], sorted_keys[1:] != sorted_keys[:-1]]))
    return rank
