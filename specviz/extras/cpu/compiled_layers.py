"""Compiled forwards of Llama's build: one compiled layer, run once per layer of the model on the cache itself.

Two parts are compiled, one for one row and one for several, and serve every bucket: keys and rows are numbers to them.
Embedding, final norm and head are stock modules.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.needs import Needs, heads_by_layer
from decoders.model.engines.layer import layer_weights, uniform_shape
from decoders.model.engines.static import Bucket, StaticRows
from decoders.model.state.capture import Capture
from decoders.model.state.transfer import rows_of

from .buffers import FINE_ROWS, Buffers
from .compiled_parts import PartsForward
from .compiling import WORKSHOP, CompiledPart, OpenPart
from .layer_maker import rounded_shape

MAKER = f"{__package__}.layer_maker"


def why_not(target: Any) -> str | None:
    """The reason why a target's layers cannot be compiled, in one sentence; None where they can."""
    shape = target.shape
    if target.device.type != "cpu" or target.dtype != torch.float32:
        return f"forwards are compiled on a CPU in float32: {target.name} runs eagerly"
    if reason := shape.unlike_llama("forwards cannot be compiled of", "they can of"):
        return reason
    if uniform_shape(target, rounded_shape) is None:
        return f"forwards of {target.name} cannot be compiled: its layers differ from Llama's"
    return None


class CompiledForward(PartsForward):
    """Forwards of a target through compiled layers, as far as they are there (``ready``)."""

    sizes = FINE_ROWS  # one compiled layer serves them all
    step = 32  # keys that are hidden are attended to all the same
    titles: ClassVar = {True: "the model's layers, one row", False: "the model's layers, several rows"}

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        shapes = {one_row: rounded_shape(target.layers[0], target.shape, one_row) for one_row in (True, False)}
        self.parts = {one_row: CompiledPart.of(MAKER, shape.to_json()) for one_row, shape in shapes.items()}
        self.weights = {
            one_row: [layer_weights(layer, shape) for layer in target.layers] for one_row, shape in shapes.items()
        }
        self.layers: dict[bool, OpenPart] = {}

    def ready(self, rows: int) -> bool:
        """True if the layer for so many rows is there; one that was compiled meanwhile is opened."""
        one_row = rows == 1
        if one_row not in self.layers and (runner := WORKSHOP.open(self.parts[one_row])) is not None:
            self.layers[one_row] = runner
        return one_row in self.layers

    def forward(
        self, buffers: Buffers, bucket: Bucket, rows: StaticRows, needs: Needs, captured: Capture
    ) -> Float[Tensor, "rows vocab"]:
        store, count, target = rows.cache.store, rows.count, self.target
        assert store is not None
        cos, sin = self.rotary(buffers.positions, int(rows.positions.max()))
        run, slots, windows = self.layers[bucket.rows == 1].run, buffers.slots, target.shape.layer_windows
        queries, scale = heads_by_layer(needs.heads), target.shape.head_dim**-0.5
        x = buffers.embeddings
        for layer, weights in enumerate(self.weights[bucket.rows == 1]):
            if layer in needs.layers:
                captured.hidden[layer] = x[:count].clone() if x is buffers.embeddings else x[:count]
            mask = buffers.mask(bucket.keys, windows[layer])
            x, query = run([x, cos, sin, slots, mask, store[2 * layer], store[2 * layer + 1], *weights])
            if layer in queries:
                captured.queries[layer] = rows_of(query[:, :count], queries[layer]) * scale
        final = target.stack.norm(x[:count])
        if len(target.layers) in needs.layers:
            captured.hidden[len(target.layers)] = final
        return target.head(final[None])[0].float()
