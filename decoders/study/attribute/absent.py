"""Numbers, dates and names of an answer that stand in no source. By their text alone: no model, no signal.

A number is compared by its value: "1,200", "1 200.0" and "twelve hundred" are one, "1.234" may be either of two. A date
is compared as a day: "12 March 2024", "March 12, 2024" and "2024-03-12" are one. A name is a run of capitalised words,
compared as these words in this order; a word that begins a sentence is none by itself. Sources are all that was given:
passages, a pool, instruction, question, turns. Number words are English; names are not looked for in code, nor where
the sources capitalise common nouns, as German does, nor in an answer of another language than its sources.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import regex

from decoders.trace.trace import Trace

from .attribution import _Source
from .evidence import PASSAGE_NUMBER
from .rarity import FUNCTION_WORDS
from .text import TokenText
from .turns import turns

_SMALL = {
    word: value for value, word in enumerate(
        """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
        seventeen eighteen nineteen""".split()  # noqa: SIM905
    )
}  # fmt: skip
_TENS = {word: 10 * n for n, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)}  # noqa: SIM905
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if len(month) > 3 else month for month in _MONTHS)
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"\b(?:{_DAY}\s+(?:of\s+)?({_MONTH})\.?,?\s+(\d{{4}})|({_MONTH})\.?\s+{_DAY},?\s+(\d{{4}})|(\d{{4}})-(\d\d)-(\d\d))\b",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(?<![\w.,])\d+(?:[.,\u00a0\u202f ]\d{3}(?!\d))*(?:[.,]\d+)?(?=(?:st|nd|rd|th|s|%)?(?!\w))")
_NUMBER_WORD = "|".join([*_SMALL, *_TENS, *_SCALES])
_WORDS = re.compile(rf"\b(?:{_NUMBER_WORD})(?:(?:[\s-]+|\s+and\s+)(?:{_NUMBER_WORD}))*\b", re.IGNORECASE)
_MARKER = re.compile(r"(?:^|\n)\s*$")  # before the number of a list's item
_NAME = regex.compile(
    r"\p{Lu}[\p{L}\p{M}\p{Nd}'’\-]*(?:\s+(?:(?:of|de|van|von|der|la)\s+)?\p{Lu}[\p{L}\p{M}\p{Nd}'’\-]*)*"
)
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_BEGIN = regex.compile(r"(?:^|[.!?:\n…]|[.!?…][\"'”’)\]]+)[\s\"'“‘(\[*#>-]*$")
_TITLES = frozenset("mr mrs ms miss dr prof sir lady".split())  # noqa: SIM905
MIN_KNOWN = 0.1  # of an answer's words in small letters: with fewer it is of another language than its sources
MOST_CAPITALS = 0.35  # of the words behind one in small letters: with more of them a language capitalises common nouns

Kind = Literal["number", "date", "name"]


@dataclass(frozen=True, slots=True)
class Claim:
    """Characters [start, stop) of an answer that name a number, a date or a name, and whether a source has it."""

    start: int
    stop: int
    kind: Kind
    is_given: bool


def claims(trace: Trace) -> list[Claim]:
    """The numbers, dates and names of a run's answer, in order."""
    text, sources = TokenText(trace, trace.output_ids).text, source_texts(trace)
    days = {day for source in sources for _, _, day in _dates(source)}
    values = {value for source in sources for _, _, number in _numbers(source) for value in number}
    names = [f" {' '.join(_name_words(source))} " for source in sources]
    runs = (match[0].split() for source in sources for match in _NAME.finditer(source))
    known_words = {word.casefold() for run in runs if len(run) > 1 for word in run}
    claim_list = [Claim(a, b, "date", day in days) for a, b, day in _dates(text)]
    dates = [(claim.start, claim.stop) for claim in claim_list]
    claim_list += [
        Claim(a, b, "number", bool(number & values))
        for a, b, number in _numbers(text)
        if not any(a < stop and start < b for start, stop in dates)
    ]
    if not _is_foreign(text, sources) and not any(_capitalises_nouns(source) for source in sources):
        claim_list += [
            Claim(a, b, "name", any(f" {' '.join(words)} " in source for source in names))
            for a, b, words in _names(text, known_words)
            if not any(a < stop and start < b for start, stop in dates)
        ]
    return sorted(claim_list, key=lambda claim: claim.start)


def source_texts(trace: Trace) -> list[str]:
    """The text of everything that was given: each passage and other part of the prompt, each turn, and the pool."""
    source_map = _Source(trace)
    parts = [
        [*group]
        for (name, _), group in groupby(
            range(source_map.first), key=lambda at: (source_map.segments[at], source_map.passages[at])
        )
        if name != "template"
    ]
    parts += [[*range(turn.start, turn.stop)] for turn in turns(trace) if source_map.segments[turn.start] == "template"]
    ids = [[source_map.ids[at] for at in part] for part in parts]
    ids += [[token for token, _ in source_map.pool.values()]] if source_map.pool else []
    return [PASSAGE_NUMBER.sub("", TokenText(trace, part).text.lstrip()) for part in ids]


