"""Attribution: where the copied spans of an output were taken from (PLD+ appendix D). stdlib + numpy only.

A drafted token that stood knows its source, as it was recorded when it was drafted; nothing is searched for. Of a draft
model that looks into the target's cache (GLIDE), the record of where it looked tells the source. Tokens whose sources
follow one another make one link from the output to a passage.

There are three ways to count. *Whole quotations* (``whole``) also take in the tokens beside a drafted run that the
source has there too, whoever wrote them: the target's own token that begins a quotation, or stands between two drafts.
*Whole words* (``words``) are these, cut back to whole words of the answer: a link begins and ends where a word or a
number does, so that neither is told to come from two places, or half from nowhere. *Drafted tokens* alone are PLD+'s
signal as the paper has it (methods.md §2).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from decoders.trace.metrics import first_difference
from decoders.trace.trace import Trace

from .rarity import is_quotable
from .text import TokenText, _Bytes, token_bytes
from .turns import turns

SCHEMA = "specattribution/1"
COUNT_UNITS = {True: "whole quotations", False: "drafted tokens"}  # what ``whole`` means, in words
WAYS: dict[str, dict[str, bool]] = {  # ways to count, the usual one first, as arguments of ``links``
    "words": {"words": True}, "whole": {}, "drafted": {"whole": False},
}  # fmt: skip
WAY_WORDS = {"words": "whole words", "whole": COUNT_UNITS[True], "drafted": COUNT_UNITS[False]}
Kind = Literal["context", "pool", "turn", "prompt", "output"]
SOURCES: tuple[Kind, ...] = ("context", "pool", "turn")  # the kinds that somebody gave to be drawn on


@dataclass(frozen=True, slots=True)
class Link:
    """Output tokens [start, stop), counted from 0, that were copied from [source, source_stop).

    ``kind`` says what the source counts: positions of the trace in a passage of the prompt's context ("context"), in a
    turn of a prompt without passages ("turn"), in another part of the prompt ("prompt") or in the output itself
    ("output"), or places in a pool that is not in the prompt ("pool"). ``passage`` is the number of the source's
    passage or turn, from 0; -1 for others.
    """

    start: int
    stop: int
    source: int
    source_stop: int
    passage: int
    kind: Kind

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def home(self) -> tuple[Kind, int]:
        """Kind and passage: which source it is."""
        return self.kind, self.passage


class _Source:
    """The places of a trace: ids and homes (kind, passage) of positions and of places in the pool."""

    def __init__(self, trace: Trace) -> None:
        tokens, pool = trace.tables["tokens"], trace.tables["pool"]
        self.first: int = trace.run["prompt_length"]
        self.ids: list[int] = tokens["id"]
        self.segments: list[str] = tokens["segment"]
        self.passages: list[int] = tokens["passage"]
        self.turns = turns(trace)
        self.turn_of = {at: n for n, turn in enumerate(self.turns) for at in range(turn.start, turn.stop)}
        self.pool = dict(zip(pool["position"], zip(pool["id"], pool["passage"], strict=True), strict=True))
        self.source: list[int] = attended_sources(trace) if signal(trace) == "attention" else tokens["source"]
        self.place: list[int] = tokens["pool"]

    def home(self, pooled: bool, at: int) -> tuple[Kind, int] | None:
        """Kind and passage of a position, or of a place in the pool; None outside the text."""
        if pooled:
            return ("pool", self.pool[at][1]) if at in self.pool else None
        if not 0 <= at < len(self.ids):
            return None
        if at >= self.first:
            return "output", -1
        if self.segments[at] == "context":
            return "context", self.passages[at]
        return ("turn", self.turn_of[at]) if at in self.turn_of else ("prompt", -1)

    def token(self, kind: Kind, at: int) -> int | None:
        """The token id there; None outside the text."""
        if kind == "pool":
            return self.pool[at][0] if at in self.pool else None
        return self.ids[at] if 0 <= at < len(self.ids) else None

    def stretch(self, link: Link) -> tuple[int, int]:
        """[low, high): the unbroken text around a link's source that has the same home."""
        pooled = link.kind == "pool"
        low, high = link.source, link.source_stop
        while low > 0 and self.home(pooled, low - 1) == link.home:
            low -= 1
        while self.home(pooled, high) == link.home:
            high += 1
        return low, high

    def copies(self, follow: bool) -> list[tuple[bool, int] | None]:
        """(from the pool?, place) of every output token; None where it was not copied."""
        copies: list[tuple[bool, int] | None] = []
        for at in range(self.first, len(self.ids)):
            copy = (False, self.source[at]) if self.source[at] >= 0 else (True, self.place[at])
            origin = copies[copy[1] - self.first] if follow and not copy[0] and copy[1] >= self.first else None
            copies.append(origin or (copy if copy[1] >= 0 else None))
        return copies


