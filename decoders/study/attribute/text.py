"""Tokens as characters: offsets, graphemes and bytes of an attribution's texts."""

from __future__ import annotations

import codecs
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

import regex

from decoders.trace.trace import Trace


class _Bytes:
    """The bytes of some tokens, and where each token's lie."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        parts = list(pieces)
        self.data = b"".join(parts)
        self.stops = list(accumulate(map(len, parts)))
        self.starts = [0, *self.stops[:-1]]

    def core(self, token: int) -> tuple[int, int] | None:
        """The token's bytes [a, b) without the blanks at its ends; None where it has no bytes."""
        start, stop = self.starts[token], self.stops[token]
        return _without_blanks(self.data, start, stop) if stop > start else None


def _without_blanks(text: str | bytes, start: int, stop: int) -> tuple[int, int]:
    """[start, stop) of a text without the blanks at its ends; all of it where it is nothing else."""
    part = text[start:stop]
    first = start + (len(part) - len(part.lstrip()) if part.strip() else 0)
    return first, first + len(part.strip() or part)


def token_bytes(trace: Trace) -> dict[int, bytes]:
    """The bytes of every token id; none of special tokens."""
    rows = zip(*(trace.tables["pieces"][name] for name in ("id", "hex", "special")), strict=True)
    return {i: b"" if special else bytes.fromhex(digits) for i, digits, special in rows}


class TokenText:
    """The text of some tokens of a trace, and where each token's characters lie in it.

    Special tokens have no text. A token that holds a part of a character, or of a character with its accents or
    modifiers, stands for all of it. Bytes that are no character are shown as U+FFFD.
    """

    def __init__(self, trace: Trace, ids: Sequence[int]) -> None:
        of = token_bytes(trace)
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

    def core(self, token: int) -> tuple[int, int]:
        """The token's characters [a, b) without the blanks at its ends; all of them where it is nothing else."""
        return _without_blanks(self.text, self.starts[token], self.stops[token])

    def at_word(self, token: int) -> bool:
        """True where no word or number goes on across a token's beginning (the last token's end: its number plus
        one).
        """
        if token >= len(self.starts):
            return True
        at = self.starts[token]
        return (token == 0 or self.stops[token - 1] <= at) and not within_word(self.text, at)

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Characters [a, b) of the tokens [start, stop), widened to whole graphemes; an empty span where they have no
        text.
        """
        text_tokens = [i for i in range(start, stop) if self.stops[i] > self.starts[i]]
        if not text_tokens:
            at = self.starts[start] if start < len(self.starts) else len(self.text)
            return at, at
        a, b = self.starts[text_tokens[0]], self.stops[text_tokens[-1]]
        return self.breaks[bisect_right(self.breaks, a) - 1], self.breaks[bisect_left(self.breaks, b)]


def within_word(text: str, at: int) -> bool:
    """True where a word or a number goes on across a place in a text. Scripts that are written without spaces (Han,
    Kana, Thai, Lao, Khmer, Burmese) have no words here; a number holds its point or comma.

    >>> [within_word("in 1930, 3.5 m", at) for at in (2, 4, 7, 10, 11)]
    [False, True, False, True, True]
    >>> within_word("中文", 1)
    False
    """
    if not 0 < at < len(text):
        return False
    left_char, right_char = text[at - 1], text[at]
    if _in_word(left_char) and _in_word(right_char):
        return True
    is_inside = (left_char in ".," and at > 1 and text[at - 2].isdigit() and right_char.isdigit()) or (
        right_char in ".," and left_char.isdigit() and at + 1 < len(text) and text[at + 1].isdigit()
    )  # fmt: skip
    return bool(is_inside)


def _in_word(character: str) -> bool:
    code = ord(character)
    spaceless = 0x0E00 <= code < 0x0F00 or 0x1000 <= code < 0x10A0 or 0x1780 <= code < 0x1800
    spaceless |= 0x2E80 <= code < 0xA000 or 0xF900 <= code < 0xFB00 or 0x20000 <= code < 0x32000
    return not spaceless and (character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M")


def grapheme_breaks(text: str) -> list[int]:
    """The places where a text may be cut without cutting a grapheme (UAX 29): 0, every place between two graphemes, and
    the end.

    >>> grapheme_breaks("e\\u0301a\\r\\n")
    [0, 2, 3, 5]
    """
    return [0, *(grapheme.end() for grapheme in regex.finditer(r"\X", text))]
