"""Summaries, quoted answers and text edits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from .example import Example, QuoteSpan
from .facts import FILLERS, Fact, facts
from .words import PLACE, THING, Cast

# What an edit gives: (wish, text before, text after).
Edit = tuple[str, str, str]

_LEADS = (
    "Hello!",
    "Hi there.",
    "Please help me.",
    "I have a short task for you.",
    "I am writing a newsletter.",
    "This is for my report.",
    "Thank you for your help so far.",
    "I am in a hurry.",
    "My colleague sent me this.",
    "Good morning!",
)


def lead_in(rng: random.Random, instruction: str) -> str:
    """`instruction`, sometimes after a polite sentence."""
    return f"{rng.choice(_LEADS)} {instruction}" if rng.random() < 0.2 else instruction


def bullets(sentences: list[str]) -> str:
    return "\n".join(f"- {s}" for s in sentences)


def numbered(sentences: list[str]) -> str:
    return "\n".join(f"{i}. {s}" for i, s in enumerate(sentences, 1))


def summary(rng: random.Random) -> Example:
    """A text of facts, asides and filler; the summary keeps the bare facts."""
    kept = facts(Cast(rng), rng.choice((1, 2, 2, 3, 3, 4, 5, 6)))
    body: list[str] = []
    for number, item in enumerate(kept):
        body.append(item.text_with_aside if rng.random() < 0.6 else item.text)
        fillers = rng.choice((0, 1, 1, 2)) if number else rng.choice((1, 1, 2))
        body.extend(rng.sample(FILLERS, fillers))
    bare = [item.text for item in kept]
    shape = rng.randrange(4)
    if shape == 0:
        instruction = rng.choice(
            (
                "Give the key facts as a list.",
                "Summarize the text as a list.",
                "List the main points of this text.",
            )
        )
        reference = bullets(bare)
    elif shape == 1:
        instruction = rng.choice(
            (
                "Summarize the text in one sentence.",
                "Sum this up in one sentence.",
                "Give me the main point in one sentence.",
            )
        )
        reference = bare[0]
    else:
        instruction = rng.choice(
            (
                "Summarize the text.",
                "Write a summary of the following text.",
                "Shorten the text to its key facts.",
                "Please summarize this report.",
                "What does the text say? Keep only the facts.",
            )
        )
        reference = " ".join(bare)
    return Example("summary", lead_in(rng, instruction), (" ".join(body),), "", reference)


def quote(rng: random.Random) -> Example:
    """A question over two to six passages; the answer quotes the passage that holds it.

    It does not name the passage's number: in two hours on two cores a model of five million parameters learns to find
    the sentence, but not to carry the number that stands before it.
    """
    cast = Cast(rng)
    passages: list[str] = []
    items: list[Fact] = []
    for item in facts(cast, rng.choice((2, 3, 3, 4, 5, 6))):
        before = rng.choice(FILLERS) + " " if rng.random() < 0.15 else ""
        after = " " + rng.choice(FILLERS) if rng.random() < 0.25 else ""
        passages.append(before + item.text + after)
        items.append(item)
    where = rng.randrange(len(items))
    asked = rng.choice(items[where].questions)
    start = passages[where].index(items[where].text) + items[where].text.index(asked.answer)
    span = QuoteSpan(where, start, start + len(asked.answer))
    shape = rng.choice((0, 0, 0, 1, 1, 2))
    if shape == 0:
        instruction = rng.choice(
            (
                "Answer the question and quote the passage.",
                "Answer the question with a quote from the passages.",
                "Read the passages, then answer and quote your source.",
                "Use the passages to answer. Quote the sentence that you used.",
            )
        )
        reference = f'{asked.answer}. The passage says: "{items[where].text}"'
    elif shape == 1:
        instruction = rng.choice(
            (
                "Copy the sentence that answers the question.",
                "Which sentence answers the question? Copy it.",
                "Find the sentence that answers the question and copy it.",
            )
        )
        reference = f'"{items[where].text}"'
    else:
        instruction = rng.choice(("Answer briefly.", "Give a short answer in the words of the passages."))
        reference = asked.answer
    return Example("quote", lead_in(rng, instruction), tuple(passages), asked.text, reference, span=span)


def _other_name(old: str, cast: Cast) -> str:
    """A new name of the kind of `old`."""
    if old in THING:
        return cast.pick(THING)
    if old in PLACE:
        return cast.pick(PLACE)
    return cast.person() if " " in old else cast.town()


def swap_word(text: str, old: str, new: str) -> str:
    """`text` with the whole word (or words) `old` replaced by `new`."""
    return re.sub(rf"\b{re.escape(old)}\b", lambda _: new, text)


_TYPOS = (
    ("the", "teh"),
    ("and", "adn"),
    ("was", "wsa"),
    ("from", "form"),
    ("people", "poeple"),
    ("because", "becuase"),
    ("that", "taht"),
    ("with", "wiht"),
    ("dollars", "dolars"),
    ("minutes", "minuets"),
    ("would", "woud"),
    ("letter", "leter"),
    ("door", "dor"),
    ("first", "frist"),
    ("company", "compnay"),
    ("found", "fuond"),
)
_UNITS = (("dollars", "euros"), ("dollars", "pounds"), ("minutes", "hours"), ("people", "visitors"))


def _replace(rng: random.Random, cast: Cast, items: list[Fact]) -> Edit:
    text = " ".join(f.text for f in items)
    names = [n for f in items for n in f.names]
    olds = rng.sample(names, 2) if len(names) > 2 and rng.random() < 0.25 else [rng.choice(names)]
    pairs = [(old, _other_name(old, cast)) for old in olds]
    wish = " and ".join(f'"{old}" with "{new}"' for old, new in pairs)
    after = text
    for old, new in pairs:
        after = swap_word(after, old, new)
    if len(pairs) == 1 and rng.random() < 0.4:
        old, new = pairs[0]
        return (
            rng.choice((f"Change {old} to {new}.", f"Use {new} instead of {old} in this text.")),
            text,
            after,
        )
    return rng.choice((f"Replace {wish}.", f"In the text below, replace {wish}.")), text, after


def _typos(rng: random.Random, cast: Cast, items: list[Fact]) -> Edit:
    after = " ".join(f.text for f in items)
    found = [(good, bad) for good, bad in _TYPOS if re.search(rf"\b{good}\b", after)]
    text = after
    for good, bad in rng.sample(found, min(len(found), rng.choice((1, 2, 3)))):
        text = re.sub(rf"\b{good}\b", bad, text, count=1)
    wish = rng.choice(
        (
            "Correct the spelling.",
            "Fix the typos in this text.",
            "Correct the errors in the text.",
            "Please proofread this.",
        )
    )
    return wish, text, after


def _bullets(rng: random.Random, cast: Cast, items: list[Fact]) -> Edit:
    sentences = [f.text for f in items]
    if rng.random() < 0.3:
        return "Turn the list into a paragraph.", bullets(sentences), " ".join(sentences)
    if rng.random() < 0.5:
        return (
            rng.choice(("Make a numbered list.", "Number the sentences.")),
            " ".join(sentences),
            numbered(sentences),
        )
    wish = rng.choice(("Turn the text into a list.", "Put every sentence on a line of its own, with a dash."))
    return wish, " ".join(sentences), bullets(sentences)


def _cut(rng: random.Random, cast: Cast, items: list[Fact]) -> Edit:
    sentences = [f.text for f in items]
    text = " ".join(sentences)
    if rng.random() < 0.5:
        return (
            rng.choice(("Remove the last sentence.", "Leave out the last sentence.")),
            text,
            " ".join(sentences[:-1]),
        )
    return (
        rng.choice(("Remove the first sentence.", "Leave out the first sentence.")),
        text,
        " ".join(sentences[1:]),
    )


def _insert(rng: random.Random, cast: Cast, items: list[Fact]) -> Edit:
    *kept, added = (f.text for f in items)
    text = " ".join(kept)
    if rng.random() < 0.6:
        return f"Add this sentence at the end: {added}", text, f"{text} {added}"
    return f"Add this sentence at the beginning: {added}", text, f"{added} {text}"


def _bold(rng: random.Random, cast: Cast, items: list[Fact]) -> Edit:
    text = " ".join(f.text for f in items)
    name = rng.choice([n for f in items for n in f.names])
    return (
        rng.choice((f"Make {name} bold.", f'Put "{name}" in bold.')),
        text,
        swap_word(text, name, f"**{name}**"),
    )


def _hide_people(rng: random.Random, cast: Cast, items: list[Fact]) -> Edit:
    text = " ".join(f.text for f in items)
    after = text
    for person in (p for f in items for p in f.people):
        after = swap_word(after, person, "[name]")
    wish = rng.choice(
        ("Hide the names of all people.", 'Replace every person by "[name]".', "Make the text anonymous.")
    )
    return wish, text, after


def _repeat(rng: random.Random, cast: Cast, items: list[Fact]) -> Edit:
    text = " ".join(f.text for f in items)
    wish = rng.choice(("Repeat the text word for word.", "Copy this text.", "Write the same text again."))
    return wish, text, text


def _unit(rng: random.Random, cast: Cast, items: list[Fact]) -> Edit | None:
    text = " ".join(f.text for f in items)
    found = [pair for pair in _UNITS if re.search(rf"\b{pair[0]}\b", text)]
    if not found:
        return None
    old, new = rng.choice(found)
    return (
        rng.choice((f"Write {new} instead of {old}.", f'Replace "{old}" with "{new}".')),
        text,
        swap_word(text, old, new),
    )


_TEXT_EDITS: tuple[tuple[Callable[..., Edit | None], int], ...] = (
    (_replace, 6),
    (_typos, 3),
    (_bullets, 3),
    (_cut, 2),
    (_insert, 3),
    (_bold, 2),
    (_hide_people, 2),
    (_unit, 1),
    (_repeat, 1),
)


def text_edit(rng: random.Random) -> Example:
    """A text and one change to make to it; everything else is copied."""
    while True:
        edit = rng.choices([e for e, _ in _TEXT_EDITS], [w for _, w in _TEXT_EDITS])[0]
        cast = Cast(rng)
        smallest = 2 if edit in (_cut, _insert, _bullets) else 1
        made = edit(rng, cast, facts(cast, rng.choice((smallest, 2, 3, 3, 4, 5, 7))))
        if made is not None and (made[1] != made[2] or edit in (_hide_people, _repeat)):
            wish, text, after = made
            return Example("text_edit", lead_in(rng, wish), (text,), "", after)
