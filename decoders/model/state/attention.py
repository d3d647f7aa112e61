"""The attention function every supported family runs through, and the masks of a tree.

Both are registered with transformers, so stock models use them. Which layer has which mask is the model's own code to
say: it asks for a mask by transformers' mask functions (causal, sliding window), and gets that of the running forward's
rows. The attention function folds grouped queries instead of repeating keys and hands what it gets to a tap on the
module.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from .two_parts import StoredRows, TwoParts, attend

NAME = "specviz_tree"  # no "sdpa" in the name: transformers would then drop masks it thinks are causal
ALIGNMENT = 16  # numbers: GPU kernels want every row of a mask to begin at such a place, and copy or fail where not
FLASH_HEAD = 256  # the largest head that CUDA's flash kernel takes


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Keys, values or masks of several runs in one forward, of which run i has ``counts[i]`` rows."""

    parts: tuple[Any, ...]
    counts: tuple[int, ...]


def tree_attention(
    module: nn.Module,
    query: Float[Tensor, "1 heads rows head_dim"],
    key: Float[Tensor, "1 kv_heads keys head_dim"] | RowBatch | StoredRows,
    value: Float[Tensor, "1 kv_heads keys value_dim"] | RowBatch | StoredRows,
    attention_mask: Float[Tensor, "1 1 rows keys"] | RowBatch | TwoParts | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Float[Tensor, " heads"] | None = None,
    **kwargs,
) -> tuple[Tensor, None]:
    """Attention of tree rows over the cached keys and themselves. Without a mask: causal over a fresh cache, or a row.
    Of joined runs each attends to its own keys, a captured forward to its store's (``two_parts``). A module's
    ``own_attention`` computes instead where it has one.
    ``s_aux``: the sinks of gpt-oss, one more score per head that takes its share of the weight and brings no value.

    Raises ValueError for several rows over a filled cache without a mask.
    """
    if isinstance(key, RowBatch):
        assert isinstance(value, RowBatch) and not isinstance(attention_mask, Tensor | TwoParts)
        masks = (None,) * len(key.parts) if attention_mask is None else attention_mask.parts
        runs = zip(query.split(key.counts, 2), key.parts, value.parts, masks, strict=True)
        outputs = [tree_attention(module, *run, dropout, scaling, softcap, s_aux)[0] for run in runs]
        return torch.cat(outputs, 1), None
    assert not isinstance(value, RowBatch) and not isinstance(attention_mask, RowBatch)
    heads, rows, head_dim = query.shape[1:]
    scale = head_dim**-0.5 if scaling is None else scaling
    tap = getattr(module, "attention_tap", None)
    if tap is not None:
        tap(query, key, attention_mask, scale, s_aux)
    if isinstance(key, StoredRows):
        assert isinstance(value, StoredRows)
        if isinstance(attention_mask, TwoParts):
            out = attend(query.to(key.rows.dtype), key, value, attention_mask, scale, s_aux)
            return out.transpose(1, 2).to(query.dtype).contiguous(), None
        assert attention_mask is not None, "a captured forward has a mask for every layer"
        key, value = (part.store[:, :, : attention_mask.shape[-1]] for part in (key, value))
    assert not isinstance(value, StoredRows) and not isinstance(attention_mask, TwoParts)
    kv_heads, keys = key.shape[1:3]
    if attention_mask is None and rows > 1 and keys != rows:
        raise ValueError("several rows over a filled cache need an explicit mask")
    dtype, own_attention = query.dtype, getattr(module, "own_attention", None)
    if own_attention is not None:
        return own_attention(query, key, value, attention_mask, scale), None
    query = query.to(key.dtype)  # a cache in double has sums formed in double (Target.cached_as)
    if softcap is not None or s_aux is not None:
        return _written_out(query, key, value, attention_mask, scale, softcap, s_aux).to(dtype), None
    group = heads // kv_heads
    if attention_mask is None and rows > 1:
        if group > 1 and not grouped_kernel(query):
            key, value, group = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1), 1
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=group > 1)
    elif group == 1:
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scale)
    else:  # query heads of one key/value head become rows of it: no repeated keys
        folded_query = query.reshape(1, kv_heads, group * rows, head_dim)
        mask = attention_mask
        if mask is not None and rows > 1:
            mask = _repeat(mask, group)
        out = F.scaled_dot_product_attention(folded_query, key, value, attn_mask=mask, scale=scale)
        out = out.reshape(1, heads, rows, -1)
    return out.transpose(1, 2).to(dtype).contiguous(), None


def grouped_kernel(query: Float[Tensor, "1 heads rows head_dim"]) -> bool:
    """True where this device attends causally with fewer key heads than query heads without forming all scores at once.
    On CUDA the flash kernel alone does, and it takes half precision and heads of at most 256.
    """
    if query.device.type != "cuda":
        return True
    return query.dtype in (torch.bfloat16, torch.float16) and query.shape[-1] <= FLASH_HEAD


