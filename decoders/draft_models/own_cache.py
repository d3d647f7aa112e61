"""Keys and values that a small network beside the target has of its own rows: of a text, and of a draft behind it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

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
        self.store = torch.zeros(layers, 2, 1, heads, 0, size)
        self.cos = self.sin = torch.zeros(0, size)

    def make_room(self, rows: int, kept_rows: int, like: Tensor) -> bool:
        """Have room for so many rows, in the dtype and on the device of ``like``; the first ``kept`` ones stay. Whether
        there was less.
        """
        if self.store.shape[4] >= rows:
            return False
        store = torch.zeros(self.layers, 2, 1, self.heads, rows, self.size, dtype=like.dtype, device=like.device)
        if kept_rows:
            store[..., :kept_rows, :] = self.store[..., :kept_rows, :]
        self.store = store
        self.cos, self.sin = self.rotary(rows, like)
        return True

    def rows(self, start: int, stop: int) -> Remember:
        """Append keys and values of rows ``start`` to ``stop``; return those of all rows up to there."""
        store = self.store

        def remember(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            store[layer, 0, :, :, start:stop], store[layer, 1, :, :, start:stop] = keys, values
            return store[layer, 0, :, :, :stop], store[layer, 1, :, :, :stop]

        return remember
