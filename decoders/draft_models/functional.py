"""Draft networks as functions of tensors alone, to be compiled: the networks themselves on the meta device, whose
weights are arguments, so that one compiled part serves every network of the same sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from decoders.model.engines.layer import EXAMPLE_CAPACITY, EXAMPLE_KEYS, EXAMPLE_ROWS, take_packed_weights

from .config import DraftConfig
from .eagle_head import EagleConfig, EagleHead
from .network import DraftModel, TargetView
from .own_cache import Remember

ROW, TEXT, LEVEL = "row", "text", "level"  # one row; rows of a text, of which the last counts; a level of a tree


@dataclass(frozen=True, slots=True)
class ForwardShape:
    """The facts that a compiled forward depends on. ``kind`` says which rows it takes, ``packed`` names linear layers
    whose weights come packed, and ``kv_heads`` are the target's, where its cache is read.
    """

    config: DraftConfig | EagleConfig
    kind: str
    packed: tuple[str, ...] = ()
    kv_heads: int = 0

    def to_json(self) -> dict[str, Any]:
        network = "eagle" if isinstance(self.config, EagleConfig) else "draft"
        facts = {"kind": self.kind, "packed": list(self.packed), "kv_heads": self.kv_heads}
        return {"network": network, "config": self.config.to_json(), **facts}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ForwardShape:
        config = (EagleConfig if data["network"] == "eagle" else DraftConfig).from_json(data["config"])
        return cls(config, str(data["kind"]), tuple(data["packed"]), int(data["kv_heads"]))

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
    Returns the last row's logits [drafted], and its queries into the target's cache, per layer [1, heads, 1, head_dim].
    """

    unread: tuple[str, ...] = ()  # beginnings of names: weights that another forward reads

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
        return self.network.head(states)[0, -1], *(query[:, :, -1:] for query in queries)

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


class EagleRows(nn.Module):
    """A head's forward of pairs of a state and a token, whose keys and values it writes to the head's own cache.

    Tensors: states, ids, cos and sin (of a level: one row of each), the pairs' slots, and a mask that is added to the
    scores over the first keys. Returns the states that the pairs lead to, and logits after them: of a text, those of
    the last row alone.
    """

    def __init__(self, shape: ForwardShape) -> None:
        super().__init__()
        assert isinstance(shape.config, EagleConfig)
        self.network, self.kind = EagleHead(shape.config), shape.kind
        self.unread = ("fc.", "fc_norm.", "input_norm.") if shape.config.third else ()  # for the target's states

    def forward(self, tensors: list[Tensor], caches: list[Tensor]) -> tuple[Tensor, Tensor]:
        state, ids, cos, sin, slots, mask = tensors
        remember, last = write(caches, slots, mask.shape[1]), self.kind == TEXT
        states = self.network(state[None], ids[None], cos, sin, mask, remember, last_only=last)[0]
        return states, self.network.say(states)

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


class TensorForward(nn.Module):
    """A network's forward with its weights as arguments, in the order of ``sizes`` (name → size)."""

    inner: Any

    def __init__(self, shape: ForwardShape) -> None:
        super().__init__()
        with torch.device("meta"):
            inner = EagleRows(shape) if isinstance(shape.config, EagleConfig) else DraftRows(shape)
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
    """Compile a draft network's forward ahead of time into ``package`` (a .pt2 file); ``shape`` as of
    ``ForwardShape.to_json``. Takes tens of seconds and a C++ compiler.
    """
    about, dynamic_size = ForwardShape.from_json(shape), torch.export.Dim.DYNAMIC
    forward = TensorForward(about)
    tensors, masks, caches = forward.inner.example(about)
    if about.packed:
        take_packed_weights()
    free = [{0: dynamic_size} if len(tensor) > 1 else {} for tensor in tensors]
    for place in masks:
        free[place][1] = dynamic_size
    weights = [torch.zeros(size) for size in forward.sizes.values()]  # packed ones stand there unpacked
    dynamic = (free, [{2: dynamic_size}] * len(caches), [None] * len(weights))
    with torch.no_grad():
        program = torch.export.export(forward, (tensors, caches, weights), dynamic_shapes=dynamic, strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=package)
