"""Attribution: where the copied spans of an output were taken from (PLD+ appendix D). stdlib + numpy only.

A drafted token that stood knows its source, as it was recorded when it was drafted; nothing is searched for. Of a draft
model that looks into the target's cache (GLIDE), the record of where it looked tells the source. Tokens whose sources
follow one another make one link from the output to a passage.

There are two ways to count. *Whole quotations* (the default, ``whole``) also take in the tokens beside a drafted run
that the source has there too, whoever wrote them: the target's own token that begins a quotation, or stands between two
drafts. *Drafted tokens* alone are PLD+'s signal as the paper has it (methods.md §2).
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from .trace import Trace

SCHEMA = "specattribution/1"
COUNTED = {True: "whole quotations", False: "drafted tokens"}  # what ``whole`` means, in words
Kind = Literal["context", "pool", "prompt", "output"]
SOURCES: tuple[Kind, ...] = ("context", "pool")  # the kinds that are passages somebody gave to be drawn on


@dataclass(frozen=True, slots=True)
class Link:
    """Output tokens [start, stop), counted from 0, that were copied from [source, source_stop).

    ``kind`` says what the source counts: positions of the trace in a passage of the prompt's context ("context"), in
    another part of the prompt ("prompt") or in the output itself ("output"), or places in a pool that is not in the
    prompt ("pool"). ``passage`` is the source's passage, from 0; -1 outside context and pool.
    """

    start: int
    stop: int
    source: int
    source_stop: int
    passage: int
    kind: Kind

    def __len__(self) -> int:
        return self.stop - self.start


class _Source:
    """Where things stand in a trace: ids and homes (kind, passage) of positions and of places in the pool."""

    def __init__(self, trace: Trace) -> None:
        tokens, pool = trace.tables["tokens"], trace.tables["pool"]
        self.first: int = trace.run["prompt_length"]
        self.ids: list[int] = tokens["id"]
        self.segments: list[str] = tokens["segment"]
        self.passages: list[int] = tokens["passage"]
        self.pool = dict(zip(pool["position"], zip(pool["id"], pool["passage"], strict=True), strict=True))
        self.source: list[int] = looked(trace) if signal(trace) == "attention" else tokens["source"]
        self.place: list[int] = tokens["pool"]

    def home(self, pooled: bool, at: int) -> tuple[Kind, int] | None:
        """Kind and passage of a position, or of a place in the pool; None outside the text."""
        if pooled:
            return ("pool", self.pool[at][1]) if at in self.pool else None
        if not 0 <= at < len(self.ids):
            return None
        if at >= self.first:
            return "output", -1
        return ("context", self.passages[at]) if self.segments[at] == "context" else ("prompt", -1)

    def token(self, kind: Kind, at: int) -> int | None:
        """The token id there; None outside the text."""
        if kind == "pool":
            return self.pool[at][0] if at in self.pool else None
        return self.ids[at] if 0 <= at < len(self.ids) else None

    def stretch(self, link: Link) -> tuple[int, int]:
        """[low, high): the unbroken text around a link's source that has the same home."""
        pooled, home = link.kind == "pool", (link.kind, link.passage)
        low, high = link.source, link.source_stop
        while low > 0 and self.home(pooled, low - 1) == home:
            low -= 1
        while self.home(pooled, high) == home:
            high += 1
        return low, high

    def copies(self, follow: bool) -> list[tuple[bool, int] | None]:
        """(from the pool?, place) of every output token; None where it was not copied."""
        found: list[tuple[bool, int] | None] = []
        for at in range(self.first, len(self.ids)):
            copy = (False, self.source[at]) if self.source[at] >= 0 else (True, self.place[at])
            before = found[copy[1] - self.first] if follow and not copy[0] and copy[1] >= self.first else None
            found.append(before or (copy if copy[1] >= 0 else None))
        return found


def signal(trace: Trace) -> str:
    """What tells a run's sources: "copy" (drafts were copied from somewhere), "attention" (a draft model looked into
    the target's cache), or "" (nothing recorded does: no copy, no look).
    """
    tokens = trace.tables["tokens"]
    if any(at >= 0 for name in ("source", "pool") for at in tokens[name]):
        return "copy"
    return "attention" if trace.tables["attention"]["step"] else ""


