"""The attention function every supported family runs through, and the masks of a tree.

Registered with transformers' AttentionInterface, so stock models use it. It folds grouped queries instead of repeating
keys, takes additive masks, and hands the queries of chosen heads to a tap on the module.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "specviz_tree"  # no "sdpa" in the name: transformers would then drop masks it thinks are causal


def tree_attention(
    module: nn.Module,
    query: Float[Tensor, "1 heads rows head_dim"],
    key: Float[Tensor, "1 kv_heads keys head_dim"],
    value: Float[Tensor, "1 kv_heads keys head_dim"],
    attention_mask: Float[Tensor, "1 1 rows keys"] | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Attention of tree rows over the cached keys and themselves. Without a mask: causal over a fresh cache, or a row.

    Raises ValueError for several rows over a filled cache without a mask.
    """
    heads, rows, head_dim = query.shape[1:]
    kv_heads, keys = key.shape[1:3]
    scale = head_dim**-0.5 if scaling is None else scaling
    tap = getattr(module, "query_tap", None)
    if tap is not None:
        tap(query, scale)
    if softcap is None:
        group = heads // kv_heads
        if attention_mask is None and rows > 1:
            if keys != rows:
                raise ValueError("several rows over a filled cache need an explicit mask")
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=group > 1)
        elif group == 1:
            out = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scale)
        else:  # query heads of one key/value head become rows of it: no repeated keys
            folded = query.reshape(1, kv_heads, group * rows, head_dim)
            mask = attention_mask
            if mask is not None and rows > 1:
                mask = mask.expand(1, 1, rows, keys).repeat(1, 1, group, 1)
            out = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale)
            out = out.reshape(1, heads, rows, head_dim)
        return out.transpose(1, 2).contiguous(), None
    return _capped(query, key, value, attention_mask, scale, softcap), None


def _capped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, softcap: float) -> Tensor:
    """Gemma 2's attention: scores are squashed by softcap * tanh(score / softcap) before the mask."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = softcap * torch.tanh(query @ key.transpose(2, 3) * scale / softcap)
    rows, keys = scores.shape[-2:]
    if mask is None and rows > 1:
        mask = torch.full((rows, keys), torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device).triu(1)
    if mask is not None:
        scores = scores + mask
    out = torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype) @ value
    return out.transpose(1, 2).contiguous()


AttentionInterface.register(NAME, tree_attention)


class Masks:
    """Additive masks for one run: 0 where a row may look, the dtype's minimum where not.

    The chain mask is a view of one triangle made once; a tree's mask differs from it in the last square only.
    """

    def __init__(
        self, capacity: int, dtype: torch.dtype, device: torch.device, windows: tuple[int | None, ...]
    ) -> None:
        self.capacity, self.dtype, self.device, self.windows = capacity, dtype, device, windows
        self.least = torch.finfo(dtype).min
        self._triangle: Tensor | None = None

    def rows(
        self, length: int, sees: np.ndarray | None, positions: np.ndarray, count: int,
        prefixes: np.ndarray | None = None,
    ) -> dict[int | None, Tensor | None]:  # fmt: skip
        """Masks per window for ``count`` rows behind ``length`` committed ones.

        ``sees`` is boolean [rows, rows] (None: a chain), ``positions`` the rows' position ids. ``prefixes``, boolean
        [rows, prefixes], is for keys behind the rows that stand before the text. None stands for "no mask needed".
        """
        masks: dict[int | None, Tensor | None] = {}
        for window in self.windows:
            binds = window is not None and int(positions.max()) >= window
            if sees is None and not binds and prefixes is None:
                masks[window] = None if count == 1 or length == 0 else self._chain(length, count)
            else:
                masks[window] = self._explicit(length, sees, positions, count, window if binds else None, prefixes)
        return masks

    def _chain(self, length: int, count: int) -> Tensor:
        if self._triangle is None or self._triangle.shape[0] < count:
            rows = max(64, count)
            self._triangle = torch.zeros((rows, self.capacity + rows), dtype=self.dtype, device=self.device)
            self._triangle[:, self.capacity :] = torch.full(
                (rows, rows), self.least, dtype=self.dtype, device=self.device
            ).triu(1)
        return self._triangle[:count, self.capacity - length : self.capacity + count][None, None]

    def _explicit(
        self, length: int, sees: np.ndarray | None, positions: np.ndarray, count: int, window: int | None,
        prefixes: np.ndarray | None,
    ) -> Tensor:  # fmt: skip
        allowed = np.ones((count, length + count), dtype=bool)
        allowed[:, length:] = np.tril(np.ones((count, count), dtype=bool)) if sees is None else sees
        if window is not None:  # by position, as transformers does: key > query - window
            key_positions = np.concatenate([np.arange(length), positions])
            allowed &= key_positions[None, :] > positions[:, None] - window
        if prefixes is not None:
            allowed = np.concatenate([allowed, prefixes], 1)
        mask = torch.zeros(allowed.shape, dtype=self.dtype)
        mask.masked_fill_(torch.from_numpy(~allowed), self.least)
        return mask.to(self.device)[None, None]
