"""An EAGLE head's forwards as functions of tensors alone, to be compiled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from specviz.extras.cpu.functional import LEVEL, OUTPUT, TEXT, ForwardShape, compile_rows, write
from specviz.extras.cpu.layer_maker import EXAMPLE_CAPACITY, EXAMPLE_KEYS

from .eagle_head import EagleConfig, EagleHead


class EagleRows(nn.Module):
    """A head's forward of pairs of a state and a token, whose keys and values it writes to the head's own cache.

    Tensors: states, ids, cos and sin (of a level: one row of each), the pairs' slots, and a mask that is added to the
    scores over the first keys. Returns the states that the pairs lead to: of a text, that of the last row alone.
    """

    def __init__(self, shape: ForwardShape) -> None:
        super().__init__()
        assert isinstance(shape.config, EagleConfig)
        self.network, self.kind = EagleHead(shape.config), shape.kind
        self.unread = (*OUTPUT, *(("fc.", "fc_norm.", "input_norm.") if shape.config.third else ()))

    def forward(self, tensors: list[Tensor], caches: list[Tensor]) -> tuple[Tensor]:
        state, ids, cos, sin, slots, mask = tensors
        remember, last = write(caches, slots, mask.shape[1]), self.kind == TEXT
        return (self.network(state[None], ids[None], cos, sin, mask, remember, last_only=last)[0],)

    @staticmethod
    def example(shape: ForwardShape) -> tuple[list[Tensor], list[int], list[Tensor]]:
        """Tensors to trace it with, which of them are masks, and caches."""
        config, rows = shape.config, shape.rows
        assert isinstance(config, EagleConfig)
        state, places = config.hidden if config.third else config.target_hidden, 1 if shape.kind == LEVEL else rows
        turns = [torch.zeros(places, config.head_dim) for _ in range(2)]
        caches = [torch.zeros(1, config.kv_heads, EXAMPLE_CAPACITY, config.head_dim) for _ in range(2 * config.layers)]
        ids, slots, mask = torch.zeros(rows, dtype=torch.long), torch.arange(rows), torch.zeros(rows, EXAMPLE_KEYS)
        return [torch.zeros(rows, state), ids, *turns, slots, mask], [5], caches


def build(shape: dict[str, Any], package: str) -> None:
    """Compile a head's forward (``functional.compile_rows``); ``shape`` as of ``ForwardShape.to_json``."""
    compile_rows(ForwardShape.from_json(shape, EagleConfig), EagleRows, package)
