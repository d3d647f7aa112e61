"""Conversations whose last turn rewrites an earlier answer, and sums worked step by step."""

from __future__ import annotations

import random

from decoders.prompt.message import turns

from .code import change_constant, print_before_return, rename_function, rename_variable
from .example import TaskExample, fence
from .facts import facts
from .prose import bullets, number, swap_word
from .snippets import snippet
from .words import Cast


def _code_chat(cast: Cast) -> TaskExample:
    part = snippet(cast)
    first = f"{cast.rng.choice(('Show me', 'Print', 'Repeat'))} this code.\n\n{fence(part.code)}"
    while True:
        edits = (rename_variable, rename_variable, rename_function, change_constant, print_before_return)
        result = cast.rng.choice(edits)(cast, part.code, part)
        if result is not None and result[1] != result[2]:
            return TaskExample("chat", result[0], (), "", fence(result[2]), turns(first, fence(part.code)))


def _prose_chat(cast: Cast) -> TaskExample:
    rng = cast.rng
    *items, last = facts(cast, rng.choice((3, 3, 4)))
    sentences = [item.text for item in items]
    notes = " ".join(sentences)
    letter = cast.chance(0.4)
    reader, writer = (cast.first(), cast.first()) if letter else ("", "")
    if letter:
        ask = cast.say("letter", reader=reader, writer=writer)
        answer = f"Dear {reader},\n\n{notes}\n\nBest wishes,\n{writer}"
    else:
        ask, answer = cast.say("article"), f"Here is the news. {notes}"
    history = turns(f"{ask}\n\n{notes}", answer)
    kind = rng.randrange(7)
    if kind <= 1:
        old = rng.choice([name for item in items for name in item.names])
        new = cast.person() if " " in old else cast.town() if old[0].isupper() else f"new {old}"
        wish, new_answer = cast.say("chat_replace", old=old, new=new), swap_word(answer, old, new)
    elif kind <= 3 and letter:
        new_name = cast.first()
        wish = cast.say("chat_reader" if kind == 2 else "chat_writer", other=new_name)
        new_answer = (
            answer.replace(f"Dear {reader},", f"Dear {new_name},")
            if kind == 2
            else answer.removesuffix(writer) + new_name
        )
    elif kind == 2:
        wish, new_answer = cast.say("chat_list"), bullets(["Here is the news.", *sentences])
    elif kind == 3:
        wish, new_answer = "Number the sentences.", number(["Here is the news.", *sentences])
    elif kind == 4:
        title = f"News from {cast.town()}"
        wish, new_answer = cast.say("chat_title", title=title), f"# {title}\n\n{answer}"
    elif kind == 5:
        wish, new_answer = f"Add this after the last fact: {last.text}", answer.replace(notes, f"{notes} {last.text}")
    else:
        wish, new_answer = cast.say("chat_shorter"), answer.replace(notes, " ".join(sentences[:-1]))
    return TaskExample("chat", wish, (), "", new_answer, history)


def chat(rng: random.Random) -> TaskExample:
    """Two turns: the second one rewrites the first answer."""
    cast = Cast(rng)
    return _code_chat(cast) if cast.chance(0.3) else _prose_chat(cast)


def sums(rng: random.Random) -> TaskExample:
    """Two to four additions and subtractions between 0 and 60, every step written out."""
    cast = Cast(rng)
    value = start = rng.randint(2, 30)
    changes: list[int] = []
    working: list[str] = []
    for _ in range(rng.choice((2, 2, 3, 4))):
        change = rng.randint(1, 9)
        sign = "+" if value < 10 or (value <= 50 and cast.chance(0.5)) else "-"
        changes.append(change if sign == "+" else -change)
        working.append(f"{value} {sign} {change} = {value + changes[-1]}")
        value += changes[-1]
    if cast.chance(0.5):
        steps = ", ".join(f"{'add' if change > 0 else 'subtract'} {abs(change)}" for change in changes)
        wish, text, question = "sums_steps", f"Start with {start}, {steps}.", ""
        end = f"The answer is {value}."
    else:
        person, thing = cast.first(), cast.word("plural")
        steps = [f"{person} {cast.say('gain' if change > 0 else 'loss')} {abs(change)}." for change in changes]
        wish, text = "sums_story", " ".join([f"{person} has {start} {thing}.", *steps])
        question, end = f"How many {thing} does {person} have now?", f"{person} has {value} {thing}."
    instruction = cast.lead_in(cast.say(wish))
    return TaskExample("sums", instruction, (text,), question, "\n".join([*working, end]))
