"""Drills: many small decisions on few tokens, which teach a small model to look things up before the tasks need it."""

from __future__ import annotations

import random

from decoders.training.tasks.example import Message, user_message
from decoders.training.tasks.facts import facts
from decoders.training.tasks.words import ADJECTIVE, COLOUR, IDENTIFIER, PLACE, PLURAL, THING, Cast


def lookup(rng: random.Random) -> list[Message]:
    """A chat that asks which numbered passage holds a word or answers a question, or to replace a word in a list.

    Answering takes three steps of attention (the word asked for, where it stands, the number of that passage), which a
    task that asks once per context teaches slowly. A replacement is the same seen from the other end: at every word of
    a copy, whether the instruction names it.
    """
    return rng.choice((_words, _facts, _phrases, _phrases, _replacements, _replacements))(rng)


def _words(rng: random.Random) -> list[Message]:
    cast = Cast(rng)
    lists = [[_word(cast) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(2, 6))]
    where = {word: i for i, words in enumerate(lists, 1) for word in words}
    asked = rng.sample(list(where), min(len(where), rng.randint(3, 8)))
    return _chat("", tuple(" ".join(words) for words in lists), [(f"{word}?", f"[{where[word]}]") for word in asked])


def _word(cast: Cast) -> str:
    rng = cast.rng
    if rng.random() < 0.3:
        return cast.person() if rng.random() < 0.5 else cast.town()
    word = cast.pick(rng.choice((THING, PLACE, PLURAL)))
    return f"{rng.choice(ADJECTIVE + COLOUR)} {word}" if rng.random() < 0.3 else word


def _facts(rng: random.Random) -> list[Message]:
    items = facts(Cast(rng), rng.randint(2, 5))
    numbers_only = rng.random() < 0.4
    turns = [
        (question.text, f"[{i}]" if numbers_only else f"{question.answer} [{i}]")
        for i, item in enumerate(items, 1)
        for question in item.questions
    ]
    instruction = "Which passage answers?" if numbers_only else "Answer briefly and name the passage."
    return _chat(instruction, tuple(item.text for item in items), rng.sample(turns, min(len(turns), rng.randint(3, 6))))


def _phrases(rng: random.Random) -> list[Message]:
    """Which passage has these words? Sentences are longer than lists: their words stand far from the number."""
    items = facts(Cast(rng), rng.randint(2, 6))
    passages = tuple(item.text for item in items)
    answers = [question.answer for item in items for question in item.questions]
    once = {a: [i for i, text in enumerate(passages, 1) if a in text] for a in answers}
    turns = [(f"{answer}?", f"[{where[0]}]") for answer, where in once.items() if len(where) == 1]
    return _chat("", passages, rng.sample(turns, min(len(turns), rng.randint(4, 10))))


_WISHES = (
    "Replace {a} with {b}.", 'Replace "{a}" with "{b}".', "Change {a} to {b}.", "Write {b} instead of {a}.",
    "Use {b} instead of {a}.", "Rename {a} to {b}.", "Call the variable `{b}` instead of `{a}`.", "Replace {a} by {b}.",
)  # fmt: skip


def _replacements(rng: random.Random) -> list[Message]:
    cast = Cast(rng)
    code = rng.random() < 0.5
    given = [cast.pick(IDENTIFIER) if code else _word(cast) for _ in range(rng.randint(4, 10))]
    old, new = given[-1], cast.pick(IDENTIFIER) if code else _word(cast)
    for _ in range(rng.randint(0, 2)):  # the other names stand once, so that the copy always knows its place
        given.insert(rng.randrange(len(given)), old)
    turn = rng.randrange(len(given))
    given = given[turn:] + given[:turn]
    joint = rng.choice((" + ", ", ", " = ", "(", "\n")) if code else rng.choice((", ", " and ", "\n", ". "))
    wish = rng.choice(_WISHES).format(a=old, b=new)
    return _chat(wish, (joint.join(given),), [("", joint.join(new if name == old else name for name in given))])


def _chat(instruction: str, passages: tuple[str, ...], turns: list[tuple[str, str]]) -> list[Message]:
    messages: list[Message] = []
    for i, (question, answer) in enumerate(turns):
        asked = user_message(instruction, passages, question) if i == 0 else question
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return messages
