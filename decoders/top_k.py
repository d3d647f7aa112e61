"""The largest numbers of long rows: of a vocabulary's logits the first choices."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCK = 256  # numbers that are looked at together, by their maximum


def top_k(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As ``topk``: values and places [rows, k], largest first, of no more than there are. The k largest lie in the k
    blocks with the largest maxima, so that most of a long row is read once and never sorted.

    >>> [part.tolist() for part in top_k(torch.tensor([[0.5, 3.0, 2.0]]), 2)]
    [[[3.0, 2.0]], [[1, 2]]]
    """
    count, number = rows.shape
    whole = number // BLOCK * BLOCK
    if whole < 4 * k * BLOCK:
        return rows.topk(min(k, number), dim=-1)
    blocks = (rows if whole == number else rows[:, :whole]).view(count, whole // BLOCK, BLOCK)
    best = blocks.amax(-1).topk(k).indices
    candidates = blocks.gather(1, best[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    if whole < number:  # the rest of a row stands behind its blocks
        best = nn.functional.pad(best, (0, 1), value=whole // BLOCK)
        candidates = torch.cat([candidates, rows[:, whole:]], 1)
    values, place = candidates.topk(k)
    return values, best.gather(1, place // BLOCK) * BLOCK + place % BLOCK