def _dates(text: str) -> Iterator[tuple[int, int, tuple[int, int, int]]]:
    """The days that a text names: characters [start, stop), and (year, month, day)."""
    for match in _DATE.finditer(text):
        day, month, year, month_first, day_second, year_last, *iso = match.groups()
        if iso[0]:
            yield match.start(), match.end(), (int(iso[0]), int(iso[1]), int(iso[2]))
        else:
            number = next(n for n, name in enumerate(_MONTHS, 1) if name.startswith((month or month_first)[:3].lower()))
            yield match.start(), match.end(), (int(year or year_last), number, int(day or day_second))


def _numbers(text: str) -> Iterator[tuple[int, int, frozenset[float]]]:
    """The numbers of a text: characters [start, stop), and the values that each may have; no marks of list items."""
    for match in _DIGITS.finditer(text):
        is_marker = text[match.end() : match.end() + 1] in (".", ")") and _MARKER.search(text[: match.start()])
        is_citation = text[: match.start()].endswith("[") and text[match.end() :].startswith("]")
        if not is_marker and not is_citation:
            yield match.start(), match.end(), frozenset(_values(match[0]))
    for match in _WORDS.finditer(text):
        words = [word for word in re.split(r"[\s-]+", match[0].lower()) if word != "and"]
        if words != ["one"]:  # it is a pronoun as well
            yield match.start(), match.end(), frozenset({float(_value(words))})


def _values(digits: str) -> Iterator[float]:
    """The values of digits: points and commas before three digits may group them or divide a fraction off.

    >>> sorted(_values("1.234")), sorted(_values("1,200.50")), sorted(_values("3,5"))
    ([1.234, 1234.0], [1200.5], [3.5])
    """
    bare = re.sub(r"[\u00a0\u202f ]", "", digits)
    marks = re.findall(r"[.,]", bare)
    if not marks:
        yield float(bare)
        return
    whole, _, fraction = re.split(r"([.,])(?=\d*$)", bare)
    if len({*marks}) == 2 or (len(marks) == 1):
        yield float(f"{re.sub(r'[.,]', '', whole)}.{fraction}")
    if len({*marks}) == 1 and len(fraction) == 3:
        yield float(re.sub(r"[.,]", "", bare))


def _value(words: list[str]) -> int:
    """The value of number words.

    >>> _value(["three", "hundred"]), _value(["two", "thousand", "twenty", "one"]), _value(["twelve", "hundred"])
    (300, 2021, 1200)
    """
    total = part = 0
    for word in words:
        if word in _SCALES:
            scale = _SCALES[word]
            part = max(1, part) * scale
            if scale > 100:
                total, part = total + part, 0
        else:
            part += _SMALL.get(word, _TENS.get(word, 0))
    return total + part


def _name_words(text: str) -> list[str]:
    """The words of a text as names are compared: without case, titles and a possessive's s."""
    words = (re.sub(r"['’]s?$", "", word.casefold()) for word in regex.findall(r"[\p{L}\p{M}\p{Nd}'’\-]+", text))
    return [word for word in words if word and word not in _TITLES]


def _names(text: str, known_words: Collection[str]) -> Iterator[tuple[int, int, list[str]]]:
    """The names of a text: characters [start, stop), and their words; nothing in code. A word that
    begins a sentence is a part of one where it is among ``known_words``, or an abbreviation.
    """
    bare = _FENCE.sub(lambda fence: " " * len(fence[0]), text)
    for match in _NAME.finditer(bare):
        words = [*regex.finditer(r"\S+", match[0])]
        first = words[0][0]
        is_name = first.casefold() in known_words or (len(first) > 1 and first.isupper())
        if not is_name and _BEGIN.search(bare[: match.start()]):
            words = words[1:]
        while words and words[0][0].casefold() in FUNCTION_WORDS:
            words = words[1:]
        name_words = _name_words(" ".join(word[0] for word in words))
        if name_words:
            yield match.start() + words[0].start(), match.start() + words[-1].end(), name_words


def _is_foreign(text: str, sources: list[str]) -> bool:
    """True for a text of which hardly a word in small letters is in the sources, or a function word of English."""
    words = regex.findall(r"\b\p{Ll}[\p{Ll}\p{M}]+\b", text)
    source_words = (regex.findall(r"\p{Ll}[\p{Ll}\p{M}]+", source.casefold()) for source in sources)
    known_words = FUNCTION_WORDS.union(*source_words)
    return len(words) >= 3 and sum(word in known_words for word in words) < MIN_KNOWN * len(words)


def _capitalises_nouns(text: str) -> bool:
    """True for a text that capitalises so many of the words inside its sentences that these are no names."""
    words = regex.findall(r"(?<=(?:^|\s)\p{Ll}+,? )\p{L}+", text)  # behind one in small letters
    return len(words) >= 12 and sum(word[0].isupper() for word in words) > MOST_CAPITALS * len(words)
