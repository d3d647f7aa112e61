"""A draft model (``network``) at work on a run: what it has read, and the draft under way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.model.engines.engines import Engines
from decoders.model.state.memory import ReadingStopped
from decoders.model.state.transfer import rows_of, send

from .draft_graphs import DraftGraphs
from .network import DraftModel, TargetView, attention, own_rotary
from .own_cache import FixedRows, OwnCache

if TYPE_CHECKING:
    from decoders.model.state.memory import Context
    from decoders.model.target_model.target import Target

# logits and a number to draw by → a token [1], and what is kept of what was said
ChooseAt = Callable[[Float[Tensor, " vocab"], Float[Tensor, "1"]], tuple[Int[Tensor, "1"], Tensor]]

READ_ROWS, READ_ROWS_CPU = 1024, 512  # most rows of a forward that reads a text
DRAFT_ROWS = 512  # cache rows behind the committed ones: room for a draft under way


def common_prefix(first: np.ndarray, second: np.ndarray) -> int:
    """Number of tokens that two texts begin with alike."""
    n = min(len(first), len(second))
    differs = first[:n] != second[:n]
    return int(differs.argmax()) if differs.any() else n


def pieces_of(have: int, length: int, context: Context, device: torch.device) -> Iterator[tuple[int, int]]:
    """The pieces in which a text is read behind its first ``have`` rows: where each begins and ends. Raises
    ReadingStopped between two of them where the run was cancelled.
    """
    max_rows = READ_ROWS_CPU if device.type == "cpu" else READ_ROWS
    for start in range(have, length, max_rows):
        if start > have and context.is_cancelled:
            raise ReadingStopped
        yield start, min(start + max_rows, length)


def forwards_of(
    have: int, length: int, context: Context, device: torch.device
) -> Iterator[tuple[int, int, Tensor | None]]:
    """The forwards that read a text, as ``pieces_of`` cuts it, with which row sees which (None: each sees all before it
    without being told).
    """
    for start, stop in pieces_of(have, length, context, device):
        mask = None
        if start and stop - start > 1:
            mask = torch.ones(stop - start, stop, dtype=torch.bool, device=device).tril(start)
        yield start, stop, mask


class FixedChain:
    """A draft model's chain in fixed sizes, to be captured: the rows that are caught up with, then one by one."""

    def __init__(
        self, model: DraftModel, rows: FixedRows, target_rotary: tuple[Tensor, Tensor],
        views: Sequence[tuple[Tensor, Tensor]],
    ) -> None:  # fmt: skip
        self.model, self.rows, self.target_rotary, self.views = model, rows, target_rotary, views
        self.queries: list[list[Tensor]] = [[] for _ in views]

    def write(
        self, ids: Int[Tensor, " rows"], have: Int[Tensor, "1"], count: Int[Tensor, "1"],
        points: Float[Tensor, " depth"], depth: int, choose: ChooseAt,
    ) -> tuple[Int[Tensor, " depth"], Float[Tensor, "depth vocab"]]:  # fmt: skip
        """Tokens behind ``have`` rows and the first ``count`` of these, and what was said before each."""
        root = have + count - 1
        slots = have + torch.arange(len(ids), device=have.device)
        logits = self._forward(ids, slots, root).index_select(0, count - 1)
        self.queries = [[query.index_select(2, count - 1) for query in parts] for parts in self.queries]
        drafted, distributions = list[Tensor](), list[Tensor]()
        for step in range(depth):
            if step:
                logits = self._forward(drafted[-1], root + step, root)
            token, distribution = choose(logits[0], points[step : step + 1])
            drafted.append(token)
            distributions.append(distribution)
        return torch.cat(drafted), torch.stack(distributions)

    def _forward(self, ids: Tensor, slots: Tensor, root: Tensor) -> Float[Tensor, "rows vocab"]:
        rows = self.rows
        views: list[TargetView | None] = [None] * self.model.config.layers
        if self.views:
            cos, sin = (table.index_select(0, slots) for table in self.target_rotary)
            mask = (rows.places < slots[:, None]) & (rows.places < root)
            for layer, (keys, values) in enumerate(self.views):
                row_mask = mask[:, : keys.shape[2]]
                keys, values = (part[:, :, : row_mask.shape[1]] for part in (keys, values))
                views[layer] = TargetView(keys, values, cos, sin, row_mask, self.queries[layer])
        states = self.model(ids[None], views, rows.turns(slots), rows.chain(slots), rows.remember(slots))
        return self.model.full_logits(self.model.head(states)[0].float())


