"""In which order parts that are trained for an experiment see their data: epochs of a few documents, and stages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specviz.extras.training.batches import TrainingDocument
    from specviz.extras.training.data import TrainingSource

PRETRAINED, FINETUNED, BOTH_STAGES = "pretrained", "finetuned", "both"
STAGES = ("", PRETRAINED, FINETUNED, BOTH_STAGES)
CONVERSATIONS = (".jsonl", ".ndjson")  # files of them; all others are running text
EPOCH = 96  # documents


class Epochs:
    """The first documents of a source again and again, ``batch`` a chunk, each epoch in an order of its own."""

    def __init__(self, source: TrainingSource, batch: int, documents: int) -> None:
        self.source, self.batch = source, batch
        self.label = f"{source.label}, {documents} documents in epochs"
        self._documents: list[TrainingDocument] = []
        for index in range(documents):
            if len(self._documents) >= documents:
                break
            self._documents += source.chunk(index)
        self._documents = self._documents[:documents]

    def chunk(self, index: int) -> list[TrainingDocument]:
        steps = -(-len(self._documents) // self.batch)
        epoch, step = divmod(index, steps)
        order = list(self._documents)
        random.Random(f"specviz epoch {epoch}").shuffle(order)
        return order[step * self.batch : (step + 1) * self.batch]

    def held_out(self) -> list[TrainingDocument]:
        return self.source.held_out()


class StageSource:
    """One stage of a draft model's training (GLIDE §5.1): with ``running`` the words of another source's documents as
    running text, all of them to be learnt; else its conversations. What is held out are the source's documents as they
    are, so that both stages are judged alike.
    """

    def __init__(self, source: TrainingSource, *, running: bool) -> None:
        self.source, self.running = source, running
        self.label = f"{source.label}, as running text" if running else source.label

    def chunk(self, index: int) -> list[TrainingDocument]:
        from specviz.extras.training.batches import RESPONSE, TrainingDocument

        documents = self.source.chunk(index)
        if not self.running:
            return documents
        return [TrainingDocument(document.ids, (RESPONSE,) * len(document.ids)) for document in documents]

    def held_out(self) -> list[TrainingDocument]:
        return self.source.held_out()


def stage_files(data: Sequence[str], running: bool) -> tuple[str, ...]:
    """The data of a stage: of files those of running text, or those of conversations; the demo's tasks for both.

    >>> stage_files(["a.txt", "b.jsonl"], True), stage_files(["a.txt", "b.jsonl"], False), stage_files(["demo"], True)
    (('a.txt',), ('b.jsonl',), ('demo',))
    """
    if list(data) == ["demo"]:
        return tuple(data)
    return tuple(name for name in data if (Path(name).suffix.lower() not in CONVERSATIONS) == running)
