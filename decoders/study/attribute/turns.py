"""Turns: the parts of a prompt without passages, as sources: turns of a chat, its system prompt, or all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from decoders.trace.trace import Trace

from .text import token_bytes

ROLES = {"system": "system prompt", "user": "user turn", "assistant": "assistant turn", "model": "assistant turn"}
MIN_TEMPLATE = 8  # tokens of a template between two special ones that say more than a role
_ROLE = re.compile(rf"\b({'|'.join(ROLES)})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Turn:
    """Positions [start, stop) of a prompt, and what they are called: "user turn 2"."""

    start: int
    stop: int
    name: str


def turns(trace: Trace) -> list[Turn]:
    """The turns of a run's prompt; none where it has passages, in the prompt or in a pool.

    The text of a template counts where it stands between two special tokens and says more than a role: a system prompt
    that the model brings.
    """
    segments = trace.tables["tokens"]["segment"][: trace.run["prompt_length"]]
    if "context" in segments or trace.rows("pool"):
        return []
    pieces = trace.tables["pieces"]
    text = {i: piece.decode("utf-8", "replace") for i, piece in token_bytes(trace).items()}  # special tokens have none
    special = {i for i, is_special in zip(pieces["id"], pieces["special"], strict=True) if is_special}
    ids = trace.prompt_ids
    stretches = [
        (name, start, stop)
        for name, start, stop in _stretches(segments, [token in special for token in ids])
        if name != "template" or _says_more(segments, start, stop)
    ]
    words = [text.get(token, "") for token in ids]
    names = [_name(name, words[:start], words[start:stop]) for name, start, stop in stretches]
    counts = {name: names.count(name) for name in names}
    numbers = dict.fromkeys(names, 0)
    named_turns = []
    for (segment, start, stop), name in zip(stretches, names, strict=True):
        numbers[name] += 1
        if segment == "template":  # the role's own line is none of its words
            start = next((at + 1 for at in range(start, start + 3) if "\n" in words[at]), start)
        label = f"{name} {numbers[name]}" if counts[name] > 1 else name
        named_turns.append(Turn(start, stop, label))
    return named_turns


def _stretches(segments: list[str], special: list[bool]) -> Iterator[tuple[str, int, int]]:
    """Neighbouring positions of one segment that are no special tokens: its name, and [start, stop)."""
    kinds = [(name, is_special and name == "template") for name, is_special in zip(segments, special, strict=True)]
    for (name, is_special), group in groupby(range(len(kinds)), key=lambda at: kinds[at]):
        places = [*group]
        if not is_special:
            yield name, places[0], places[-1] + 1


def _says_more(segments: list[str], start: int, stop: int) -> bool:
    """True for a template's text that ends at a special token, and is not only the head of a turn."""
    has_end = stop < len(segments) and segments[stop] == "template"
    return has_end and stop - start >= MIN_TEMPLATE


def _name(segment: str, prefix: list[str], words: list[str]) -> str:
    """A stretch's name: by the role that the template names before it, or at its own beginning."""
    if segment in ("instruction", "question"):
        return segment
    if segment == "text":
        return "prompt"
    head = "".join(words[:2]) if segment == "template" else "".join(prefix[-4:])
    role = _ROLE.findall(head)
    return ROLES[role[-1].lower()] if role else "turn"
