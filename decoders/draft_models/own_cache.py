"""Keys and values that a small network beside the target has of its own rows: of a text, and of a draft behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.model.state.stores import Store, Stores

# (layer, keys, values) of new rows → all that they see
Remember = Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]]


class OwnCache:
    """``store`` has the keys and values, row after row; ``cos`` and ``sin`` ``[rows, size]`` are of the positions
    from 0 on, as ``rotary`` gives them for a number of rows and a tensor whose dtype and device they are to have.
    """

    store: Float[Tensor, "layers 2 1 heads rows size"]

    def __init__(
        self, layers: int, heads: int, size: int, rotary: Callable[[int, Tensor], tuple[Tensor, Tensor]]
    ) -> None:
        self.layers, self.heads, self.size, self.rotary = layers, heads, size, rotary
        self.stores: Stores | None = None  # that lend its memory, where it has to outlive the run
        self.lease: Store | None = None
        self.store = torch.zeros(layers, 2, 1, heads, 0, size)
        self.cos = self.sin = torch.zeros(0, size)

    def make_room(self, rows: int, kept_rows: int, like: Tensor) -> bool:
        """Have room for so many rows, in the dtype and on the device of ``like``; the first ``kept`` ones stay. Whether
        there was less.
        """
        if self.store.shape[4] >= rows:
            return False
        sizes = (2 * self.layers, 1, self.heads, rows, self.size)
        lease = None if self.stores is None else self.stores.take(sizes, like.dtype, like.device)
        flat = torch.zeros(sizes, dtype=like.dtype, device=like.device) if lease is None else lease.tensor
        store = flat.view(self.layers, 2, 1, self.heads, -1, self.size)
        if kept_rows:
            store[..., :kept_rows, :] = self.store[..., :kept_rows, :]
        self.store, self.lease = store, lease
        self.cos, self.sin = self.table("rotary", lambda: self.rotary(store.shape[4], like))
        return True

    def table(self, name: str, make: Callable[[], Any]) -> Any:
        """A table by the positions of these rows, which stays with memory that a store lends."""
        if self.lease is None:
            return make()
        if name not in self.lease.companions:
            self.lease.companions[name] = make()
        return self.lease.companions[name]

    def rows(self, start: int, stop: int) -> Remember:
        """Append keys and values of rows ``start`` to ``stop``; return those of all rows up to there."""
        store = self.store

        def remember(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            store[layer, 0, :, :, start:stop], store[layer, 1, :, :, start:stop] = keys, values
            return store[layer, 0, :, :, :stop], store[layer, 1, :, :, :stop]

        return remember


class FixedRows:
    """Rows behind others whose number stands on the device, ``keys`` of the cache at most: what a captured forward
    needs to serve any text.
    """

    def __init__(self, cache: OwnCache, keys: int) -> None:
        self.cache, self.keys = cache, keys
        self.places = torch.arange(keys, device=cache.store.device)

    def turns(self, positions: Int[Tensor, " rows"]) -> tuple[Tensor, Tensor]:
        """cos and sin of positions."""
        return self.cache.cos.index_select(0, positions), self.cache.sin.index_select(0, positions)

    def remember(self, slots: Int[Tensor, " rows"]) -> Remember:
        """Write rows' keys and values to ``slots``; gives those of all rows that a forward may look at."""

        def remember(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            pair = self.cache.store[layer]
            for part, rows in zip(pair, (keys, values), strict=True):
                part.index_copy_(2, slots, rows)
            return pair[0][:, :, : self.keys], pair[1][:, :, : self.keys]

        return remember

    def chain(self, slots: Int[Tensor, " rows"]) -> Bool[Tensor, "rows keys"]:
        """The mask of rows that see all before them."""
        return self.places <= slots[:, None]

    def tree(self, base: Int[Tensor, "1"], sees: Bool[Tensor, "rows own"]) -> Bool[Tensor, "rows keys"]:
        """The mask of rows that see the first ``base`` ones, and of those behind them what ``sees`` says."""
        row, count = self.places - base, sees.shape[1]
        is_own = (row >= 0) & (row < count)
        return (row < 0) | (is_own & sees.index_select(1, row.clamp(0, count - 1)))


def keys_for(rows: int, capacity: int) -> int | None:
    """Rows that a captured forward may look at: a power of two, so that few sizes are captured; None where a cache has
    no room for so many.

    >>> keys_for(300, 2048), keys_for(1100, 1536), keys_for(1600, 1536)
    (512, 1536, None)
    """
    return None if rows > capacity else min(max(256, 1 << (rows - 1).bit_length()), capacity)