def looked(trace: Trace) -> list[int]:
    """The source of every position by where the draft model looked, -1 where that tells none.

    A drafted token that stood was predicted by the query of the token before it. The position with that query's largest
    attention weight (the mean over heads; of several layers the largest) is the token's source if it carries the same
    token, as a head that copies attends to what it copies; else the position after it is, if that carries the token: a
    head may attend to what stands right before. Looks elsewhere tell nothing. (GLIDE §4.1's cross-attention.)
    """
    looks, nodes = trace.tables["attention"], trace.tables["nodes"]
    ids, contexts = trace.tables["tokens"]["id"], trace.tables["steps"]["context"]
    most: dict[tuple[int, int], tuple[float, int]] = {}  # (step, node) → its largest weight, and minus its position
    for step, node, head, at, weight in zip(
        *(looks[name] for name in ("step", "node", "head", "position", "weight")), strict=True
    ):
        if head == -1 and weight is not None:
            most[step, node] = max(most.get((step, node), (-1.0, 0)), (weight, -at))
    found = [-1] * len(ids)
    columns = (nodes[name] for name in ("step", "parent", "depth", "status"))
    for step, parent, depth, status in zip(*columns, strict=True):
        position = contexts[step] + depth - 1
        if status != "accepted" or position >= len(ids) or (step, parent) not in most:
            continue
        at = -most[step, parent][1]
        same = (place for place in (at, at + 1) if place < position and ids[place] == ids[position])
        found[position] = next(same, -1)
    return found


def links(trace: Trace, min_run: int = 2, *, whole: bool = True) -> list[Link]:
    """The copied runs of at least ``min_run`` tokens, in the order of the output.

    With ``whole``, whole quotations: what was copied from the answer's own text is traced on to where that came from,
    and each run takes in the tokens beside it whose characters the source has there too, whoever wrote them and however
    both sides are cut into tokens (its source may have another number of tokens). Without, only drafted tokens count
    (methods.md §2): the target's own token that begins a quotation does not, nor one between two drafts. A larger
    ``min_run`` only leaves links out: the rest stays as it is.

    Raises ValueError for a ``min_run`` below 1.
    """
    if min_run < 1:
        raise ValueError(f"min_run={min_run} is not allowed: a whole number of at least 1")
    where = _Source(trace)
    runs: list[Link] = []
    for i, copy in enumerate(where.copies(whole)):
        if copy is None:
            continue
        home = where.home(*copy)
        assert home is not None, "a trace names no source outside its text"
        _append(runs, Link(i, i + 1, copy[1], copy[1] + 1, home[1], home[0]))
    if whole:
        runs = _grown(trace, where, runs)
        if any(run.kind == "output" for run in runs):
            runs = _grown(trace, where, _traced_on(trace, where, runs))
    return [run for run in runs if len(run) >= min_run]


def _append(runs: list[Link], run: Link) -> None:
    """Add a run, as a part of the last one where it goes on there."""
    last = runs[-1] if runs else None
    if last and (last.stop, last.source_stop, last.kind, last.passage) == (
        run.start, run.source, run.kind, run.passage,
    ):  # fmt: skip
        runs[-1] = replace(last, stop=run.stop, source_stop=run.source_stop)
    else:
        runs.append(run)


def _traced_on(trace: Trace, where: _Source, runs: Sequence[Link]) -> list[Link]:
    """Copies of the answer's own text as copies of what that was copied from, as far as its grown links know it: token
    by token, blanks at a token's ends aside.
    """
    of = _bytes(trace)
    known: dict[int, tuple[Kind, int, int]] = {}  # output token → kind, passage, place
    traced: list[Link] = []
    for run in runs:
        if len(run) != run.source_stop - run.source:  # the source's tokens are cut otherwise
            traced.append(run)
            continue
        for i, at in zip(range(run.start, run.stop), range(run.source, run.source_stop), strict=True):
            kind, passage, place = run.kind, run.passage, at
            if kind == "output":
                kind, passage, place = known.get(at - where.first, (kind, passage, place))
            there, here = where.token(kind, place), where.ids[where.first + i]
            if there == here or (there is not None and of[there].strip() == of[here].strip() != b""):
                known[i] = kind, passage, place
            else:
                kind, passage, place = run.kind, run.passage, at
            _append(traced, Link(i, i + 1, place, place + 1, passage, kind))
    return traced


