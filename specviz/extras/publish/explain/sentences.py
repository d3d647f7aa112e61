"""Sentences of the panel Why on a run's steps, made by the page's own modules in an embedded engine (QuickJS)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import quickjs
import regex

from decoders.errors import UserError, first_line
from decoders.trace.report import payload
from decoders.trace.trace import Trace

from .scripts import script_of

SHIM = Path(__file__).with_name("explain.js")  # what a browser has and the engine has not, and how a step is worded
ENTRIES = tuple(f"specviz/inspect/{name}.js" for name in ("sentence", "pane", "pool", "prompt_marks"))
MEMORY = 2**30  # bytes that one call may take


@dataclass(frozen=True, slots=True)
class StepSentences:
    """Sentences on a step (from 0): texts, each with whether it is a token of the run."""

    step: int
    words: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        """The sentences as plain text, tokens in quotation marks."""
        parts = (f"“{text}”" if is_token else text for text, is_token in self.words)
        return " ".join("".join(parts).split())


@cache
def _script() -> str:
    return "\n".join((SHIM.read_text("utf-8"), script_of(ENTRIES)))


def _graphemes(text: str) -> str:
    """The places in UTF-16 at which a grapheme begins, as JSON."""
    places, offset = [], 0
    for match in regex.finditer(r"\X", text):
        places.append(offset)
        offset += len(match[0].encode("utf-16-le", "surrogatepass")) // 2
    return json.dumps(places)


def sentences_of(trace: Trace, steps: Sequence[int]) -> list[StepSentences]:
    """Word these steps (from 0) as the page does. Raises UserError where a run is too large for the engine."""
    question: dict[str, Any] = {"trace": payload(trace), "steps": list(steps)}
    engine = quickjs.Context()  # of this call alone: an engine belongs to a thread
    engine.set_memory_limit(MEMORY)
    engine.add_callable("graphemes", _graphemes)
    try:
        engine.eval(_script())
        rows = json.loads(engine.get("sentencesOf")(json.dumps(question)))
    except quickjs.JSException as problem:
        raise UserError(f"the step could not be worded: {first_line(problem)}") from None
    return [StepSentences(row["step"], tuple((text, is_token) for text, is_token in row["words"])) for row in rows]


def sentence_of(trace: Trace, step: int) -> str:
    """The sentences on one step (from 0), as plain text."""
    return sentences_of(trace, [step])[0].text
