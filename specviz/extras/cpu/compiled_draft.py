"""Compiled draft forwards: a small network's forward through compiled parts.

A draft forward is a few small operations, and their dispatch is most of its time: compiled, it is one call. Of a draft
model two parts are compiled, one for a drafted token and one for the rows of the text that are caught up with; both
give the state of their last row, which then goes through the output layer (``shortlist``). Prompts and other dtypes or
devices run eagerly.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft_models.draft_run import DraftRun, target_rotary
from decoders.draft_models.network import DraftModel
from decoders.model.engines.engines import say_once
from decoders.model.engines.linear import PackedLinear
from decoders.model.engines.static import TOLERANCE

from .compiling import WORKSHOP, CompiledPart, OpenPart
from .functional import ROW, TEXT, DraftRows, ForwardShape, TensorForward
from .shortlist import ShortlistHead

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

log = logging.getLogger(__name__)

MOST_ROWS = 64  # of the text, at a time: more run eagerly
KEYS, CHECKED_ROWS = 256, 4  # of the check: another number of rows than that with which the part was made

Pair = tuple[Callable[[], Tensor], Callable[[], Tensor]]


class CompiledForwards(ABC):
    """A network's forwards through compiled parts, as far as these are there and the target's engine wants them.

    ``kinds`` has its forwards, and with how many rows each is checked. ``noun`` names the network, ``rows`` is what
    is compiled, and ``maker`` the module whose ``build`` does it. ``head`` is the network's output layer.
    """

    noun: str
    maker: str
    rows: type[Any]
    kinds: ClassVar[Mapping[str, int]]

    def __init__(self, target: Target, network: Any, head: Any) -> None:
        self.engines, self.network, self.head = target.engines, network, head
        self.shortlist = ShortlistHead.of(head)
        shapes = {kind: self.shape(kind) for kind in self.kinds}
        self.parts = {kind: CompiledPart.of(self.maker, shape.to_json()) for kind, shape in shapes.items()}
        self.weights = {kind: self._weights(shape) for kind, shape in shapes.items()}
        self.open_parts: dict[str, OpenPart] = {}
        self.is_checked: bool | None = None
        self._visible = torch.zeros(0)

    @classmethod
    def of(cls, target: Target, network: Any, *arguments: Any) -> Self | None:
        """A network's compiled forwards, kept with the target; None where they are not wanted or cannot be had."""
        weight, key = next(network.parameters()), ("compiled", id(network))
        if not target.engines.runs_drafts or weight.dtype != torch.float32 or weight.device.type != "cpu":
            return None
        if (forwards := target.companions.get(key)) is None or forwards.engines is not target.engines:
            forwards = target.companions[key] = cls(target, network, *arguments)
            static: Any = target.engines.static  # it has parts, as it runs drafts
            static.add(forwards.parts.values())
            if target.engines.waits:
                log.warning("compiling a draft model, once for this machine")
            target.engines.resume()
        return forwards

    @abstractmethod
    def shape(self, kind: str) -> ForwardShape:
        """The facts that the part for a kind of forward depends on."""

    @abstractmethod
    def forwards(self, kind: str) -> Pair:
        """The same forward through the compiled part and through stock code; both give logits of the output layer."""

    def packs_at(self, rows: int) -> tuple[str, ...]:
        """The owners of the packed weights that are the faster ones for so many rows."""
        return tuple(sorted(
            name for name, module in self.network.named_modules()
            if isinstance(module, PackedLinear) and module.packed_from <= rows and module is not self.head
        ))  # fmt: skip

    def _weights(self, shape: ForwardShape) -> list[Tensor]:
        weights = list[Tensor]()
        for name in TensorForward(shape, self.rows).sizes:
            *path, attribute = name.split(".")
            packed = attribute == "weight" and ".".join(path) in shape.packed
            weights.append(getattr(reduce(getattr, path, self.network), "packed" if packed else attribute))
        return weights

    def takes(self, rows: int) -> bool:
        """True where a forward of so many rows runs here."""
        if rows > MOST_ROWS or self.is_checked is False or self.engines.static is None or not self.ready():
            return False
        return self.is_checked or self.check()

    def ready(self) -> bool:
        """True once all parts are there; one that was made meanwhile is opened."""
        for kind, part in self.parts.items():
            if kind not in self.open_parts and (runner := WORKSHOP.open(part)) is not None:
                self.open_parts[kind] = runner
        return len(self.open_parts) == len(self.parts)

    def check(self) -> bool:
        """Compare compiled forwards with eager ones, once; from then on they are used, or never."""
        difference = 0.0
        for kind in self.kinds:
            compiled, eager = self.forwards(kind)
            compiled_output, stock = compiled(), eager()
            difference = max(difference, float((compiled_output - stock).abs().max()) / max(1.0, float(stock.std())))
        self.is_checked = difference <= TOLERANCE
        if not self.is_checked:
            say_once(f"compiled forwards of the {self.noun} differ from its own by {difference:.2g}: not used")
        return self.is_checked

    def everywhere(self, keys: int) -> Float[Tensor, "1 keys"]:
        """The mask of one row that sees so many."""
        if len(self._visible) < keys:
            self._visible = torch.zeros(2 * keys)
        return self._visible[:keys][None]


