"""The attention function every supported family runs through, and the masks of a tree.

Both are registered with transformers, so stock models use them. Which layer has which mask is the model's own code to
say: it asks for a mask by transformers' mask functions (causal, sliding window), and gets that of the running forward's
rows. The attention function folds grouped queries instead of repeating keys and hands what it gets to a tap on the
module.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

NAME = "specviz_tree"  # no "sdpa" in the name: transformers would then drop masks it thinks are causal


def tree_attention(
    module: nn.Module,
    query: Float[Tensor, "1 heads rows head_dim"],
    key: Float[Tensor, "1 kv_heads keys head_dim"],
    value: Float[Tensor, "1 kv_heads keys value_dim"],
    attention_mask: Float[Tensor, "1 1 rows keys"] | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Float[Tensor, "heads"] | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Attention of tree rows over the cached keys and themselves. Without a mask: causal over a fresh cache, or a row.
    ``s_aux``: the sinks of gpt-oss, one more score per head that takes its share of the weight and brings no value.

    Raises ValueError for several rows over a filled cache without a mask.
    """
    heads, rows, head_dim = query.shape[1:]
    kv_heads, keys = key.shape[1:3]
    scale = head_dim**-0.5 if scaling is None else scaling
    tap = getattr(module, "attention_tap", None)
    if tap is not None:
        tap(query, key, attention_mask, scale, s_aux)
    if attention_mask is None and rows > 1 and keys != rows:
        raise ValueError("several rows over a filled cache need an explicit mask")
    if softcap is not None or s_aux is not None:
        return _written_out(query, key, value, attention_mask, scale, softcap, s_aux), None
    group = heads // kv_heads
    if attention_mask is None and rows > 1:
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=group > 1)
    elif group == 1:
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scale)
    else:  # query heads of one key/value head become rows of it: no repeated keys
        folded = query.reshape(1, kv_heads, group * rows, head_dim)
        mask = attention_mask
        if mask is not None and rows > 1:
            mask = mask.expand(1, 1, rows, keys).repeat(1, 1, group, 1)
        out = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale)
        out = out.reshape(1, heads, rows, -1)
    return out.transpose(1, 2).contiguous(), None


def _written_out(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    """What no kernel offers: scores squashed by softcap * tanh(score / softcap) before the mask (Gemma 2), or sinks."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(2, 3) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    rows, keys = scores.shape[-2:]
    if mask is None and rows > 1:
        mask = torch.full((rows, keys), torch.finfo(scores.dtype).min, dtype=scores.dtype, device=scores.device).triu(1)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(scores).view(1, -1, 1, 1).expand(1, -1, rows, 1)], -1)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype)
    return (weights[..., :keys] @ value).transpose(1, 2).contiguous()


Rule = Callable[..., Any]  # transformers' mask function: may the row at position q look at the key at position k?


class RowMasks:
    """What the rows of one forward may look at: the additive mask for each rule that the model asks by.

    ``sees`` is boolean [rows, own], for the last ``own`` keys (None: the rows are a chain); keys before those are the
    committed text. ``positions`` are the rows' position ids, ``own_positions`` those of the last keys. ``prefixes``,
    boolean [rows, prefixes], is for keys behind the rows that stand before the text.
    """

    def __init__(
        self, masks: Masks, length: int, sees: np.ndarray | None, positions: np.ndarray,
        own_positions: np.ndarray | None = None, prefixes: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.masks, self.length, self.sees, self.positions = masks, length, sees, positions
        self.own_positions = positions if own_positions is None else own_positions
        self.prefixes = prefixes

    def __call__(self, rule: Rule, reach: int | None, skip: bool) -> Float[Tensor, "1 1 rows keys"] | None:
        """The mask by a rule that differs from the causal one beyond ``reach`` positions; with ``skip``, None where the
        attention function needs none.
        """
        count, far = len(self.positions), False
        if rule is not causal_mask_function:
            far = reach is None or int(self.positions.max()) >= reach
        if self.sees is not None or far or self.prefixes is not None:
            return self._explicit(rule if far else None)
        if skip and (count == 1 or self.length == 0):
            return None
        return self.masks.chain(self.length, count)

    def _explicit(self, rule: Rule | None) -> Tensor:
        count, text = len(self.positions), self.length + len(self.positions) - len(self.own_positions)
        allowed = np.ones((count, text + len(self.own_positions)), dtype=bool)
        allowed[:, text:] = np.tril(np.ones((count, count), dtype=bool)) if self.sees is None else self.sees
        if rule is not None:
            keys = np.concatenate([np.arange(text), self.own_positions])
            allowed &= rule(0, 0, torch.from_numpy(self.positions)[:, None], torch.from_numpy(keys)).numpy()
        if self.prefixes is not None:
            allowed = np.concatenate([allowed, self.prefixes], 1)
        mask = torch.zeros(allowed.shape, dtype=self.masks.dtype)
        mask.masked_fill_(torch.from_numpy(~allowed), self.masks.least)
        return mask.to(self.masks.device)[None, None]


running: ContextVar[Callable[[Rule, int | None, bool], Any]] = ContextVar("masks of the running forward")


def tree_mask(
    mask_function: Rule = causal_mask_function, local_size: int | None = None, allow_is_causal_skip: bool = True,
    **kwargs: Any,
) -> Tensor | None:  # fmt: skip
    """transformers' mask interface: the mask that a model's own code asks for, of the running forward."""
    return running.get()(mask_function, local_size, allow_is_causal_skip)


AttentionInterface.register(NAME, tree_attention)
AttentionMaskInterface.register(NAME, tree_mask)


class Masks:
    """Additive masks for one run: 0 where a row may look, the dtype's minimum where not.

    The chain mask is a view of one triangle made once; a tree's mask differs from it in the last square only.
    """

    def __init__(self, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        self.capacity, self.dtype, self.device = capacity, dtype, device
        self.least = torch.finfo(dtype).min
        self._triangle: Tensor | None = None

    def rows(
        self, length: int, sees: np.ndarray | None, positions: np.ndarray, prefixes: np.ndarray | None = None
    ) -> RowMasks:
        """Masks for rows at ``positions`` behind ``length`` committed ones; ``sees`` is boolean [rows, rows] (None: a
        chain), ``prefixes`` as in ``RowMasks``.
        """
        return RowMasks(self, length, sees, positions, prefixes=prefixes)

    def chain(self, length: int, count: int) -> Float[Tensor, "1 1 rows keys"]:
        """The mask of ``count`` rows, each of which sees those before it."""
        if self._triangle is None or self._triangle.shape[0] < count:
            rows = max(64, count)
            self._triangle = torch.zeros((rows, self.capacity + rows), dtype=self.dtype, device=self.device)
            self._triangle[:, self.capacity :] = torch.full(
                (rows, rows), self.least, dtype=self.dtype, device=self.device
            ).triu(1)
        return self._triangle[:count, self.capacity - length : self.capacity + count][None, None]
