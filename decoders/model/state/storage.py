"""The storages that objects reach: which bytes of memory are whose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .memory import Context

PLAIN = (int, float, str, bytes, bool, type(None))  # most of what collections hold, and no tensor behind them
PACKAGE = __name__.partition(".")[0]


def drafter_bytes(drafter: Any, target: Any, session: Any) -> int:
    """Bytes of the tensors and arrays that a drafter reaches, each once: weights, caches, indexes.

    Those of the target and its session do not count, nor does a context.
    """
    reachable = storage_sizes([drafter], but=(target, session, target.model))
    if not reachable:
        return 0
    target_places = target.storages | storage_sizes([session], but=(target, target.model)).keys()
    return sum(size for place, size in reachable.items() if place not in target_places)


def storage_sizes(roots: list[Any], but: tuple[Any, ...] = ()) -> dict[int, int]:
    """Address of a storage → its bytes, of everything below ``roots``; only this package's objects are looked into."""
    sizes: dict[int, int] = {}
    seen_ids, waiting = {id(exclusion) for exclusion in but}, list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in seen_ids or isinstance(item, Context):
            continue
        seen_ids.add(id(item))
        if isinstance(item, torch.Tensor):
            if item.is_mkldnn:  # packed weights
                sizes[torch.ops.mkldnn.data_ptr(item)] = torch.ops.mkldnn._nbytes(item)
            else:
                storage = item.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
        elif isinstance(item, np.ndarray):
            if isinstance(item.base, np.ndarray):
                waiting.append(item.base)
            else:
                sizes[item.ctypes.data] = item.nbytes
        elif isinstance(item, torch.nn.Module):
            waiting += [*item.parameters(), *item.buffers()]
            waiting += [value for part in item.modules() for value in vars(part).values() if torch.is_tensor(value)]
        elif isinstance(item, Mapping):
            waiting += [value for value in item.values() if type(value) not in PLAIN]
        elif isinstance(item, list | tuple | set):
            waiting += [value for value in item if type(value) not in PLAIN]
        elif type(item).__module__.partition(".")[0] == PACKAGE:
            waiting += getattr(item, "__dict__", {}).values()
            slots = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting += [getattr(item, name) for name in slots if hasattr(item, name)]
    sizes.pop(0, None)  # tensors without memory
    return sizes
