"""The key/value cache of one run: preallocated, written in place, an accepted path kept by one gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from .transfer import rows_of


class _Layer(CacheLayerMixin):
    """What transformers sees of one layer: rows [0, length) are committed, the next ones are the running forward's."""

    is_croppable = False
    is_sliding = False  # windows are applied by the masks: every position stays in the cache
    supports_early_init = False

    def __init__(self, cache: TreeCache, index: int) -> None:
        super().__init__()
        self.cache, self.index = cache, index

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None: ...

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        return self.cache.write(self.index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.cache.length

    def get_max_length(self) -> int:
        return self.cache.capacity


class TreeCache(Cache):
    """Keys and values of all layers in one tensor ``[2 * layers, 1, kv_heads, capacity, head_dim]``; where a family's
    keys and values are of different sizes (latent attention), of the larger one.

    A forward writes its rows (root, nodes, probes) behind the committed ones; ``commit`` keeps the accepted path and
    forgets the rest. Where the path is the first rows in order, which a depth-first draft makes usual, nothing moves.
    ``prefix``: keys and values ``[layers, kv_heads, prefixes, head_dim]`` that a forward sees behind its rows, or None.
    ``slots``: of a forward of fixed size, where its rows go, and it sees the first ``seen`` ones, hidden or not.
    ``graphs``: forwards captured over this store (``model.graphs``).
    """

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers=[_Layer(self, index) for index in range(layers)])
        self.capacity = capacity
        self.length = 0
        self.store: Tensor | None = None
        self.sizes = (0, 0)  # of a key and a value
        self.prefix: tuple[Tensor, Tensor] | None = None
        self.slots: Int[Tensor, "rows"] | None = None
        self.seen = 0
        self.graphs: dict[Any, Any] = {}

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        rows = keys.shape[-2]
        stop = self.length + rows
        if self.store is None:
            self.sizes = keys.shape[3], values.shape[3]
            self.store = keys.new_zeros((2 * len(self.layers), 1, keys.shape[1], self.capacity, max(self.sizes)))
        key_rows, value_rows = self.store[2 * layer], self.store[2 * layer + 1]
        if self.sizes[0] != self.sizes[1]:
            key_rows, value_rows = key_rows[..., : self.sizes[0]], value_rows[..., : self.sizes[1]]
        if self.slots is not None:
            key_rows.index_copy_(2, self.slots, keys)
            value_rows.index_copy_(2, self.slots, values)
            return key_rows[:, :, : self.seen], value_rows[:, :, : self.seen]
        key_rows[:, :, self.length : stop] = keys
        value_rows[:, :, self.length : stop] = values
        if self.prefix is not None:
            extra_keys, extra_values = (extra[layer] for extra in self.prefix)
            key_rows[:, :, stop : stop + extra_keys.shape[1]] = extra_keys
            value_rows[:, :, stop : stop + extra_keys.shape[1]] = extra_values
            stop += extra_keys.shape[1]
        return key_rows[:, :, :stop], value_rows[:, :, :stop]

    def keys(self, layer: int) -> Float[Tensor, "kv_heads capacity head_dim"]:
        """Keys of a layer after rotary, as the target's own attention reads them."""
        assert self.store is not None, "nothing was processed yet"
        return self.store[2 * layer, 0, :, :, : self.sizes[0]]

    def values(self, layer: int) -> Float[Tensor, "kv_heads capacity head_dim"]:
        assert self.store is not None, "nothing was processed yet"
        return self.store[2 * layer + 1, 0, :, :, : self.sizes[1]]

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` (row numbers of the last forward, ascending)."""
        in_place = next((i for i, row in enumerate(path) if row != i), len(path))
        if in_place < len(path):
            assert self.store is not None
            rows = rows_of(self.store, [self.length + row for row in path[in_place:]], 3)
            self.store[:, :, :, self.length + in_place : self.length + len(path)] = rows.clone()  # they may overlap
        self.length += len(path)
