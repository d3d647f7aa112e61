"""Mixin: the embedding and head of a target, whole or of the commonest tokens, in small networks beside it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

UNLIKELY = -1e4  # logit of a token outside the draft vocabulary: finite, and its probability is 0


def drafted_count(draft_vocab: int, vocab: int) -> int:
    """The number of tokens that can be drafted as a configuration has it: 0 where it is all of the target's."""
    return draft_vocab if draft_vocab < vocab else 0


class ConfigJson:
    """Mixin of configurations, which are dataclasses: as JSON, and back."""

    __slots__ = ()

    def to_json(self: Any) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Back from ``to_json``. Raises TypeError or ValueError for anything else."""
        return cls(**data)


class Borrowing(nn.Module):
    """A network that uses the target's embedding and head: they are not among its parameters, so its file holds
    neither.

    Its ``config`` has ``vocab``, ``hidden``, ``shared`` (the head is the target's) and ``draft_vocab`` (0: all tokens
    can be drafted; else ``drafted`` has those that can, ascending).
    """

    config: Any
    head: Any
    embedding: Any

    def __init__(self, draft_vocab: int) -> None:
        super().__init__()
        self.drafted: Tensor | None
        self.register_buffer("drafted", torch.arange(draft_vocab, dtype=torch.int32) if draft_vocab else None)

    def add_own_tables(self) -> None:
        """An output layer where the head is not the target's, and an embedding where the configuration has one
        (``own_embedding``).
        """
        config = self.config
        if not config.shared:
            self.lm_head = nn.Linear(config.hidden, config.draft_vocab or config.vocab, bias=False)
        if config.own_embedding:
            self.embed_tokens = nn.Embedding(config.vocab, config.hidden)

    def draw_weights(self, seed: int, std: float | None = None) -> None:
        """Random matrices, by default with rows of the length 1 on average, and biases of zero."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                parameter.data.normal_(0, std or parameter.shape[1] ** -0.5, generator=generator)
            elif name.endswith("bias"):
                parameter.data.zero_()

    @torch.no_grad()
    def share(self, embedding: Float[Tensor, "vocab hidden"], head: Float[Tensor, "vocab hidden"]) -> None:
        """Take the target's embedding, unless there is one of its own (``embed_tokens``), and, where the head is the
        target's, its rows of the tokens that can be drafted. Of a wider target (one that an earlier version grew) these
        are the first columns. Comes after any move to a dtype or device.
        """
        like, width = next(self.parameters()), self.config.hidden
        own_embedding = getattr(self, "embed_tokens", None)
        table = (
            nn.Embedding.from_pretrained(embedding.detach()[:, :width].to(like))
            if own_embedding is None
            else own_embedding
        )
        object.__setattr__(self, "embedding", table)  # past nn.Module, which would make it a part of this one
        if not self.config.shared:
            return
        rows = head.detach()[:, :width] if self.drafted is None else head.detach()[self.drafted.long(), :width]
        linear = nn.Linear(*rows.mT.shape, bias=False, device="meta")
        linear.weight = nn.Parameter(rows.to(like), requires_grad=False)
        object.__setattr__(self, "head", linear)

    def full_logits(self, logits: Float[Tensor, "*rows drafted"]) -> Float[Tensor, "*rows vocab"]:
        """Logits, or log-probabilities, over the whole vocabulary: tokens that cannot be drafted are never likely."""
        if self.drafted is None:
            return logits
        full = logits.new_full((*logits.shape[:-1], self.config.vocab), UNLIKELY)
        full[..., self.drafted.long()] = logits
        return full
