"""Draft networks as functions of tensors alone, to be compiled: the networks themselves on the meta device, whose
weights are arguments, so that one compiled part serves every network of the same sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from decoders.draft_models.config import DraftConfig
from decoders.draft_models.network import DraftModel, TargetView
from decoders.draft_models.own_cache import Remember
from decoders.method.part import PartConfig

from .layer_maker import EXAMPLE_CAPACITY, EXAMPLE_KEYS, EXAMPLE_ROWS, take_packed_weights

OUTPUT = ("head.", "lm_head.")  # the output layer: what a forward leads to goes through it behind the compiled part
ROW, TEXT, LEVEL = "row", "text", "level"  # one row; rows of a text, of which the last counts; a level of a tree


@dataclass(frozen=True, slots=True)
class ForwardShape:
    """The facts that a compiled forward depends on. ``kind`` says which rows it takes, ``packed`` names linear layers
    whose weights come packed, and ``kv_heads`` are the target's, where its cache is read.
    """

    config: Any
    kind: str
    packed: tuple[str, ...] = ()
    kv_heads: int = 0

    def to_json(self) -> dict[str, Any]:
        facts = {"kind": self.kind, "packed": list(self.packed), "kv_heads": self.kv_heads}
        return {"config": self.config.to_json(), **facts}

    @classmethod
    def from_json(cls, data: dict[str, Any], config: type[PartConfig]) -> ForwardShape:
        """Back from ``to_json``; ``config`` is the class of its configuration."""
        return cls(config.from_json(data["config"]), str(data["kind"]), tuple(data["packed"]), int(data["kv_heads"]))

    @property
    def rows(self) -> int:
        """Rows of the example that a forward is traced with."""
        return 1 if self.kind == ROW else EXAMPLE_ROWS


class PackedArgument(nn.Module):
    """A linear layer whose weight comes packed (``PackedLinear.packed``)."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = plain.weight, plain.bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def write(caches: list[Tensor], slots: Tensor, row_count: int) -> Remember:
    """Write rows' keys and values to ``slots`` of the caches, two per layer; gives the first ``row_count`` rows of
    each.
    """

    def remember(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        pair = caches[2 * layer : 2 * layer + 2]
        for cache, rows in zip(pair, (keys, values), strict=True):
            cache.index_copy_(2, slots, rows)
        return pair[0][:, :, :row_count], pair[1][:, :, :row_count]

    return remember


class DraftRows(nn.Module):
    """A draft model's forward of rows behind those in its own cache, whose keys and values it writes there.

    Tensors: ids, cos and sin of the rows, the target's cos and sin, the rows' slots, and masks that are added to the
    scores over the first own keys and over the target's. Caches: keys and values per layer, then those of the target.
    Returns the last row's state [1, hidden], and its queries into the target's cache, per layer
    [1, heads, 1, head_dim].
    """

    unread: tuple[str, ...] = OUTPUT  # beginnings of names: weights that are read elsewhere

    def __init__(self, shape: ForwardShape) -> None:
        super().__init__()
        assert isinstance(shape.config, DraftConfig)
        self.network, self.kind = DraftModel(shape.config), shape.kind

    def forward(self, tensors: list[Tensor], caches: list[Tensor]) -> tuple[Tensor, ...]:
        ids, cos, sin, their_cos, their_sin, slots, mask, their_mask = tensors
        layers, queries, views = self.network.config.layers, list[Tensor](), list[TargetView | None]()
        draft_caches, target_caches = caches[: 2 * layers], caches[2 * layers :]
        for i in range(len(target_caches) // 2):
            keys, values = (cache[:, :, : their_mask.shape[1]] for cache in target_caches[2 * i : 2 * i + 2])
            at = slice(-1 if i == layers - 1 and self.kind == TEXT else 0, None)
            views.append(TargetView(keys, values, their_cos[at], their_sin[at], their_mask[at], queries))
        remember = write(draft_caches, slots, mask.shape[1])
        states = self.network(ids[None], views, (cos, sin), mask, remember, last_only=self.kind == TEXT)
        return states[0, -1:], *(query[:, :, -1:] for query in queries)

    @staticmethod
    def example(shape: ForwardShape) -> tuple[list[Tensor], list[int], list[Tensor]]:
        """Tensors to trace it with, which of them are masks, and caches."""
        config, rows = shape.config, shape.rows
        assert isinstance(config, DraftConfig)
        size, target_size = config.hidden // config.heads, config.target_head_dim or 2
        draft_caches = [torch.zeros(1, config.heads, EXAMPLE_CAPACITY, size) for _ in range(2 * config.layers)]
        read = [
            torch.zeros(1, shape.kv_heads, EXAMPLE_CAPACITY + 8, target_size) for _ in range(2 * len(config.kv_layers))
        ]
        turns = [torch.zeros(rows, width) for width in (size, size, target_size, target_size)]
        masks = [torch.zeros(rows, keys) for keys in (EXAMPLE_KEYS, EXAMPLE_KEYS - 8)]
        return [torch.zeros(rows, dtype=torch.long), *turns, torch.arange(rows), *masks], [6, 7], [*draft_caches, *read]


class TensorForward(nn.Module):
    """The forward ``rows`` of a network with its weights as arguments, in the order of ``sizes`` (name → size)."""

    inner: Any

    def __init__(self, shape: ForwardShape, rows: type[nn.Module]) -> None:
        super().__init__()
        with torch.device("meta"):
            inner: Any = rows(shape)
            network, config = inner.network, shape.config
            network.share(*torch.empty(2, config.vocab, config.hidden))
        for name in shape.packed:
            parent, _, last = name.rpartition(".")
            owner: Any = network.get_submodule(parent)
            put = object.__setattr__ if last in vars(owner) else setattr  # what is borrowed is no part of the network
            put(owner, last, PackedArgument(getattr(owner, last)))
        weights = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        weights |= {
            f"{name}.weight": module.weight for name, module in vars(network).items() if isinstance(module, nn.Module)
        }
        weights.pop("drafted", None)
        self.sizes = {n: tuple(weight.shape) for n, weight in weights.items() if not n.startswith(inner.unread)}
        object.__setattr__(self, "inner", inner)  # past nn.Module: what is exported has no weights of its own

    def forward(self, tensors: list[Tensor], caches: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, ...]:
        named_weights = {f"network.{name}": weight for name, weight in zip(self.sizes, weights, strict=True)}
        return functional_call(self.inner, named_weights, (tensors, caches))


def build(shape: dict[str, Any], package: str) -> None:
    """Compile a draft model's forward as ``compile_rows`` does; ``shape`` as of ``ForwardShape.to_json``."""
    compile_rows(ForwardShape.from_json(shape, DraftConfig), DraftRows, package)


def compile_rows(shape: ForwardShape, rows: type[nn.Module], package: str) -> None:
    """Compile a draft network's forward ahead of time into ``package`` (a .pt2 file). Takes tens of seconds and a C++
    compiler.
    """
    dynamic_size = torch.export.Dim.DYNAMIC
    forward = TensorForward(shape, rows)
    tensors, masks, caches = forward.inner.example(shape)
    if shape.packed:
        take_packed_weights()
    free = [{0: dynamic_size} if len(tensor) > 1 else {} for tensor in tensors]
    for place in masks:
        free[place][1] = dynamic_size
    weights = [torch.zeros(size) for size in forward.sizes.values()]  # packed ones stand there unpacked
    dynamic = (free, [{2: dynamic_size}] * len(caches), [None] * len(weights))
    with torch.no_grad():
        program = torch.export.export(forward, (tensors, caches, weights), dynamic_shapes=dynamic, strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=package)
