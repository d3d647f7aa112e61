"""A draft model's forward as one function of tensors: what is compiled. Weights are arguments, as in
``decoders.model.layer``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from decoders.model.layer import take_packed_weights

from .config import DraftConfig

EXAMPLE_ROWS, EXAMPLE_KEYS, EXAMPLE_CAPACITY = 6, 96, 160  # numbers that stand for any, apart from one row


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a compiled draft forward depends on. ``kv_heads`` are the target's; ``packed`` names weights; ``one_row``:
    it takes one row, else any number above one.
    """

    config: DraftConfig
    kv_heads: int
    packed: tuple[str, ...]
    one_row: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "config": self.config.to_json(), "kv_heads": self.kv_heads, "packed": list(self.packed),
            "one_row": self.one_row,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StepShape:
        config = DraftConfig.from_json(data["config"])
        return cls(config, int(data["kv_heads"]), tuple(data["packed"]), bool(data["one_row"]))


def sizes_of(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """The weights of a draft forward by name, in the order in which it takes them: their sizes."""
    width, theirs = config.hidden, config.target_heads * config.target_head_dim
    sizes: dict[str, tuple[int, ...]] = {"embedding": (config.vocab, width)}
    for i in range(config.layers):
        layer = {"norm": (width,), "qkv": (3 * width, width), "out": (width, width)}
        if config.kv_layers:
            layer |= {"glimpse.norm": (width,), "glimpse.query": (theirs, width), "glimpse.out": (width, theirs)}
            layer |= {"glimpse.query.bias": (theirs,)} if config.query_bias else {}
            layer |= {"glimpse.query_norm": (config.target_head_dim,)} if config.query_norm else {}
        layer |= {"mlp_norm": (width,), "gate_up": (2 * config.mlp, width), "down": (width, config.mlp)}
        sizes |= {f"layers.{i}.{name}": size for name, size in layer.items()}
    return sizes | {"norm": (width,), "head": (config.draft_vocab or config.vocab, width)}


def _each(config: DraftConfig) -> int:
    """Cache tensors per layer: keys and values, and the target's."""
    return 4 if config.kv_layers else 2


class StepWeights:
    """A forward's weights by name; those in ``packed`` are packed, ``eps`` is that of its norms."""

    def __init__(self, by_name: Mapping[str, Tensor], packed: Collection[str], eps: float) -> None:
        self.by_name, self.packed, self.eps = by_name, packed, eps

    def __getitem__(self, name: str) -> Tensor:
        return self.by_name[name]

    def linear(self, name: str, rows: Tensor) -> Tensor:
        """A linear layer, with a bias where there is one of its name."""
        bias = self.by_name.get(f"{name}.bias")
        if name in self.packed:
            return torch.ops.mkldnn._linear_pointwise(rows, self.by_name[name], bias, "none", [], "")
        return F.linear(rows, self.by_name[name], bias)

    def normed(self, name: str, rows: Tensor) -> Tensor:
        return F.rms_norm(rows, (rows.shape[-1],), self.by_name[name], self.eps)


def turned(states: Float[Tensor, "rows heads size"], cos: Tensor, sin: Tensor) -> Float[Tensor, "heads rows size"]:
    """Rotary positions, as ``network.rotate``."""
    half = states.shape[-1] // 2
    swapped = torch.cat((-states[..., half:], states[..., :half]), -1)
    return (states * cos[:, None] + swapped * sin[:, None]).transpose(0, 1)


def attended(
    query: Float[Tensor, "heads rows size"], keys: Tensor, values: Tensor, mask: Float[Tensor, "rows keys"]
) -> Float[Tensor, "rows joined"]:
    """Attention over the first keys of a cache ``[1, kv_heads, capacity, size]``, the heads joined."""
    heads, rows, size = query.shape
    group, seen = heads // keys.shape[1], mask.shape[1]
    folded = query.reshape(1, keys.shape[1], group * rows, size)
    masks = mask.repeat(group, 1) if group > 1 else mask
    out = F.scaled_dot_product_attention(folded, keys[:, :, :seen], values[:, :, :seen], attn_mask=masks[None, None])
    return out.reshape(heads, rows, size).transpose(0, 1).reshape(rows, -1)


def compile_step(step: nn.Module, arguments: tuple[Any, ...], dynamic: Any, package: str, *, packed: bool) -> None:
    """Compile a forward ahead of time into ``package``, for sizes that are ``dynamic`` as torch.export names them."""
    if packed:
        take_packed_weights()
    with torch.no_grad():
        program = torch.export.export(step, arguments, dynamic_shapes=dynamic, strict=False)
        torch._inductor.aoti_compile_and_package(program, package_path=package)


class DraftStep(nn.Module):
    """The forward itself: rows behind those in the draft model's own cache, whose keys and values it writes there.

    ``mask`` and ``their_mask`` are added to the scores over the first own keys, and over the target's. Returns the last
    row's logits [drafted], and its queries into the target's cache, per layer [1, heads, 1, head_dim].
    """

    def __init__(self, shape: StepShape) -> None:
        super().__init__()
        self.shape, self.names = shape, list(sizes_of(shape.config))

    def forward(
        self, ids: Int[Tensor, "rows"], cos: Float[Tensor, "rows size"], sin: Float[Tensor, "rows size"],
        their_cos: Float[Tensor, "rows head_dim"], their_sin: Float[Tensor, "rows head_dim"],
        slots: Int[Tensor, "rows"], mask: Float[Tensor, "rows keys"], their_mask: Float[Tensor, "rows theirs"],
        caches: list[Tensor], weights: list[Tensor],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        config = self.shape.config
        made = StepWeights(dict(zip(self.names, weights, strict=True)), self.shape.packed, config.eps)
        each, size, queries = _each(config), config.hidden // config.heads, list[Tensor]()
        x = F.embedding(ids, made["embedding"])
        for i in range(config.layers):
            name, (keys, values, *theirs) = f"layers.{i}", caches[i * each : (i + 1) * each]
            qkv = made.linear(f"{name}.qkv", made.normed(f"{name}.norm", x)).view(x.shape[0], 3, config.heads, size)
            query, key = turned(qkv[:, 0], cos, sin), turned(qkv[:, 1], cos, sin)
            keys.index_copy_(2, slots, key[None])
            values.index_copy_(2, slots, qkv[:, 2].transpose(0, 1)[None])
            if i == config.layers - 1 and not self.shape.one_row:  # nothing follows but the last row's logits
                x, query, mask = x[-1:], query[:, -1:], mask[-1:]
                their_cos, their_sin, their_mask = their_cos[-1:], their_sin[-1:], their_mask[-1:]
            x = x + made.linear(f"{name}.out", attended(query, keys, values, mask))
            if theirs:
                glimpse = f"{name}.glimpse"
                query = made.linear(f"{glimpse}.query", made.normed(f"{glimpse}.norm", x))
                query = query.view(x.shape[0], config.target_heads, -1)
                if config.query_norm:
                    query = made.normed(f"{glimpse}.query_norm", query)
                query = turned(query, their_cos, their_sin)
                queries.append(query[None, :, -1:])
                x = x + made.linear(f"{glimpse}.out", attended(query, theirs[0], theirs[1], their_mask))
            gate, up = made.linear(f"{name}.gate_up", made.normed(f"{name}.mlp_norm", x)).chunk(2, -1)
            x = x + made.linear(f"{name}.down", F.silu(gate) * up)
        return made.linear("head", made.normed("norm", x))[-1], *queries


def build(shape: dict[str, Any], package: str) -> None:
    """Compile a draft forward ahead of time into ``package``; ``shape`` as of ``StepShape.to_json``."""
    step, some = StepShape.from_json(shape), torch.export.Dim.DYNAMIC
    config, rows = step.config, 1 if step.one_row else EXAMPLE_ROWS
    size, their_size = config.hidden // config.heads, config.target_head_dim or 2
    own = (1, config.heads, EXAMPLE_CAPACITY, size)
    theirs = (1, step.kv_heads, EXAMPLE_CAPACITY + 8, their_size)
    caches = [torch.zeros(of) for _ in range(config.layers) for of in (own, own, theirs, theirs)[: _each(config)]]
    arguments = (
        torch.zeros(rows, dtype=torch.long), torch.zeros(rows, size), torch.zeros(rows, size),
        torch.zeros(rows, their_size), torch.zeros(rows, their_size), torch.arange(rows),
        torch.zeros(rows, EXAMPLE_KEYS), torch.zeros(rows, EXAMPLE_KEYS - 8), caches,
        [torch.zeros(of) for of in sizes_of(config).values()],
    )  # fmt: skip
    some_rows = None if step.one_row else {0: some}
    mask = {1: some} if step.one_row else {0: some, 1: some}
    dynamic = (*[some_rows] * 6, mask, mask, [{2: some}] * len(caches), [None] * len(arguments[-1]))
    compile_step(DraftStep(step), arguments, dynamic, package, packed=bool(step.packed))
