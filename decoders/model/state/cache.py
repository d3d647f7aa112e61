"""The key/value cache of one run: preallocated, written in place, an accepted path kept by one gather."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from ..files.shape import ModelShape
from .recurrent import JointStates, Paths, RecurrentStates
from .stores import Store, Stores
from .transfer import rows_of
from .two_parts import StoredRows


class CacheLayer(CacheLayerMixin):
    """One layer as transformers sees it: rows [0, length) are committed, the next ones are the running forward's."""

    is_croppable = False
    is_sliding = False  # windows are applied by the masks: every position stays in the cache
    supports_early_init = False

    def __init__(self, cache: Any, index: int) -> None:
        """``cache``: a TreeCache or JointCache with this layer, held weakly: its memory is free with its run."""
        super().__init__()
        self._cache, self.index = weakref.ref(cache), index

    @property
    def cache(self) -> Any:
        return self._cache()

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None: ...

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Any, Any]:
        return self.cache.write(self.index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.cache.length

    def get_max_length(self) -> int:
        return self.cache.capacity


class HybridCache(Cache):
    """A cache as transformers' recurrent layers ask it: it says which of them computes; what they look back on they get
    by ``recurrent``.
    """

    states: RecurrentStates | JointStates | None

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> None: ...

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> None: ...

    def update_conv_state(self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> Tensor:
        assert self.states is not None
        self.states.enter(layer_idx)
        return conv_states

    def update_recurrent_state(self, recurrent_states: Any, layer_idx: int, state_idx: int = 0, **kwargs: Any) -> Any:
        return recurrent_states


class TreeCache(HybridCache):
    """Keys and values of all layers that have some, in one tensor ``[2 * layers, 1, kv_heads, capacity, head_dim]``;
    where a family's keys and values are of different sizes (latent attention), of the larger one. ``states`` are those
    of the other layers of a hybrid model, else None.

    A forward writes its rows (root, nodes, probes) behind the committed ones; ``commit`` keeps the accepted path and
    forgets the rest. Where the path is the first rows in order, which a depth-first draft makes usual, nothing moves.
    ``prefix``: keys and values ``[layers, kv_heads, prefixes, head_dim]`` that a forward sees behind its rows, or None.
    ``slots``: of a captured forward, where its rows go. ``stores`` lend the tensor where they are given: it may have
    room for more than ``capacity``, and graphs that were captured over it stay with ``lease``.
    ``dtype`` is that of keys and values, whatever a forward computes in (None: the same).
    """

    def __init__(
        self, shape: ModelShape, capacity: int, dtype: torch.dtype | None = None, stores: Stores | None = None
    ) -> None:
        super().__init__(layers=[CacheLayer(self, index) for index in range(shape.layers)])
        self.capacity, self.dtype = capacity, dtype
        self.slot_of = {layer: slot for slot, layer in enumerate(shape.kv_layers)}
        self.states: RecurrentStates | None = RecurrentStates(dtype=dtype) if shape.recurrent_layers else None
        self.length = 0
        self.store: Tensor | None = None
        self.sizes = (0, 0)  # of a key and a value
        self.prefix: tuple[Tensor, Tensor] | None = None
        self.slots: Int[Tensor, " rows"] | None = None
        self.stores = stores
        self.lease: Store | None = None

    def open(self, keys: Tensor, values: Tensor) -> Tensor:
        """Memory for keys and values of a layer like these."""
        self.sizes = keys.shape[3], values.shape[3]
        sizes = (2 * len(self.slot_of), 1, keys.shape[1], self.capacity, max(self.sizes))
        if self.stores is None:
            return keys.new_zeros(sizes, dtype=self.dtype)
        self.lease = self.stores.take(sizes, self.dtype or keys.dtype, keys.device)
        self.capacity = self.lease.capacity
        return self.lease.tensor

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Any, Any]:
        rows = keys.shape[-2]
        stop = self.length + rows
        if self.store is None:
            self.store = self.open(keys, values)
        slot = self.slot_of[layer]
        key_rows, value_rows = self.store[2 * slot], self.store[2 * slot + 1]
        if self.sizes[0] != self.sizes[1]:
            key_rows, value_rows = key_rows[..., : self.sizes[0]], value_rows[..., : self.sizes[1]]
        if self.slots is not None:
            key_rows.index_copy_(2, self.slots, keys)
            value_rows.index_copy_(2, self.slots, values)
            return StoredRows(key_rows, keys), StoredRows(value_rows, values)
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
        return self.store[2 * self.slot_of[layer], 0, :, :, : self.sizes[0]]

    def values(self, layer: int) -> Float[Tensor, "kv_heads capacity head_dim"]:
        assert self.store is not None, "nothing was processed yet"
        return self.store[2 * self.slot_of[layer] + 1, 0, :, :, : self.sizes[1]]

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows of ``path`` (row numbers of the last forward, ascending)."""
        in_place = next((i for i, row in enumerate(path) if row != i), len(path))
        if in_place < len(path):
            assert self.store is not None
            rows = rows_of(self.store, [self.length + row for row in path[in_place:]], 3)
            self.store[:, :, :, self.length + in_place : self.length + len(path)] = rows.clone()  # they may overlap
        self.length += len(path)
        if self.states is not None:
            self.states.commit(path)

    def bytes(self) -> int:
        """Bytes of keys, values and states."""
        store = 0 if self.store is None else self.store.nbytes
        return store + (0 if self.states is None else self.states.bytes())

    def start(self, prompt: int) -> None:
        """Begin anew, to read a text of which the first ``prompt`` tokens are the prompt."""
        self.length = 0
        if self.states is not None:
            self.states = RecurrentStates(prompt, self.dtype)

    def keep(self, *, always: bool = False) -> None:
        """Make sure that the cache can be cut back to where it is now; ``always``: as long as its run goes on."""
        if self.states is not None:
            self.states.keep(always=always)

    def cut(self, length: int) -> int:
        """Forget the rows behind the first ``length``, and say how many are left: fewer where there are recurrent
        states, which are there at some lengths only. The text from there on has to be read again.
        """
        self.length = length if self.states is None else self.states.cut(length)
        return self.length

    def part(self, length: int) -> TreeCache:
        """A cache that shares these keys and values, cut to ``length`` as of ``cut``."""
        clone = copy.copy(self)
        clone.layers = [CacheLayer(clone, index) for index in range(len(self.layers))]
        clone.states = None if self.states is None else self.states.copy()
        clone.prefix, clone.slots = None, None
        clone.cut(length)
        return clone

    @contextmanager
    def following(
        self, positions: np.ndarray, sees: np.ndarray | None, device: torch.device, whole: bool = False
    ) -> Iterator[None]:
        """Recurrent layers follow the paths of the rows at these positions while a forward runs; ``whole``: all of them
        are going to be committed.
        """
        if self.states is None:
            yield
            return
        if sees is not None and sees.shape[0] != sees.shape[1]:
            raise ValueError("rows of a hybrid model's draft tree go through one forward: a state is not kept per row")
        with self.states.following(Paths(positions, sees, device), whole):
            yield
