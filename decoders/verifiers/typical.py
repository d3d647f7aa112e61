"""Typical acceptance (Cai et al. 2024, used by PPD §3.1): a drafted token stands where it is no surprise. Lossy."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.model.state.transfer import fetch

from .match import LossyVerifier, MatchVerifier, before_nodes, likely_path
from .sampling import Chooser
from .verifier import VerifierCard

EPSILON = param(
    0.09, "Threshold ε", "A guess is accepted where the target gives it more than "
    "min(ε, α · exp(−entropy)).", low=0, high=1
)
ALPHA = param(0.3, "Entropy factor α", "Of exp(−entropy): lower accepts more.", low=0, high=10)
FAST = param(
    True, "Fast",
    "Every guess above the threshold is accepted. Off: at each node the target draws a token, of those that are not "
    "below the threshold, and accepts a guess that is the same, as in Medusa's released code where it is not fast.",
)  # fmt: skip
NODE_TERMS = (
    Term("typical", "threshold", "The target's probability must be above this: min(ε, α · exp(−entropy)).", 0, 1),
    Term("entropy", "entropy", "Entropy of the target's distribution here, at the run's temperature, in nats.", 0, 0),
)


class TypicalVerifier(LossyVerifier):
    """Accepts a node if its parent is accepted and p > min(ε, α · exp(−H)), p and H of the target at the run's
    temperature (Medusa's rule; PPD's released code divides the logits by T). At temperature 0 it is the match rule, as
    all of p lies on the target's choice.

    The longest accepted path wins, of equally long ones that with the highest summed log-probability; the bonus is the
    chooser's token after it. With ε = 1 and α = 0 every token of positive probability stands.
    """

    def __init__(self, chooser: Chooser, *, epsilon: float = 0.09, alpha: float = 0.3) -> None:
        self.chooser, self.epsilon, self.alpha = chooser, epsilon, alpha
        self.match = MatchVerifier(chooser)

    def passes(self, p: Float[Tensor, "rows vocab"]) -> Bool[Tensor, "rows vocab"]:
        bound, _ = typical_bound(p.clamp_min(1e-300).log(), self.epsilon, self.alpha)
        return p > bound[:, None]

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        if self.chooser.sampling.greedy:
            return self.match(draft, scored)
        logits, rows, tokens = before_nodes(draft, scored)
        logits = logits / self.chooser.sampling.temperature
        bound, entropy = typical_bound(logits, self.epsilon, self.alpha)
        read = fetch(logits.softmax(-1)[rows, tokens], bound[rows], entropy[rows], scored.logits.argmax(-1))
        *columns, likeliest = (column.tolist() for column in read)
        p, bounds, entropies = ([float("nan"), *column] for column in columns)  # the root has none
        clauses = [(True, "root")]
        for token_prob, limit in zip(p[1:], bounds[1:], strict=True):
            name = "ε" if math.isclose(limit, self.epsilon, rel_tol=1e-6) else "α · exp(−entropy)"
            sign = ">" if token_prob > limit else "≤"
            clauses.append((token_prob > limit, f"p = {token_prob:.3g} {sign} {limit:.3g} (threshold {name})"))
        verdict = likely_path(draft, scored, self.chooser, p, clauses, likeliest)
        return replace(verdict, terms={"typical": np.asarray(bounds), "entropy": np.asarray(entropies)})


class TypicalWarper(LogitsProcessor):
    """Takes tokens off a distribution whose probability lies below its bound, but never its likeliest one."""

    def __init__(self, epsilon: float, alpha: float) -> None:
        self.epsilon, self.alpha = epsilon, alpha

    def __call__(self, input_ids: Tensor, scores: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        bound, _ = typical_bound(scores, self.epsilon, self.alpha)
        p = scores.softmax(-1)
        return scores.masked_fill((p < bound[:, None]) & (p < p.amax(-1, keepdim=True)), -torch.inf)


class DrawnTypicalVerifier(MatchVerifier):
    """Matches the target's draws, which are of the tokens that typical acceptance leaves: Medusa's released code where
    it is not ``fast``. Lossy. One draw per visited node, where that code draws anew for every path.
    """

    lossless = False

    def __init__(self, chooser: Chooser, *, epsilon: float = 0.09, alpha: float = 0.3) -> None:
        self.epsilon, self.alpha = epsilon, alpha
        typical_chooser = copy.copy(chooser)  # which draws of the same random numbers
        if not chooser.sampling.greedy:
            at = int(chooser.sampling.temperature != 1)  # behind the temperature, before top-k and top-p
            typical_chooser.warpers = LogitsProcessorList(chooser.warpers)
            typical_chooser.warpers.insert(at, TypicalWarper(epsilon, alpha))
        super().__init__(typical_chooser)

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        verdict = super().__call__(draft, scored)
        if self.chooser.sampling.greedy or not draft.tree.drafted:
            return verdict
        logits, rows, _ = before_nodes(draft, scored)
        bounds = typical_bound(logits / self.chooser.sampling.temperature, self.epsilon, self.alpha)
        read = fetch(*(bound_rows[rows] for bound_rows in bounds))
        bounds, entropies = ([float("nan"), *column.tolist()] for column in read)
        return replace(verdict, terms={"typical": np.asarray(bounds), "entropy": np.asarray(entropies)})


def typical_bound(
    logits: Float[Tensor, "rows vocab"], epsilon: float, alpha: float
) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"]]:
    """min(ε, α · exp(−H)) and H (nats) of each row.

    >>> bound, entropy = typical_bound(torch.tensor([[0.0, 0.0, -1e9]]), 0.09, 0.1)
    >>> round(float(bound), 3), round(float(entropy), 3)
    (0.05, 0.693)
    """
    logs = logits.log_softmax(-1)
    entropy = -(logs.exp() * logs.clamp_min(-1e30)).sum(-1)
    return (alpha * torch.exp(-entropy)).clamp_max(epsilon), entropy


@dataclass(frozen=True)
class TypicalParams:
    typical_epsilon: float = copy.copy(EPSILON)  # a field of its own: it has another name
    typical_alpha: float = copy.copy(ALPHA)


VERIFIER = VerifierCard(
    "typical", "Typical acceptance", "Cai et al. 2024, Medusa §2.3; PPD §3.1",
    "A drafted token is accepted where it is no surprise: p > min(ε, α · exp(−entropy)). Greedy runs are matched.",
    lambda params, chooser, stop_ids: TypicalVerifier(
        chooser, epsilon=params.typical_epsilon, alpha=params.typical_alpha
    ),
    lossless=False, greedy_match=True, params=TypicalParams, node_terms=NODE_TERMS, order=60,
)  # fmt: skip