class _Bytes:
    """The bytes of some tokens, and where each token's lie."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        parts = list(pieces)
        self.data = b"".join(parts)
        self.stops = list(accumulate(map(len, parts)))
        self.starts = [0, *self.stops[:-1]]

    def core(self, token: int) -> tuple[int, int] | None:
        """The token's bytes [a, b) without the blanks at its ends; all where it is only blanks, None where it has none.
        """
        part = self.data[self.starts[token] : self.stops[token]]
        start = self.starts[token] + (len(part) - len(part.lstrip()) if part.strip() else 0)
        return (start, start + len(part.strip() or part)) if part else None


def _grown(trace: Trace, where: _Source, runs: Sequence[Link]) -> list[Link]:
    of = _bytes(trace)
    said = _Bytes(of[token] for token in where.ids[where.first :])
    stretches: list[tuple[Kind, int, int, _Bytes]] = []
    grown: list[Link] = []
    for number, run in enumerate(runs):
        known = (s for s in stretches if s[0] == run.kind and s[1] <= run.source < s[2])
        if (found := next(known, None)) is None:
            low, high = where.stretch(run)
            ids = (where.token(run.kind, at) for at in range(low, high))
            found = (run.kind, low, high, _Bytes(of[token] for token in ids if token is not None))
            stretches.append(found)
        _, low, _, source = found
        first, last = run.source - low, run.source_stop - low - 1  # tokens of the source's stretch
        begin, end = said.starts[run.start], said.stops[run.stop - 1]
        here, there = source.starts[first], source.stops[last]  # the same places in the source
        back = _agree(said.data[:begin][::-1], source.data[:here][::-1])
        ahead = _agree(said.data[end:], source.data[there:])
        free = grown[-1].stop if grown else 0
        taken = runs[number + 1].start if number + 1 < len(runs) else len(said.starts)
        start, stop = run.start, run.stop
        while start > free and (core := said.core(start - 1)) and core[0] >= begin - back:
            start -= 1
            first = bisect_right(source.starts, here - begin + core[0]) - 1
        while stop < taken and (core := said.core(stop)) and core[1] <= end + ahead:
            stop += 1
            last = bisect_left(source.stops, there - end + core[1])
        _append(grown, replace(run, start=start, stop=stop, source=low + first, source_stop=low + last + 1))
    return grown


def _agree(a: bytes, b: bytes) -> int:
    """How many bytes two texts have in common at their beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def verbatim(trace: Trace, link: Link) -> bool:
    """Whether the source really says what the output says: token by token or, of a whole quotation whose tokens
    are cut otherwise, in its text.
    """
    return _verbatim(trace, _Source(trace), link)


def _verbatim(trace: Trace, where: _Source, link: Link) -> bool:
    given = [where.token(link.kind, at) for at in range(link.source, link.source_stop)]
    taken = where.ids[where.first + link.start : where.first + link.stop]
    if given == taken:
        return True
    of, known = _bytes(trace), [token for token in given if token is not None]
    said, says = (b"".join(of[token] for token in ids) for ids in (taken, known))
    core = said.strip() or said
    return len(known) == len(given) and bool(core) and core in says


def _bytes(trace: Trace) -> dict[int, bytes]:
    """The bytes of every token id; none of special tokens."""
    rows = zip(*(trace.tables["pieces"][name] for name in ("id", "hex", "special")), strict=True)
    return {i: b"" if special else bytes.fromhex(digits) for i, digits, special in rows}


def linked(found: Collection[Link], length: int, kinds: Collection[Kind] = SOURCES) -> np.ndarray:
    """Which of ``length`` output tokens are linked to a source of these kinds, and to which passage: the passage's
    number ``[length]``, -1 where no passage is known, -2 where there is no link.

    >>> linked([Link(1, 3, 7, 9, 0, "context")], 4).tolist()
    [-2, 0, 0, -2]
    """
    passage = np.full(length, -2, dtype=np.int64)
    for link in found:
        if link.kind in kinds:
            passage[link.start : link.stop] = link.passage
    return passage


