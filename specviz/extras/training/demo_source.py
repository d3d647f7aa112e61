"""The bundled target's tasks as training documents for the parts of any target with a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.prompt.tasks import stream

from .batches import TrainingDocument
from .data import HELD_OUT, DistilledSource, FileSource, TrainingSource, encode

DEMO = "demo"


class DemoSource:
    """The input-guided tasks that the bundled target learnt, from a stream of its own."""

    label = DEMO

    def __init__(self, tokenizer: Any, seed: int, documents: int = 256) -> None:
        if not tokenizer.chat_template:
            raise UserError("the demo's tasks are chats, and this model has no chat template: give text with --data")
        self.tokenizer, self.seed, self.documents = tokenizer, seed + 1, documents  # the target's own began at 0

    def chunk(self, index: int) -> list[TrainingDocument]:
        examples = islice(stream("train", self.seed, index), self.documents)
        return [encode(self.tokenizer, e.messages) for e in examples]

    def held_out(self) -> list[TrainingDocument]:
        return [encode(self.tokenizer, e.messages) for e in islice(stream("held_out", self.seed, 2), HELD_OUT)]


def source_of(
    data: Sequence[str], tokenizer: Any, seed: int, model: Any = None, *, documents: int = 256
) -> TrainingSource:
    """The source that was asked for: "demo" or files. With ``model``, its answers are what is learnt."""
    if list(data) == [DEMO]:
        source: TrainingSource = DemoSource(tokenizer, seed, documents)
    else:
        files = [Path(name).expanduser() for name in data]
        source = FileSource(tokenizer, files, seed, documents=documents, target_answers=model is not None)
    return source if model is None else DistilledSource(source, model, tokenizer)
