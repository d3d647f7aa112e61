"""Names, nouns and identifiers: the vocabulary every task draws from."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST = _words(
    "Anna Ben Clara David Emma Felix Grace Hugo Iris Jack Kara Liam Maya Noah Olga Paul Rosa Sam Tara "
    "Victor Wendy Zoe Amir Chen Diego Fatima Hana Ivan Leila Omar Priya Yuki Lena Marco Nadia Oscar Petra "
    "Ravi Sofia Tomas Ursula Vera Walter Ines Jonas Kim Lucia Milo Nora Elsa Bruno Dora Edith Frank Greta "
    "Henry Ingrid"
)
LAST = _words(
    "Adams Baker Cole Diaz Evans Ford Gray Hall Ito Jones Khan Lopez Moss Novak Ortiz Price Quinn Reed "
    "Shaw Todd Unger Vega Wells Young Brandt Costa Dahl Fisher Garcia Hansen Jensen Keller Lang Meyer "
    "Nolan Okafor Park Rossi Silva Tanaka Vogel Weber Zhang"
)
PLACE = _words(
    "harbour museum library station market bridge school hospital stadium garden theatre factory airport "
    "castle tower valley lake park hotel bakery gallery cinema farm church observatory mill"
)
ADJECTIVE = _words(
    "old new large small quiet busy famous modern ancient bright cold warm narrow wide green red blue "
    "golden wooden stone grey heavy light rare simple broken"
)
THING = _words(
    "lamp engine robot camera bicycle painting clock map piano telescope boat ladder basket trumpet coin "
    "statue drone radio sensor battery violin carpet kettle mirror chair wagon compass lantern printer"
)
PLURAL = _words(
    "apples tickets books chairs lamps stamps boxes pencils bottles cards shells coins plates candles "
    "marbles stickers buttons oranges bricks flowers"
)
JOB = _words("teacher doctor farmer painter engineer baker nurse pilot writer singer carpenter lawyer gardener chemist")
ACTION = _words("opened repaired visited bought designed found moved sold tested painted cleaned closed inspected")
DAY = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTH = _words("January February March April May June July August September October November December")
COLOUR = _words("red green blue yellow black white orange purple silver brown")

IDENTIFIER = _words(
    "total count value result index price score width height node key user limit step amount buffer "
    "cursor depth entry field group header input job kind label marker number offset point query rate "
    "sample target unit vector weight zone balance counter delta factor gap hint item level margin name "
    "order phase quota record size token update volume window angle block cell disk edge frame grid host "
    "image line mode page queue row slot tag text view word account bonus cost discount energy fee gain "
    "load minimum path radius speed task"
)
SEQUENCE = _words(
    "items values numbers orders users prices scores rows words lines records nodes points samples tokens "
    "files events tasks entries cells pages names keys weights rates levels images books invoices tickets "
    "sensors players"
)
VERB = _words(
    "get compute find make update check load merge count filter build collect select scan sum clean parse "
    "apply measure sort split reduce track store fetch read prepare"
)

_ONSET = _words("b c d f g h k l m n p r s t v w z br cr dr fl gr kl pr sl st tr sh th")
_VOWEL = _words("a e i o u ai ea oo")
_CODA = ("", "", "n", "r", "s", "l", "t")


def syllables(rng: random.Random, count: int) -> str:
    """A pronounceable made-up word, in lower case: two syllables may be "floren"."""
    return "".join(rng.choice(_ONSET) + rng.choice(_VOWEL) for _ in range(count)) + rng.choice(_CODA)


@dataclass
class Cast:
    """Draws names for one example; no two names it hands out begin alike.

    Distinct beginnings make every copy decidable at its first token: after "Replace Anna by Hugo" a reader who
    meets "Anna" need not look ahead to know which Anna it is.

    >>> cast = Cast(random.Random(0))
    >>> cast.person() != cast.person()
    True
    """

    rng: random.Random
    used: set[str] = field(default_factory=set)

    def _fresh(self, draw) -> str:
        for _ in range(200):
            word = draw()
            mark = word[:3].lower()
            if mark not in self.used:
                self.used.add(mark)
                return word
        raise RuntimeError("200 draws gave no name with a new beginning: one example asks for too many names")

    def pick(self, words) -> str:
        """One word of `words`, not yet used in this example."""
        return self._fresh(lambda: self.rng.choice(words))

    def first(self) -> str:
        return self._fresh(lambda: self.rng.choice(FIRST) if self.rng.random() < 0.7 else self._made_up().capitalize())

    def person(self) -> str:
        """A first name and a surname; each is new to the example."""
        surname = self._fresh(
            lambda: self.rng.choice(LAST) if self.rng.random() < 0.5 else self._made_up().capitalize()
        )
        return f"{self.first()} {surname}"

    def town(self) -> str:
        return self._fresh(lambda: self._made_up().capitalize())

    def _made_up(self) -> str:
        return syllables(self.rng, self.rng.choice((2, 2, 3)))

    def number(self) -> str:
        """A number of two to four digits, not yet used in this example."""
        for _ in range(200):
            text = str(
                self.rng.choice((self.rng.randint(11, 99), self.rng.randint(100, 999), self.rng.randint(1000, 9999)))
            )
            if text[:2] not in self.used:
                self.used.add(text[:2])
                return text
        raise RuntimeError("200 draws gave no new number: one example asks for too many numbers")

    def year(self) -> str:
        return str(self.rng.randint(1900, 2025))

    def variable(self) -> str:
        """A Python variable: a word, two words joined by `_`, or a made-up word."""

        def draw() -> str:
            kind = self.rng.random()
            if kind < 0.55:
                return self.rng.choice(IDENTIFIER)
            if kind < 0.8:
                return f"{self.rng.choice(IDENTIFIER)}_{self.rng.choice(IDENTIFIER)}"
            return syllables(self.rng, 2) + self.rng.choice(("", "", "_id", "_sum", "_max"))

        return self._fresh(draw)

    def sequence(self) -> str:
        """A Python variable that holds a list: a plural."""
        return self._fresh(
            lambda: self.rng.choice(SEQUENCE) if self.rng.random() < 0.75 else syllables(self.rng, 2) + "_list"
        )

    def function(self) -> str:
        """A Python function: a verb and an object."""
        return self._fresh(
            lambda: (
                f"{self.rng.choice(VERB)}_"
                + (self.rng.choice(IDENTIFIER) if self.rng.random() < 0.7 else syllables(self.rng, 2))
            )
        )
