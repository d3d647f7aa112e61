"""CUDA graphs: the stock forward of a bucket, captured once per run and replayed, so that a step dispatches one graph.

A graph reads and writes fixed memory: the buffers, the run's cache, and what its taps caught, which is copied out.
``benchmarks/gpu.py`` asks it on a GPU; ``tests/test_static.py`` runs the same path with a graph that calls the forward
again.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.needs import Needs

from ..files.shape import ROTARIES
from ..state.attention import running
from ..state.cache import TreeCache
from ..state.capture import Capture
from .static import Bucket, Buffers, StaticForward, StaticRows


class Graph:
    """A captured function; ``replay`` runs it again on the same memory."""

    def __init__(self, function: Callable[[], Tensor]) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # what is prepared in a first call must not be captured
            for _ in range(2):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.result = function()

    def replay(self) -> Tensor:
        self._graph.replay()
        return self.result


class GraphForward(StaticForward):
    """Stock forwards of fixed sizes, captured per run: a graph holds the addresses of the run's cache."""

    engine = "graph"
    step = 256
    doubling = True
    fixed = True
    graph = Graph

    def ready(self, rows: int) -> bool:
        return True

    def bucket(self, rows: StaticRows) -> Bucket | None:
        """None also where a run comes to this size for the first time: few sizes return, and capturing takes longer;
        and of a hybrid model, whose states do not lie in buffers that stay.
        """
        shape = self.target.shape
        bucket = super().bucket(rows) if shape.rotary in ROTARIES and not shape.recurrent_layers else None
        if bucket is None or bucket in rows.cache.graphs:
            return bucket
        rows.cache.graphs[bucket] = None
        return None

    def forward(
        self, buffers: Buffers, bucket: Bucket, rows: StaticRows, needs: Needs, captured: Capture
    ) -> Float[Tensor, "rows vocab"]:
        graphs, count = rows.cache.graphs, rows.count
        if graphs.get((bucket, needs)) is None:
            capture = Capture()
            new_graph = self.graph(lambda: self._stock(buffers, bucket, rows.cache, needs, capture))
            graphs[bucket, needs] = new_graph, capture
        graph, capture = graphs[bucket, needs]
        logits = graph.replay()
        captured.hidden.update({layer: states[:count].clone() for layer, states in capture.hidden.items()})
        captured.queries.update({layer: queries[:, :count].clone() for layer, queries in capture.queries.items()})
        captured.sinks.update(capture.sinks)
        return logits[:count].clone()

    def _stock(
        self, buffers: Buffers, bucket: Bucket, cache: TreeCache, needs: Needs, capture: Capture
    ) -> Float[Tensor, "rows vocab"]:
        """The target's stock forward over a bucket, which writes to the slots in the buffers."""
        target = self.target
        windows: dict[int | None, Tensor] = {
            window: buffers.mask(bucket.keys, window)[None, None] for window in (None, *self.windows)
        }
        masks = running.set(lambda rule, reach, skip: windows[reach if reach in self.windows else None])
        cache.slots, cache.seen = buffers.slots, bucket.keys
        try:
            with target.taps.reading(needs, capture):
                output = target.model(
                    inputs_embeds=buffers.embeddings[None], position_ids=buffers.positions[None],
                    past_key_values=cache, use_cache=True,
                )  # fmt: skip
        finally:
            cache.slots = None
            running.reset(masks)
        return output.logits[0].float()
