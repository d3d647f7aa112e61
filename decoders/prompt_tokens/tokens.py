"""PPD's prompt tokens: trained embeddings that make the target guess tokens further ahead (PPD §3.2, appendix D).

Prompt token i (from 1) hangs on a node at position p, sits at position p + i, and its logits guess the token at
position p + i + 1. The node's own logits give position p + 1: where the node is the last accepted one, that token is
the next step's root, and prompt token i guesses the token i places behind it.

The ablations of appendix D may be combined: masks (D.5) and learned weights (D.6) of a token's vectors, prefix tokens
that only prompt tokens see (D.3), a head of their own (D.4), the joined states of the last layers (D.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from decoders.draft.draft import Probe, Reading
from decoders.draft_models.borrowing import ConfigJson
from decoders.model.files.shape import ModelShape
from decoders.names import MASKS

MOST_TOKENS, MOST_VECTORS, MOST_PREFIX = 16, 128, 16
KIND = "prompt"


@dataclass(frozen=True, slots=True)
class PromptConfig(ConfigJson):
    """Shape of prompt tokens: ``tokens`` (m) of ``vectors`` (n, EPTs) each, of the target's ``hidden`` size.

    ``mask`` says which vectors of the same group a vector sees; ``learned``: the n logits, and the states of several
    exits, are summed by learned weights instead of averaged (appendix D.6). Each token sees ``prefix`` prefix tokens of
    its own, whose keys and values have the target's shape ``cached`` (layers, key/value heads, head size; all 0 without
    prefix tokens). The states after the last ``exits`` layers are joined. ``vocab``: the rows of a head of their own
    (0: the target's).
    """

    tokens: int
    vectors: int
    hidden: int
    mask: str = "ensemble"
    learned: bool = False
    prefix: int = 0
    cached: tuple[int, int, int] = (0, 0, 0)
    exits: int = 1
    vocab: int = 0

    @classmethod
    def of(
        cls, shape: ModelShape, *, tokens: int = 3, vectors: int = 1, mask: str = MASKS[0], learned: bool = False,
        prefix: int = 0, exits: int = 1, head: bool = False,
    ) -> PromptConfig:  # fmt: skip
        """Prompt tokens for a target of this shape. Raises ValueError for what is not possible
        or makes no difference.
        """
        if vectors == 1 and mask != MASKS[0]:
            raise ValueError(
                f"mask={mask!r} makes no difference to prompt tokens of one vector: give several vectors, or the mask "
                f"{MASKS[0]!r}"
            )
        if learned and vectors == exits == 1:
            raise ValueError("there is nothing to weigh with one vector per prompt token and one exit: give several")
        cached = shape.cache_shape if prefix else (0, 0, 0)
        config = cls(tokens, vectors, shape.hidden, mask, learned, prefix, cached, exits, shape.vocab if head else 0)
        if reason := config.misfit(shape):
            raise ValueError(reason)
        return config

    def __post_init__(self) -> None:
        object.__setattr__(self, "cached", tuple(map(int, self.cached)))
        if not 1 <= self.tokens <= MOST_TOKENS or not 1 <= self.vectors <= MOST_VECTORS or self.hidden < 1:
            raise ValueError(
                f"prompt tokens of shape {self.tokens} × {self.vectors} × {self.hidden} are not possible: 1 to "
                f"{MOST_TOKENS} tokens of 1 to {MOST_VECTORS} vectors"
            )
        if self.mask not in MASKS:
            raise ValueError(f"mask={self.mask!r} is not allowed: one of {', '.join(MASKS)}")
        if not 0 <= self.prefix <= MOST_PREFIX:
            raise ValueError(f"{self.prefix} prefix tokens per prompt token are not possible: 0 to {MOST_PREFIX}")
        if self.exits < 1 or self.vocab < 0 or bool(self.prefix) != (min(self.cached) > 0):
            raise ValueError(
                f"prompt tokens of {self.exits} exits, prefix tokens of shape {self.cached} and a head of {self.vocab} "
                "rows are not possible"
            )

    def misfit(self, shape: ModelShape) -> str | None:
        """The reason why these prompt tokens cannot run on a target of this shape, in a sentence; None if they can."""
        if self.exits > shape.layers:
            return f"{self.exits} exits are not possible: the model has {shape.layers} layers"
        if self.hidden != shape.hidden:
            return f"the vectors have {self.hidden} numbers, those of the model {shape.hidden}"
        if self.prefix and self.cached != shape.cache_shape:
            return f"the prefix tokens have the shape {self.cached}, what the model caches {shape.cache_shape}"
        if self.vocab and self.vocab != shape.vocab:
            return f"the head is of {self.vocab} tokens, the model of {shape.vocab}"
        return None

    @property
    def plain(self) -> bool:
        """True where the target reads them in its own way: by its last layer and its head, without prefix tokens."""
        return not self.prefix and not self.vocab and self.exits == 1

    @property
    def rows(self) -> int:
        """Input rows that all m tokens take at one node."""
        return self.tokens * self.vectors

    @property
    def parameters(self) -> int:
        """Trained numbers.

        >>> PromptConfig(3, 1, 4096).parameters
        12288
        """
        layers, heads, size = self.cached
        weight_count = self.vectors * (self.vectors > 1) + self.exits * (self.exits > 1)
        prefixes = 2 * layers * heads * self.tokens * self.prefix * size
        return self.rows * self.hidden + weight_count * self.learned + prefixes + self.vocab * self.hidden


def visibility(config: PromptConfig) -> Bool[np.ndarray, "rows rows"]:
    """Rows of a group that each row sees; row i * n + j is vector j of prompt token i.

    ensemble: vector j sees vector j of the same and of earlier tokens. decoder: all vectors of earlier tokens and
    those up to itself. encoder: all vectors of the same and of earlier tokens (appendix D.5).

    >>> visibility(PromptConfig(2, 2, 8)).astype(int).tolist()
    [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    token, vector = np.divmod(np.arange(config.rows), config.vectors)
    if config.mask == "decoder":
        return np.tri(config.rows, dtype=bool)
    causal_mask = token[:, None] >= token
    return causal_mask & (vector[:, None] == vector) if config.mask == "ensemble" else causal_mask


class PromptTokens(nn.Module):
    """``embeddings`` [m, n, hidden] and, where the config asks for them: learned ``weights`` [n] of the vectors' logits
    and ``exit_weights`` [exits] of the layers' states; ``prefix_keys`` and ``prefix_values`` [layers, kv_heads, m *
    prefix, head_dim], those of a token following one another; a ``head`` [vocab, hidden].
    """

    def __init__(self, config: PromptConfig) -> None:
        super().__init__()
        self.config = config
        n, exits = config.vectors, config.exits
        self.embeddings = nn.Parameter(torch.zeros(config.tokens, n, config.hidden))
        self.weights = nn.Parameter(torch.full((n,), 1 / n)) if config.learned and n > 1 else None
        self.exit_weights = nn.Parameter(torch.full((exits,), 1 / exits)) if config.learned and exits > 1 else None
        self.prefix_keys = self.prefix_values = self.head = None
        if config.prefix:
            layers, heads, size = config.cached
            shape = layers, heads, config.tokens * config.prefix, size
            self.prefix_keys, self.prefix_values = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(shape))
        if config.vocab:
            self.head = nn.Parameter(torch.zeros(config.vocab, config.hidden))
        sees = visibility(config)
        self._sees = [np.flatnonzero(sees[row]).tolist() for row in range(config.rows)]
        for row, visible_rows in enumerate(self._sees):
            visible_rows.remove(row)  # a probe sees itself anyway

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        self.__dict__.pop("reading", None)  # it holds the weights as they were
        return super()._apply(fn, recurse)

    @cached_property
    def reading(self) -> Reading | None:
        """The way the target's forward reads their rows; None for its own way."""
        if self.config.plain:
            return None
        return Reading(
            None if self.prefix is None else (self.prefix[0].detach(), self.prefix[1].detach()),
            None if self.joining is None else self.joining.detach(),
            None if self.head is None else self.head.detach().float(),
        )

    @property
    def prefix(self) -> tuple[Tensor, Tensor] | None:
        """The prefix tokens' keys and values."""
        if self.prefix_keys is None or self.prefix_values is None:
            return None
        return self.prefix_keys, self.prefix_values

    @property
    def joining(self) -> Float[Tensor, " exits"] | None:
        """The weights of the last layers' states; None where the last layer alone is read."""
        if self.config.exits == 1:
            return None
        if self.exit_weights is not None:
            return self.exit_weights
        return self.embeddings.new_full((self.config.exits,), 1 / self.config.exits)

    def probes(self, parent: int, count: int, first: int) -> tuple[Probe, ...]:
        """The rows of the first ``count`` prompt tokens, hung on node ``parent``; the first row is probe ``first``.

        The n vectors of a token follow one another and share its position, ``parent``'s + i for token i from 1.
        """
        if not 0 <= count <= self.config.tokens:
            raise ValueError(f"{count} prompt tokens were asked for; there are {self.config.tokens}")
        n, prefix = self.config.vectors, self.config.prefix
        vectors = self.embeddings.detach().flatten(0, 1)
        return tuple(
            Probe(
                parent,
                row // n + 1,
                embedding=vectors[row],
                sees=tuple(first + column for column in self._sees[row]),
                kind=KIND,
                prefix=tuple(range(row // n * prefix, (row // n + 1) * prefix)),
                reading=self.reading,
            )
            for row in range(count * n)
        )

    def guesses(self, probe_logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "count vocab"]:
        """The logits of each prompt token from those of its probes: their mean, or their learned sum."""
        logits = probe_logits.unflatten(0, (-1, self.config.vectors))
        if self.weights is None:
            return logits.mean(1)
        return torch.einsum("cnv,n->cv", logits, self.weights.to(logits))
