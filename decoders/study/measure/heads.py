"""Attention heads that copy (PLD+, §4.2.1), counted over greedy outputs from queries and keys the engine keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from decoders.model.state.memory import Context

BLOCK = 128  # attention rows computed at once


def copy_sources(tokens: Sequence[int], prompt_length: int) -> np.ndarray:
    """r* of every output token, ``[outputs]``: the prompt position it was most likely copied from, -1 if none.

    Of the prompt positions that hold the token, r* is the one whose preceding tokens share the longest suffix with the
    output before the token; on a tie the earliest.

    >>> copy_sources([7, 5, 9, 5, 8, 9, 5, 8, 4], 5).tolist()  # the output's 5 follows 9, as position 3 does
    [2, 3, 4, -1]
    >>> copy_sources([5, 1, 5, 3, 5], 4).tolist()              # nothing precedes: a tie
    [0]
    """
    array = np.asarray(tokens, dtype=np.int64)
    prompt, output = array[:prompt_length], array[prompt_length:]
    sources = np.full(len(output), -1, dtype=np.int64)
    shared = np.zeros(prompt_length + 1, dtype=np.int64)  # of the output so far and the prompt before each position
    for i, token in enumerate(output):
        matches = prompt == token
        if matches.any():
            sources[i] = int(np.argmax(np.where(matches, shared[:-1], -1)))
        shared = np.concatenate([[0], np.where(matches, shared[:-1] + 1, 0)])
    return sources


def strongest_positions(context: Context, rows: Sequence[int]) -> Int[np.ndarray, "rows heads"]:
    """The position each head attends to most from each of ``rows``; heads are all of ``context.needs.heads``, sorted.

    Softmax and soft caps keep the order, so raw scores decide. On a tie the earliest position.
    """
    if not len(rows):
        return np.zeros((0, len(context.needs.heads)), dtype=np.int64)
    row_indices = torch.as_tensor(np.asarray(rows))
    queries = sorted(context.memory.queries.items())
    blocks = (
        torch.cat([_strongest(context, *query, block) for query in queries]) for block in row_indices.split(BLOCK)
    )
    return np.concatenate([block.T.cpu().numpy() for block in blocks])


def _strongest(
    context: Context, layer: int, queries: Float[Tensor, "heads capacity head_dim"], rows: Int[Tensor, " rows"]
) -> Int[Tensor, "heads rows"]:
    last = int(rows.max()) + 1
    keys = context.cache.keys(layer)[:, :last].float()
    rows = rows.to(keys.device)
    heads = sorted(head for at, head in context.needs.heads if at == layer)
    group = context.shape.heads // keys.shape[0]
    positions = torch.arange(last, device=keys.device)
    hidden = positions[None] > rows[:, None]
    if (window := context.shape.layer_windows[layer]) is not None:
        hidden |= positions[None] <= rows[:, None] - window
    scores = (query @ keys[head // group].T for head, query in zip(heads, queries[:, rows].float(), strict=True))
    return torch.stack([head_scores.masked_fill(hidden, float("-inf")).argmax(-1) for head_scores in scores])


def count_copies(
    strongest: Int[np.ndarray, "outputs heads"], sources: Int[np.ndarray, " outputs"]
) -> Int[np.ndarray, " heads"]:
    """Number of output tokens with an r* at which each head's strongest position was r*.

    >>> count_copies(np.array([[2, 0], [1, 1], [4, 4]]), np.array([2, 1, -1])).tolist()
    [2, 1]
    """
    copy_mask = sources >= 0
    return (strongest[copy_mask] == sources[copy_mask, None]).sum(0)
