"""EAGLE's verification of sampled trees: a node's children are tried in turn (Li et al. 2024a, 2024b; SpecInfer)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.model.state.transfer import fetch

from .match import judged
from .residual import NODE_TERMS, ResidualVerifier, overlaps
from .sampling import Chooser
from .verifier import Verifier, VerifierCard

TERMS = NODE_TERMS[1:]


class TurnsVerifier(Verifier):
    """Tries a node's children one after another, the likeliest first: a child x stands with probability p(x); else p(x)
    becomes 0 and p is normalised again. Where none stands, the next token is drawn from what is left of p.

    Proposals are the drafter's first choices, not draws, so their own probability counts as 1. Lossless in
    distribution. One uniform number decides at each visited node: below p(x) child x stands; else what is left of it,
    (u - p(x)) / (1 - p(x)), is uniform again and decides on the next child. So a run's tokens are those of another
    order of the vocabulary than plain decoding's, under the same seed. Greedy runs are matched.
    """

    exact_chances = True

    def __init__(self, chooser: Chooser) -> None:
        self.chooser, self.match = chooser, ResidualVerifier(chooser)

    def chances(self, draft: Draft, scored: Scored) -> Float[np.ndarray, " nodes"]:
        """A child stands with the target's probability of it, in whatever turn it comes."""
        return self.match.match.chances(draft, scored)

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        if self.chooser.sampling.greedy:
            return self.match(draft, scored)
        children = draft.tree.children()
        terms = {term.key: np.full(len(draft.tree), np.nan) for term in TERMS}
        draw_reasons: dict[int, str] = {}
        path = [0]
        while True:
            (distribution,) = fetch(self.chooser.probabilities(scored.logits[path[-1]][None])[0].double())
            distribution = distribution / distribution.sum()
            draw, stands = float(self.chooser.random.random()), None
            for token, child in children[path[-1]].items():
                accept = float(distribution[token])
                terms["accept_ratio"][child], terms["draw"][child] = accept, draw
                if draw < accept:
                    draw_reasons[child], stands = f"draw {draw:.3g} < p = {accept:.3g}", child
                    break
                draw_reasons[child] = f"draw {draw:.3g} ≥ p = {accept:.3g}"
                distribution[token], draw = 0.0, (draw - accept) / max(1 - accept, 1e-300)
                distribution /= max(distribution.sum(), 1e-300)
            if stands is None:
                cumulative = distribution.cumsum()
                bonus = int(np.searchsorted(cumulative, draw * cumulative[-1], side="right"))
                bonus = min(bonus, int(np.flatnonzero(distribution)[-1]))
                verdict = judged(draft, path, bonus)
                reasons = tuple(draw_reasons.get(node, reason) for node, reason in enumerate(verdict.reasons))
                if draft.distributions:
                    terms |= overlaps(draft, scored)
                return replace(verdict, reasons=reasons, terms=terms)
            path.append(stands)


VERIFIER = VerifierCard(
    "target-only", "Target only", "vLLM's default for greedy drafts; EAGLE's rule for sampled trees (Li et al. 2024)",
    "A drafted token is accepted with the target's own probability p, whatever the drafter thought of it; else the "
    "target draws another one.",
    lambda params, chooser, stop_ids: TurnsVerifier(chooser), node_terms=NODE_TERMS, greedy_match=True, order=15,
)  # fmt: skip