def _repeat(mask: Float[Tensor, "1 1 rows keys"], group: int) -> Float[Tensor, "1 1 group_rows keys"]:
    """The mask once per query head of a group, its rows aligned as they were; made once per forward."""
    cached_mask: tuple[int, Tensor] | None = getattr(mask, "repeated", None)
    if cached_mask is None or cached_mask[0] != group:
        rows, keys = mask.shape[2:]
        room = keys if mask.storage_offset() else mask.stride(2)
        padded = mask.as_strided((rows, room), (mask.stride(2), 1), mask.storage_offset())
        cached_mask = mask.repeated = group, padded.repeat(group, 1)[:, :keys][None, None]  # type: ignore[attr-defined]
    return cached_mask[1]


def _written_out(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    """Attention without a kernel: softcap * tanh(score / softcap) before the mask (Gemma 2), or sinks."""
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
    weights = torch.softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(query.dtype)
    return (weights[..., :keys] @ value).transpose(1, 2).contiguous()


Rule = Callable[..., Any]  # transformers' mask function: may the row at position q look at the key at position k?


class RowMasks:
    """Places that one forward's rows may look at: the additive mask for each rule that the model asks by.

    ``sees``, for the last ``own`` keys (None: the rows are a chain); keys before those are the committed text.
    ``positions`` are the rows' position ids, the ``farthest`` of them as a number, ``own_positions`` those of the last
    keys. ``prefixes`` is for keys behind the rows that stand before the text. All tensors are the device's.
    """

    def __init__(
        self, masks: Masks, length: int, sees: Bool[Tensor, "rows own"] | None, positions: Int[Tensor, " rows"],
        farthest: int, own_positions: Int[Tensor, " own"] | None = None,
        prefixes: Bool[Tensor, "rows prefixes"] | None = None,
    ) -> None:  # fmt: skip
        self.masks, self.length, self.sees, self.positions, self.farthest = masks, length, sees, positions, farthest
        self.own_positions = positions if own_positions is None else own_positions
        self.prefixes = prefixes

    def __call__(self, rule: Rule, reach: int | None, skip: bool) -> Float[Tensor, "1 1 rows keys"] | None:
        """The mask by a rule that differs from the causal one beyond ``reach`` positions; with ``skip``, None where the
        attention function needs none.
        """
        count, is_beyond = len(self.positions), False
        if rule is not causal_mask_function:
            is_beyond = reach is None or self.farthest >= reach
        if self.sees is not None or is_beyond or self.prefixes is not None:
            return self._explicit(rule if is_beyond else None)
        if skip and (count == 1 or self.length == 0):
            return None
        return self.masks.chain(self.length, count)

    def _explicit(self, rule: Rule | None) -> Tensor:
        device, count, own_count = self.positions.device, len(self.positions), len(self.own_positions)
        text = self.length + count - own_count
        visible_keys = torch.ones((count, text + own_count), dtype=torch.bool, device=device)
        visible_keys[:, text:] = torch.ones_like(visible_keys[:, text:]).tril() if self.sees is None else self.sees
        if rule is not None:
            keys = torch.cat([torch.arange(text, device=device), self.own_positions])
            visible_keys &= rule(0, 0, self.positions[:, None], keys)
        if self.prefixes is not None:
            visible_keys = torch.cat([visible_keys, self.prefixes], 1)
        return self.masks.blank(*visible_keys.shape).masked_fill_(~visible_keys, self.masks.lowest)[None, None]


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
    """Additive masks: 0 where a row may look, the dtype's minimum where not. Each is new, and every row of it begins
    aligned: a view into a larger one would begin anywhere, at which some GPU kernels fail.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.lowest = torch.finfo(dtype).min
        self._square = torch.zeros((0, 0), dtype=dtype, device=device)

    def rows(
        self, length: int, sees: Tensor | None, positions: Tensor, farthest: int, own_positions: Tensor | None = None,
        prefixes: Tensor | None = None,
    ) -> RowMasks:  # fmt: skip
        """Masks for rows behind ``length`` committed ones; the rest as of ``RowMasks``."""
        return RowMasks(self, length, sees, positions, farthest, own_positions, prefixes)

    def blank(self, count: int, keys: int) -> Float[Tensor, "rows keys"]:
        """A mask that hides nothing yet."""
        room = -(-keys // ALIGNMENT) * ALIGNMENT
        return torch.zeros((count, room), dtype=self.dtype, device=self.device)[:, :keys]

    def chain(self, length: int, count: int) -> Float[Tensor, "1 1 rows keys"]:
        """The mask of ``count`` rows behind ``length`` others, each of which sees those before it."""
        if len(self._square) < count:
            rows = max(64, count)
            floor = torch.full((rows, rows), self.lowest, dtype=self.dtype, device=self.device)
            self._square = floor.triu(1)
        mask = self.blank(count, length + count)
        mask[:, length:] = self._square[:count, :count]
        return mask[None, None]
