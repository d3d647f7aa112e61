"""Drills: many small decisions on few tokens, which teach a small model to look things up before the tasks need it."""

from __future__ import annotations

import random

from decoders.prompt.message import Message, turns, user_message
from decoders.prompt.tasks.facts import facts
from decoders.prompt.tasks.words import WORDS, Cast


def lookup(rng: random.Random) -> list[Message]:
    """A chat that asks several questions about the same passages, or to replace a word in a list.

    An answer takes several steps of attention (the words asked for, where they stand, what stands beside them), which a
    task that asks once per context teaches slowly. A replacement is the same seen from the other end: at every word of
    a copy, whether the instruction names it.
    """
    return rng.choice((_questions, _replacements))(Cast(rng))


def _questions(cast: Cast) -> list[Message]:
    rng = cast.rng
    items = facts(cast, rng.randint(2, 6))
    in_quotes = cast.chance(0.5)
    qa_pairs = [(q.text, f'"{item.text}"' if in_quotes else q.answer) for item in items for q in item.questions]
    instruction = "Copy the sentence that answers the question." if in_quotes else "Answer briefly."
    picks = rng.sample(qa_pairs, min(len(qa_pairs), rng.randint(3, 6)))
    return _chat(instruction, tuple(item.text for item in items), picks)


def _word(cast: Cast) -> str:
    if cast.chance(0.3):
        return cast.person() if cast.chance(0.5) else cast.town()
    word = cast.pick(cast.rng.choice(("thing", "place", "plural")))
    return f"{cast.rng.choice(WORDS['adjective'] + WORDS['colour'])} {word}" if cast.chance(0.3) else word


def _replacements(cast: Cast) -> list[Message]:
    rng = cast.rng
    code = cast.chance(0.5)
    *words, old, new = (cast.pick("identifier") if code else _word(cast) for _ in range(rng.randint(4, 10) + 1))
    words.append(old)
    for _ in range(rng.randint(0, 2)):  # the other names stand once, so that the copy always knows its place
        words.insert(rng.randrange(len(words)), old)
    turn = rng.randrange(len(words))
    words = words[turn:] + words[:turn]
    joint = rng.choice((" + ", ", ", " = ", "(", "\n") if code else (", ", " and ", "\n", ". "))
    wish = cast.say("drill_replace", old=old, new=new)
    return _chat(wish, (joint.join(words),), [("", joint.join(new if name == old else name for name in words))])


def _chat(instruction: str, passages: tuple[str, ...], qa_pairs: list[tuple[str, str]]) -> list[Message]:
    """A conversation of (question, answer) pairs; the first question comes with instruction and passages."""
    (first, answer), *tail = qa_pairs
    pairs = [(user_message(instruction, passages, first), answer), *tail]
    return [message for pair in pairs for message in turns(*pair)]
