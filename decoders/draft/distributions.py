"""A drafter's predictions of the next token: its own distributions after some nodes of a draft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .draft import Learned, Verdict
from .terms import Term


@dataclass(frozen=True, slots=True, eq=False)
class DraftVocab:
    """The tokens that a drafter can draft: ``tokens``, ascending, on its device; ``places`` has, for each token of the
    target's vocabulary, its place among them (-1: it cannot be drafted).
    """

    tokens: Int[Tensor, " drafted"]
    places: np.ndarray

    @classmethod
    def of(cls, tokens: Int[Tensor, " drafted"] | None, vocab: int) -> DraftVocab | None:
        """None where all tokens can be drafted."""
        if tokens is None:
            return None
        places = np.full(vocab, -1, dtype=np.int64)
        places[tokens.numpy(force=True)] = np.arange(len(tokens))
        return cls(tokens.long(), places)


OUTSIDE_VOCAB = Term(
    "outside", "outside the draft vocabulary",
    "1 where the target's own token after the accepted path is not in the drafter's vocabulary: no draft can hold it.",
    0, 1,
)  # fmt: skip


def note_outside(vocab: DraftVocab | None, verdict: Verdict) -> Learned | None:
    """``OUTSIDE_VOCAB`` of a step, where the drafter cannot draft all tokens."""
    if vocab is None or verdict.bonus is None:
        return None
    return Learned(notes={"outside": float(vocab.places[verdict.bonus] < 0)})


class NodeDistributions(Mapping[int, Tensor]):
    """A drafter's next-token distributions ``[vocab]`` by node, formed only when they are asked for.

    ``told`` has what it said after each node: a row of logits over the tokens of ``vocab`` (None: over all), or of
    probabilities where they are ``normal``. Nodes that share a row are given the same tensor.
    """

    def __init__(
        self,
        distributions: Mapping[int, Float[Tensor, " drafted"]],
        vocab: DraftVocab | None = None,
        normal: bool = False,
    ) -> None:
        rows = {id(row): row for row in distributions.values()}
        place = {key: i for i, key in enumerate(rows)}
        self._rows, self._normal, self.vocab = list(rows.values()), normal, vocab
        self.row = {node: place[id(row)] for node, row in distributions.items()}  # node → row of ``probabilities``

    @classmethod
    def of(cls, distributions: Mapping[int, Float[Tensor, " vocab"]]) -> NodeDistributions:
        """Distributions by node, however they were given."""
        return distributions if isinstance(distributions, NodeDistributions) else cls(distributions, normal=True)

    def of_nodes(self, new: Mapping[int, int]) -> NodeDistributions:
        """The same of some nodes, by their new numbers."""
        distributions = {new[node]: self._rows[row] for node, row in self.row.items() if node in new}
        return NodeDistributions(distributions, self.vocab, self._normal)

    @cached_property
    def probabilities(self) -> Float[Tensor, "rows drafted"]:
        """Of the tokens that can be drafted, each row once."""
        rows = torch.stack(self._rows).float()
        return rows if self._normal else rows.softmax(-1)

    def __getitem__(self, node: int) -> Float[Tensor, " vocab"]:
        distribution = self.probabilities[self.row[node]]
        if self.vocab is None:
            return distribution
        return distribution.new_zeros(len(self.vocab.places)).index_copy_(0, self.vocab.tokens, distribution)

    def __iter__(self) -> Iterator[int]:
        return iter(self.row)

    def __len__(self) -> int:
        return len(self.row)
