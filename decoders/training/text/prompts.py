"""Prompts over passages of text, drawn by a random generator from ``prompts.toml``."""

from __future__ import annotations

import keyword
import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .passages import CODE, PROSE, Passage

ORIGINS = {  # how often a passage is taken from where
    "python code": 0.38, "python documentation": 0.17, "python packages": 0.1, "debian packages": 0.1,
    "manual pages": 0.25,
}  # fmt: skip
TURNS = (0.3, 0.4, 0.3)  # of conversations have one, two, three turns
SAMPLED = 0.3  # of conversations are answered with a temperature, the others greedily
TEMPERATURES = 0.8, 1.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the user says, turn after turn, and how it is answered (temperature 0: greedily)."""

    users: tuple[str, ...]
    temperature: float
    origin: str


@cache
def wordings() -> dict[str, Any]:
    """``prompts.toml``."""
    return tomllib.loads(Path(__file__).with_name("prompts.toml").read_text("utf-8"))


class Passages:
    """Passages by origin, to be drawn from."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.by_origin: dict[str, list[Passage]] = {}
        for passage in passages:
            self.by_origin.setdefault(passage.origin, []).append(passage)

    def draw(self, random: random.Random) -> Passage:
        """A passage; its length matters: of two the shorter one, as a rule."""
        origins = sorted(self.by_origin)
        origin = random.choices(origins, [ORIGINS.get(origin, 0.1) for origin in origins])[0]
        two = [random.choice(self.by_origin[origin]) for _ in range(2)]
        return min(two, key=lambda passage: len(passage.text)) if random.random() < 0.6 else two[0]


def draw_prompt(random: random.Random, passages: Passages, *, greedy: bool = False) -> Prompt:
    """A conversation's user turns over a passage."""
    passage = passages.draw(random)
    words = wordings()
    slots = _slots(random, passage, words["words"])
    group = random.choices(words[passage.kind], [group["weight"] for group in words[passage.kind]])[0]
    turns = random.choices(range(1, len(TURNS) + 1), TURNS)[0]
    users = [random.choice(group["first"]), *random.sample(words["next"][passage.kind], turns - 1)]
    temperature = round(random.uniform(*TEMPERATURES), 2) if random.random() < SAMPLED else 0.0
    return Prompt(tuple(_filled(user, slots) for user in users), 0.0 if greedy else temperature, passage.origin)


def _filled(wording: str, slots: Mapping[str, str]) -> str:
    """The wording with its slots filled; passages may hold braces of their own."""
    return re.sub(r"\{(\w+)\}", lambda match: slots[match[1]], wording)


def _slots(random: random.Random, passage: Passage, words: Mapping[str, list[str]]) -> dict[str, str]:
    text = passage.text
    slots = {
        "text": text, "name": random.choice(words["names"]), "renamed": random.choice(words["renamed"]),
        "language": random.choice(words["languages"]),
    }  # fmt: skip
    if passage.kind == PROSE:
        long = sorted({word for word in re.findall(r"[A-Za-z][a-z]{3,}", text)}) or ["text"]
        often = [word for word in long if text.count(word) > 1] or long
        slots["word"], slots["other"] = random.choice(often), random.choice(long)
        slots["sentence"] = random.choice(re.split(r"(?<=[.!?])\s+", text))
        slots["start"] = text[: text.rfind(" ", 0, max(80, len(text) // 3)) + 1].rstrip() or text
    if passage.kind == CODE:
        names = [name for name in re.findall(r"\b[a-z_][a-z_0-9]{1,}\b", text) if not keyword.iskeyword(name)]
        own = sorted({name for name in names if name not in {"self", "cls"} and names.count(name) > 1} or {*names})
        slots["identifier"] = random.choice(own or ["x"])
        lines = text.splitlines()
        slots["start"] = "\n".join(lines[: max(2, len(lines) // 2)])
    return slots
