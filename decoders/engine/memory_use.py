"""How much memory drafting holds beside the target: the drafter's own tensors, and what is kept per position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from decoders.model.memory import Memory
from decoders.model.storage import reached

if TYPE_CHECKING:
    from decoders.model.target import Target


def held_bytes(drafter: Any, target: Target, session: Any) -> int:
    """Bytes of the tensors and arrays that a drafter reaches, each once: weights, caches, indexes.

    Those of the target and its session do not count, nor does a context.
    """
    found = reached([drafter], but=(target, session, target.model))
    if not found:
        return 0
    others = target.storages | reached([session], but=(target, target.model)).keys()
    return sum(size for place, size in found.items() if place not in others)


def kept_bytes(memory: Memory, processed: int) -> int:
    """Bytes of hidden states, top tokens and queries that were kept of the first ``processed`` positions."""
    rows = [(memory.hidden, 0), (memory.top_ids, 0), (memory.top_logprobs, 0)]
    rows += [(queries, 1) for queries in memory.queries.values()]
    return sum(
        values.numel() // values.shape[dim] * processed * values.element_size()
        for values, dim in rows
        if values is not None and values.shape[dim]
    )
