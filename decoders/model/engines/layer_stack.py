"""A model of Llama's build as one function over its layers, with half of the operations of stock code: projections of
the same rows are one product, queries and keys turn together, and norms are one operation each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from decoders.draft.needs import Needs, heads_by_layer

from ..state.cache import TreeCache
from ..state.capture import Capture
from ..state.transfer import rows_of
from .captured_inputs import CapturedMasks
from .joint import GROUPS
from .layer import LINEARS, LayerShape, LlamaLayer, layer_weights, uniform_shape

Compile = Callable[[torch.fx.GraphModule], Callable[..., Any]]


class BySize:
    """A function of tensors, traced and compiled anew for all their sizes and strides: each by itself, as torch.compile
    keeps few of one function.
    """

    def __init__(self, function: Callable[..., Any], compile: Compile) -> None:
        self.function, self.compile = function, compile
        self.by_size: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *tensors: Tensor) -> Any:
        key = tuple((tensor.shape, tensor.stride()) for tensor in tensors)
        if key not in self.by_size:
            self.by_size[key] = self.compile(make_fx(self.function)(*tensors))
        return self.by_size[key](*tensors)


class LayerStack:
    """The layers of a target, whose weights stay its modules' own: those of projections that are computed as one lie
    side by side.
    """

    def __init__(self, target: Any, shape: LayerShape) -> None:
        self.target = target
        self.weights = [join_weights(layer_weights(layer, shape), shape) for layer in target.layers]
        biased = tuple(name for name in shape.biased if name not in GROUPS[0][1:])
        self.layer = LlamaLayer(replace(shape, joint=tuple(names[0] for names in GROUPS), biased=biased))

    @classmethod
    def of(cls, target: Any) -> Self | None:
        """None for a target that is not of Llama's build, or whose weights lie otherwise."""
        if target.info["packed"] or target.shape.unlike_llama("", "") or "weights" in target.info:
            return None
        shape = uniform_shape(target)
        biased = {*shape.biased} if shape else set()
        if shape is None or biased & {*GROUPS[1]} or len({name in biased for name in GROUPS[0]}) > 1:
            return None
        return cls(target, shape)

    def compile_with(self, compile: Compile) -> Self:
        """The same layers, all of which but attention is compiled, once for all of them and each number of rows."""
        stack = copy.copy(self)
        stack.layer = LlamaLayer(self.layer.shape)
        for name in ("project", "transform"):
            setattr(stack.layer, name, BySize(getattr(self.layer, name), compile))
        return stack

    def compile_rows(self, rows: int) -> None:
        """Have what such a stack compiles made for a number of rows."""
        shape, weights = self.layer.shape, self.weights[0]
        x, turns = (weights[0].new_zeros(rows, size) for size in (shape.hidden, shape.head_dim))
        query, _, _ = self.layer.project(x, turns, turns.clone(), *weights)
        self.layer.transform(x, query[None].contiguous(), *weights)

    def rotary(self, rows: int) -> tuple[Tensor, Tensor]:
        """cos and sin ``[rows, head_dim]`` of the first positions."""
        weight = self.target.stack.norm.weight
        cos, sin = self.target.stack.rotary_emb(weight, position_ids=torch.arange(rows, device=weight.device)[None])
        return cos[0].contiguous(), sin[0].contiguous()

    def __call__(
        self, x: Float[Tensor, "rows hidden"], turns: tuple[Tensor, Tensor], positions: Int[Tensor, " rows"],
        slots: Int[Tensor, " rows"], masks: CapturedMasks, cache: TreeCache, needs: Needs, capture: Capture,
    ) -> Float[Tensor, "rows vocab"]:  # fmt: skip
        """Logits of rows whose keys and values go to ``slots`` of the cache; ``turns`` as of ``rotary``."""
        target, store = self.target, cache.store
        assert store is not None
        cos, sin = (table.index_select(0, positions) for table in turns)
        heads, scale = heads_by_layer(needs.heads), target.shape.head_dim**-0.5
        for number, weights in enumerate(self.weights):
            if number in needs.layers:
                capture.hidden[number] = x
            mask = masks.of(target.shape.layer_windows[number])
            mask = mask[0, 0] if isinstance(mask, Tensor) else mask
            x, query = self.layer(x, cos, sin, slots, mask, store[2 * number], store[2 * number + 1], weights)
            if number in heads:
                capture.queries[number] = rows_of(query, heads[number]) * scale
        final = target.stack.norm(x)
        if len(self.weights) in needs.layers:
            capture.hidden[len(self.weights)] = final
        return target.head(final[None])[0].float()


@torch.no_grad()
def join_weights(weights: list[Tensor], shape: LayerShape) -> list[Tensor]:
    """A layer's weights as ``LlamaLayer`` takes them where projections are joint: each of these keeps its part as a
    view of the whole.
    """
    stop = len(weights) - len(shape.biased)
    norms, biases = weights[: stop - len(LINEARS)], dict(zip(shape.biased, weights[stop:], strict=True))
    linears = dict(zip(LINEARS, weights[stop - len(LINEARS) : stop], strict=True))

    def join(named_tensors: dict[str, Tensor], names: tuple[str, ...]) -> None:
        tensors = [named_tensors.pop(name) for name in names[1:]]
        tensors = [named_tensors[names[0]], *tensors]
        whole = torch.cat([tensor.data for tensor in tensors])
        for tensor, view in zip(tensors, whole.split([len(tensor) for tensor in tensors]), strict=True):
            tensor.data = view
        named_tensors[names[0]] = whole

    for names in GROUPS:
        join(linears, names)
        if names[0] in biases:
            join(biases, names)
    return [*norms, *linears.values(), *biases.values()]
