"""Memory of keys and values that outlives its run, and what was captured over it.

A CUDA graph reads and writes fixed memory. So a run takes a store, the next run takes the same, and graphs that were
captured over it are replayed by both.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

SMALLEST, COARSE = 2_048, 16_384  # rows: of the smallest store; beyond twice COARSE stores grow by so many
IDLE = 2  # stores that are kept for later runs


@dataclass(slots=True, eq=False, weakref_slot=True)
class Store:
    """Keys and values ``[2 * layers, 1, kv_heads, capacity, head_dim]``. ``companions``: what was captured over them,
    and the tables that it reads.
    """

    tensor: Tensor
    companions: dict[Any, Any] = field(default_factory=dict)

    @property
    def capacity(self) -> int:
        return self.tensor.shape[3]


class Stores:
    """A target's stores. One that no run holds any more is kept for the next, with its companions: at most
    ``IDLE``, the last used ones.
    """

    _everywhere: ClassVar[weakref.WeakSet[Stores]] = weakref.WeakSet()

    def __init__(self) -> None:
        self._idle = list[tuple[Tensor, dict[Any, Any]]]()
        self._lock = threading.RLock()  # a store may come back while another is taken
        Stores._everywhere.add(self)

    def take(self, sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Store:
        """A store of these sizes, or with more rows; what it holds is zero."""
        with self._lock:
            place = self._fitting(sizes, dtype)
            if place is None:
                rows = capacity_for(sizes[3])
                self._idle = [entry for entry in self._idle if entry[0].shape[3] >= rows]  # this one takes their place
                store = Store(torch.zeros((*sizes[:3], rows, *sizes[4:]), dtype=dtype, device=device))
            else:
                store = Store(*self._idle.pop(place))
                store.tensor.zero_()
            weakref.finalize(store, self._return, store.tensor, store.companions).atexit = False
        return store

    def has(self, rows: int) -> bool:
        """True where a store with so many rows is idle."""
        with self._lock:
            return any(tensor.shape[3] >= rows for tensor, _ in self._idle)

    @classmethod
    def drop_all(cls) -> bool:
        """Free the idle stores of every target; whether there was one."""
        is_freed = False
        for stores in list(cls._everywhere):
            with stores._lock:
                is_freed = is_freed or bool(stores._idle)
                stores._idle.clear()
        return is_freed

    def _fitting(self, sizes: tuple[int, ...], dtype: torch.dtype) -> int | None:
        kind = sizes[:3], sizes[4:], dtype
        places = [
            (tensor.shape[3], -len(companions), place)  # the smallest, and of equal ones that with most graphs
            for place, (tensor, companions) in enumerate(self._idle)
            if (tensor.shape[:3], tensor.shape[4:], tensor.dtype) == kind and tensor.shape[3] >= sizes[3]
        ]
        return min(places)[2] if places else None

    def _return(self, tensor: Tensor, companions: dict[Any, Any]) -> None:
        with self._lock:
            self._idle = [*self._idle, (tensor, companions)][-IDLE:]


def capacity_for(rows: int) -> int:
    """Rows of the store for a run of so many: few sizes, so that few are captured for.

    >>> capacity_for(700), capacity_for(5_000), capacity_for(131_584)
    (2048, 8192, 147456)
    """
    if rows <= 2 * COARSE:
        return max(SMALLEST, 1 << (rows - 1).bit_length())
    return -(-rows // COARSE) * COARSE
