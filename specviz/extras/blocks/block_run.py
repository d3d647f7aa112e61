"""A block drafter at work on a run: keys and values of the target's states, and blocks behind them."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.draft_models.draft_run import common_prefix, pieces_of
from decoders.draft_models.own_cache import OwnCache
from decoders.model.state.memory import Context
from decoders.model.state.transfer import send

from .block_network import BlockConfig, BlockNetwork


class BlockRun:
    """Drafts blocks behind a text. The keys and values of a position follow from the target's states there alone, so
    any cut of a run is picked up where it departs from what was read; a block's own are never kept.
    """

    def __init__(self, network: BlockNetwork) -> None:
        config = network.config
        self.network, self.config = network, config
        # of the weights' type and device: a packed weight is unpacked at every reading
        self.like = network.fc.weight.new_empty(0)
        self.tokens = np.zeros(0, dtype=np.int64)
        self.cache = OwnCache(config.layers, config.kv_heads, config.head_dim, config.rotary)

    @torch.inference_mode()
    def read(self, context: Context) -> int:
        """Catch up with the target's processed positions; gives their number."""
        processed = context.root_position
        have = min(common_prefix(self.tokens, context.tokens), processed)
        self.cache.make_room(len(context.buffer) + self.config.block, have, self.like)
        self.tokens = context.tokens[:processed].copy()
        for start, stop in pieces_of(have, processed, context, self.like.device):
            states = torch.cat([context.hidden_at(layer)[start:stop] for layer in self.config.features], -1)
            read = self.network.read(states[None].to(self.like.dtype))
            remember = self.cache.rows(start, stop)
            context_rows = self.network.context(read, self.cache.cos[start:stop], self.cache.sin[start:stop])
            for layer, (keys, values) in enumerate(context_rows):
                remember(layer, keys, values)
        return processed

    @torch.inference_mode()
    def block(self, context: Context) -> Float[Tensor, "places hidden"]:
        """The states that guess the tokens behind the root, in one forward."""
        start = self.read(context)
        stop, store = start + self.config.block, self.cache.store
        (root,) = send(self.like.device, np.asarray([context.root], dtype=np.int64))
        context_rows = [(store[i, 0, :, :, :start], store[i, 1, :, :, :start]) for i in range(self.config.layers)]
        masks = visible(self.config, torch.full((1,), start, device=root.device), start, apart=False)
        cos, sin = self.cache.cos[start:stop], self.cache.sin[start:stop]
        return self.network.guessing(self.network(root, context_rows, cos, sin, masks))[0]


def visible(
    config: BlockConfig, starts: Int[Tensor, " blocks"], positions: int, *, apart: bool = True
) -> list[Bool[Tensor, "blocks 1 block keys"] | None]:
    """Per layer, which of a text's first ``positions`` and of its own block each row of blocks that begin at ``starts``
    sees; None where it sees all of them. ``apart``: blocks may begin elsewhere than behind these positions.
    """
    if not apart and not any(config.windows) and not any(config.causal):
        return [None] * config.layers
    rows = starts[:, None] + torch.arange(config.block, device=starts.device)
    text = torch.arange(positions, device=starts.device).expand(len(starts), -1)
    keys = torch.cat([text, rows], 1)
    in_block = torch.arange(keys.shape[1], device=starts.device) >= positions
    key_mask = (in_block | (keys < starts[:, None]))[:, None]
    distances = rows[:, :, None] - keys[:, None]
    masks = list[Tensor | None]()
    for layer in range(config.layers):
        sees = key_mask.expand(-1, config.block, -1)
        if config.windows and (window := config.windows[layer]):
            sees = sees & (distances.abs() < window)
        if config.causal and config.causal[layer]:
            sees = sees & (distances >= 0)
        masks.append(sees[:, None])
    return masks