def uncopied(found: Sequence[Link], length: int) -> list[tuple[int, int]]:
    """The output's token spans that no link covers, in order.

    >>> uncopied([Link(1, 3, 7, 9, 0, "context")], 4)
    [(0, 1), (3, 4)]
    """
    edges = [0, *(edge for link in found for edge in (link.start, link.stop)), length]
    return [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if stop > start]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was taken from one source: of its ``tokens``, ``used`` distinct ones went, in ``links`` links, into
    ``copied`` output tokens; the longest link has ``longest``.
    """

    kind: Kind
    passage: int
    tokens: int
    used: int
    copied: int
    links: int
    longest: int


def coverage(trace: Trace, found: Sequence[Link]) -> list[Coverage]:
    """Every passage of the context, used or not, and every other source that was used, in that order."""
    return [_covered(passage, found) for passage in _passages(trace, found)]


def _covered(passage: _Passage, found: Sequence[Link]) -> Coverage:
    mine = [link for link in found if (link.kind, link.passage) == (passage.kind, passage.passage)]
    used = {at for link in mine for at in range(link.source, link.source_stop)}
    lengths = [len(link) for link in mine]
    return Coverage(
        passage.kind, passage.passage, len(passage.at), len(used), sum(lengths), len(mine), max(lengths, default=0)
    )


# --- tokens to characters ---------------------------------------------------------------------------------------------


class TokenText:
    """The text of some tokens of a trace, and where each token's characters lie in it.

    Special tokens have no text. A token that holds a part of a character, or of a character with its accents or
    modifiers, stands for all of it. Bytes that are no character are shown as U+FFFD.
    """

    def __init__(self, trace: Trace, ids: Sequence[int]) -> None:
        of = _bytes(trace)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parts: list[str] = []
        self.starts: list[int] = []  # of each token: its first character
        self.stops: list[int] = []  # and the place after its last one
        count = 0
        for token in ids:
            at = []  # the character of each of the token's bytes
            for byte in of.get(token, b""):
                new = decoder.decode(bytes([byte]))
                parts.append(new)
                count += len(new)
                at.append(count if decoder.getstate()[0] else count - 1)
            self.starts.append(at[0] if at else count)
            self.stops.append(at[-1] + 1 if at else count)
        parts.append(decoder.decode(b"", True))
        self.text = "".join(parts)
        self.breaks = grapheme_breaks(self.text)

    def spoken(self, token: int) -> bool:
        """Whether the token has text."""
        return self.stops[token] > self.starts[token]

    def core(self, token: int) -> tuple[int, int]:
        """The token's characters [a, b) without the blanks at its ends; all of them where it is nothing else."""
        text = self.text[self.starts[token] : self.stops[token]]
        start = self.starts[token] + (len(text) - len(text.lstrip()) if text.strip() else 0)
        return start, start + len(text.strip() or text)

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Characters [a, b) of the tokens [start, stop), widened to whole graphemes; an empty span where they have no
        text.
        """
        spoken = [i for i in range(start, stop) if self.spoken(i)]
        if not spoken:
            at = self.starts[start] if start < len(self.starts) else len(self.text)
            return at, at
        a, b = self.starts[spoken[0]], self.stops[spoken[-1]]
        return self.breaks[bisect_right(self.breaks, a) - 1], self.breaks[bisect_left(self.breaks, b)]


def grapheme_breaks(text: str) -> list[int]:
    """Where a text may be cut without cutting a grapheme (UAX 29, without its rules for Indic conjuncts and prepended
    marks): 0, every place between two graphemes, and the end.

    >>> grapheme_breaks("e\\u0301a\\r\\n")
    [0, 2, 3, 5]
    """
    breaks, flags = [0], 0
    for i in range(1, len(text)):
        before, after = text[i - 1], text[i]
        flags = flags + 1 if _flag(before) else 0
        if not _joined(before, after, flags):
            breaks.append(i)
    return [*breaks, len(text)] if text else [0]


def _joined(before: str, after: str, flags: int) -> bool:
    """Whether two neighbouring characters are of one grapheme; ``flags`` regional indicators end with the first."""
    if before < "\x80" and after < "\x80":
        return before == "\r" and after == "\n"
    if unicodedata.category(before) in ("Cc", "Zl", "Zp"):
        return False
    if unicodedata.category(after) in ("Mn", "Me", "Mc") or after in "\u200c\u200d":
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True
    if before == "\u200d" and unicodedata.category(after) == "So":
        return True
    if _flag(after):
        return flags % 2 == 1
    return _hangul(before, after)


def _flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _hangul(before: str, after: str) -> bool:
    """Leading consonants, vowels and final consonants that make one syllable."""
    a, b = ord(before), ord(after)
    whole = 0xAC00 <= a < 0xD7A4
    open_syllable = whole and (a - 0xAC00) % 28 == 0
    if 0x1100 <= a < 0x1160:
        return 0x1100 <= b < 0x11A8 or 0xAC00 <= b < 0xD7A4
    if 0x1160 <= a < 0x11A8 or open_syllable:
        return 0x1160 <= b < 0x1200
    return (whole or 0x11A8 <= a < 0x1200) and 0x11A8 <= b < 0x1200


@dataclass(frozen=True, slots=True)
class _Passage:
    """One source: its positions (or places in the pool) in order, and their token ids."""

    kind: Kind
    passage: int
    at: Sequence[int]
    ids: Sequence[int]

    @property
    def name(self) -> str:
        names = {"prompt": "the prompt outside its passages", "output": "the answer itself"}
        if self.kind in names:
            return names[self.kind]
        return f"passage {self.passage + 1}" + (" of the pool" if self.kind == "pool" else "")

    def tokens(self, link: Link) -> tuple[int, int]:
        """The link's source as tokens [start, stop) of this passage."""
        return bisect_left(self.at, link.source), bisect_left(self.at, link.source_stop)


