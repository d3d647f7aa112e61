"""A block drafter's candidates, position by position, and the walk through them that became its draft."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Lattice:
    """Candidates of every position behind the root, likeliest first.

    ``tokens`` and ``logprobs``: each candidate, and its log-probability by its position alone, of all tokens that can
    be drafted. ``transitions``: what a candidate at the position before (at the first position: the root, row 0) adds
    to that, in logits; None where positions do not look at one another. ``walk``: the candidate taken at each position.
    """

    tokens: Int[Tensor, "positions candidates"]
    logprobs: Float[Tensor, "positions candidates"]
    walk: Int[Tensor, " positions"]
    transitions: Float[Tensor, "positions before candidates"] | None = None
