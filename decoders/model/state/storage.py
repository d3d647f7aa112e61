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
    others = target.storages | storage_sizes([session], but=(target, target.model)).keys()
    return sum(size for place, size in reachable.items() if place not in others)


def storage_sizes(roots: list[Any], but: tuple[Any, ...] = ()) -> dict[int, int]:
    """Address of a storage → its bytes, of everything below ``roots``; only this package's objects are looked into."""
    sizes: dict[int, int] = {}
    seen, waiting = {id(one) for one in but}, list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, Context):
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            if one.is_mkldnn:  # packed weights
                sizes[torch.ops.mkldnn.data_ptr(one)] = torch.ops.mkldnn._nbytes(one)
            else:
                storage = one.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
        elif isinstance(one, np.ndarray):
            if isinstance(one.base, np.ndarray):
                waiting.append(one.base)
            else:
                sizes[one.ctypes.data] = one.nbytes
        elif isinstance(one, torch.nn.Module):
            waiting += [*one.parameters(), *one.buffers()]
            waiting += [value for part in one.modules() for value in vars(part).values() if torch.is_tensor(value)]
        elif isinstance(one, Mapping):
            waiting += [value for value in one.values() if type(value) not in PLAIN]
        elif isinstance(one, list | tuple | set):
            waiting += [value for value in one if type(value) not in PLAIN]
        elif type(one).__module__.partition(".")[0] == PACKAGE:
            waiting += getattr(one, "__dict__", {}).values()
            slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting += [getattr(one, name) for name in slots if hasattr(one, name)]
    sizes.pop(0, None)  # tensors without memory
    return sizes
