"""A training run on its way: its batches in turn, its pace, its log, and the record of progress."""

from __future__ import annotations

import json
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from decoders.folders import write_text

from .batches import Batch


@dataclass(frozen=True)
class Progress:
    """A training run's state, as a progress bar shows it: ``done`` runs from 0 to 1; seconds are computing time, pauses
    excluded. ``logged`` is the log line of a step with validation, ``warning`` something the user should know.
    """

    step: int
    tokens: int
    seconds: float
    done: float
    loss: float
    tokens_per_second: float
    logged: dict[str, Any] | None = None
    warning: str = ""


class BatchFeed:
    """Batches of chunk 0, 1, 2 …, each chunk a pure function of its number.

    ``chunk`` and ``taken`` (batches of this chunk so far) are the whole place: set them to go on from there.

    >>> feed = BatchFeed(lambda chunk: [f"{chunk}a", f"{chunk}b"])
    >>> next(feed), next(feed), next(feed), feed.chunk, feed.taken
    ('0a', '0b', '1a', 1, 1)
    """

    def __init__(self, chunk_of: Callable[[int], Iterable[Batch]]) -> None:
        self.chunk_of = chunk_of
        self.chunk = self.taken = 0
        self._batches_left: Iterator[Batch] | None = None

    def __iter__(self) -> BatchFeed:
        return self

    def __next__(self) -> Batch:
        while True:
            if self._batches_left is None:
                self._batches_left = islice(self.chunk_of(self.chunk), self.taken, None)
            batch = next(self._batches_left, None)
            if batch is not None:
                self.taken += 1
                return batch
            self._batches_left = None
            self.chunk, self.taken = self.chunk + 1, 0


class Pace:
    """Time and loss of the last 50 steps.

    >>> pace = Pace()
    >>> [pace.add(100, 0.5, loss) for loss in (3.0, 1.0)], pace.tokens_per_second, pace.loss
    ([0.5, 0.5], 200.0, 2.0)
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[int, float, float]] = deque(maxlen=50)  # tokens, seconds, loss

    def add(self, tokens: int, took: float, loss: float) -> float:
        """The computing time of a step: ``took`` seconds, but at most 5 times the median once there are 10 steps
        (a paused process has not been computing).
        """
        if len(self._recent) >= 10:
            took = min(took, 5 * statistics.median(seconds for _, seconds, _ in self._recent))
        self._recent.append((tokens, took, loss))
        return took

    @property
    def tokens_per_second(self) -> float:
        return sum(n for n, _, _ in self._recent) / max(1e-9, sum(seconds for _, seconds, _ in self._recent))

    @property
    def loss(self) -> float:
        """The mean of the steps' losses."""
        return statistics.fmean(loss for _, _, loss in self._recent)


class LogFile:
    """A run's ``log.jsonl``: one JSON object with a "step" per validation."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.jsonl"

    def add(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()] if self.path.exists() else []

    def cut(self, step: int) -> None:
        """Drop what a resumed run will log again: lines after ``step``."""
        if self.path.exists():
            kept_lines = [line for line in self.lines() if line["step"] <= step]
            write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept_lines))

    def sample(self, count: int = 100) -> list[dict[str, Any]]:
        """About ``count`` lines, evenly taken, and the last one."""
        lines = self.lines()
        thin = lines[:: max(1, math.ceil(len(lines) / count))]
        return thin if not lines or thin[-1] == lines[-1] else [*thin, lines[-1]]
