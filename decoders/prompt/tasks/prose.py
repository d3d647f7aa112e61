"""Summaries, quoted answers and text edits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from .example import QuoteSpan, TaskExample
from .facts import TABLE, Fact, facts
from .words import WORDS, Cast

# What an edit gives: (wish, text before, text after).
Edit = tuple[str, str, str]
FILLERS: list[str] = TABLE["fillers"]


def bullets(sentences: list[str]) -> str:
    return "\n".join(f"- {s}" for s in sentences)


def number(sentences: list[str]) -> str:
    return "\n".join(f"{i}. {s}" for i, s in enumerate(sentences, 1))


def summary(rng: random.Random) -> TaskExample:
    """A text of facts, asides and filler; the summary keeps the bare facts."""
    cast = Cast(rng)
    items = facts(cast, rng.choice((1, 2, 2, 3, 3, 4, 5, 6)))
    body: list[str] = []
    for number, item in enumerate(items):
        body.append(item.text_with_aside if cast.chance(0.6) else item.text)
        body += rng.sample(FILLERS, rng.choice((0, 1, 1, 2)) if number else rng.choice((1, 1, 2)))
    bare = [item.text for item in items]
    text = " ".join(bare)
    wish, reference = (("list", bullets(bare)), ("sentence", bare[0]), ("text", text), ("text", text))[rng.randrange(4)]
    return TaskExample("summary", cast.lead_in(cast.say(f"summary_{wish}")), (" ".join(body),), "", reference)


def quote(rng: random.Random) -> TaskExample:
    """A question over two to six passages; the answer quotes the passage that holds it.

    It does not name the passage's number: in two hours on two cores a model of five million parameters learns to find
    the sentence, but not to carry the number that stands before it.
    """
    cast = Cast(rng)
    items = facts(cast, rng.choice((2, 3, 3, 4, 5, 6)))
    passages: list[str] = []
    for item in items:
        prefix = rng.choice(FILLERS) + " " if cast.chance(0.15) else ""
        suffix = " " + rng.choice(FILLERS) if cast.chance(0.25) else ""
        passages.append(prefix + item.text + suffix)
    index = rng.randrange(len(items))
    sentence, question = items[index].text, rng.choice(items[index].questions)
    start = passages[index].index(sentence) + sentence.index(question.answer)
    span = QuoteSpan(index, start, start + len(question.answer))
    full, quotation, brief = f'{question.answer}. The passage says: "{sentence}"', f'"{sentence}"', question.answer
    wish, reference = rng.choice((*[("answer", full)] * 3, *[("sentence", quotation)] * 2, ("brief", brief)))
    instruction = cast.lead_in(cast.say(f"quote_{wish}"))
    return TaskExample("quote", instruction, tuple(passages), question.text, reference, span=span)


def swap_word(text: str, old: str, new: str) -> str:
    """`text` with the whole word (or words, or identifier) `old` replaced by `new`."""
    return re.sub(rf"\b{re.escape(old)}\b", lambda _: new, text)


def _other_name(old: str, cast: Cast) -> str:
    """A new name of the kind of `old`."""
    for kind in ("thing", "place"):
        if old in WORDS[kind]:
            return cast.pick(kind)
    return cast.person() if " " in old else cast.town()


def _names(items: list[Fact]) -> list[str]:
    return [name for item in items for name in item.names]


def _join(items: list[Fact]) -> str:
    return " ".join(item.text for item in items)


def _replace(cast: Cast, items: list[Fact]) -> Edit:
    text, names = _join(items), _names(items)
    olds = cast.rng.sample(names, 2) if len(names) > 2 and cast.chance(0.25) else [cast.rng.choice(names)]
    pairs = [(old, _other_name(old, cast)) for old in olds]
    new_text = text
    for old, new in pairs:
        new_text = swap_word(new_text, old, new)
    if len(pairs) == 1 and cast.chance(0.4):
        return cast.say("change", old=pairs[0][0], new=pairs[0][1]), text, new_text
    return cast.say("replace", pairs=" and ".join(f'"{old}" with "{new}"' for old, new in pairs)), text, new_text


def _typos(cast: Cast, items: list[Fact]) -> Edit:
    text = new_text = _join(items)
    possible = [(good, bad) for good, bad in TABLE["typos"] if re.search(rf"\b{good}\b", new_text)]
    for good, bad in cast.rng.sample(possible, min(len(possible), cast.rng.choice((1, 2, 3)))):
        text = re.sub(rf"\b{good}\b", bad, text, count=1)
    return cast.say("spelling"), text, new_text


def _bullets(cast: Cast, items: list[Fact]) -> Edit:
    sentences, text = [item.text for item in items], _join(items)
    if cast.chance(0.3):
        return "Turn the list into a paragraph.", bullets(sentences), text
    if cast.chance(0.5):
        return cast.say("numbered"), text, number(sentences)
    return cast.say("bullets"), text, bullets(sentences)


def _cut(cast: Cast, items: list[Fact]) -> Edit:
    wish, remainder = ("cut_last", items[:-1]) if cast.chance(0.5) else ("cut_first", items[1:])
    return cast.say(wish), _join(items), _join(remainder)


def _insert(cast: Cast, items: list[Fact]) -> Edit:
    text, sentence = _join(items[:-1]), items[-1].text
    if cast.chance(0.6):
        return f"Add this sentence at the end: {sentence}", text, f"{text} {sentence}"
    return f"Add this sentence at the beginning: {sentence}", text, f"{sentence} {text}"


def _bold(cast: Cast, items: list[Fact]) -> Edit:
    text, name = _join(items), cast.rng.choice(_names(items))
    return cast.say("bold", name=name), text, swap_word(text, name, f"**{name}**")


def _hide_people(cast: Cast, items: list[Fact]) -> Edit:
    text = new_text = _join(items)
    for person in (p for item in items for p in item.people):
        new_text = swap_word(new_text, person, "[name]")
    return cast.say("hide_people"), text, new_text


def _repeat(cast: Cast, items: list[Fact]) -> Edit:
    text = _join(items)
    return cast.say("repeat"), text, text


def _unit(cast: Cast, items: list[Fact]) -> Edit | None:
    text = _join(items)
    possible = [pair for pair in TABLE["units"] if re.search(rf"\b{pair[0]}\b", text)]
    if not possible:
        return None
    old, new = cast.rng.choice(possible)
    return cast.say("unit", old=old, new=new), text, swap_word(text, old, new)


# How often each edit is drawn.
_EDITS: dict[Callable[[Cast, list[Fact]], Edit | None], int] = {
    _replace: 6, _typos: 3, _bullets: 3, _cut: 2, _insert: 3, _bold: 2, _hide_people: 2, _unit: 1, _repeat: 1,
}  # fmt: skip


def text_edit(rng: random.Random) -> TaskExample:
    """A text and one change to make to it; everything else is copied."""
    while True:
        edit = rng.choices(list(_EDITS), list(_EDITS.values()))[0]
        cast = Cast(rng)
        smallest = 2 if edit in (_cut, _insert, _bullets) else 1
        result = edit(cast, facts(cast, rng.choice((smallest, 2, 3, 3, 4, 5, 7))))
        if result is not None and (result[1] != result[2] or edit in (_hide_people, _repeat)):
            wish, text, new_text = result
            return TaskExample("text_edit", cast.lead_in(wish), (text,), "", new_text)
