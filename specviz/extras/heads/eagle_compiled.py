"""Compiled forwards of an EAGLE head: a level of a tree at a time, and the rows of the text that are caught up with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from specviz.extras.cpu.compiled_draft import CHECKED_ROWS, KEYS, CompiledForwards, Pair
from specviz.extras.cpu.functional import LEVEL, ROW, TEXT, ForwardShape

from .eagle_functional import EagleRows
from .eagle_head import EagleHead
from .eagle_run import EagleRun

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

LEVEL_ROWS = 10  # of a level in the check: EAGLE-2's top k


class CompiledEagle(CompiledForwards):
    """A head's forwards, as ``EagleRun.forward`` makes them."""

    noun, maker, rows = "head", "specviz.extras.heads.eagle_functional", EagleRows
    kinds: ClassVar[Mapping[str, int]] = {LEVEL: LEVEL_ROWS, TEXT: CHECKED_ROWS, ROW: 1}

    def __init__(self, target: Target, head: EagleHead) -> None:
        super().__init__(target, head, head.output)

    def shape(self, kind: str) -> ForwardShape:
        return ForwardShape(self.network.config, kind, self.packs_at(self.kinds[kind]))

    def takes(self, rows: int) -> bool:
        """True where a forward of so many rows runs here; those of heads with windows never do."""
        return not self.network.config.windows and super().takes(rows)

    def run(
        self, state: Float[Tensor, "rows state"], tokens: Int[Tensor, " rows"], start: int, cos: Tensor, sin: Tensor,
        mask: Bool[Tensor, "rows keys"] | None, store: Tensor, last_only: bool,
    ) -> Float[Tensor, "said hidden"]:  # fmt: skip
        """The states of ``EagleRun.forward``, behind ``start`` rows of the cache ``store``. Nothing behind them is
        read.
        """
        rows, kind = len(tokens), kind_of(len(tokens), last_only)
        if mask is None:
            scores = self.everywhere(start + rows)
        else:
            scores = torch.zeros(mask.shape).masked_fill_(~mask, torch.finfo(torch.float32).min)
        caches = [part for layer in store for part in layer]
        tensors = [state, tokens, cos, sin, torch.arange(start, start + rows), scores]
        (states,) = self.open_parts[kind].run([*tensors, *caches, *self.weights[kind]])
        return states

    def forwards(self, kind: str) -> Pair:
        run, generator = EagleRun(self.network), torch.Generator().manual_seed(0)
        config, rows = self.network.config, self.kinds[kind]
        run.cache.make_room(KEYS + rows, 0, self.network.fc.weight)
        run.cache.store.normal_(generator=generator)
        state = torch.randn(rows, config.hidden, generator=generator)
        at = slice(KEYS, KEYS + (1 if kind == LEVEL else rows))
        mask = None if rows == 1 else torch.ones(rows, KEYS + rows, dtype=torch.bool).tril(KEYS)
        cos, sin = run.cache.cos[at], run.cache.sin[at]

        def forward() -> Tensor:
            last_only = kind == TEXT
            states = self.run(state, torch.arange(rows), KEYS, cos, sin, mask, run.cache.store, last_only)
            return self.network.say(states)

        def eager() -> Tensor:
            return run.forward(state, torch.arange(rows), KEYS, at, mask, last_only=kind == TEXT)[1]

        return forward, eager


def kind_of(rows: int, last_only: bool) -> str:
    """The forward that takes so many rows."""
    return ROW if rows == 1 else TEXT if last_only else LEVEL