def signal(trace: Trace) -> str:
    """The signal of a run's sources: "copy" (drafts were copied from somewhere), "attention" (a draft model looked into
    the target's cache), or "" (nothing recorded does: no copy, no look).
    """
    tokens = trace.tables["tokens"]
    if any(at >= 0 for name in ("source", "pool") for at in tokens[name]):
        return "copy"
    return "attention" if trace.tables["attention"]["step"] else ""


def attended_sources(trace: Trace) -> list[int]:
    """The source of every position by where the draft model looked, -1 where that tells none.

    A drafted token that stood was predicted by the query of the token before it. The position with that query's largest
    attention weight (the mean over heads; of several layers the largest) is the token's source if it carries the same
    token, as a head that copies attends to what it copies; else the position after it is, if that carries the token: a
    head may attend to what stands right before. Looks elsewhere tell nothing. (GLIDE §4.1's cross-attention.)
    """
    looks, nodes = trace.tables["attention"], trace.tables["nodes"]
    ids, contexts = trace.tables["tokens"]["id"], trace.tables["steps"]["context"]
    heaviest: dict[tuple[int, int], tuple[float, int]] = {}  # (step, node) → its largest weight, and minus its position
    columns = (looks[name] for name in ("step", "node", "head", "position", "weight"))
    for step, node, head, at, weight in zip(*columns, strict=True):
        if head == -1 and weight is not None:
            heaviest[step, node] = max(heaviest.get((step, node), (-1.0, 0)), (weight, -at))
    sources = [-1] * len(ids)
    columns = (nodes[name] for name in ("step", "parent", "depth", "status"))
    for step, parent, depth, status in zip(*columns, strict=True):
        position = contexts[step] + depth - 1
        if status != "accepted" or position >= len(ids) or (step, parent) not in heaviest:
            continue
        at = -heaviest[step, parent][1]
        matches = (place for place in (at, at + 1) if place < position and ids[place] == ids[position])
        sources[position] = next(matches, -1)
    return sources


def links(trace: Trace, min_run: int = 2, *, whole: bool = True, words: bool = False) -> list[Link]:
    """The copied runs of at least ``min_run`` tokens, in the order of the output.

    With ``whole``, whole quotations: what was copied from the answer's own text is traced on to where that came from,
    and each run takes in the tokens beside it whose characters the source has there too, whoever wrote them and however
    both sides are cut into tokens (its source may have another number of tokens). Without, only drafted tokens count
    (methods.md §2): the target's own token that begins a quotation does not, nor one between two drafts. ``words`` cuts
    whole quotations back to whole words and numbers of the answer (``attribution_text.at_word``). A larger ``min_run``
    only leaves links out: the rest stays as it is.

    Raises ValueError for a ``min_run`` below 1, and for ``words`` of drafted tokens alone.
    """
    if min_run < 1:
        raise ValueError(f"min_run={min_run} is not allowed: a whole number of at least 1")
    if words and not whole:
        raise ValueError("words=True is not allowed with whole=False: drafted tokens alone are not cut to words")
    source_map = _Source(trace)
    runs: list[Link] = []
    for i, copy in enumerate(source_map.copies(whole)):
        if copy is None:
            continue
        home = source_map.home(*copy)
        assert home is not None, "a trace names no source outside its text"
        _append(runs, Link(i, i + 1, copy[1], copy[1] + 1, home[1], home[0]))
    if whole:
        runs = _grow(trace, source_map, runs)
        if any(run.kind == "output" for run in runs):
            runs = _grow(trace, source_map, _traced_on(trace, source_map, runs))
    if words:
        runs = _in_words(trace, source_map, runs)
    return [run for run in runs if len(run) >= min_run]


def _append(runs: list[Link], run: Link) -> None:
    """Add a run, as a part of the last one where it goes on there."""
    if runs and (runs[-1].stop, runs[-1].source_stop, runs[-1].home) == (run.start, run.source, run.home):
        runs[-1] = replace(runs[-1], stop=run.stop, source_stop=run.source_stop)
    else:
        runs.append(run)


def _traced_on(trace: Trace, source_map: _Source, runs: Sequence[Link]) -> list[Link]:
    """Copies of the answer's own text as copies of what that was copied from, as far as its grown links tell: token
    by token, blanks at a token's ends aside.
    """
    of = token_bytes(trace)
    copied_from: dict[int, tuple[Kind, int, int]] = {}  # output token → kind, passage, place
    run_links: list[Link] = []
    for run in runs:
        if len(run) != run.source_stop - run.source:  # the source's tokens are cut otherwise
            run_links.append(run)
            continue
        for i, at in zip(range(run.start, run.stop), range(run.source, run.source_stop), strict=True):
            kind, passage, place = run.kind, run.passage, at
            if kind == "output":
                kind, passage, place = copied_from.get(at - source_map.first, (kind, passage, place))
            source_token, output_token = source_map.token(kind, place), source_map.ids[source_map.first + i]
            if source_token == output_token or (
                source_token is not None and of[source_token].strip() == of[output_token].strip() != b""
            ):
                copied_from[i] = kind, passage, place
            else:
                kind, passage, place = run.kind, run.passage, at
            _append(run_links, Link(i, i + 1, place, place + 1, passage, kind))
    return run_links


