"""How much memory drafting holds beside the target: the drafter's own tensors, and what is kept per position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .memory import Context, Memory

if TYPE_CHECKING:
    from .target import Target

PLAIN = (int, float, str, bytes, bool, type(None))  # most of what collections hold, and no tensor behind them


def held_bytes(drafter: Any, target: Target, session: Any) -> int:
    """Bytes of the tensors and arrays that a drafter reaches, each once: weights, caches, indexes.

    Those of the target and its session do not count, nor does a context.
    """
    found = _reached([drafter], but=(target, session, target.model))
    if not found:
        return 0
    others = target.storages | _reached([session], but=(target, target.model)).keys()
    return sum(size for place, size in found.items() if place not in others)


def storages(module: torch.nn.Module) -> frozenset[int]:
    """Addresses of a module's parameters and buffers."""
    return frozenset(_reached([module]))


def kept_bytes(memory: Memory, processed: int) -> int:
    """Bytes of hidden states, top tokens and queries that were kept of the first ``processed`` positions."""
    rows = [(memory.hidden, 0), (memory.top_ids, 0), (memory.top_logprobs, 0)]
    rows += [(queries, 1) for queries in memory.queries.values()]
    return sum(
        values.numel() // values.shape[dim] * processed * values.element_size()
        for values, dim in rows
        if values is not None and values.shape[dim]
    )


def _reached(roots: list[Any], but: tuple[Any, ...] = ()) -> dict[int, int]:
    """Address of a storage → its bytes, of everything below ``roots``; only this package's objects are looked into."""
    found: dict[int, int] = {}
    seen, waiting = {id(one) for one in but}, list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, Context):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(one, np.ndarray):
            if isinstance(one.base, np.ndarray):
                waiting.append(one.base)
            else:
                found[one.ctypes.data] = one.nbytes
        elif isinstance(one, torch.nn.Module):
            waiting += [*one.parameters(), *one.buffers()]
        elif isinstance(one, Mapping):
            waiting += [value for value in one.values() if type(value) not in PLAIN]
        elif isinstance(one, list | tuple | set):
            waiting += [value for value in one if type(value) not in PLAIN]
        elif type(one).__module__.partition(".")[0] == __package__:
            waiting += getattr(one, "__dict__", {}).values()
            slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting += [getattr(one, name) for name in slots if hasattr(one, name)]
    found.pop(0, None)  # tensors without memory
    return found
