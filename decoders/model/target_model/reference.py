"""The reference forward that a target is judged by: plain, through the model's own attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..files.shape import ROTARIES
from ..state.cache import TreeCache
from ..state.cache_name import cache_in, cache_input, cache_name
from ..state.transfer import send

REFERENCE_SCORES = 1 << 28  # of a layer at a time, of all heads


@torch.inference_mode()
def reference_logits(target: Any, tokens: Sequence[int], rows: int = 0) -> Float[Tensor, "rows vocab"]:
    """Logits (fp64, CPU) of a plain forward through the model's own eager attention and recurrent layers, without a
    cache; of the last ``rows`` tokens, or (0) of all. A text whose scores would not fit is read in pieces, with
    transformers' own cache.
    """
    count = len(tokens)
    (ids,) = send(target.device, np.asarray(tokens, dtype=np.int64))
    requested_rows = min(rows or count, count)
    piece = max(64, REFERENCE_SCORES // (target.shape.heads * count))
    with target.by_own_attention():
        if piece >= count or target.shape.rotary not in ROTARIES:
            output = target.model(input_ids=ids[None], use_cache=False, logits_to_keep=rows)
            return output.logits[0].double().cpu()
        logits, cache = list[Tensor](), None
        for start in range(0, count, piece):
            stop = min(start + piece, count)
            keep = min(stop - start, max(0, stop - (count - requested_rows)))
            own_cache = cache_input(target.model, cache)
            output = target.model(
                input_ids=ids[None, start:stop], use_cache=True, logits_to_keep=max(keep, 1), **own_cache
            )
            cache = cache_in(output)
            logits.append(output.logits[0, :keep].double().cpu())
    return torch.cat(logits)


def rereads_text(target: Any) -> bool:
    """True where generate() reads the text again as its rotary positions change, as the model's own code says."""
    switch = target.shape.rotary_switch
    if switch is None:
        return False
    cache = TreeCache(target.shape, switch)
    cache.length = switch
    ids = torch.zeros((1, switch + 1), dtype=torch.long, device=target.device)
    prepare = target.model.prepare_inputs_for_generation
    own_cache = {cache_name(prepare.__func__): cache}
    inputs = prepare(ids, next_sequence_length=1, attention_mask=torch.ones_like(ids), **own_cache)
    return cache_in(inputs) is None
