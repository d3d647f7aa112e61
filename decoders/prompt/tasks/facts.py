"""Facts: sentences with made-up names, and the questions they answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .words import Cast, table


@dataclass(frozen=True)
class FactQuestion:
    """A question and its answer, which stands word for word in the fact's text."""

    text: str
    answer: str


@dataclass(frozen=True)
class Fact:
    """One sentence, the aside that could be left out of it, its questions, and the names an edit may replace.

    `text` is the bare sentence; `text_with_aside` carries the subordinate clause that a summary drops.
    """

    text: str
    text_with_aside: str
    questions: tuple[FactQuestion, ...]
    people: tuple[str, ...]
    names: tuple[str, ...]


TABLE = table("facts")
_REPLACEABLE = ("person", "town", "elsewhere", "thing", "place")


def _word(kind: str, distinct: bool) -> Callable[[Cast], str]:
    return lambda cast: cast.pick(kind) if distinct else cast.word(kind)


# What goes into the slots of `facts.toml`, in the order in which it is drawn.
SLOTS: dict[str, Callable[[Cast], str]] = {
    "person": Cast.person,
    "town": Cast.town,
    "elsewhere": Cast.town,
    "number": Cast.number,
    **{kind: _word(kind, True) for kind in ("thing", "place")},
    **{kind: _word(kind, False) for kind in ("adjective", "action")},
    **{kind: _word(kind, True) for kind in ("job", "plural")},
    **{kind: _word(kind, False) for kind in ("colour", "day", "month")},
    "year": lambda cast: str(cast.rng.randint(1900, 2025)),
    "future": lambda cast: str(cast.rng.randint(2027, 2049)),
    "minutes": lambda cast: str(cast.rng.randint(12, 99)),
}


def fact(cast: Cast, pattern: int) -> Fact:
    """One fact of sentence pattern number `pattern`, about names that nothing else in the example bears."""
    sentence = TABLE["sentences"][pattern]
    values = {slot: draw(cast) for slot, draw in SLOTS.items() if "{" + slot + "}" in sentence["text"]}

    def say(template: str) -> str:
        return with_article(template.format(**values))

    text = say(sentence["text"])
    return Fact(
        text=text,
        text_with_aside=f"{text[:-1]}, {cast.rng.choice(TABLE['asides'])}.",
        questions=tuple(FactQuestion(say(question), say(answer)) for question, answer in sentence["questions"]),
        people=(values["person"],) if "person" in values else (),
        names=tuple(values[slot] for slot in _REPLACEABLE if slot in values),
    )


def with_article(text: str) -> str:
    """`text` with "an" before a vowel."""
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)


def facts(cast: Cast, count: int) -> list[Fact]:
    """`count` facts of different patterns that share one cast: no name and no question fits two of them."""
    return [fact(cast, pattern) for pattern in cast.rng.sample(range(len(TABLE["sentences"])), count)]
