"""CUDA graphs: a target's forward of a number of rows, captured once over a store of keys and values and replayed by
every run that takes this store, so that a step launches one graph.

What differs from step to step is data in fixed memory, sent as one copy: tokens, positions, the number of committed
keys, and which rows see one another. ``tests/tape.py`` stands for a graph on a CPU; ``benchmarks.gpu`` asks a GPU.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from decoders.draft.draft import Ran
from decoders.draft.needs import Needs
from decoders.names import GRAPH

from ..files.shape import ROTARIES
from ..state.attention import Masks, running
from ..state.cache import TreeCache
from ..state.cache_name import cache_input
from ..state.capture import Capture
from ..state.stores import SMALLEST, Store, Stores
from ..state.transfer import median_ms
from ..state.two_parts import can_split
from .captured_inputs import CapturedMasks, Inputs
from .layer_stack import LayerStack
from .split_from import split_from
from .static import Bucket, StaticForward, StaticRows, bucket_of, difference

log = logging.getLogger(__name__)

FIRST_ROWS = (64, 32, 16, 8, 4, 1)  # rows captured before a run asks: the largest first, whose memory serves all
FEWEST_KEYS = 256  # that a masked forward looks at; more in powers of two
REST_S = 0.05  # between two looks whether anything runs


class CaptureError(RuntimeError):
    """A forward that could not be captured; it runs eagerly."""


class Graph:
    """A captured function; ``replay`` runs it again on the same memory. ``pool``: memory that graphs share."""

    def __init__(self, function: Callable[[], Any], pool: Any = None) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # what is prepared in a first call must not be captured
            for _ in range(2):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self.result = function()

    def replay(self) -> Any:
        self._graph.replay()
        return self.result


@dataclass(frozen=True, slots=True)
class Kind:
    """The facts beside its store that a captured forward depends on. ``embedded``: the rows' embeddings are given,
    where they are not all the embeddings of tokens. ``compiled``: its layers were compiled before.
    """

    bucket: Bucket
    needs: Needs
    embedded: bool
    split: bool
    compiled: bool


@dataclass(slots=True, eq=False)
class DraftMemory:
    """A draft network's memory that outlives runs, and graphs that need none."""

    stores: Stores = field(default_factory=Stores)
    companions: dict[Any, Any] = field(default_factory=dict)


def compile_trace(module: torch.fx.GraphModule) -> Callable[..., Any]:
    """A traced function, by torch.compile: loops between the matrix products become a kernel each."""
    return torch.compile(module, dynamic=False, fullgraph=True)


