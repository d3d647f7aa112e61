"""Chat templates: the text that a model's own template makes of a conversation, and where its contents stand in it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

import numpy as np

from decoders.errors import UserError

TEMPLATE = -1  # the place of a character that the template wrote
UNKNOWN = -2  # while texts are aligned: not decided yet
MAX_CELLS = 400_000_000  # characters × characters of two texts that are aligned one by one: 50 MB
MIN_LETTERS = 3  # matched characters, without blanks, by which a rewritten content is recognised
MIN_COVERAGE = 0.5  # of what stands where a content is taken to be


def render_chat(tokenizer: Any, messages: Sequence[dict[str, str]], ask: bool = True) -> tuple[str, np.ndarray]:
    """Text of the chat template, exactly as ``apply_chat_template`` gives it, and the place of each of its characters
    ``[characters]``: an index into the joined contents, or -1 where the template wrote it.

    Templates may trim a content, cut it or leave it out: the places come from an alignment with the text that would
    stand there unchanged. A content that was rewritten beyond recognition has no place. ``ask``: the assistant is to
    go on. Raises UserError where the template refuses the messages.
    """
    try:
        text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=ask)
    except Exception as problem:  # a template is a program: what it raises may be anything
        reason = " ".join(str(problem).split())[:300] or type(problem).__name__
        roles = ", ".join(message["role"] for message in messages[:6])
        raise UserError(
            f"this model's chat template refuses the messages ({reason}): they are {roles}; change or leave out what "
            "it names"
        ) from None
    contents = [message["content"] for message in messages]
    expected, places = _render_unchanged(tokenizer, messages, ask)
    return text, places if text == expected else _align(expected, places, text, [len(content) for content in contents])


def _render_unchanged(tokenizer: Any, messages: Sequence[dict[str, str]], ask: bool) -> tuple[str, np.ndarray]:
    """Text of a template that does nothing to its contents, and its places: the template is asked with a mark in place
    of each content or, where it reads them, with marks around them.
    """
    opening, closing = [[f"{mark}{number}\ue001" for number in range(len(messages))] for mark in "\ue000\ue002"]
    plain = [first + last for first, last in zip(opening, closing, strict=True)]
    framed_texts = [first + m["content"] + last for first, m, last in zip(opening, messages, closing, strict=True)]
    tail = "".join(plain)
    for marked_texts in (plain, framed_texts):
        contents = [{**message, "content": content} for message, content in zip(messages, marked_texts, strict=True)]
        with contextlib.suppress(Exception):  # it asks for another text
            tail = tokenizer.apply_chat_template(contents, tokenize=False, add_generation_prompt=ask)
            break
    texts: list[str] = []
    places: list[np.ndarray] = []

    def add(text: str, start: int) -> None:
        texts.append(text)
        places.append(np.full(len(text), TEMPLATE) if start < 0 else np.arange(start, start + len(text)))

    start = 0
    for message, first, last in zip(messages, opening, closing, strict=True):
        prefix, separator, body = tail.partition(first)
        if separator:
            add(prefix, TEMPLATE)
            add(message["content"], start)
            tail = body.partition(last)[2]
        start += len(message["content"])
    add(tail, TEMPLATE)
    return "".join(texts), np.concatenate(places)


def _align(expected: str, places: np.ndarray, text: str, lengths: Sequence[int]) -> np.ndarray:
    """Places of ``text``'s characters, from those of the text that was expected; ``lengths`` are the contents'."""
    alignment = np.full(len(text), UNKNOWN)
    for start, target_start, length in _matches(expected, text):
        alignment[target_start : target_start + length] = places[start : start + length]
    matched_places, alignment = alignment, np.full(len(text), TEMPLATE)
    edges = np.flatnonzero(np.diff((matched_places != TEMPLATE).astype(np.int8), prepend=0, append=0))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):  # between two pieces of the template
        stop_place = 0
        for length in lengths:
            stop_place += length
            members = start + np.flatnonzero(
                (matched_places[start:stop] >= stop_place - length) & (matched_places[start:stop] < stop_place)
            )
            letters = sum(not text[place].isspace() for place in members)
            letter_quota = min(MIN_LETTERS, sum(not character.isspace() for character in text[start:stop]))
            if (
                len(members)
                and letters >= letter_quota
                and len(members) >= MIN_COVERAGE * (members[-1] + 1 - members[0])
            ):
                interior = np.arange(
                    members[0], members[-1] + 1
                )  # what was put between belongs to the character before it
                alignment[interior] = matched_places[members[np.searchsorted(members, interior, "right") - 1]]
    return alignment


def _matches(old_text: str, new_text: str) -> list[tuple[int, int, int]]:
    """Equal pieces of two texts: starts in both, and the length. Whole lines first, then what is left of them."""
    lines, new_lines = old_text.splitlines(keepends=True), new_text.splitlines(keepends=True)
    starts, other_starts = (np.cumsum([0, *map(len, cut)]).tolist() for cut in (lines, new_lines))
    matches = []
    for kind, i, i_stop, j, j_stop in SequenceMatcher(None, lines, new_lines, autojunk=False).get_opcodes():
        start, stop, other_start, other_stop = starts[i], starts[i_stop], other_starts[j], other_starts[j_stop]
        if kind == "equal":
            matches.append((start, other_start, stop - start))
        elif kind == "replace":
            bounds = [(start, other_start), (stop, other_stop)]
            if i_stop - i == j_stop - j:  # line by line
                bounds = list(zip(starts[i : i_stop + 1], other_starts[j : j_stop + 1], strict=True))
            for (start, other_start), (stop, other_stop) in pairwise(bounds):
                pieces = _matches_of_characters(old_text[start:stop], new_text[other_start:other_stop])
                matches += [(start + piece, other_start + other_piece, length) for piece, other_piece, length in pieces]
    return matches


def _matches_of_characters(old_text: str, new_text: str) -> list[tuple[int, int, int]]:
    """Equal pieces of two texts, as ``_matches``; of very long ones, their ends and what was trimmed alone."""
    from rapidfuzz.distance import Indel, Postfix, Prefix

    first = int(Prefix.similarity(old_text, new_text))
    last = int(Postfix.similarity(old_text[first:], new_text[first:]))
    matches = [(0, 0, first), (len(old_text) - last, len(new_text) - last, last)]
    inner, new_inner = old_text[first : len(old_text) - last], new_text[first : len(new_text) - last]
    if new_inner and (start := inner.find(new_inner)) >= 0:
        matches.append((first + start, first, len(new_inner)))
    elif len(inner) * len(new_inner) <= MAX_CELLS:
        codes = [code for code in Indel.opcodes(inner, new_inner) if code.tag == "equal"]
        matches += [(first + c.src_start, first + c.dest_start, c.src_end - c.src_start) for c in codes]
    return matches
