"""Names, nouns, identifiers and wordings: the vocabulary every task draws from."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def table(name: str) -> dict[str, Any]:
    """One of the data files beside this module."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))


WORDS: dict[str, tuple[str, ...]] = {kind: tuple(text.split()) for kind, text in table("words").items()}
WISHES: dict[str, list[str]] = table("wishes")
_CODAS = ("", "", *"nrslt")


@dataclass
class Cast:
    """Draws names and wordings for one example; no two names it hands out begin alike.

    Distinct beginnings make every copy decidable at its first token: after "Replace Anna by Hugo" a reader who
    meets "Anna" need not look ahead to know which Anna it is.

    >>> cast = Cast(random.Random(0))
    >>> cast.person() != cast.person()
    True
    """

    rng: random.Random
    used_words: set[str] = field(default_factory=set)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def say(self, wish: str, **slots: Any) -> str:
        """One of the wordings of a wish (`wishes.toml`)."""
        return self.rng.choice(WISHES[wish]).format(**slots)

    def lead_in(self, instruction: str) -> str:
        """`instruction`, sometimes after a polite sentence."""
        return f"{self.say('leads')} {instruction}" if self.chance(0.2) else instruction

    def word(self, kind: str) -> str:
        """One word of a kind (`words.toml`), which the example may use again."""
        return self.rng.choice(WORDS[kind])

    def pick(self, kind: str) -> str:
        """One word of a kind, not yet used in this example."""
        return self._fresh(lambda: self.word(kind))

    def _fresh(self, draw: Callable[[], str], beginning: int = 3) -> str:
        for _ in range(200):
            word = draw()
            mark = word[:beginning].lower()
            if mark not in self.used_words:
                self.used_words.add(mark)
                return word
        raise RuntimeError("200 draws gave no name with a new beginning: one example asks for too many names")

    def syllables(self, count: int) -> str:
        """A pronounceable made-up word, in lower case: two syllables may be "floren"."""
        return "".join(self.word("onset") + self.word("vowel") for _ in range(count)) + self.rng.choice(_CODAS)

    def _made_up(self) -> str:
        return self.syllables(self.rng.choice((2, 2, 3))).capitalize()

    def _name(self, kind: str, share: float) -> str:
        """A word of a kind or, beyond this share, a made-up one."""
        return self._fresh(lambda: self.word(kind) if self.chance(share) else self._made_up())

    def first(self) -> str:
        return self._name("first", 0.7)

    def person(self) -> str:
        """A first name and a surname; each is new to the example."""
        surname = self._name("last", 0.5)
        return f"{self.first()} {surname}"

    def town(self) -> str:
        return self._fresh(self._made_up)

    def number(self) -> str:
        """A number of two to four digits, not yet used in this example."""
        randint = self.rng.randint
        return self._fresh(
            lambda: str(self.rng.choice((randint(11, 99), randint(100, 999), randint(1000, 9999)))), beginning=2
        )

    def variable(self) -> str:
        """A Python variable: a word, two words joined by `_`, or a made-up word."""

        def draw() -> str:
            kind = self.rng.random()
            if kind < 0.55:
                return self.word("identifier")
            if kind < 0.8:
                return f"{self.word('identifier')}_{self.word('identifier')}"
            return self.syllables(2) + self.rng.choice(("", "", "_id", "_sum", "_max"))

        return self._fresh(draw)

    def sequence(self) -> str:
        """A Python variable that holds a list: a plural."""
        return self._fresh(lambda: self.word("sequence") if self.chance(0.75) else self.syllables(2) + "_list")

    def function(self) -> str:
        """A Python function: a verb and an object."""
        return self._fresh(
            lambda: f"{self.word('verb')}_{self.word('identifier') if self.chance(0.7) else self.syllables(2)}"
        )
