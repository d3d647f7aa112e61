"""DIVERSE: drafts are judged by a mixture of target and drafter (arXiv 2604.07622). Lossy by a known amount."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from decoders.draft.params import param

from .residual import NODE_TERMS, PointVerifier
from .sampling import Chooser
from .verifier import VerifierCard


@dataclass(frozen=True)
class DiverseParams:
    ensemble_weight: float = param(
        0.7, "Weight w", "Of the target in the mixture; the drafter has the rest. 1 is p/q, 0 accepts every draft.",
        low=0, high=1,
    )  # fmt: skip


class DiverseVerifier(PointVerifier):
    """Accepts a drafted token with min(1, 1 - w + w · p/q): p/q against the mixture w · p + (1 - w) · q, whose residual
    is that of p. The next token has the mixture's distribution, so its distance from p is (1 - w) · TV(p, q).
    """

    ratio_words = "1 − weight w + w·p/q"

    def __init__(self, chooser: Chooser, *, weight: float = 0.7) -> None:
        super().__init__(chooser)
        self.weight, self.lossless = weight, weight == 1

    def stands(self, ratio: Float[Tensor, " drafted"]) -> Float[Tensor, " drafted"]:
        return 1 - self.weight + self.weight * ratio

    def emits(self, p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        return self.weight * p + (1 - self.weight) * q


VERIFIER = VerifierCard(
    "diverse", "DIVERSE", "arXiv 2604.07622; transformers' assistant_ensemble_weight",
    "A drafted token is accepted with probability 1 − w + w · p/q: the text comes from a mixture of target and "
    "drafter. Greedy runs and trees are matched.",
    lambda params, chooser, stop_ids: DiverseVerifier(chooser, weight=params.ensemble_weight),
    lossless=False, greedy_match=True, params=DiverseParams, node_terms=NODE_TERMS, order=80,
)  # fmt: skip
