"""Attention in two parts, merged by log-sum-exp: over the committed keys, all of which every row sees, and over the
forward's own rows, of which each sees some.

The first part needs no mask, and the number of committed keys may stand on the device: one capture serves every length,
and kernels split the keys among themselves, which they do not behind a mask.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LARGEST_HEAD = 256  # that flash attention takes


class TwoParts:
    """In place of a mask: the number of committed keys, and which of the forward's rows each row sees."""

    def __init__(self, length: Int[Tensor, "1"], sees: Bool[Tensor, "rows rows"]) -> None:
        self.length, self.sees = length, sees
        self._biases: dict[tuple[int, torch.dtype], Tensor] = {}
        self._bounds: tuple[Tensor, Tensor, Tensor] | None = None

    def bias(self, group: int, dtype: torch.dtype) -> Float[Tensor, "group_rows rows"]:
        """Number added to a score of two rows, for each query head of a group: 0, or minus infinity. Made once."""
        if (group, dtype) not in self._biases:
            bias = torch.zeros(self.sees.shape, dtype=dtype, device=self.sees.device)
            self._biases[group, dtype] = bias.masked_fill(~self.sees, -math.inf).repeat(group, 1)
        return self._biases[group, dtype]

    def bounds(self, capacity: int) -> tuple[Int[Tensor, "2"], Int[Tensor, "2"], Int[Tensor, "1"]]:
        """Bounds of one query and of a store's keys, and the number of keys, as flash attention takes them."""
        if self._bounds is None:
            ends = torch.arange(2, dtype=torch.int32, device=self.length.device)
            self._bounds = ends, ends * capacity, self.length.to(torch.int32)
        return self._bounds


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Keys or values of a captured forward: all that the store has room for, and the forward's own rows, which are
    written there too.
    """

    store: Float[Tensor, "1 kv_heads capacity head_dim"]
    rows: Float[Tensor, "1 kv_heads rows head_dim"]


def can_split(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """The reason why the part over committed keys cannot be had on this device, in one sentence; None where it can."""
    if device.type != "cuda":
        return None
    if dtype not in (torch.bfloat16, torch.float16) or head_dim > LARGEST_HEAD:
        return f"flash attention takes half precision and heads of at most {LARGEST_HEAD}"
    try:
        from torch.nn.attention.varlen import varlen_attn

        missing = {"seqused_k", "enable_gqa", "return_aux"} - set(inspect.signature(varlen_attn).parameters)
    except ImportError:
        missing = {"varlen_attn"}
    return f"this torch ({torch.__version__}) has no {', '.join(sorted(missing))}" if missing else None


def attend(
    query: Float[Tensor, "1 heads rows head_dim"], key: StoredRows, value: StoredRows, mask: TwoParts, scale: float,
    sinks: Float[Tensor, " heads"] | None = None,
) -> Float[Tensor, "1 heads rows head_dim"]:  # fmt: skip
    """Attention over the first ``mask.length`` stored keys and over the rows that are seen. ``sinks``: one more score
    per head, which takes its share of the weight and brings no value.
    """
    heads, rows, head_dim = query.shape[1:]
    kv_heads = key.rows.shape[1]
    group = heads // kv_heads
    folded_query = query.reshape(1, kv_heads, group * rows, head_dim)
    text, text_sum = _over_text(folded_query, key.store, value.store, mask, scale)
    wide = torch.promote_types(query.dtype, torch.float32)
    rows_query, row_keys, row_values = (part[0].to(wide) for part in (folded_query, key.rows, value.rows))
    scores = torch.baddbmm(mask.bias(group, wide), rows_query, row_keys.mT, alpha=scale)[None]
    own_sum = scores.logsumexp(-1)
    own_part = scores.softmax(-1) @ row_values
    share = torch.sigmoid(text_sum.to(wide) - own_sum)[..., None]
    attended = torch.lerp(own_part, text.to(wide), share).reshape(1, heads, rows, head_dim)
    if sinks is not None:
        total = torch.logaddexp(text_sum, own_sum).reshape(1, heads, rows)
        attended = attended * torch.sigmoid(total - sinks.to(wide)[:, None])[..., None]
    return attended.to(query.dtype)


def _over_text(
    query: Float[Tensor, "1 kv_heads group_rows head_dim"], keys: Tensor, values: Tensor, mask: TwoParts, scale: float
) -> tuple[Tensor, Float[Tensor, "1 kv_heads group_rows"]]:  # fmt: skip
    """Attention over the committed keys, and the logarithm of the sum of its weights."""
    if query.device.type == "cuda":
        return flash_over_text(query, keys, values, mask, scale)
    hidden = torch.arange(keys.shape[2], device=query.device) >= mask.length  # a tail that nothing sees
    bias = torch.zeros(keys.shape[2], dtype=query.dtype, device=query.device).masked_fill(hidden, -math.inf)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return flash(query, keys, values, 0.0, False, attn_mask=bias.expand(1, 1, query.shape[2], -1), scale=scale)


def flash_over_text(
    query: Float[Tensor, "1 kv_heads group_rows head_dim"], keys: Tensor, values: Tensor, mask: TwoParts, scale: float
) -> tuple[Tensor, Float[Tensor, "1 kv_heads group_rows"]]:  # fmt: skip
    """The same by flash attention: one query whose heads are all rows, so that those of a key's head become rows and
    the keys are split among blocks.
    """
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    kv_heads, group_rows, head_dim = query.shape[1:]
    query_bounds, key_bounds, length = mask.bounds(keys.shape[2])
    out, sums = varlen_attn(
        query.reshape(1, kv_heads * group_rows, head_dim), keys[0].transpose(0, 1), values[0].transpose(0, 1),
        query_bounds, key_bounds, 1, keys.shape[2], enable_gqa=True, seqused_k=length,
        return_aux=AuxRequest(lse=True), scale=scale,
    )  # fmt: skip
    return out.reshape(1, kv_heads, group_rows, head_dim), sums.reshape(1, kv_heads, group_rows)
