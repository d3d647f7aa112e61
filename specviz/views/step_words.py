"""Tokens and places of a trace as figures and tables write them, and an answer in the pieces in which it came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from decoders.trace.metrics import first_difference
from decoders.trace.trace import Trace
from specviz.words import SIGNS, mark_unseen

STOP = "■ stop"  # in the place of the token that the target would have added


class WordPieces:
    """The texts of a trace's tokens."""

    def __init__(self, trace: Trace) -> None:
        self.texts = trace.texts()

    def text(self, token: int) -> str:
        """A token as it stands in the text."""
        return mark_unseen(self.texts.get(token, f"⟨token {token}⟩"))

    def label(self, token: int) -> str:
        """A token by itself: spaces and line ends can be seen."""
        return STOP if token < 0 else self.text(token).translate(str.maketrans(SIGNS)) or "∅"


def rows_of(trace: Trace, table: str, step: int) -> list[dict[str, Any]]:
    """A step's rows of a table, each as column → value."""
    columns = trace.tables[table]
    step_rows = [row for row, number in enumerate(columns["step"]) if number == step]
    return [{name: values[row] for name, values in columns.items()} for row in step_rows]


def place_of(trace: Trace, position: int, pool: int = -1) -> str:
    """A position in words: "the context, passage 2, token 31"; "" for none."""
    if position < 0 and pool < 0:
        return ""
    part, token = part_of(trace, position, pool)
    return f"{part}, token {token}"


def part_of(trace: Trace, position: int, pool: int = -1) -> tuple[str, int]:
    """The part of the text that a position lies in, in words, and the number there (from 1); below 0: in the pool."""
    if position < 0:
        return "the pool", pool + 1
    tokens = trace.tables["tokens"]
    segment, passage = tokens["segment"][position], tokens["passage"][position]
    names = {"output": "the output", "template": "the template", "text": "the prompt", "chat": "the conversation"}
    passages = max(tokens["passage"], default=-1) > 0
    passage_words = f", passage {passage + 1}" if passage >= 0 and passages else ""
    first = trace.run["prompt_length"] if segment == "output" else 0
    return f"{names.get(segment, f'the {segment}')}{passage_words}", position - first + 1


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that a step brought; ``at``: ms from the first step on."""

    text: str
    accepted: bool
    at: float


def pieces(trace: Trace) -> Iterator[Piece]:
    """A run's answer by step and by how its tokens came; a character whose bytes are partly drafted stands with the
    last of them.
    """
    table, start, steps = trace.tables["tokens"], int(trace.run["prompt_length"]), trace.tables["steps"]
    stop = frozenset(trace.run.get("stop_ids") or ())
    columns = (table[name][start:] for name in ("id", "step", "kind"))
    output = [(i, step, kind == "accepted") for i, step, kind in zip(*columns, strict=True) if i not in stop]
    ids = [token for token, *_ in output]
    whole, begun, offset = trace.text(ids), 0, 0
    for (step, accepted), tokens in groupby(output, key=lambda item: item[1:]):
        begun += len(list(tokens))
        so_far = first_difference(trace.text(ids[:begun]), whole)
        yield Piece(whole[offset:so_far], accepted, float(steps["elapsed_ms"][step] or 0.0))
        offset = max(offset, so_far)
