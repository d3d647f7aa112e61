"""An EAGLE head's forward as one function of tensors: what is compiled. Weights are arguments, as in ``step``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from .eagle_head import EagleConfig
from .step import EXAMPLE_CAPACITY, EXAMPLE_KEYS, EXAMPLE_ROWS, StepWeights, attended, compile_step, turned

LEVEL, TEXT, ROW = "level", "text", "row"  # a level of a tree; rows of a text, of which the last is told; one row


@dataclass(frozen=True, slots=True)
class EagleStepShape:
    """What a compiled forward of a head depends on. ``packed`` names weights; ``kind`` says which rows it takes."""

    config: EagleConfig
    packed: tuple[str, ...]
    kind: str

    def to_json(self) -> dict[str, Any]:
        return {"config": self.config.to_json(), "packed": list(self.packed), "kind": self.kind}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> EagleStepShape:
        return cls(EagleConfig.from_json(data["config"]), tuple(data["packed"]), str(data["kind"]))


def sizes_of(config: EagleConfig) -> dict[str, tuple[int, ...]]:
    """The weights of a head's forward by name, in the order in which it takes them: their sizes. EAGLE-3's ``fc`` reads
    what the target made of a text, and stays outside.
    """
    width, own, theirs = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    sizes: dict[str, tuple[int, ...]] = {"embedding": (config.vocab, width)}
    if not config.third:
        sizes["fc"] = (width, width + config.target_hidden)
        sizes |= {"fc.bias": (width,)} if config.fc_bias else {}
    for i in range(config.layers):
        name, pairs = f"layers.{i}", config.third and i == 0
        sizes |= {f"{name}.input_layernorm": (width,)} if config.third or i else {}
        sizes |= {f"{name}.hidden_norm": (width,)} if pairs else {}
        for part, rows, read, bias in (
            ("q_proj", own, width * (1 + pairs), config.qkv_bias),
            ("k_proj", theirs, width * (1 + pairs), config.qkv_bias),
            ("v_proj", theirs, width * (1 + pairs), config.qkv_bias),
            ("o_proj", width, own, config.out_bias),
        ):
            sizes[f"{name}.self_attn.{part}"] = (rows, read)
            sizes |= {f"{name}.self_attn.{part}.bias": (rows,)} if bias else {}
        sizes[f"{name}.post_attention_layernorm"] = (width,)
        sizes |= {f"{name}.mlp.{part}_proj": (config.mlp, width) for part in ("gate", "up")}
        sizes[f"{name}.mlp.down_proj"] = (width, config.mlp)
    sizes |= {"norm": (width,)} if config.third else {}
    sizes |= {"center": (width,), "spread": (width,)} if config.scaled else {}
    return sizes | {"head": (config.draft_vocab or config.vocab, width)}


class EagleStep(nn.Module):
    """The forward itself: pairs of a state and a token, whose keys and values it writes to the head's own cache.

    ``mask`` is added to the scores over the first keys. Returns the states that the pairs lead to, and logits after
    them: of a text, those of the last row alone.
    """

    def __init__(self, shape: EagleStepShape) -> None:
        super().__init__()
        self.shape, self.names = shape, list(sizes_of(shape.config))

    def forward(
        self, state: Float[Tensor, "rows state"], ids: Int[Tensor, "rows"], cos: Float[Tensor, "places size"],
        sin: Float[Tensor, "places size"], slots: Int[Tensor, "rows"], mask: Float[Tensor, "rows keys"],
        caches: list[Tensor], weights: list[Tensor],
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        config = self.shape.config
        made = StepWeights(dict(zip(self.names, weights, strict=True)), self.shape.packed, config.eps)
        embedded = F.embedding(ids, made["embedding"])
        x = state if config.third else made.linear("fc", torch.cat([embedded, state], -1))
        for i in range(config.layers):
            name, (keys, values) = f"layers.{i}", caches[2 * i : 2 * i + 2]
            read = residual = x
            if config.third and i == 0:
                normed = made.normed(f"{name}.hidden_norm", x)
                read = torch.cat([made.normed(f"{name}.input_layernorm", embedded), normed], -1)
                residual = normed if config.norm_before_residual else x
            elif config.third or i:
                read = made.normed(f"{name}.input_layernorm", x)
            parts = (made.linear(f"{name}.self_attn.{part}_proj", read) for part in "qkv")
            query, key, value = (part.unflatten(-1, (-1, config.head_dim)) for part in parts)
            query, key = turned(query, cos, sin), turned(key, cos, sin)
            keys.index_copy_(2, slots, key[None])
            values.index_copy_(2, slots, value.transpose(0, 1)[None])
            if i == config.layers - 1 and self.shape.kind == TEXT:
                residual, query, mask = residual[-1:], query[:, -1:], mask[-1:]
            x = residual + made.linear(f"{name}.self_attn.o_proj", attended(query, keys, values, mask))
            normed = made.normed(f"{name}.post_attention_layernorm", x)
            gate, up = (made.linear(f"{name}.mlp.{part}_proj", normed) for part in ("gate", "up"))
            x = x + made.linear(f"{name}.mlp.down_proj", F.silu(gate) * up)
        said = made.normed("norm", x) if config.third else x
        if config.scaled:
            said = x * made["spread"] + made["center"]
        return said if config.norm_output else x, made.linear("head", said)


def build(shape: dict[str, Any], package: str) -> None:
    """Compile a head's forward ahead of time into ``package``; ``shape`` as of ``EagleStepShape.to_json``."""
    step, some = EagleStepShape.from_json(shape), torch.export.Dim.DYNAMIC
    config, rows = step.config, 1 if step.kind == ROW else EXAMPLE_ROWS
    places = 1 if step.kind == LEVEL else rows
    state = config.hidden if config.third else config.target_hidden
    caches = [torch.zeros(1, config.kv_heads, EXAMPLE_CAPACITY, config.head_dim) for _ in range(2 * config.layers)]
    arguments = (
        torch.zeros(rows, state), torch.zeros(rows, dtype=torch.long), torch.zeros(places, config.head_dim),
        torch.zeros(places, config.head_dim), torch.arange(rows), torch.zeros(rows, EXAMPLE_KEYS), caches,
        [torch.zeros(of) for of in sizes_of(config).values()],
    )  # fmt: skip
    some_rows, some_places = ({0: some} if count > 1 else None for count in (rows, places))
    mask = {1: some} if rows == 1 else {0: some, 1: some}
    dynamic = (
        some_rows, some_rows, some_places, some_places, some_rows, mask, [{2: some}] * len(caches),
        [None] * len(arguments[-1]),
    )  # fmt: skip
    compile_step(EagleStep(step), arguments, dynamic, package, packed=bool(step.packed))
