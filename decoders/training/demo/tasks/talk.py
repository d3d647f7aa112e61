"""Conversations whose last turn rewrites an earlier answer, and sums worked step by step."""

from __future__ import annotations

import random

from .code import change_constant, print_before_return, rename_function, rename_variable
from .example import Example, Message, fence
from .facts import facts
from .prose import bullets, lead_in, numbered, swap_word
from .snippets import snippet
from .words import PLURAL, Cast


def _turns(user: str, assistant: str) -> tuple[Message, Message]:
    return {"role": "user", "content": user}, {"role": "assistant", "content": assistant}


def _code_chat(rng: random.Random) -> Example:
    cast = Cast(rng)
    part = snippet(cast)
    first = f"{rng.choice(('Show me', 'Print', 'Repeat'))} this code.\n\n{fence(part.code)}"
    while True:
        edit = rng.choice((rename_variable, rename_variable, rename_function, change_constant, print_before_return))
        made = edit(rng, cast, part.code, part)
        if made is not None and made[1] != made[2]:
            wish, _, after = made
            return Example("chat", wish, (), "", fence(after), _turns(first, fence(part.code)))


def _prose_chat(rng: random.Random) -> Example:
    cast = Cast(rng)
    told = facts(cast, rng.choice((3, 3, 4)))
    extra = told.pop().text
    sentences = [f.text for f in told]
    notes = " ".join(sentences)
    letter = rng.random() < 0.4
    if letter:
        reader, writer = cast.first(), cast.first()
        ask = rng.choice((f"Write a letter to {reader} from {writer}.", f"Write to {reader} and sign as {writer}."))
        answer = f"Dear {reader},\n\n{notes}\n\nBest wishes,\n{writer}"
    else:
        ask = rng.choice(("Write a short article.", "Write a post about this.", "Tell me about this."))
        answer = f"Here is the news. {notes}"
    history = _turns(f"{ask}\n\n{notes}", answer)
    kind = rng.randrange(7)
    names = [n for f in told for n in f.names]
    if kind <= 1:
        old = rng.choice(names)
        new = cast.person() if " " in old else cast.town() if old[0].isupper() else f"new {old}"
        wish = rng.choice(
            (
                f'Replace "{old}" with "{new}".',
                f"Say {new} instead of {old}.",
                f"Rewrite it with {new} instead of {old}.",
            )
        )
        after = swap_word(answer, old, new)
    elif kind == 2 and not letter:
        wish = rng.choice(("Repeat it as a list.", "Now give me that as a list."))
        after = bullets(["Here is the news.", *sentences])
    elif kind == 3 and not letter:
        wish = "Number the sentences."
        after = numbered(["Here is the news.", *sentences])
    elif kind == 2:
        other = cast.first()
        wish = rng.choice((f"Send the same letter to {other}.", f"Write the same to {other}."))
        after = answer.replace(f"Dear {reader},", f"Dear {other},")
    elif kind == 3:
        other = cast.first()
        wish = rng.choice((f"Sign as {other}.", f"Let {other} sign it."))
        after = answer.removesuffix(writer) + other
    elif kind == 4:
        title = f"News from {cast.town()}"
        wish = rng.choice((f'Add the title "{title}".', f'Put "{title}" above it.'))
        after = f"# {title}\n\n{answer}"
    elif kind == 5:
        wish = f"Add this after the last fact: {extra}"
        after = answer.replace(notes, f"{notes} {extra}")
    else:
        wish = rng.choice(("Shorter, please: drop the last fact.", "Leave out the last fact."))
        after = answer.replace(notes, " ".join(sentences[:-1]))
    return Example("chat", wish, (), "", after, history)


def chat(rng: random.Random) -> Example:
    """Two turns: the second one rewrites the first answer."""
    return _code_chat(rng) if rng.random() < 0.3 else _prose_chat(rng)


_GAIN = ("buys", "finds", "gets", "wins")
_LOSS = ("sells", "loses", "gives away", "drops")


def sums(rng: random.Random) -> Example:
    """Two to four additions and subtractions between 0 and 60, every step written out."""
    value = start = rng.randint(2, 30)
    steps: list[tuple[str, int]] = []
    working: list[str] = []
    for _ in range(rng.choice((2, 2, 3, 4))):
        change = rng.randint(1, 9)
        sign = "+" if value < 10 or (value <= 50 and rng.random() < 0.5) else "-"
        after = value + change if sign == "+" else value - change
        steps.append((sign, change))
        working.append(f"{value} {sign} {change} = {after}")
        value = after
    if rng.random() < 0.5:
        wished = ", ".join(f"{'add' if sign == '+' else 'subtract'} {change}" for sign, change in steps)
        instruction = rng.choice(("Work step by step.", "Calculate step by step.", "Show every step."))
        reference = "\n".join([*working, f"The answer is {value}."])
        return Example("sums", lead_in(rng, instruction), (f"Start with {start}, {wished}.",), "", reference)
    cast = Cast(rng)
    who, what = cast.first(), rng.choice(PLURAL)
    story = " ".join(
        [f"{who} has {start} {what}."]
        + [f"{who} {rng.choice(_GAIN if sign == '+' else _LOSS)} {change}." for sign, change in steps]
    )
    question = f"How many {what} does {who} have now?"
    instruction = rng.choice(("Solve the problem step by step.", "Answer and show every step."))
    reference = "\n".join([*working, f"{who} has {value} {what}."])
    return Example("sums", lead_in(rng, instruction), (story,), question, reference)