class CompiledDraft(CompiledForwards):
    """A draft model's forwards: of one token, and of rows of the text."""

    noun, maker, rows = "draft model", f"{__package__}.functional", DraftRows
    kinds: ClassVar[Mapping[str, int]] = {ROW: 1, TEXT: CHECKED_ROWS}

    def __init__(self, target: Target, model: DraftModel, rotary: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        self.model, self.rotary, self.kv_heads = model, rotary, target.shape.kv_heads
        super().__init__(target, model, model.head)

    def shape(self, kind: str) -> ForwardShape:
        return ForwardShape(self.model.config, kind, self.packs_at(self.kinds[kind]), self.kv_heads)

    def run(
        self, ids: Int[Tensor, " rows"], start: int, rotary: Sequence[Tensor], target_rotary: Sequence[Tensor],
        store: Tensor,
        context: Any,
    ) -> tuple[Float[Tensor, "1 hidden"], list[Tensor]]:  # fmt: skip
        """Rows behind ``start`` others, of the draft or the text, each of which sees those before it: the state of the
        last one, and its queries by layer.
        """
        count, root, config = len(ids), context.root_position, self.model.config
        stop, one_row = start + count, count == 1
        their_cos, their_sin = (
            target_rotary if config.kv_layers else (ids.new_zeros((count, 2), dtype=torch.float32),) * 2
        )
        if one_row:
            mask, their_mask = self.everywhere(stop), self.everywhere(root)
        else:
            at, mask_value = torch.arange(start, stop)[:, None], torch.finfo(torch.float32).min
            mask = torch.zeros(count, stop).masked_fill_(torch.arange(stop) > at, mask_value)
            their_mask = torch.zeros(count, root).masked_fill_(torch.arange(root) >= at, mask_value)
        caches, kind = [part for layer in store for part in layer], ROW if one_row else TEXT
        for layer in config.kv_layers:
            caches += [context.cache.keys(layer)[None], context.cache.values(layer)[None]]
        tensors = [ids, *rotary, their_cos, their_sin, torch.arange(start, stop), mask, their_mask]
        state, *queries = self.open_parts[kind].run([*tensors, *caches, *self.weights[kind]])
        return state, queries

    def forwards(self, kind: str) -> Pair:
        run, generator = DraftRun(self.model, self.rotary), torch.Generator().manual_seed(0)
        keys, values = torch.randn(2, self.kv_heads, KEYS, self.model.config.target_head_dim, generator=generator)
        cache = SimpleNamespace(keys=lambda layer: keys, values=lambda layer: values)
        context: Any = SimpleNamespace(
            buffer=np.zeros(KEYS + 1), root_position=KEYS, cache=cache, keys=cache.keys, values=cache.values
        )
        store, rows = run.open_at(context), self.kinds[kind]
        store.normal_(generator=generator)
        ids, start = torch.arange(rows), KEYS + 1 - rows
        at = slice(start, KEYS + 1)
        mask = None if rows == 1 else torch.ones(rows, at.stop, dtype=torch.bool).tril(start)

        def forward() -> Tensor:
            state, _ = self.run(ids, start, *run.rotary_at(at), store, context)
            return self.model.full_logits(self.head(state)[0])

        def eager() -> Tensor:
            run.queries = [[] for _ in run.queries]
            return run.forward(ids, start, at, mask, last_only=True)[0]

        return forward, eager


def compiled_model(target: Target, model: DraftModel) -> CompiledDraft | None:
    """A draft model's compiled forwards for a target; None as ``CompiledForwards.of``."""
    return CompiledDraft.of(target, model, target_rotary(target.stack))
