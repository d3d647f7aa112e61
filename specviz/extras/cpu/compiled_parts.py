"""Static forwards that need compiled parts: their own, and those of draft models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from .buffers import BufferedForward
from .compiled_draft import compiled_model
from .compiling import WORKSHOP, CompiledPart

LARGEST = 1_000_000_000  # parameters: beyond, a CPU's time goes to reading weights, and ``auto`` compiles nothing


class PartsForward(BufferedForward):
    """A target's static forwards that run through compiled parts, or have those of draft models beside them."""

    engine = "compiled"
    notice = "compiling, once for this machine: about half a minute"
    runs_drafts = True
    parts: Mapping[Any, CompiledPart] = {}
    titles: ClassVar[Mapping[Any, str]] = {}  # of the parts, as people read them

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.draft_parts = list[CompiledPart]()

    @property
    def all_parts(self) -> list[CompiledPart]:
        """Compilations for this target, most used first."""
        return [*self.parts.values(), *self.draft_parts]

    def complete(self) -> bool:
        return all(WORKSHOP.open(part) is not None or part.package in WORKSHOP.failed for part in self.all_parts)

    def make(self, busy: Callable[[], bool] | None = None) -> str | None:
        if busy is not None and self.target.info["parameters"] > LARGEST:
            return None
        WORKSHOP.make(self.all_parts, busy)
        return WORKSHOP.why_not(self.all_parts)

    def wait(self, cancel: threading.Event | None = None) -> str | None:
        return None if WORKSHOP.wait(self.all_parts, cancel) else WORKSHOP.why_not(self.all_parts)

    def add(self, parts: Iterable[CompiledPart]) -> None:
        """Take in the parts of a draft model, which are made as the target's own are."""
        self.draft_parts += parts

    def draft(self, network: Any) -> Any:
        return compiled_model(self.target, network)