def _grow(trace: Trace, source_map: _Source, runs: Sequence[Link]) -> list[Link]:
    of = token_bytes(trace)
    answer = _Bytes(of[token] for token in source_map.ids[source_map.first :])
    stretches: list[tuple[Kind, int, int, _Bytes]] = []
    grown_links: list[Link] = []
    for number, run in enumerate(runs):
        stretch = next((s for s in stretches if s[0] == run.kind and s[1] <= run.source < s[2]), None)
        if stretch is None:
            low, high = source_map.stretch(run)
            ids = (source_map.token(run.kind, at) for at in range(low, high))
            stretch = (run.kind, low, high, _Bytes(of[token] for token in ids if token is not None))
            stretches.append(stretch)
        _, low, _, source = stretch
        first, last = run.source - low, run.source_stop - low - 1  # tokens of the source's stretch
        begin, end = answer.starts[run.start], answer.stops[run.stop - 1]
        source_begin, source_end = source.starts[first], source.stops[last]  # the same places in the source
        left_reach = first_difference(answer.data[:begin][::-1], source.data[:source_begin][::-1])
        right_reach = first_difference(answer.data[end:], source.data[source_end:])
        free = grown_links[-1].stop if grown_links else 0
        limit = runs[number + 1].start if number + 1 < len(runs) else len(answer.starts)
        start, stop = run.start, run.stop
        while start > free and (core := answer.core(start - 1)) and core[0] >= begin - left_reach:
            start -= 1
            first = bisect_right(source.starts, source_begin - begin + core[0]) - 1
        while stop < limit and (core := answer.core(stop)) and core[1] <= end + right_reach:
            stop += 1
            last = bisect_left(source.stops, source_end - end + core[1])
        _append(grown_links, replace(run, start=start, stop=stop, source=low + first, source_stop=low + last + 1))
    return grown_links


def _in_words(trace: Trace, source_map: _Source, runs: Sequence[Link]) -> list[Link]:
    """Links without the tokens at their ends that are parts of a word; none of those that hold no whole word, or a
    function word alone.
    """
    answer, of = TokenText(trace, source_map.ids[source_map.first :]), token_bytes(trace)
    cut: list[Link] = []
    for run in runs:
        start, stop = run.start, run.stop
        while start < stop and not answer.at_word(start):
            start += 1
        while stop > start and not answer.at_word(stop):
            stop -= 1
        a, b = answer.span(start, stop) if start < stop else (0, 0)
        if not is_quotable(answer.text[a:b]):
            continue
        if (start, stop) != (run.start, run.stop):
            low, high = _same_text(source_map, of, run, start, stop)
            run = replace(run, start=start, stop=stop, source=low, source_stop=high)
        cut.append(run)
    return cut


def _same_text(source_map: _Source, of: dict[int, bytes], run: Link, start: int, stop: int) -> tuple[int, int]:
    """The source [low, high) of a link's output tokens [start, stop): token by token or, where the source's tokens are
    cut otherwise, those that hold the same bytes.
    """
    if len(run) == run.source_stop - run.source:
        return run.source + start - run.start, run.source + stop - run.start
    ids = (source_map.token(run.kind, at) for at in range(run.source, run.source_stop))
    source = _Bytes(of[token] for token in ids if token is not None)
    prefix, text = (
        b"".join(of[token] for token in source_map.ids[source_map.first + a : source_map.first + b])
        for a, b in ((run.start, start), (start, stop))
    )  # fmt: skip
    core = text.strip() or text
    at = source.data.find(core, len(prefix.strip()))
    if at < 0:
        return run.source, run.source_stop
    low, high = bisect_right(source.starts, at) - 1, bisect_left(source.stops, at + len(core)) + 1
    return run.source + low, run.source + high


def verbatim(trace: Trace, link: Link, source_map: _Source | None = None) -> bool:
    """True where the source really says what the output says: token by token or, of a whole quotation whose tokens are
    cut otherwise, in its text. ``source_map`` saves looking through the trace again.
    """
    source_map = source_map or _Source(trace)
    source = [source_map.token(link.kind, at) for at in range(link.source, link.source_stop)]
    output_ids = source_map.ids[source_map.first + link.start : source_map.first + link.stop]
    if source == output_ids or None in source:
        return source == output_ids
    of = token_bytes(trace)
    output_bytes, says = (b"".join(of[token] for token in ids if token is not None) for ids in (output_ids, source))
    core = output_bytes.strip() or output_bytes
    return bool(core) and core in says


