"""Thresholds on the target's probability (SGLang's ``tree_speculative_sampling_target_only``). Lossy below 1."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.draft.params import param
from decoders.model.state.transfer import fetch

from .match import MatchVerifier, down_the_tree, judged
from .residual import NODE_TERMS
from .sampling import Chooser, drawn_token
from .verifier import Verifier, VerifierCard


@dataclass(frozen=True)
class ThresholdParams:
    threshold_single: float = param(
        0.5, "Single threshold", "A token is accepted where the target gives it at least this. SGLang's own default, "
        "1, loses nothing.", low=0, high=1,
    )  # fmt: skip
    threshold_acc: float = param(
        1.0, "Acceptance threshold", "Raises the chance of any other token from p to min(1, p / this). 1 loses "
        "nothing.", low=1e-6, high=1,
    )  # fmt: skip


class ThresholdVerifier(Verifier):
    """At each visited node one uniform number u decides on its children in turn: one stands with p ≥ ``single``, or if
    u ≤ (the p of the children up to it, added up) / ``acc``. Where none stands, the next token is drawn from p without
    the children's tokens (``speculative_accept_threshold_single`` and ``_acc``).

    With both at 1 it is the target-only rule, and lossless. Greedy runs are matched, as SGLang does.
    """

    exact_chances = True

    def __init__(self, chooser: Chooser, *, single: float = 0.5, acc: float = 1.0) -> None:
        self.chooser, self.match, self.single, self.acc = chooser, MatchVerifier(chooser), single, acc
        self.lossless = single >= 1 and acc >= 1

    def draws(self, route: str, drafted: int, accepted: int) -> int:
        """One per visited node, and one more for what follows."""
        return accepted + 1 + (drafted > 0)

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        if self.chooser.sampling.greedy or not draft.tree.drafted:
            return self.match(draft, scored)
        children, random = draft.tree.children(), self.chooser.random
        terms = {term.key: np.full(len(draft.tree), np.nan) for term in NODE_TERMS[1:]}
        reasons: dict[int, str] = {}
        path, distribution = [0], None
        while True:
            distribution = self.chooser.probabilities(scored.logits[path[-1]][None])[0].double()
            draw, mass, stands = float(random.random()), 0.0, None
            for token, child in children[path[-1]].items():
                p = float(distribution[token])
                name = "Σ p so far" if mass else "p"
                mass += p
                ratio = f"{name} ÷ acceptance threshold = {mass / self.acc:.3g}"
                terms["accept_ratio"][child] = 1.0 if p >= self.single else min(1.0, mass / self.acc)
                terms["draw"][child] = draw
                if p >= self.single:
                    reasons[child], stands = f"p = {p:.3g} ≥ single threshold {self.single:g}", child
                elif draw < mass / self.acc:
                    reasons[child], stands = f"draw {draw:.3g} < {ratio}", child
                else:
                    reasons[child] = f"draw {draw:.3g} ≥ {ratio}"
                    continue
                break
            if stands is None:
                break
            path.append(stands)
        siblings = [*children[path[-1]]]
        remainder = distribution.clone()
        remainder[siblings] = 0
        bonus = drawn_token(remainder if float(remainder.sum()) > 0 else distribution, float(random.random()))
        verdict = judged(draft, path, bonus)
        words = tuple(reasons.get(node, reason) for node, reason in enumerate(verdict.reasons))
        return replace(verdict, reasons=words, terms=terms)

    def chances(self, draft: Draft, scored: Scored) -> Float[np.ndarray, " nodes"]:
        if self.chooser.sampling.greedy or not draft.tree.drafted:
            return self.match.chances(draft, scored)
        acceptances = np.zeros(draft.tree.drafted)
        (p,) = fetch(self.chooser.probabilities(scored.logits).double())
        for node, children in enumerate(draft.tree.children()):
            mass = covered_mass = 0.0
            for token, child in children.items():
                mass += float(p[node, token])
                upto = 1.0 if p[node, token] >= self.single else min(1.0, mass / self.acc)
                acceptances[child - 1], covered_mass = max(0.0, upto - covered_mass), max(covered_mass, upto)
        return down_the_tree(draft, acceptances)

    def emits(self, p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"]) -> Float[Tensor, "rows vocab"]:
        stands = (p / self.acc).clamp_max(1).where(p < self.single, 1.0)
        without = q * (1 - stands) / (1 - p).clamp_min(1e-300)
        return q * stands + p * (without.sum(-1, keepdim=True) - without)


VERIFIER = VerifierCard(
    "threshold", "Threshold", "SGLang: speculative_accept_threshold_single, speculative_accept_threshold_acc",
    "A drafted token is accepted for certain from a probability on; any other by chance, more often than p by a "
    "factor. Greedy runs are matched.",
    lambda params, chooser, stop_ids: ThresholdVerifier(
        chooser, single=params.threshold_single, acc=params.threshold_acc
    ),
    lossless=False, greedy_match=True, params=ThresholdParams, node_terms=NODE_TERMS[1:], order=75,
)  # fmt: skip