def _passages(trace: Trace, found: Sequence[Link]) -> list[_Passage]:
    """The context's passages, then other sources that are linked. "prompt" holds the whole prompt, so that its text
    reads as it stands."""
    where = _Source(trace)
    members: dict[tuple[Kind, int], list[int]] = {}
    for at in range(where.first):
        if where.segments[at] == "context":
            members.setdefault(("context", where.passages[at]), []).append(at)
    used = {(link.kind, link.passage) for link in found}
    for place in sorted(where.pool):
        key: tuple[Kind, int] = ("pool", where.pool[place][1])
        if key in used:
            members.setdefault(key, []).append(place)
    if ("prompt", -1) in used:
        members["prompt", -1] = list(range(where.first))
    if ("output", -1) in used:
        members["output", -1] = list(range(where.first, len(where.ids)))
    order: tuple[Kind, ...] = ("context", "pool", "prompt", "output")
    made = []
    for kind, passage in sorted(members, key=lambda key: (order.index(key[0]), key[1])):
        at = members[kind, passage]
        pooled = [where.pool[place][0] for place in at] if kind == "pool" else [where.ids[i] for i in at]
        made.append(_Passage(kind, passage, at, pooled))
    return made


# --- exports ----------------------------------------------------------------------------------------------------------


def to_json(trace: Trace, found: Sequence[Link]) -> dict[str, Any]:
    """Links with character offsets (counted in Unicode code points), as JSON holds them.

    ``output`` is the answer's text. Each of ``sources`` has its ``text`` and its coverage; each of ``links`` has
    "output" and "source", characters [a, b) of the answer and of the text of its source (``source_index`` in
    ``sources``), the same in tokens, and whether it is verbatim. ``uncopied`` lists the rest of the answer.
    """
    where, text = _Source(trace), TokenText(trace, trace.output_ids)
    sources = _passages(trace, found)
    texts = [TokenText(trace, source.ids) for source in sources]
    index = {(source.kind, source.passage): i for i, source in enumerate(sources)}
    rows = []
    for number, link in enumerate(found, 1):
        i = index[link.kind, link.passage]
        (a, b), (c, d) = text.span(link.start, link.stop), texts[i].span(*sources[i].tokens(link))
        rows.append({
            "number": number,
            "kind": link.kind,
            "passage": link.passage,
            "source_index": i,
            "output": [a, b],
            "source": [c, d],
            "output_tokens": [link.start, link.stop],
            "source_tokens": [link.source, link.source_stop],
            "text": text.text[a:b],
            "source_text": texts[i].text[c:d],
            "verbatim": _verbatim(trace, where, link),
        })  # fmt: skip
    length = len(trace.output_ids)
    covered = [_covered(source, found) for source in sources]
    return {
        "schema": SCHEMA,
        "run": {
            "id": trace.run["id"],
            "title": trace.run.get("title", ""),
            "method": trace.run["method"]["name"],
            "method_title": trace.run["method"].get("title") or trace.run["method"]["name"],
            "signal": signal(trace),
            "model": trace.run["model"]["name"],
            "forced": bool(trace.run.get("forced", False)),
        },
        "output": text.text,
        "output_tokens": length,
        "copied_tokens": sum(len(link) for link in found),
        "verbatim": all(row["verbatim"] for row in rows),
        "sources": [
            {
                "kind": source.kind,
                "passage": source.passage,
                "name": source.name,
                "text": source_text.text,
                "tokens": share.tokens,
                "used_tokens": share.used,
                "copied_tokens": share.copied,
                "links": share.links,
                "longest": share.longest,
            }
            for source, source_text, share in zip(sources, texts, covered, strict=True)
        ],
        "links": rows,
        "uncopied": [
            {"output": [*text.span(start, stop)], "output_tokens": [start, stop]}
            for start, stop in uncopied(found, length)
        ],
    }