def link_mask(copies: Collection[Link], length: int) -> np.ndarray:
    """Output tokens (of ``length``) that are linked to a passage of context or pool, each with its passage: its number
    ``[length]``, -2 where there is no link.

    >>> link_mask([Link(1, 3, 7, 9, 0, "context")], 4).tolist()
    [-2, 0, 0, -2]
    """
    passage = np.full(length, -2, dtype=np.int64)
    for link in copies:
        if link.kind in SOURCES:
            passage[link.start : link.stop] = link.passage
    return passage


def uncopied_spans(copies: Sequence[Link], length: int) -> list[tuple[int, int]]:
    """The output's token spans that no link covers, in order.

    >>> uncopied_spans([Link(1, 3, 7, 9, 0, "context")], 4)
    [(0, 1), (3, 4)]
    """
    edges = [0, *(edge for link in copies for edge in (link.start, link.stop)), length]
    return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if stop > start]


@dataclass(frozen=True, slots=True)
class Coverage:
    """A source's share in the output: of its ``tokens``, ``used_tokens`` distinct ones went, in ``links`` links, into
    ``copied_tokens`` output tokens; the longest link has ``longest``.
    """

    kind: Kind
    passage: int
    tokens: int
    used_tokens: int
    copied_tokens: int
    links: int
    longest: int


@dataclass(frozen=True, slots=True)
class SourcePassage:
    """One source: its positions (or places in the pool) in order, and their token ids."""

    kind: Kind
    passage: int
    at: Sequence[int]
    ids: Sequence[int]
    turn: str = ""  # the name of a turn

    @property
    def home(self) -> tuple[Kind, int]:
        """As that of its links."""
        return self.kind, self.passage

    @property
    def name(self) -> str:
        if self.turn:
            return self.turn
        names = {"prompt": "the prompt outside its passages", "output": "the answer itself"}
        passage_label = f"passage {self.passage + 1}" + (" of the pool" if self.kind == "pool" else "")
        return names.get(self.kind, passage_label)

    def tokens(self, link: Link) -> tuple[int, int]:
        """The link's source as tokens [start, stop) of this passage."""
        return bisect_left(self.at, link.source), bisect_left(self.at, link.source_stop)

    def coverage(self, copies: Sequence[Link]) -> Coverage:
        """Its tokens in links: how many, in how many links, and the longest."""
        passage_links = [link for link in copies if link.home == self.home]
        used_places = {at for link in passage_links for at in range(link.source, link.source_stop)}
        lengths = [len(link) for link in passage_links]
        return Coverage(
            *self.home, len(self.at), len(used_places), sum(lengths), len(passage_links), max(lengths, default=0)
        )


def given_sources(trace: Trace) -> frozenset[tuple[Kind, int]]:
    """The sources that somebody gave: every passage of the context and the pool, or every turn."""
    source_map = _Source(trace)
    homes = {source_map.home(False, at) for at in range(source_map.first)}
    homes |= {("pool", passage) for _, passage in source_map.pool.values()}
    return frozenset(home for home in homes if home is not None and home[0] in SOURCES)


def used_sources(copies: Collection[Link], given: Collection[tuple[Kind, int]]) -> int:
    """The number of given sources that some links go to: the one count behind every "2 of 4 passages"."""
    return len({link.home for link in copies} & {*given})


def passages(trace: Trace, copies: Sequence[Link]) -> list[SourcePassage]:
    """The context's passages or else the prompt's turns, then other sources that are linked. "prompt" holds the whole
    prompt, so that its text reads as it stands.
    """
    source_map, used_homes = _Source(trace), {link.home for link in copies}
    members: dict[tuple[Kind, int], list[int]] = {}
    for at in range(source_map.first):
        home = source_map.home(False, at)
        if home is not None and home[0] in SOURCES:
            members.setdefault(home, []).append(at)
    for place in sorted(source_map.pool):
        members.setdefault(("pool", source_map.pool[place][1]), []).append(place)
    members["prompt", -1] = list(range(source_map.first))
    members["output", -1] = list(range(source_map.first, len(source_map.ids)))
    homes = [home for home in members if home[0] in ("context", "turn") or home in used_homes]
    order: tuple[Kind, ...] = ("context", "turn", "pool", "prompt", "output")
    return [
        SourcePassage(
            *home,
            members[home],
            [source_map.pool[at][0] if home[0] == "pool" else source_map.ids[at] for at in members[home]],
            source_map.turns[home[1]].name if home[0] == "turn" else "",
        )
        for home in sorted(homes, key=lambda home: (order.index(home[0]), home[1]))
    ]
