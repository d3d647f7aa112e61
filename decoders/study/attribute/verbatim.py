"""Verbatim quotations: which words of an output stand in its sources, by their text alone. No signal, no recorded copy.

Words are compared, and what stands between them but for blanks; case counts. From left to right, every word takes the
longest run of words that one source has in the same order. Runs of fewer than two words are no quotations, nor is a
function word with a comma.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence

from decoders.trace.trace import Trace

from .attribution import SOURCES, Kind, Link, SourcePassage, _Source, passages
from .rarity import is_quotable
from .text import TokenText

WORD = re.compile(r"\w+|[^\w\s]")
SHORTEST = 2  # words of a quotation


class _Words:
    """The words of some tokens, and the tokens that hold them."""

    def __init__(self, trace: Trace, ids: Sequence[int]) -> None:
        self.text = TokenText(trace, ids)
        spans = [match.span() for match in WORD.finditer(self.text.text)]
        self.words = [self.text.text[a:b] for a, b in spans]
        self.starts, self.stops = [a for a, _ in spans], [b for _, b in spans]

    def tokens(self, first: int, last: int) -> tuple[int, int]:
        """The tokens [start, stop) that hold nothing but the words [first, last), and blanks."""
        low, high = self.starts[first], self.stops[last - 1]
        start = bisect_right(self.text.stops, low)
        while start < len(self.text.starts) and self.text.core(start)[0] < low:
            start += 1
        stop = bisect_left(self.text.starts, high)
        while stop > start and self.text.core(stop - 1)[1] > high:
            stop -= 1
        return start, stop


def quotations(trace: Trace, among: Collection[tuple[Kind, int]] | None = None) -> list[Link]:
    """The verbatim quotations of a run's output, as links, in the order of the output; ``among``: of these sources
    alone.

    Sources are the passages of the context and the pool; of a prompt without any, its turns.
    """
    output = _Words(trace, trace.output_ids)
    chosen_sources = [source for source in _sources(trace) if among is None or source.home in among]
    sources = [(source, _Words(trace, source.ids)) for source in chosen_sources]
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)  # two words → source, first word
    for number, (_, text) in enumerate(sources):
        for at in range(len(text.words) - SHORTEST + 1):
            places[tuple(text.words[at : at + SHORTEST])].append((number, at))
    quote_links, at = [], 0
    while at < len(output.words):
        spot, length = _longest(output.words, at, sources, places)
        link = spot and _link(output, at, at + length, *sources[spot[0]], spot[1])
        if link and is_quotable(output.text.text[output.starts[at] : output.stops[at + length - 1]]):
            quote_links.append(link)
        at += max(1, length)
    return quote_links


def _longest(
    words: Sequence[str], at: int, sources: Sequence[tuple[SourcePassage, _Words]],
    places: dict[tuple[str, ...], list[tuple[int, int]]],
) -> tuple[tuple[int, int] | None, int]:  # fmt: skip
    """The longest run of words from ``at`` on: its place (source, first word), and its number of words."""
    best: tuple[tuple[int, int] | None, int] = (None, 0)
    for number, begin in places.get(tuple(words[at : at + SHORTEST]), ()):
        source_words, length = sources[number][1].words, SHORTEST
        limit = min(len(words) - at, len(source_words) - begin)
        if best[1] >= limit or (best[1] and words[at + best[1]] != source_words[begin + best[1]]):
            continue  # it cannot become longer than the best
        while length < limit and words[at + length] == source_words[begin + length]:
            length += 1
        if length > best[1]:
            best = (number, begin), length
    return best


def _link(output: _Words, first: int, last: int, source: SourcePassage, text: _Words, begin: int) -> Link | None:
    start, stop = output.tokens(first, last)
    low, high = text.tokens(begin, begin + last - first)
    if stop <= start or high <= low:
        return None
    return Link(start, stop, source.at[low], source.at[high - 1] + 1, source.passage, source.kind)


def _sources(trace: Trace) -> list[SourcePassage]:
    """Passages of context and pool; without any, the prompt's turns."""
    pool_links = [Link(0, 0, place, place + 1, passage, "pool") for place, (_, passage) in _Source(trace).pool.items()]
    return [source for source in passages(trace, pool_links) if source.kind in SOURCES]