def marked(trace: Trace, found: Sequence[Link]) -> Iterator[tuple[str, Link | None]]:
    """The answer in parts, with the link that each was copied by (None: nobody copied it); no character twice."""
    text, done = TokenText(trace, trace.output_ids), 0
    for link in found:
        start, stop = text.span(link.start, link.stop)
        start = max(start, done)
        if stop <= start:
            continue
        if start > done:
            yield text.text[done:start], None
        yield text.text[start:stop], link
        done = stop
    if done < len(text.text):
        yield text.text[done:], None


def markdown(trace: Trace, found: Sequence[Link]) -> str:
    """The answer as Markdown: copied spans in square brackets, with a footnote per source that lists what was taken
    from it and where, in characters of its text. Everything the model or the prompt said is escaped.
    """
    sources = _passages(trace, found)
    texts = {(s.kind, s.passage): TokenText(trace, s.ids) for s in sources}
    where, notes = _Source(trace), dict[tuple[Kind, int], int]()
    body = ""
    for part, link in marked(trace, found):
        if link is None:
            body += _escaped(part, body)
            continue
        note = notes.setdefault((link.kind, link.passage), len(notes) + 1)
        core = part.strip()
        lead, tail = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :] if core else ""
        body += _escaped(lead, body)
        if core:
            body += "\\[" + _escaped(core, body + "[") + f"\\][^{note}]"
        body += _escaped(tail, body)
    lines = [body.rstrip() or "*(no text)*", ""]
    for source in sorted((s for s in sources if (s.kind, s.passage) in notes), key=lambda s: notes[s.kind, s.passage]):
        key = (source.kind, source.passage)
        share = _covered(source, found)
        name = source.name[0].upper() + source.name[1:]
        quotes = []
        for link in found:
            if (link.kind, link.passage) == key:
                a, b = texts[key].span(*source.tokens(link))
                false = "" if _verbatim(trace, where, link) else " (not verbatim)"
                quotes.append(f"“{_escaped(' '.join(texts[key].text[a:b].split()), 'x')}” ({a}–{b}){false}")
        shown = f"{share.used} of {share.tokens} tokens used"
        lines.append(f"[^{notes[key]}]: {name}, {shown}: {'; '.join(quotes)}")
    return "\n".join(lines).rstrip() + "\n"


_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")


def _escaped(text: str, before: str) -> str:
    """Text as Markdown that shows just that: punctuation escaped, line ends kept, ``before`` it stands ``before``."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\ufffd" for c in text)
    text = _PUNCTUATION.sub(r"\\\1", text)
    at_start = not before or before.endswith("\n")
    lines = []
    for number, line in enumerate(text.split("\n")):
        if number or at_start:  # blanks that begin a line could make it a block of code
            bare = line.lstrip(" \t")
            line = line[: len(line) - len(bare)].replace(" ", "&#32;").replace("\t", "&#9;") + bare
        lines.append(line)
    return "\\\n".join(lines)
