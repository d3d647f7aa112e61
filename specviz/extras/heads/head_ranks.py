"""Ranks of the guesses of Medusa's heads along a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from decoders.draft.distributions import DraftVocab
from decoders.draft.needs import Needs
from decoders.errors import UserError
from decoders.model.target_model.target import Target

from .heads import ParallelHeads

BLOCK = 64  # positions whose logits are computed at once


@torch.inference_mode()
def head_ranks(target: Target, heads: ParallelHeads, tokens: Sequence[int], start: int) -> list[Tensor]:
    """Per head, the rank of the token that came, ``[positions]``, as ``Kind.ranks`` counts them: the first head
    guesses the token after the next, at distance 1. A token outside of the heads' draft vocabulary ranks last.

    Raises UserError for heads that read drafted tokens (Hydra's), which have no guess by the position alone.
    """
    if heads.config.grounded:
        raise UserError("heads that read the drafted tokens guess nothing by themselves: give a set of Medusa heads")
    layer = heads.config.layer(target.shape)
    session = target.session(Needs(layers=(layer,)), len(tokens))
    session.prefill(tokens)
    states, target_ids = session.context.hidden_at(layer), np.asarray(tokens)
    if (vocab := DraftVocab.of(heads.drafted, heads.config.vocab)) is not None:
        target_ids = vocab.places[target_ids]
    ids = torch.as_tensor(target_ids, device=states.device)
    ranks: list[Tensor] = []
    for number in range(heads.config.heads):
        right = ids[start + 1 + number :]
        parts = [torch.zeros(0, dtype=torch.long)]
        for at in range(0, len(right), BLOCK):
            right_ids = right[at : at + BLOCK, None]
            read = states[start - 1 + at :][: len(right_ids)]
            logits = heads.say(number, heads.state(number, read, None))
            better = (logits > logits.gather(1, right_ids.clamp(min=0))).sum(-1)
            parts.append(torch.where(right_ids[:, 0] < 0, logits.shape[-1], better).cpu())
        ranks.append(torch.cat(parts))
    return ranks
