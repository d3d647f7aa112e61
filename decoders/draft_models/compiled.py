"""Compiled draft forwards: a draft model's forward through compiled parts.

A draft forward is a few small operations, and their dispatch is most of its time: compiled, it is one call. Two parts
are compiled, one for a drafted token and one for the rows of the text that are caught up with; both give the logits of
their last row. Trees, prompts and other dtypes or devices run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.model.compiling import WORKSHOP, Opened, Part
from decoders.model.engines import TOLERANCE, say_once
from decoders.model.linear import PackedLinear

from .network import DraftModel, DraftRun
from .step import StepShape, sizes_of

if TYPE_CHECKING:
    from decoders.model.target import Target
    from decoders.model.trials import Pair

MAKER = "decoders.draft_models.step"
MOST_ROWS = 64  # of the text, at a time: more run eagerly
TRIED_KEYS = 256  # the text's length in trials
CHECKED_ROWS = 4  # another number than that with which the part was made


class CompiledDraft:
    """A draft model's forwards through compiled parts, as far as these are there and the target's engine wants them."""

    def __init__(self, target: Target, model: DraftModel, rotary: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        self.engines, self.model, self.rotary = target.engines, model, rotary
        self.kv_heads = target.shape.kv_heads
        shapes = {one_row: self._shape(one_row) for one_row in (True, False)}
        self.parts = {one_row: Part.of(MAKER, shape.to_json()) for one_row, shape in shapes.items()}
        self.weights = {one_row: self._weights(shape) for one_row, shape in shapes.items()}
        self.opened: dict[bool, Opened] = {}
        self.checked: bool | None = None
        self._visible = torch.zeros(0)

    @classmethod
    def of(
        cls, target: Target, model: DraftModel, rotary: Callable[[Tensor], tuple[Tensor, Tensor]]
    ) -> CompiledDraft | None:
        """A model's compiled forwards, kept with the target; None where they are not wanted or cannot be had."""
        weight, key = model.norm.weight, ("compiled", id(model))
        if target.engines.static is None or weight.dtype != torch.float32 or weight.device.type != "cpu":
            return None
        if (made := target.companions.get(key)) is None or made.engines is not target.engines:
            made = target.companions[key] = cls(target, model, rotary)
            target.engines.add(made.parts.values())
        return made

    def _linears(self) -> dict[str, Any]:
        """The model's linear layers by the names of their weights."""
        named = {name: module for name, module in self.model.named_modules() if hasattr(module, "in_features")}
        return {**named, "head": self.model.head}

    def _shape(self, one_row: bool) -> StepShape:
        rows = 1 if one_row else 4
        packed = [n for n, m in self._linears().items() if isinstance(m, PackedLinear) and m.packed_from <= rows]
        return StepShape(self.model.config, self.kv_heads, tuple(sorted(packed)), one_row)

    def _weights(self, shape: StepShape) -> list[Tensor]:
        linears, modules = self._linears(), dict[str, Any](self.model.named_modules())
        weights = list[Tensor]()
        for name in sizes_of(shape.config):
            if name in linears:
                weights.append(linears[name].packed if name in shape.packed else linears[name].weight)
            elif name.endswith((".bias", "query_norm")):
                owner, _, attribute = name.rpartition(".")
                weights.append(getattr(modules[owner], attribute))
            else:
                weights.append(self.model.embedding.weight if name == "embedding" else modules[name].weight)
        return weights

    def takes(self, rows: int) -> bool:
        """Whether a forward of so many rows runs here."""
        if self.checked is False or rows > MOST_ROWS:
            return False
        one_row = rows == 1
        size = f"draft of {1 if one_row else 'some'}: {self.parts[one_row].package.stem}"
        if not self.engines.faster(size, partial(self.pair, 1 if one_row else CHECKED_ROWS)):
            return False
        return self.ready() and (self.checked or self.check())

    def ready(self) -> bool:
        """Whether both parts are there; one that was made meanwhile is opened."""
        for one_row, part in self.parts.items():
            if one_row not in self.opened and (opened := WORKSHOP.open(part)) is not None:
                self.opened[one_row] = opened
        return len(self.opened) == len(self.parts)

    def run(
        self, ids: Int[Tensor, "rows"], start: int, own: Sequence[Tensor], theirs: Sequence[Tensor], store: Tensor,
        context: Any,
    ) -> tuple[Float[Tensor, "drafted"], list[Tensor]]:  # fmt: skip
        """Rows behind ``start`` others, of the draft or the text, each of which sees those before it: logits of the
        last one, and its queries by layer.
        """
        count, root, config = len(ids), context.root_position, self.model.config
        stop, one_row = start + count, count == 1
        their_cos, their_sin = theirs if config.kv_layers else (ids.new_zeros((count, 2), dtype=torch.float32),) * 2
        if one_row:
            if len(self._visible) < max(stop, root):
                self._visible = torch.zeros(2 * max(stop, root))
            mask, their_mask = self._visible[:stop][None], self._visible[:root][None]
        else:
            at, least = torch.arange(start, stop)[:, None], torch.finfo(torch.float32).min
            mask = torch.zeros(count, stop).masked_fill_(torch.arange(stop) > at, least)
            their_mask = torch.zeros(count, root).masked_fill_(torch.arange(root) >= at, least)
        caches = list[Tensor]()
        for i in range(config.layers):
            caches += [store[i, 0], store[i, 1]]
            if config.kv_layers:
                caches += [read(config.kv_layers[i])[None] for read in (context.cache.keys, context.cache.values)]
        tensors = [ids, *own, their_cos, their_sin, torch.arange(start, stop), mask, their_mask]
        logits, *queries = self.opened[one_row].run([*tensors, *caches, *self.weights[one_row]])
        return logits, queries

    def check(self) -> bool:
        """Compare compiled forwards with eager ones, once; from then on they are used, or never."""
        apart = 0.0
        for rows in (1, CHECKED_ROWS):
            compiled, eager = self._forwards(rows)
            ours, stock = compiled(), eager()
            apart = max(apart, float((ours - stock).abs().max()) / max(1.0, float(stock.std())))
        self.checked = apart <= TOLERANCE
        if not self.checked:
            say_once(f"compiled forwards of the draft model differ from its own by {apart:.2g}: not used")
        return self.checked

    def pair(self, rows: int) -> Pair | None:
        """A compiled and an eager forward, to try which is faster."""
        return self._forwards(rows) if self.ready() and (self.checked or self.check()) else None

    def _forwards(self, rows: int) -> Pair:
        """The same forward of some rows through the compiled part and through stock code; both give logits."""
        run, generator = DraftRun(self.model, self.rotary), torch.Generator().manual_seed(0)
        keys, values = torch.randn(2, self.kv_heads, TRIED_KEYS, self.model.config.target_head_dim, generator=generator)
        cache = SimpleNamespace(keys=lambda layer: keys, values=lambda layer: values)
        context: Any = SimpleNamespace(
            buffer=np.zeros(TRIED_KEYS + 1), root_position=TRIED_KEYS, cache=cache, keys=cache.keys, values=cache.values
        )
        store = run.open_at(context)
        store.normal_(generator=generator)
        ids, start = torch.arange(rows), TRIED_KEYS + 1 - rows
        at = slice(start, TRIED_KEYS + 1)
        mask = None if rows == 1 else torch.ones(rows, at.stop, dtype=torch.bool).tril(start)

        def compiled() -> Tensor:
            logits, _ = self.run(ids, start, *run.rotary_at(at), store, context)
            return self.model.everything(logits)

        def eager() -> Tensor:
            run.queries = [[] for _ in run.queries]
            return run.forward(ids, start, at, mask, last_only=True)[0]

        return compiled, eager
