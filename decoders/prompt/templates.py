"""Prompt templates: an instruction that says where context and question stand, and those of CASD's experiments.

>>> [(text, name) for text, name, _ in laid_out("Read {context} and say: {question}", [("a", "context", 0)], "Why?")]
[('Read ', 'instruction'), ('a', 'context'), (' and say: ', 'instruction'), ('Why?', 'question')]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CONTEXT, QUESTION = "{context}", "{question}"
Part = tuple[str, str, int]  # a text, the name of its segment, its passage


@dataclass(frozen=True, slots=True)
class Template:
    """A dataset's prompt: ``title`` names the dataset, ``text`` has {context} and, of most, {question} in it."""

    title: str
    text: str


@cache
def templates() -> dict[str, Template]:
    """The prompts of CASD's experiments (table 7) by LongBench's names of the datasets."""
    path = Path(__file__).with_suffix(".toml")
    return {name: Template(**fields) for name, fields in tomllib.loads(path.read_text(encoding="utf-8")).items()}


def is_template(instruction: str) -> bool:
    """True where an instruction says where context or question stand."""
    return CONTEXT in instruction or QUESTION in instruction


def laid_out(template: str, context: Sequence[Part], question: str) -> list[Part]:
    """The parts of a prompt in a template's order; what it has no place for is left out."""
    places: dict[str, Sequence[Part]] = {CONTEXT: context, QUESTION: [(question, "question", -1)]}
    pieces = re.split(f"({re.escape(CONTEXT)}|{re.escape(QUESTION)})", template)
    parts = [part for piece in pieces for part in places.get(piece, [(piece, "instruction", -1)])]
    return [part for part in parts if part[0]]
