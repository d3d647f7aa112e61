"""The shape of a draft model, and which targets GLIDE can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from decoders.errors import UserError
from decoders.model.files.shape import ModelShape

from .borrowing import ConfigJson, drafted_count

LARGE_VOCAB = 8192  # beyond this, a draft model has the target's embedding and head


@dataclass(frozen=True, slots=True)
class DraftConfig(ConfigJson):
    """The shape of a draft model; ``kv_layers`` names the target's layer that each of its layers glimpses (none:
    a vanilla drafter). ``shared``: embedding and head are the target's, which the part does not hold;
    ``draft_vocab``: how many of its tokens can be drafted (0: all).
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    mlp: int
    eps: float = 1e-6
    kv_layers: tuple[int, ...] = ()
    target_heads: int = 0
    target_head_dim: int = 0
    query_bias: bool = False
    query_norm: bool = False
    shared: bool = False
    draft_vocab: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_layers", tuple(map(int, self.kv_layers)))

    @property
    def cache_width(self) -> int:
        """Numbers of its keys at a position, and of its values."""
        return self.layers * self.hidden

    @classmethod
    def of(
        cls, shape: ModelShape, *, glimpse: bool, layers: int = 1, hidden: int | None = None, mlp: int | None = None,
        kv_layer: int | None = None, shared: bool | None = None, draft_vocab: int = 0,
    ) -> DraftConfig:  # fmt: skip
        """The draft model for a target of this shape; sizes not given are the target's own. ``shared`` where the
        vocabulary is large and the width is the target's, unless it is said.

        Layer m of N reads the target's layer depth - N + m (GLIDE §4.1); with ``kv_layer`` (from 0) the last one reads
        that layer and the others those before it. Raises UserError for a target that cannot be glimpsed at.
        """
        depth, width = shape.layers, hidden or shape.hidden
        heads = shape.heads if width % shape.heads == 0 else max(1, width // 64)
        if width % (2 * heads):
            raise UserError(f"a draft model of width {width} is not possible: give a multiple of {2 * heads}")
        if shared is None:
            shared = width == shape.hidden and shape.vocab > LARGE_VOCAB
        if shared and width != shape.hidden:
            raise UserError(f"a draft model of width {width} cannot share an embedding of width {shape.hidden}")
        if draft_vocab and not shared:
            raise UserError("a draft vocabulary goes with the target's embedding and head")
        common: dict[str, Any] = {
            "shared": shared, "draft_vocab": drafted_count(draft_vocab, shape.vocab),
            "vocab": shape.vocab, "hidden": width, "layers": layers, "heads": heads,
            "mlp": mlp or round(width * shape.mlp / shape.hidden), "eps": shape.norm_eps,
        }  # fmt: skip
        if not glimpse:
            if kv_layer is not None:
                raise UserError("a vanilla drafter reads no target layer: leave the KV layer out, or train GLIDE")
            return cls(**common)
        if reason := refusal(shape):
            raise UserError(reason)
        last = depth - 1 if kv_layer is None else kv_layer
        if not layers - 1 <= last < depth:
            raise UserError(
                f"KV layer {last} is out of range: with {layers} draft layer{'s' * (layers > 1)} it is "
                f"{layers - 1} to {depth - 1}"
            )
        return cls(
            **common, kv_layers=tuple(range(last - layers + 1, last + 1)), target_heads=shape.heads,
            target_head_dim=shape.head_dim, query_bias=shape.query_bias, query_norm=shape.query_norm,
        )  # fmt: skip

    def misfit(self, shape: ModelShape) -> str | None:
        """The reason why a draft model of this shape cannot run on such a target, in a clause; None if it can."""
        if self.vocab != shape.vocab:
            return f"it drafts for {self.vocab:,} tokens, and the vocabulary has {shape.vocab:,}"
        return None


def refusal(shape: ModelShape) -> str | None:
    """The reason why GLIDE cannot read this target's cached keys, in one sentence; None if it can."""
    return shape.unlike_llama("GLIDE cannot read the cached keys of", "it can those of")
