"""Facts: sentences with made-up names, and the questions they answer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .words import ACTION, ADJECTIVE, COLOUR, DAY, JOB, MONTH, PLACE, PLURAL, THING, Cast


@dataclass(frozen=True)
class Question:
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
    questions: tuple[Question, ...]
    people: tuple[str, ...]
    names: tuple[str, ...]


# (sentence, ((question, answer), ...)); the letters are slots, see `fact`.
_SENTENCES: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "{p} {v} the {a} {t} at the {l} in {c} on {d}.",
        (
            ("Who {v} the {a} {t}?", "{p}"),
            ("On which day was the {a} {t} {v}?", "{d}"),
            ("In which town is the {l}?", "{c}"),
        ),
    ),
    (
        "The {a} {l} of {c} was built in {y} by {p}.",
        (
            ("When was the {a} {l} built?", "{y}"),
            ("Who built the {a} {l}?", "{p}"),
            ("Where is the {a} {l}?", "{c}"),
        ),
    ),
    (
        "More than {n} people came to the {l} in {c} to see the {a} {t}.",
        (
            ("How many people came to the {l}?", "More than {n}"),
            ("What did people come to see?", "the {a} {t}"),
        ),
    ),
    (
        "{p}, a {j} from {c}, wrote a letter about the {a} {t} in {m}.",
        (
            ("Who wrote a letter about the {t}?", "{p}"),
            ("Where does the {j} come from?", "{c}"),
            ("When was the letter written?", "{m}"),
        ),
    ),
    (
        "The {a} {t} costs {n} dollars and was made in {c}.",
        (("How much does the {t} cost?", "{n} dollars"), ("Where was the {t} made?", "{c}")),
    ),
    (
        "A {a} {t} from {c} was sold to {p} for {n} dollars.",
        (
            ("Who bought the {t}?", "{p}"),
            ("Where did the {t} come from?", "{c}"),
            ("What was the price of the {t}?", "{n} dollars"),
        ),
    ),
    (
        "In {m}, the town of {c} closed the {l} because the {t} was broken.",
        (
            ("Why was the {l} closed?", "the {t} was broken"),
            ("When was the {l} closed?", "{m}"),
            ("Which town closed its {l}?", "{c}"),
        ),
    ),
    (
        "{p} said that the {l} in {c} would open again on {d}.",
        (("When will the {l} open again?", "{d}"), ("Who spoke about the {l}?", "{p}")),
    ),
    (
        "The company {c} will move its {l} to {e} in {z}.",
        (
            ("Which company will move its {l}?", "{c}"),
            ("Where will the {l} move?", "{e}"),
            ("When will the {l} move?", "{z}"),
        ),
    ),
    (
        "{p} found a {a} {t} near the {l} of {c}.",
        (("Who found the {t}?", "{p}"), ("Where was the {t} found?", "near the {l} of {c}")),
    ),
    (
        "The {j} {p} has worked at the {l} in {c} since {y}.",
        (("Who has worked at the {l}?", "{p}"), ("Since when has the {j} worked at the {l}?", "{y}")),
    ),
    (
        "Every {d}, {p} sells {k} {s} at the {l} in {c}.",
        (
            ("Who sells {s}?", "{p}"),
            ("What does {p} sell?", "{k} {s}"),
            ("When are the {s} sold?", "Every {d}"),
        ),
    ),
    (
        "The train from {c} to {e} takes {u} minutes and stops at the {l}.",
        (("How long does the train take?", "{u} minutes"), ("Where does the train from {c} go?", "{e}")),
    ),
    (
        "{p} painted the door of the {l} {k} in {m}.",
        (
            ("Who painted the door?", "{p}"),
            ("Which colour is the door of the {l}?", "{k}"),
            ("When was the door painted?", "{m}"),
        ),
    ),
    (
        "The {l} in {c} lent its {a} {t} to {p} until {m}.",
        (
            ("Who borrowed the {t}?", "{p}"),
            ("Until when is the {t} on loan?", "{m}"),
            ("Which building lent the {t}?", "The {l} in {c}"),
        ),
    ),
    (
        "A storm damaged {n} {s} in {c}, and {p} {v} the {l}.",
        (("What did the storm damage?", "{n} {s}"), ("Who {v} the {l}?", "{p}")),
    ),
    (
        "{p} won first prize in {c} with a {k} {t}.",
        (
            ("Who won first prize?", "{p}"),
            ("What won first prize?", "a {k} {t}"),
            ("Where was the prize won?", "{c}"),
        ),
    ),
    (
        "The new {j} of {c} is called {p} and starts on {d}.",
        (("What is the name of the new {j}?", "{p}"), ("When does the new {j} start?", "{d}")),
    ),
    (
        "The password of the {l} in {c} is {e}-{n}.",
        (("What is the password?", "{e}-{n}"), ("Which building has a password?", "the {l} in {c}")),
    ),
    (
        "{p} lost {n} {s} on the way from {c} to {e}.",
        (
            ("Who lost the {s}?", "{p}"),
            ("What was lost on the way to {e}?", "{n} {s}"),
            ("Where did {p} want to go?", "{e}"),
        ),
    ),
)
_ASIDES = (
    "which surprised many people",
    "as everybody had hoped",
    "although it was raining",
    "as far as we know",
    "to the joy of the neighbours",
    "and nobody complained",
    "after a long discussion",
    "which was good news",
    "just as planned",
    "for the first time in years",
    "without any trouble",
    "much to our surprise",
)
FILLERS = (
    "It was a quiet week.",
    "Nobody was surprised.",
    "The weather was fine.",
    "Many people talked about it.",
    "There is little else to report.",
    "Some readers have asked for more details.",
    "The mood was good all day.",
    "We will see what happens next.",
    "It did not take long.",
    "Not everybody agreed.",
    "This is how the story began.",
    "The local paper printed a picture.",
    "Later there was music and dancing.",
    "The reason is not known.",
    "Children were playing outside.",
    "Everyone went home happy.",
)


def fact(cast: Cast, pattern: int) -> Fact:
    """One fact of sentence pattern number `pattern`, about names that nothing else in the example bears."""
    rng = cast.rng
    sentence, questions = _SENTENCES[pattern]
    slots = {
        "p": cast.person,
        "c": cast.town,
        "e": cast.town,
        "n": cast.number,
        "t": lambda: cast.pick(THING),
        "l": lambda: cast.pick(PLACE),
        "a": lambda: rng.choice(ADJECTIVE),
        "v": lambda: rng.choice(ACTION),
        "j": lambda: cast.pick(JOB),
        "s": lambda: cast.pick(PLURAL),
        "k": lambda: rng.choice(COLOUR),
        "d": lambda: rng.choice(DAY),
        "m": lambda: rng.choice(MONTH),
        "y": cast.year,
        "z": lambda: str(rng.randint(2027, 2049)),
        "u": lambda: str(rng.randint(12, 99)),
    }
    values = {slot: draw() for slot, draw in slots.items() if "{" + slot + "}" in sentence}
    text = _article(sentence.format(**values))
    asked = tuple(Question(_article(q.format(**values)), _article(a.format(**values))) for q, a in questions)
    replaceable = [values[slot] for slot in "pcetl" if slot in values]
    return Fact(
        text=text,
        text_with_aside=f"{text[:-1]}, {rng.choice(_ASIDES)}.",
        questions=asked,
        people=(values["p"],) if "p" in values else (),
        names=tuple(replaceable),
    )


def _article(text: str) -> str:
    """`text` with "an" before a vowel."""
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)


def facts(cast: Cast, count: int) -> list[Fact]:
    """`count` facts of different patterns that share one cast: no name and no question fits two of them."""
    return [fact(cast, pattern) for pattern in cast.rng.sample(range(len(_SENTENCES)), count)]