class DraftRun:
    """A draft model at work: the states of what it has read, and behind them the rows of a draft under way.

    A position's state depends on the tokens and the target's keys before it alone, so any cut of a run, or another
    text, is picked up where it departs from what was read. Accepted positions are recomputed, as they were drafted
    with the target's keys of drafted tokens missing (GLIDE §4.1). ``compiled`` are the model's forwards by the
    target's engine (``forwards_by_engine``), where there are any; ``engines`` those of the target: chains are captured
    where its forwards are.
    """

    def __init__(
        self, model: DraftModel, rotary: Callable[[Tensor], tuple[Tensor, Tensor]],
        compiled: Any = None, engines: Engines | None = None,
    ) -> None:  # fmt: skip
        self.model, self.rotary, self.compiled = model, rotary, compiled
        self.graphs = DraftGraphs(engines, model, "a draft model")
        self.limit = 1 << 30  # no longest text: rotary positions go on
        self.tokens = np.zeros(0, dtype=np.int64)
        self.context: Context | None = None
        config = model.config
        size = config.hidden // config.heads
        self.cache = OwnCache(config.layers, config.heads, size, partial(own_rotary, config=config))
        self.base = self.drafted = 0
        self.sees = np.zeros((0, 0), dtype=bool)
        self.queries: list[list[Tensor]] = [[] for _ in config.kv_layers]  # of the draft under way, by layer
        self.looks_at: dict[str, Any] | None = None
        if config.kv_layers:
            layers, heads = list(config.kv_layers), config.target_heads
            self.looks_at = {"label": "the draft model's cross-attention", "layers": layers, "heads": heads}
        self._target_rotary = (torch.zeros(0, 0), torch.zeros(0, 0))

    def begin(self, context: Context) -> None:
        """Read the prompt."""
        self.read(context)

    @torch.inference_mode()
    def read(self, context: Context) -> Float[Tensor, " vocab"]:
        """Logits after the context's last token, having caught up with it."""
        have = self._catch_up(context)
        for start, stop, mask in forwards_of(have, context.length, context, self.device):
            self.queries = [[] for _ in self.queries]
            (ids,) = send(self.device, self.tokens[start:stop])
            logits = self.forward(ids, start, slice(start, stop), mask, last_only=True)[0]
        self.queries = [[query[:, :, -1:] for query in parts] for parts in self.queries]  # the root's
        return logits

    def _catch_up(self, context: Context) -> int:
        """Begin behind a context; the number of its rows that were read before."""
        have = min(common_prefix(self.tokens, context.tokens), context.length - 1)
        self._make_room(context, have)
        self.context, self.tokens = context, context.tokens.copy()
        self.base, self.drafted = context.length, 0
        self.sees = np.zeros((0, 0), dtype=bool)
        return have

    @torch.inference_mode()
    def chain(
        self, context: Context, depth: int, points: np.ndarray, choose: ChooseAt, key: Hashable
    ) -> tuple[Int[Tensor, " depth"], Float[Tensor, "depth vocab"]] | None:
        """A chain of ``depth`` tokens and what was said before each, all by one graph; None where the target's forwards
        are not captured, or this text is too long or too new. ``choose`` takes logits and one of ``points``, numbers
        that it draws by; ``key`` names it.
        """
        have = min(common_prefix(self.tokens, context.tokens), context.length - 1)
        count = context.length - have
        sizes = self.graphs.sizes(self.cache, have, count, depth, len(context.buffer) + DRAFT_ROWS)
        if sizes is None or self.cache.lease is None or context.root_position == 0:
            return None
        rows, keys = sizes
        tokens = np.zeros(rows, dtype=np.int64)
        tokens[:count] = context.tokens[have:]
        inputs = send(self.device, tokens, np.asarray([have]), np.asarray([count]), points)
        views = [(context.cache.keys(layer)[None], context.cache.values(layer)[None])
                 for layer in self.model.config.kv_layers]  # fmt: skip

        def write(ids: Tensor, have: Tensor, count: Tensor, points: Tensor) -> tuple[Any, ...]:
            fixed = FixedChain(self.model, FixedRows(self.cache, keys), self._target_rotary, views)
            return *fixed.write(ids, have, count, points, depth, choose), fixed.queries

        places = tuple(part.data_ptr() for pair in views for part in pair)
        name = ("chain", rows, keys, depth, key, places)
        result = self.graphs.replay(self.cache.lease.companions, name, write, *inputs)
        if result is None:
            return None
        self._catch_up(context)
        drafted, distributions, self.queries = result
        return drafted.clone(), distributions.clone()

    @torch.inference_mode()
    def extend(
        self, tokens: Sequence[int] | Int[Tensor, " rows"], parents: Sequence[int]
    ) -> Float[Tensor, "rows vocab"]:
        """Logits after more draft tokens; ``parents`` count the draft's rows so far (-1: the root)."""
        count, first_row = len(tokens), self.drafted
        sees = np.zeros((first_row + count, first_row + count), dtype=bool)
        sees[:first_row, :first_row] = self.sees
        depths = []
        for row, parent in enumerate(parents, start=first_row):
            if parent >= 0:
                sees[row] = sees[parent]
            sees[row, row] = True
            depths.append(int(sees[row].sum()))
        self.sees, self.drafted = sees, first_row + count
        first = self.base + depths[0] - 1
        ids = [] if isinstance(tokens, Tensor) else [np.asarray(tokens, dtype=np.int64)]
        positions, mask = slice(first, first + 1), None
        if count > 1 or not sees[-1].all():
            *parts, positions, tree_mask = send(self.device, *ids, np.asarray(depths) + self.base - 1, sees[first_row:])
            mask = torch.ones((count, self.base + first_row + count), dtype=torch.bool, device=self.device)
            mask[:, self.base :] = tree_mask
        else:
            parts = send(self.device, *ids)
        device_tokens = tokens if isinstance(tokens, Tensor) else parts[0]
        return self.forward(device_tokens, self.base + first_row, positions, mask)

    def wrote(self, tokens: Sequence[int]) -> None:
        """Nothing to do: what was drafted is read again, with the target's keys."""

    def looks(self, rows: Sequence[int]) -> Callable[[], Float[Tensor, "layers heads rows keys"]] | None:
        """A function for where rows of this draft (0 = the root, then in the order they were drafted) look in the
        target's cache: weights over the positions before the root. None where the model does not look, or nothing is
        there yet. Its result stays right while the run goes on.
        """
        context, layers = self.context, self.model.config.kv_layers
        if context is None or not layers or context.root_position == 0:
            return None
        queries = [rows_of(torch.cat(parts, 2)[0], rows, 1) for parts in self.queries]
        return lambda: torch.stack(
            [attention(query, context.keys(layer)) for query, layer in zip(queries, layers, strict=True)]
        )

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    def forward(
        self, ids: Int[Tensor, " rows"], start: int, positions: slice | Int[Tensor, " rows"], mask: Tensor | None, *,
        last_only: bool = False,
    ) -> Float[Tensor, "rows vocab"]:  # fmt: skip
        """Rows through all layers; their keys and values go to cache rows ``start`` on. ``positions`` is a slice where
        they follow one another.
        """
        assert self.context is not None
        chain = isinstance(positions, slice) and (mask is None or last_only) and start and self.context.root_position
        if chain and self.compiled is not None and self.compiled.takes(len(ids)):
            state, queries = self.compiled.run(ids, start, *self.rotary_at(positions), self.cache.store, self.context)
            for parts, query in zip(self.queries, queries, strict=True):
                parts.append(query)
            return self.model.full_logits(self.compiled.shortlist(state))
        rows, last = len(ids), self.model.config.layers - 1
        only = last_only and rows > 1
        views = [self._view(i, positions, only and i == last) for i in range(last + 1)]
        turns = self.cache.cos[positions], self.cache.sin[positions]
        states = self.model(ids[None], views, turns, mask, self.cache.rows(start, start + rows), only)
        return self.model.full_logits(self.model.head(states)[0].float())

    def _view(self, layer: int, positions: slice | Tensor, last_only: bool) -> TargetView | None:
        """The target's keys that rows see: a draft's all its committed ones, a committed position's those before it."""
        config, context = self.model.config, self.context
        assert context is not None
        root = context.root_position
        if not config.kv_layers or root == 0:
            return None
        keys, values = (read(config.kv_layers[layer])[None] for read in (context.keys, context.values))
        cos, sin = (angle[positions] for angle in self._target_rotary)
        if last_only:
            cos, sin = cos[-1:], sin[-1:]
        mask = None
        if isinstance(positions, slice) and (positions.stop - 1 if last_only else positions.start) < root:
            at = torch.arange(positions.start, positions.stop, device=self.device)[-len(cos) :]
            mask = at[:, None] > torch.arange(root, device=self.device)
        return TargetView(keys, values, cos, sin, mask, self.queries[layer])

    def rotary_at(self, positions: slice | Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """cos and sin of positions: the draft model's own, and the target's (empty where it does not look there)."""
        cache, (cos, sin) = self.cache, self._target_rotary
        return (cache.cos[positions], cache.sin[positions]), (cos[positions], sin[positions])

    def open_at(self, context: Context) -> Tensor:
        """Take up a text of which nothing is read; the states to be filled."""
        self._make_room(context, 0)
        self.context = context
        return self.cache.store

    def _make_room(self, context: Context, rows_read: int) -> None:
        rows, weight = len(context.buffer) + DRAFT_ROWS, self.model.norm.weight
        if self.graphs.make_room(self.cache, rows, rows_read, weight) and self.model.config.kv_layers:
            places = torch.arange(self.cache.store.shape[4], device=self.device)
            self._target_rotary = self.cache.table("target rotary", lambda: self.rotary(places))


def forwards_by_engine(target: Target, model: DraftModel) -> Any:
    """A draft model's forwards by the target's engine; None where that has none."""
    return target.engines.draft(model)


def target_rotary(stack: Any) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The target's own rotary positions, as a function from positions to cos and sin ``[rows, head size]``."""

    def rotary(positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = stack.rotary_emb(stack.norm.weight, position_ids=positions[None])
        return cos[0], sin[0]

    return rotary