class GraphForward(StaticForward):
    """A target's forwards, captured per store, number of rows and what is read of them. Layers of Llama's build are
    compiled before they are captured, once that was found to take less time here.
    """

    engine = GRAPH
    notice = "capturing CUDA graphs of its forwards"
    step = FEWEST_KEYS
    doubling = True
    graph: Callable[..., Any] = Graph
    compile = staticmethod(compile_trace)
    compiled_layers: LayerStack | None = None  # the layers as they are tried, and taken where ``takes_compiled``
    takes_compiled = False
    keeps_slower = False  # whatever time they take: to be measured
    split_from: int | None = None  # rows of a store from which attention goes in two parts; None: not measured yet

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.stores, self.captures = Stores(), 0
        self.failed = dict[Any, str]()  # what could not be captured, and why
        self._draft_memories: WeakKeyDictionary[nn.Module, DraftMemory] = WeakKeyDictionary()
        self._lock = threading.RLock()
        cuda = target.device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if cuda else None
        self._masks_of = Masks(target.cached_as or target.dtype, target.device)
        self._inputs: dict[int, Inputs] = {}
        self.layers = LayerStack.of(target)
        shape = target.shape
        self.no_split = "its attention scores are capped" if shape.attention_softcap else None
        self.no_split = self.no_split or can_split(target.device, target.dtype, shape.head_dim)
        self._thread: threading.Thread | None = None
        self._reason: str | None = None

    def why_not(self) -> str | None:
        """The reason why this target's forwards are not captured, in one clause; None where they can be."""
        shape = self.target.shape
        if shape.recurrent_layers:
            return "the states of its recurrent layers do not stay where they are"
        if shape.rotary not in ROTARIES:
            return "its rotary positions depend on the length of the text"
        return self.target.observed.unread

    def ready(self, rows: int) -> bool:
        return True

    def bucket(self, rows: StaticRows) -> Bucket | None:
        """The size of the captured forward for these rows; None where they run eagerly: there is no store, no text, or
        no size.
        """
        cache = rows.cache
        if rows.special or rows.prefixes is not None or cache.lease is None or not cache.length:
            return None
        bucket = bucket_of(rows.count, cache.length, cache.capacity, self.step, doubling=True, sizes=self.sizes)
        if bucket is not None and self._splits(cache) and not self.windows:  # the number of keys is data
            return Bucket(bucket.rows, cache.capacity)
        return bucket

    def _splits(self, cache: TreeCache) -> bool:
        """True where attention over this cache goes in two parts."""
        return self.no_split is None and cache.sizes[0] == cache.sizes[1] and cache.capacity >= self._split_from()

    def _split_from(self) -> int:
        """``split_from`` as it was measured on this device."""
        if self.split_from is None:
            self.split_from = split_from(self.target, lambda function: self.graph(function, self._pool))
        return self.split_from

    def run(self, bucket: Bucket, rows: StaticRows, needs: Needs, captured: Capture) -> Float[Tensor, "rows vocab"]:
        """Logits of the rows, in fp32; what ``needs`` names goes to ``captured``. Raises CaptureError where they cannot
        be captured.
        """
        kind = Kind(bucket, needs, rows.embed is not None, self._splits(rows.cache), self.takes_compiled)
        if kind in self.failed:
            raise CaptureError(self.failed[kind])
        assert rows.cache.lease is not None
        inputs = self.inputs(bucket.rows)
        inputs.fill(rows)
        graph, capture = self.graph_of(kind, rows.cache, rows.cache.lease)
        logits, count = graph.replay(), rows.count
        captured.hidden.update({layer: states[:count].clone() for layer, states in capture.hidden.items()})
        captured.queries.update({layer: queries[:, :count].clone() for layer, queries in capture.queries.items()})
        captured.sinks.update(capture.sinks)
        return logits[:count].clone()

    def inputs(self, rows: int) -> Inputs:
        if rows not in self._inputs:
            target = self.target
            self._inputs[rows] = Inputs(rows, target.embeddings.embedding_dim, target.dtype, target.device)
        return self._inputs[rows]

    def graph_of(self, kind: Kind, cache: TreeCache, store: Store) -> tuple[Any, Capture]:
        """The graph of a kind of forward over a store, and what it captures of the rows; captured now where it is
        missing.
        """
        if kind not in store.companions:
            capture, inputs, turns = Capture(), self.inputs(kind.bucket.rows), None
            if self.layers is not None:
                turns = store.companions.get("rotary") or self.layers.rotary(store.capacity)
                store.companions["rotary"] = turns
            graph = self._capture(kind, lambda: self._forward(inputs, kind, cache, turns, capture))
            store.companions[kind] = graph, capture
        return store.companions[kind]

    def draft_memory(self, network: nn.Module) -> DraftMemory:
        """Memory and graphs of a draft network."""
        return self._draft_memories.setdefault(network, DraftMemory())

    @torch.inference_mode()
    def function(self, companions: dict[Any, Any], key: Hashable, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """Results of a function of tensors of fixed sizes, captured where ``key`` comes for the first time; its other
        memory is that which ``companions`` belongs to. They stay until the next replay, of whatever graph: graphs share
        their memory. Raises CaptureError where it cannot be captured.
        """
        if key not in companions:
            own_inputs = [tensor.clone() for tensor in inputs]
            companions[key] = self._capture(key, lambda: function(*own_inputs)), own_inputs
        graph, own_inputs = companions[key]
        for own_input, tensor in zip(own_inputs, inputs, strict=True):
            own_input.copy_(tensor)
        return graph.replay()

    def _capture(self, key: Any, function: Callable[[], Any]) -> Any:
        if key in self.failed:
            raise CaptureError(self.failed[key])
        try:
            with self._lock:
                graph = self.graph(function, self._pool)
        except (RuntimeError, NotImplementedError) as error:  # memory that is full is one, too
            self.failed[key] = reason = str(error).strip().splitlines()[0][:160]
            raise CaptureError(reason) from error
        self.captures += 1
        return graph

    def _forward(
        self, inputs: Inputs, kind: Kind, cache: TreeCache, turns: tuple[Tensor, Tensor] | None, capture: Capture
    ) -> Float[Tensor, "rows vocab"]:  # fmt: skip
        """The target's forward, which writes behind the committed rows: through ``layers`` or by stock code."""
        masks = CapturedMasks(inputs, self._masks_of, kind.bucket.keys, self.windows, kind.split)
        slots = inputs.length + torch.arange(inputs.rows, device=inputs.device)
        layers = self.compiled_layers if kind.compiled else self.layers
        if layers is None or turns is None:
            return self._stock(inputs, kind, cache, slots, masks, capture)
        x = inputs.embeddings if kind.embedded else self.target.embeddings(inputs.ids)
        return layers(x, turns, inputs.positions, slots, masks, cache, kind.needs, capture)

    def _stock(
        self, inputs: Inputs, kind: Kind, cache: TreeCache, slots: Tensor, masks: CapturedMasks, capture: Capture
    ) -> Float[Tensor, "rows vocab"]:  # fmt: skip
        target, row_masks = self.target, running.set(masks)
        row_inputs = {"inputs_embeds": inputs.embeddings[None]} if kind.embedded else {"input_ids": inputs.ids[None]}
        cache.slots = slots
        try:
            with target.taps.reading(kind.needs, capture):
                output = target.model(
                    **row_inputs,
                    **cache_input(target.model, cache),
                    position_ids=inputs.positions[None],
                    use_cache=True,
                )
        finally:
            cache.slots = None
            running.reset(row_masks)
        return output.logits[0].float()

    def ran(self, bucket: Bucket) -> Ran:
        return Ran(self.engine, bucket.rows, bucket.keys)

    # --- before a run asks

    def complete(self) -> bool:
        """True if what is captured before a run asks is there, or cannot be had."""
        return self._thread is not None and not self._thread.is_alive()

    def make(self, busy: Callable[[], bool] | None = None) -> str | None:
        """Begin to capture the usual sizes over a store that the next run takes, in the background; with ``busy`` while
        that is False.
        """
        if self._thread is None:
            name, idle = f"graphs of {self.target.name}", lambda: False
            self._thread = threading.Thread(target=self._capture_all, args=(busy or idle,), name=name, daemon=True)
            self._thread.start()
        return None

    def wait(self, cancel: threading.Event | None = None) -> str | None:
        """Return when the usual sizes were captured, or ``cancel`` is set; the reason why some cannot be."""
        while not self.complete() and not (cancel is not None and cancel.is_set()):
            if self._thread is not None:
                self._thread.join(REST_S)
        return self._reason

    @torch.inference_mode()
    def _capture_all(self, busy: Callable[[], bool]) -> None:
        name, rows = self.target.name, 0
        cache = TreeCache(self.target.shape, SMALLEST, self.target.cached_as, self.stores)
        try:
            for rows in FIRST_ROWS:
                with self._turn(busy):
                    self._capture_rows(cache, rows)
        except Exception as error:  # nobody waits for this thread: runs go on eagerly
            self._reason = f"forwards of {name} run eagerly, as capturing {rows} rows fails: {error}"
            return
        try:
            self._try_compiled(cache, busy)
        except Exception as error:  # by stock operations, which are there
            self.compiled_layers, text = None, str(error).strip().splitlines() or [""]
            self._reason = f"layers of {name} are captured as they are, as compiling them fails: {text[0][:160]}"

    @contextlib.contextmanager
    def _turn(self, busy: Callable[[], bool]) -> Iterator[None]:
        """The target, while nothing runs."""
        while busy():
            time.sleep(REST_S)
        with self.target.lock:
            yield

    def _try_compiled(self, cache: TreeCache, busy: Callable[[], bool]) -> None:
        """Compile layers and capture the usual sizes again; take these where they give the same in less time."""
        if self.layers is None:
            return
        self.compiled_layers = self.layers.compile_with(self.compile)
        for rows in self.sizes:
            while busy():
                time.sleep(REST_S)
            self.compiled_layers.compile_rows(rows)  # seconds, in which a run may begin
        graphs = []
        for rows in FIRST_ROWS:
            with self._turn(busy):
                graphs = [self._capture_rows(cache, rows, compiled) for compiled in (False, True)]
                stock, logits = (graph.replay().clone() for graph in graphs)
                distance = difference(logits, stock, self.target.dtype)
            if distance is not None:
                self._reason = f"compiled layers of {self.target.name} differ from its own by {distance:.2g}: not used"
                break
        with self._turn(busy):
            if self._reason is None:
                stock_ms, ms = (median_ms(graph.replay, self.target.device) for graph in graphs)  # of one row
                log.info("a forward of one row of %s: %.2f ms, compiled %.2f", self.target.name, stock_ms, ms)
                self.takes_compiled = self.keeps_slower or ms < stock_ms
            assert cache.lease is not None
            kinds = [kind for kind in cache.lease.companions if isinstance(kind, Kind)]
            for kind in kinds:
                if kind.compiled is not self.takes_compiled:
                    del cache.lease.companions[kind]
            if not self.takes_compiled:
                self.compiled_layers = None

    def _capture_rows(self, cache: TreeCache, rows: int, compiled: bool = False) -> Any:
        """The graph of so many rows behind one token, over the store of ``cache``."""
        target, masks = self.target, self._masks_of
        if cache.store is None:  # a forward of one token opens it
            target.forward(cache, masks, [0], np.arange(1), None)
            cache.commit([0])
        numbers = StaticRows(cache, masks, [0] * rows, np.arange(1, 1 + rows), None)
        bucket, store = self.bucket(numbers), cache.lease
        assert bucket is not None and store is not None
        self.inputs(rows).fill(numbers)
        return self.graph_of(Kind(bucket, Needs(), False, self._splits(cache), compiled), cache, store)[0]
