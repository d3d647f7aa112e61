"""Inputs and masks of captured forwards: what differs from step to step is data in fixed memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..state.attention import Masks, Rule
from ..state.transfer import packed_on_host
from ..state.two_parts import TwoParts
from .static import StaticRows


class Inputs:
    """Input memory of captured forwards of a number of rows. Behind the real rows stand others, which see themselves
    and the text, and which none of the real rows sees.
    """

    def __init__(self, rows: int, hidden: int, dtype: torch.dtype, device: torch.device) -> None:
        self.rows, self.device = rows, device
        sizes = [8 * rows, 8 * rows, 8, -(-rows * rows // 8) * 8]
        self.bytes = torch.zeros(sum(sizes), dtype=torch.uint8, device=device)
        ids, positions, length, sees = self.bytes.split(sizes)
        self.ids, self.positions, self.length = (part.view(torch.long) for part in (ids, positions, length))
        self.sees = sees[: rows * rows].view(torch.bool).view(rows, rows)
        self.embeddings = torch.zeros((rows, hidden), dtype=dtype, device=device)
        self.sees.fill_diagonal_(True)

    def fill(self, rows: StaticRows) -> None:
        """Take the rows of a forward: one copy to the device, which nobody waits for; none for one token that is there
        already.
        """
        count, length = rows.count, rows.cache.length
        if self.rows == 1 and isinstance(rows.tokens, Tensor) and rows.embed is None:
            self.ids.copy_(rows.tokens)
            self.positions.fill_(int(rows.positions[0]))
            self.length.fill_(length)
            return
        ids, positions = np.zeros(self.rows, np.int64), np.full(self.rows, length, np.int64)
        sees = np.eye(self.rows, dtype=bool)
        positions[:count] = rows.positions
        if rows.sees is not None:
            sees[:count, :count] = rows.sees
        else:
            sees[:count, :count] = np.tri(count, dtype=bool)
        if not isinstance(rows.tokens, Tensor):
            ids[:count] = rows.tokens
        numbers = packed_on_host(self.device, ids, positions, np.asarray([length]), sees)
        self.bytes.copy_(numbers, non_blocking=True)
        if isinstance(rows.tokens, Tensor):
            self.ids[:count] = rows.tokens
        if rows.embed is not None:
            self.embeddings[:count] = rows.embed(self.ids[:count])[0]


class CapturedMasks:
    """Masks of a captured forward, of the numbers in its inputs: additive ones over ``keys`` stored rows, once per
    window; where attention goes in two parts, layers without a window get ``TwoParts``.
    """

    def __init__(self, inputs: Inputs, masks: Masks, keys: int, windows: frozenset[int], split: bool) -> None:
        self.inputs, self.masks, self.keys, self.windows, self.split = inputs, masks, keys, windows, split
        self._by_window: dict[int | None, Any] = {}

    def __call__(self, rule: Rule, reach: int | None, skip: bool) -> Any:
        return self.of(reach if reach in self.windows else None)

    def of(self, window: int | None) -> Any:
        """The mask of layers with this window."""
        if window not in self._by_window:
            self._by_window[window] = self._two_parts() if self.split and window is None else self._additive(window)
        return self._by_window[window]

    def _two_parts(self) -> TwoParts:
        return TwoParts(self.inputs.length, self.inputs.sees)

    def _additive(self, window: int | None) -> Float[Tensor, "1 1 rows keys"]:
        inputs, rows = self.inputs, self.inputs.rows
        places = torch.arange(self.keys, device=inputs.device)
        behind = places - inputs.length
        is_own, row = (behind >= 0) & (behind < rows), behind.clamp(0, rows - 1)
        visible = (places < inputs.length) | (is_own & inputs.sees.index_select(1, row))
        if window is not None:
            keys_at = torch.where(is_own, inputs.positions.index_select(0, row), places)
            visible = visible & (inputs.positions[:, None] - keys_at < window)
        return self.masks.blank(rows, self.keys).masked_fill(~visible, self.masks.lowest)[None, None]
