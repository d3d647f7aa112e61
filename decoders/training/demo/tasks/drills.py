"""Drills: many small decisions on few tokens, which teach a small model to look things up before the tasks need it."""

from __future__ import annotations

import random

from decoders.training.message import Message, user_message

from .facts import facts
from .words import ADJECTIVE, COLOUR, IDENTIFIER, PLACE, PLURAL, THING, Cast


def lookup(rng: random.Random) -> list[Message]:
    """A chat that asks several questions about the same passages, or to replace a word in a list.

    An answer takes several steps of attention (the words asked for, where they stand, what stands beside them), which a
    task that asks once per context teaches slowly. A replacement is the same seen from the other end: at every word of
    a copy, whether the instruction names it.
    """
    return rng.choice((_questions, _replacements))(rng)


def _questions(rng: random.Random) -> list[Message]:
    items = facts(Cast(rng), rng.randint(2, 6))
    quoted = rng.random() < 0.5
    turns = [(q.text, f'"{item.text}"' if quoted else q.answer) for item in items for q in item.questions]
    instruction = "Copy the sentence that answers the question." if quoted else "Answer briefly."
    return _chat(instruction, tuple(item.text for item in items), rng.sample(turns, min(len(turns), rng.randint(3, 6))))


def _word(cast: Cast) -> str:
    rng = cast.rng
    if rng.random() < 0.3:
        return cast.person() if rng.random() < 0.5 else cast.town()
    word = cast.pick(rng.choice((THING, PLACE, PLURAL)))
    return f"{rng.choice(ADJECTIVE + COLOUR)} {word}" if rng.random() < 0.3 else word


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
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": answer})
    return messages
