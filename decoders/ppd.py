"""PPD's prompt tokens: trained embeddings that make the target guess tokens further ahead (PPD §3.2, appendix D).

Prompt token i (from 1) hangs on a node at position p, sits at position p + i, and its logits guess the token at
position p + i + 1. The node's own logits give position p + 1: where the node is the last accepted one, that token is
the next step's root, and prompt token i guesses the token i places behind it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from .protocols import Probe

MASKS = ("ensemble", "decoder", "encoder")
MOST_TOKENS, MOST_VECTORS = 16, 128
KIND = "prompt"


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """Shape of prompt tokens: ``tokens`` (m) of ``vectors`` (n, EPTs) each, of the target's ``hidden`` size.

    ``mask`` says which vectors of the same group a vector sees; ``learned``: the n logits are summed by learned
    weights instead of averaged (appendix D.6).
    """

    tokens: int
    vectors: int
    hidden: int
    mask: str = "ensemble"
    learned: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= MOST_TOKENS or not 1 <= self.vectors <= MOST_VECTORS or self.hidden < 1:
            raise ValueError(
                f"prompt tokens of shape {self.tokens} × {self.vectors} × {self.hidden} are not possible: 1 to "
                f"{MOST_TOKENS} tokens of 1 to {MOST_VECTORS} vectors"
            )
        if self.mask not in MASKS:
            raise ValueError(f"mask={self.mask!r} is not allowed: one of {', '.join(MASKS)}")

    @property
    def rows(self) -> int:
        """Input rows that all m tokens take at one node."""
        return self.tokens * self.vectors

    @property
    def parameters(self) -> int:
        """Trained numbers."""
        return self.rows * self.hidden + self.vectors * self.learned

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PromptConfig:
        """Back from ``to_json``. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            int(data["tokens"]), int(data["vectors"]), int(data["hidden"]), str(data["mask"]), bool(data["learned"])
        )


def visibility(config: PromptConfig) -> Bool[np.ndarray, "rows rows"]:
    """Which rows of a group see which; row i * n + j is vector j of prompt token i.

    ensemble: vector j sees vector j of the same and of earlier tokens. decoder: all vectors of earlier tokens and
    those up to itself. encoder: all vectors of the same and of earlier tokens (appendix D.5).

    >>> visibility(PromptConfig(2, 2, 8)).astype(int).tolist()
    [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    """
    token, vector = np.divmod(np.arange(config.rows), config.vectors)
    if config.mask == "decoder":
        return np.tri(config.rows, dtype=bool)
    earlier = token[:, None] >= token
    return earlier & (vector[:, None] == vector) if config.mask == "ensemble" else earlier


class PromptTokens(nn.Module):
    """``embeddings`` [m, n, hidden], and learned ``weights`` [n] of the vectors' logits where the config asks for
    them."""

    def __init__(self, config: PromptConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = nn.Parameter(torch.zeros(config.tokens, config.vectors, config.hidden))
        self.weights = nn.Parameter(torch.full((config.vectors,), 1 / config.vectors)) if config.learned else None
        sees = visibility(config)
        self._sees = [np.flatnonzero(sees[row]).tolist() for row in range(config.rows)]
        for row, seen in enumerate(self._sees):
            seen.remove(row)  # a probe sees itself anyway

    def probes(self, parent: int, count: int, first: int) -> tuple[Probe, ...]:
        """The rows of the first ``count`` prompt tokens, hung on node ``parent``; the first row is probe ``first``.

        The n vectors of a token follow one another and share its position, ``parent``'s + i for token i from 1.
        """
        if not 0 <= count <= self.config.tokens:
            raise ValueError(f"{count} prompt tokens were asked for; there are {self.config.tokens}")
        n = self.config.vectors
        vectors = self.embeddings.detach().flatten(0, 1)
        return tuple(
            Probe(
                parent,
                row // n + 1,
                embedding=vectors[row],
                sees=tuple(first + other for other in self._sees[row]),
                kind=KIND,
            )
            for row in range(count * n)
        )

    def guesses(self, probe_logits: Float[Tensor, "rows vocab"]) -> Float[Tensor, "count vocab"]:
        """The logits of each prompt token from those of its probes: their mean, or their learned sum."""
        logits = probe_logits.unflatten(0, (-1, self.config.vectors))
        if self.weights is None:
            return logits.mean(1)
        return torch.einsum("cnv,n->cv", logits, self.weights.to(logits))
