"""Whole drafts of a network as graphs, where the target's forwards are captured."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from torch import Tensor, nn

from decoders.model.engines.engines import Engines, say_once
from decoders.model.engines.graphs import CaptureError, DraftMemory

from .own_cache import OwnCache, keys_for

CAUGHT_UP = (8, 32)  # rows at most that a captured draft reads before it goes on: accepted tokens


class DraftGraphs:
    """Graphs of the drafts of a ``network``, which ``noun`` names; ``engines`` are the target's (None: no graphs)."""

    def __init__(self, engines: Engines | None, network: nn.Module, noun: str) -> None:
        self.engines, self.network, self.noun = engines, network, noun

    @property
    def memory(self) -> DraftMemory | None:
        """The network's memory that outlives runs; None where the target's forwards are not captured."""
        graphs = None if self.engines is None else self.engines.graphs
        return None if graphs is None else graphs.draft_memory(self.network)

    def make_room(self, cache: OwnCache, rows: int, kept_rows: int, like: Tensor) -> bool:
        """As ``OwnCache.make_room``, in memory that outlives the run where drafts are captured."""
        cache.stores = None if self.memory is None else self.memory.stores
        return cache.make_room(rows, kept_rows, like)

    def sizes(self, cache: OwnCache, have: int, count: int, drafted: int, room: int) -> tuple[int, int] | None:
        """Sizes of the captured draft that catches up with ``count`` rows behind ``have`` others and goes on from
        ``drafted``: rows that it catches up with, and rows of the cache that it looks at. None where there is none, or
        the cache has not the ``room`` that the run needs.
        """
        rows = next((rows for rows in CAUGHT_UP if rows >= count), None)
        if self.memory is None or cache.lease is None or rows is None or room > cache.store.shape[4]:
            return None
        keys = keys_for(have + rows + drafted, cache.store.shape[4])
        return None if keys is None else (rows, keys)

    def replay(self, companions: dict[Any, Any], key: Hashable, draft: Callable[..., Any], *inputs: Tensor) -> Any:
        """Results of a draft as of ``GraphForward.function``; None where it cannot be captured, which is said once."""
        assert self.engines is not None and self.engines.graphs is not None
        try:
            return self.engines.graphs.function(companions, key, draft, *inputs)
        except CaptureError as error:
            say_once(f"drafts of {self.noun} run eagerly, as capturing them fails: {error}")
            return None
