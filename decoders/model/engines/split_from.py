"""The length of text from which attention in two parts takes less time than one masked kernel, by trying both."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.masking_utils import causal_mask_function

from decoders.folders import cache_folder, write_json

from ..state.attention import Masks, tree_attention
from ..state.transfer import median_ms
from ..state.two_parts import StoredRows
from .captured_inputs import CapturedMasks, Inputs

SIZES = (2_048, 4_096, 8_192, 16_384, 32_768)  # rows of the stores that are tried
ROWS = 8  # of a short draft
NEVER = 1 << 40
NOTES = "attention.json"  # in the cache folder: what was tried


def split_from(target: Any, graph: Callable[[Callable[[], Any]], Any]) -> int:
    """Rows of a store from which attention goes in two parts, for heads like the target's on its device; measured once
    for all of them. ``graph`` captures a function.
    """
    shape, device = target.shape, target.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    key = f"{name}, torch {torch.__version__}, {shape.heads}/{shape.kv_heads} heads of {shape.head_dim}, {target.dtype}"
    notes = _notes()
    if key not in notes:
        faster = [times[1] <= times[0] for times in (measure_both(target, rows, graph) for rows in SIZES)]
        slower = [rows for rows, is_faster in zip(SIZES, faster, strict=True) if not is_faster]
        following = (*SIZES[1:], NEVER)
        notes[key] = following[SIZES.index(slower[-1])] if slower else SIZES[0]
        with contextlib.suppress(OSError):  # where nothing can be written, it is tried again
            write_json(cache_folder() / NOTES, notes)
    return notes[key]


@torch.inference_mode()
def measure_both(target: Any, capacity: int, graph: Callable[[Callable[[], Any]], Any]) -> tuple[float, float]:
    """Milliseconds of one layer's attention over a full store: behind a mask, and in two parts."""
    shape, device, dtype = target.shape, target.device, target.dtype
    inputs, masks = Inputs(ROWS, 1, dtype, device), Masks(dtype, device)
    inputs.length.fill_(capacity - ROWS)
    inputs.sees.copy_(torch.ones_like(inputs.sees).tril())
    query = torch.randn(1, shape.heads, ROWS, shape.head_dim, dtype=dtype, device=device)
    stores = torch.randn(2, 1, shape.kv_heads, capacity, shape.head_dim, dtype=dtype, device=device)
    keys, values = (StoredRows(store, store[:, :, -ROWS:]) for store in stores)
    times, layer = list[float](), nn.Module()
    for split in (False, True):
        mask = CapturedMasks(inputs, masks, capacity, frozenset(), split)(causal_mask_function, None, False)
        captured = graph(lambda mask=mask: tree_attention(layer, query, keys, values, mask)[0])
        times.append(median_ms(captured.replay, device))
    return times[0], times[1]


def _notes() -> dict[str, int]:
    """Results of earlier trials. A file that cannot be read counts for nothing."""
    try:
        notes = json.loads((cache_folder() / NOTES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {key: rows for key, rows in notes.items() if type(rows) is int} if type(notes) is dict else {}
