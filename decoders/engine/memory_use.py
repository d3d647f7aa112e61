"""The memory of a drafter's own tensors beside the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from decoders.model.state.storage import storage_sizes

if TYPE_CHECKING:
    from decoders.model.target.target import Target


def drafter_bytes(drafter: Any, target: Target, session: Any) -> int:
    """Bytes of the tensors and arrays that a drafter reaches, each once: weights, caches, indexes.

    Those of the target and its session do not count, nor does a context.
    """
    reachable = storage_sizes([drafter], but=(target, session, target.model))
    if not reachable:
        return 0
    others = target.storages | storage_sizes([session], but=(target, target.model)).keys()
    return sum(size for place, size in reachable.items() if place not in others)
