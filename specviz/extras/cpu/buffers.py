"""Inputs of a static forward in buffers that every step writes anew: embeddings, positions, slots, and masks by window.

A padded row sees nothing of the text, and nothing sees it: its keys lie behind those of the real rows, in slots that
the next forward writes over, and every mask hides them. A hidden slot has the weight 0, exactly, whatever lies in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.needs import Needs
from decoders.model.engines.static import Bucket, StaticForward, StaticRows
from decoders.model.state.capture import Capture
from decoders.model.state.transfer import send

# where a bucket costs nothing to have
FINE_ROWS = (*range(1, 16), *range(16, 32, 4), *range(32, 64, 8), *range(64, 129, 16))


class MaskStore:
    """Memory of a forward's masks, one per window of the layers: forwards of all sizes share it, each writes its masks
    anew.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.stores: dict[object, Float[Tensor, " numbers"]] = {}

    def mask(self, rows: int, keys: int, window: int | None = None) -> Float[Tensor, "rows keys"]:
        """The mask of a window, as the last forward that was filled has it."""
        size, store = rows * keys, self.stores.get(window)
        if store is None or len(store) < size:
            room = size if store is None else max(size, 2 * len(store))
            store = self.stores[window] = torch.zeros(room, dtype=self.dtype, device=self.device)
        return store[:size].view(rows, keys)


class Buffers:
    """Inputs of static forwards of one number of rows: embeddings, positions, slots, and masks by number of keys."""

    def __init__(self, rows: int, hidden: int, dtype: torch.dtype, device: torch.device, masks: MaskStore) -> None:
        self.rows, self.device, self.masks = rows, device, masks
        self.lowest = torch.finfo(masks.dtype).min
        self.embeddings = torch.zeros((rows, hidden), dtype=dtype, device=device)
        self.positions = torch.zeros(rows, dtype=torch.long, device=device)
        self.slots = torch.zeros(rows, dtype=torch.long, device=device)
        self.row_range = torch.arange(rows, device=device)

    def fill(self, rows: StaticRows, keys: int, windows: frozenset[int], embedding: Any) -> None:
        """Take the rows of a forward; the padding keeps what it held."""
        count, length = rows.count, rows.cache.length
        on_host = not isinstance(rows.tokens, Tensor)
        arrays = [np.asarray(rows.tokens, dtype=np.int64)] if on_host else []
        arrays += [np.asarray(rows.positions, dtype=np.int64), *([] if rows.sees is None else [rows.sees])]
        parts = send(self.device, *arrays)
        ids = parts.pop(0) if on_host else rows.tokens
        self.embeddings[:count] = embedding(ids) if rows.embed is None else rows.embed(ids)[0]
        self.positions[:count] = parts[0]
        torch.add(self.row_range, length, out=self.slots)
        mask = self.mask(keys)
        mask.fill_(self.lowest)
        mask[:count, : length if rows.sees is not None or count > 1 else length + 1] = 0
        if rows.sees is not None:
            mask[:count, length : length + count].masked_fill_(parts[1], 0)
        elif count > 1:
            mask[:count, length : length + count] = mask[:count, length : length + count].triu(1)
        for window in windows:
            text = torch.arange(length, device=self.device)
            keys_at = torch.cat([text, parts[0]])
            outside_window = parts[0][:, None] - keys_at >= window
            target_mask = self.mask(keys, window)
            target_mask.copy_(mask)
            target_mask[:count, : length + count].masked_fill_(outside_window, self.lowest)

    def mask(self, keys: int, window: int | None = None) -> Float[Tensor, "rows keys"]:
        return self.masks.mask(self.rows, keys, window)


class BufferedForward(StaticForward):
    """Forwards of fixed sizes that read such buffers."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self._masks = MaskStore(target.cached_as or target.dtype, target.device)
        self._buffers: dict[int, Buffers] = {}
        self._turns = torch.zeros(0), torch.zeros(0)  # cos and sin by position

    def run(self, bucket: Bucket, rows: StaticRows, needs: Needs, captured: Capture) -> Float[Tensor, "rows vocab"]:
        """Logits of the rows, in fp32; what ``needs`` names goes to ``captured``."""
        buffers = self.buffers(bucket.rows)
        buffers.fill(rows, bucket.keys, self.windows, self.target.embeddings)
        return self.forward(buffers, bucket, rows, needs, captured)

    def forward(
        self, buffers: Buffers, bucket: Bucket, rows: StaticRows, needs: Needs, captured: Capture
    ) -> Float[Tensor, "rows vocab"]:
        raise NotImplementedError

    def buffers(self, rows: int) -> Buffers:
        if rows not in self._buffers:
            target = self.target
            width = target.embeddings.embedding_dim
            self._buffers[rows] = Buffers(rows, width, target.dtype, target.device, self._masks)
        return self._buffers[rows]

    def rotary(self, positions: Tensor, last: int) -> tuple[Tensor, Tensor]:
        """cos and sin ``[rows, head_dim]`` of the target's own rotary positions."""
        have = len(self._turns[0])
        if last >= have:
            places = torch.arange(max(2 * have, 512 * (last // 512 + 1)))
            cos, sin = self.target.stack.rotary_emb(self.target.stack.norm.weight, position_ids=places[None])
            self._turns = cos[0].contiguous(), sin[0].contiguous()
        return self._turns[0][positions], self._turns[1][positions]
