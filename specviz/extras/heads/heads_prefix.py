"""Hydra++'s prefix layer: a decoder layer with its norm over the target's last states, which the heads read instead.

Its keys and values are its own, of every processed position; nothing of a draft enters it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from decoders.draft_models.draft_run import common_prefix, forwards_of
from decoders.draft_models.network import Norm, attend
from decoders.draft_models.own_cache import OwnCache, Remember
from decoders.model.state.memory import Context

from .eagle_head import EagleConfig, EagleLayer


class PrefixLayer(nn.Module):
    """A Llama layer and a norm behind it. One that is made here begins by changing nothing but for the norm."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.config, self.layer, self.norm = config, EagleLayer(config, first=False), Norm(config.hidden, config.eps)
        nn.init.zeros_(self.layer.self_attn.o_proj.weight)
        nn.init.zeros_(self.layer.mlp.down_proj.weight)

    def forward(
        self, states: Float[Tensor, "batch rows hidden"], cos: Tensor, sin: Tensor, mask: Tensor | None = None,
        remember: Remember | None = None,
    ) -> Float[Tensor, "batch rows hidden"]:  # fmt: skip
        """The heads' input at each position. Without ``mask`` each sees those before it."""
        read, residual = self.layer.into_attention(states, states)
        query, keys, values = self.layer.self_attn.project(read, cos, sin)
        if remember is not None:
            keys, values = remember(0, keys, values)
        out = attend(query, keys, values, mask, mask is None and query.shape[2] > 1)
        return self.norm(self.layer.out_of_attention(residual, out))


class PrefixRun:
    """A prefix layer that reads a run, from where the text departs from what it has read."""

    def __init__(self, prefix: Any, layer: int) -> None:
        self.prefix, self.config, self.layer = prefix, prefix.config, layer
        self.tokens = np.zeros(0, dtype=np.int64)
        self.cache = OwnCache(1, self.config.kv_heads, self.config.head_dim, self.config.rotary)

    @torch.inference_mode()
    def read(self, context: Context) -> Float[Tensor, " hidden"]:
        """The layer's state at the last processed position."""
        count, weight = context.root_position, self.prefix.norm.weight
        have = min(common_prefix(self.tokens, context.tokens), count - 1)
        self.cache.make_room(len(context.buffer), have, weight)
        self.tokens = context.tokens[:count].copy()
        states = torch.zeros(1, 0, self.config.hidden)
        for start, stop, mask in forwards_of(have, count, context, weight.device):
            cos, sin = (angle[start:stop] for angle in (self.cache.cos, self.cache.sin))
            read = context.hidden_at(self.layer)[None, start:stop].to(weight.dtype)
            states = self.prefix(read, cos, sin, mask, self.cache.rows(start, stop))
        return states[0, -1]
