"""Workers of some kind, behind four calls: start, give, wait, close. The loop in ``sweep`` knows nothing else of them.

A worker tells Ready when it may be given units (at first, after each share, and when it was started again after a
loss), Done after each unit, Lost when it died, and Cannot where the whole sweep has to stop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .work import Job, Outcome, Unit


@dataclass(frozen=True, slots=True)
class Ready:
    worker: str


@dataclass(frozen=True, slots=True)
class Done:
    worker: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Lost:
    """It died: what it was given and has not told as done has to be done again."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cannot:
    """It refused the job (or could not even begin), and so would every other."""

    worker: str
    reason: str


Answer: TypeAlias = Ready | Done | Lost | Cannot


class Pool(ABC):
    """``count`` workers for a job. ``together``: how many of the units left a worker is best given at once."""

    def __init__(self, job: Job, count: int) -> None:
        self.job, self.names = job, tuple(f"worker {number}" for number in range(1, count + 1))

    def together(self, left: int) -> int:
        return 1

    @abstractmethod
    def start(self) -> None:
        """Begin to start the workers; each tells Ready later. Raises UserError where there can be none."""

    @abstractmethod
    def give(self, worker: str, units: Sequence[Unit]) -> None:
        """Have a worker that told Ready do units, one after another."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Answer]:
        """What workers tell, as soon as one tells anything; after so many seconds nothing."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, in mid-unit too: nothing that they write is ever half."""
