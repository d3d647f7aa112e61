"""Texts of a run that are searched, and the step behind every character of them."""

from __future__ import annotations

import re
import zlib
from array import array
from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby, islice

from decoders.study.attribute.text import token_bytes
from decoders.trace.trace import Trace

PARTS: tuple[str, ...] = ("output", "rejected", "prompt")
LEFT_CHARS, RIGHT_CHARS = 40, 80  # characters of a snippet, beside the match
MAX_MATCH = 200  # characters of a match that are shown
MAX_PLACES = 3  # of a run
BRANCH_END = "\x1e"


@dataclass(slots=True)
class PartText:
    """Text of one part, and per piece of it where it starts, its step (-1: the prompt) and its number there: a position
    in the tokens, or the node at which a rejected branch begins.
    """

    text: str = ""
    rows: array[int] = field(default_factory=lambda: array("i"))

    def blob(self) -> bytes:
        return zlib.compress(self.rows.tobytes(), 1)


def part_texts(trace: Trace) -> dict[str, PartText]:
    """The searched texts of a run, by part.

    >>> trace = Trace.new({"prompt_length": 1})
    >>> trace.extend({"pieces": {"id": [0, 1], "hex": ["6162", "63"], "special": [False, False]}})
    >>> trace.extend({"tokens": {"id": [0, 1], "step": [-1, 0]}})
    >>> parts = part_texts(trace)
    >>> parts["prompt"].text, parts["output"].text, parts["output"].rows.tolist()
    ('ab', 'c', [0, 0, 1])
    """
    tokens, start = trace.tables["tokens"], int(trace.run.get("prompt_length") or 0)
    rows = list(zip(tokens["id"], tokens["step"], range(len(tokens["id"])), strict=True))
    pieces = token_bytes(trace)
    output = _join(pieces, rows[start:])
    return {"output": output, "rejected": _rejected_text(trace, pieces), "prompt": _join(pieces, rows[:start])}


def _join(pieces: dict[int, bytes], rows: Iterable[tuple[int, int, int]]) -> PartText:
    """Tokens as text; a character that is cut into tokens belongs to the last of them."""
    decoder, part, texts, length = getincrementaldecoder("utf-8")("replace"), PartText(), [], 0
    for token, step, position in rows:
        text = decoder.decode(pieces.get(token, b""))
        part.rows.extend((length, step, position))
        texts.append(text)
        length += len(text)
    part.text = _searchable("".join(texts) + decoder.decode(b"", final=True))
    return part


def _searchable(text: str) -> str:
    return text.replace("\0", "\ufffd")  # SQLite ends a text there


def _rejected_text(trace: Trace, pieces: dict[int, bytes]) -> PartText:
    """Every rejected branch of the drafts, from the first node that was refused to a leaf; each text once, with the
    first step that drafted it.
    """
    nodes, part, known_texts, texts, length = trace.tables["nodes"], PartText(), set(), [], 0
    for step, numbers in groupby(range(len(nodes["step"])), key=nodes["step"].__getitem__):
        rows = list(numbers)
        first = rows[0]
        is_open = [nodes["status"][row] in ("rejected", "unreached") for row in rows]
        parents = [nodes["parent"][row] for row in rows]
        inner = {parents[node] for node, refused in enumerate(is_open) if refused}
        for node, refused in enumerate(is_open):
            if not refused or node in inner:
                continue
            path = [node]
            while parents[path[-1]] >= 0 and is_open[parents[path[-1]]]:
                path.append(parents[path[-1]])
            raw = b"".join(pieces.get(nodes["token"][first + step_node], b"") for step_node in reversed(path))
            text = _searchable(raw.decode("utf-8", "replace"))
            if text.strip() and text not in known_texts:
                known_texts.add(text)
                part.rows.extend((length, step, path[-1]))
                texts.append(text + BRANCH_END)
                length += len(texts[-1])
    part.text = "".join(texts)
    return part


@dataclass(frozen=True, slots=True)
class Place:
    """One place of a run where a word stands: its part, the step (from 0; -1 in the prompt), the positions of the first
    and the last token (of a rejected branch, twice the node at which it begins), and the text: before, matched, behind.
    """

    part: str
    step: int
    first: int
    last: int
    text: tuple[str, str, str]


def places(words: Iterable[str], text_of: dict[str, str], rows_of: dict[str, bytes]) -> tuple[list[Place], int]:
    """The first places of a run that hold one of the words, and the number of all such places.

    >>> trace = Trace.new({"prompt_length": 0})
    >>> trace.extend({"pieces": {"id": [0], "hex": ["616263"], "special": [False]}, "tokens": {"id": [0], "step": [0]}})
    >>> parts = part_texts(trace)
    >>> texts, rows = {key: part.text for key, part in parts.items()}, {key: part.blob() for key, part in parts.items()}
    >>> places(["B"], texts, rows)
    ([Place(part='output', step=0, first=0, last=0, text=('a', 'b', 'c'))], 1)
    """
    patterns = [re.compile(re.escape(word), re.IGNORECASE) for word in words]
    by_turn: list[list[Place]] = []  # every word's first place of each part comes before its second
    count = 0
    for part in PARTS:
        rows = array("i")
        for pattern in patterns:
            matches = list(islice(pattern.finditer(text_of[part]), MAX_PLACES))
            count += len(pattern.findall(text_of[part])) if matches else 0
            if matches and not rows:
                rows.frombytes(zlib.decompress(rows_of[part]))
            by_turn.append([_place(part, text_of[part], rows, match) for match in matches])
    turns = [row[turn] for turn in range(MAX_PLACES) for row in by_turn if turn < len(row)]
    distinct = list({(place.part, place.step, place.text): place for place in turns}.values())[:MAX_PLACES]
    return sorted(distinct, key=lambda place: (PARTS.index(place.part), place.step, place.first)), count


def _place(part: str, text: str, rows: array[int], match: re.Match[str]) -> Place:
    starts = rows[0::3]
    row, last = (bisect_right(starts, at) - 1 for at in (match.start(), match.end() - 1))
    low, high = 0, len(text)
    if part == "rejected":  # within its branch
        low, high = starts[row], (starts[row + 1] if row + 1 < len(starts) else len(text)) - len(BRANCH_END)
    start, end = match.span()
    match_text = text[start:end] if end - start <= MAX_MATCH else f"{text[start : start + MAX_MATCH]}…"
    left_text, right_text = text[max(low, start - LEFT_CHARS) : start], text[end : min(high, end + RIGHT_CHARS)]
    marks = ("…" if start - LEFT_CHARS > low else "", "…" if end + RIGHT_CHARS < high else "")
    text_parts = (marks[0] + left_text, match_text, right_text + marks[1])
    return Place(part, rows[3 * row + 1], rows[3 * row + 2], rows[3 * last + 2], text_parts)
