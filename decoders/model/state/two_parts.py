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


@dataclass(frozen=True, slots=True, eq=False)
class TwoParts:
    """In place of a mask: the number of committed keys, and which of the forward's rows each row sees."""

    length: Int[Tensor, "1"]
    sees: Bool[Tensor, "rows rows"]


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
    text, text_sum = _over_text(folded_query, key.store, value.store, mask.length, scale)
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (folded_query.to(wide) @ key.rows.to(wide).mT) * scale
    scores = scores.masked_fill(~mask.sees.repeat(group, 1), -math.inf)
    own_sum = scores.logsumexp(-1)
    own_part = (scores - own_sum[..., None]).exp() @ value.rows.to(wide)
    share = torch.sigmoid(text_sum - own_sum)[..., None]
    attended = (share * text.to(wide) + (1 - share) * own_part).reshape(1, heads, rows, head_dim)
    if sinks is not None:
        total = torch.logaddexp(text_sum, own_sum).reshape(1, heads, rows)
        attended = attended * torch.sigmoid(total - sinks.to(wide)[:, None])[..., None]
    return attended.to(query.dtype)


def _over_text(
    query: Float[Tensor, "1 kv_heads group_rows head_dim"], keys: Tensor, values: Tensor, length: Int[Tensor, "1"],
    scale: float,
) -> tuple[Tensor, Float[Tensor, "1 kv_heads group_rows"]]:  # fmt: skip
    """Attention over the first ``length`` keys, and the logarithm of the sum of its weights."""
    if query.device.type != "cuda":  # a tail that is hidden
        hidden = torch.arange(keys.shape[2], device=query.device) >= length
        mask = torch.zeros(keys.shape[2], dtype=query.dtype, device=query.device).masked_fill(hidden, -math.inf)
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return flash(query, keys, values, 0.0, False, attn_mask=mask.expand(1, 1, query.shape[2], -1), scale=scale)
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    # one query whose heads are all rows: flash then takes those of a key's head as rows, and splits the keys
    kv_heads, group_rows, head_dim = query.shape[1:]
    capacity = keys.shape[2]
    one_query = torch.arange(2, dtype=torch.int32, device=query.device)
    out, sums = varlen_attn(
        query.reshape(1, kv_heads * group_rows, head_dim), keys[0].transpose(0, 1), values[0].transpose(0, 1),
        one_query, one_query * capacity, 1, capacity, enable_gqa=True, seqused_k=length.to(torch.int32),
        return_aux=AuxRequest(lse=True), scale=scale,
    )  # fmt: skip
    return out.reshape(1, kv_heads, group_rows, head_dim), sums.reshape(1, kv_heads, group_rows)
