"""Typical acceptance (Cai et al. 2024, used by PPD §3.1): a drafted token stands where it is no surprise. Lossy."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from .protocols import Draft, Scored, Term, Verdict
from .sampling import Chooser
from .verify import judged

NODE_TERMS = (
    Term("typical", "threshold", "The target's probability must be above this: min(ε, α · exp(−entropy)).", 0, 1),
    Term("entropy", "entropy", "Entropy of the target's distribution at this position, in nats.", 0, 0),
)


class TypicalVerifier:
    """Accepts a node if its parent is accepted and p > min(ε, α · exp(−H)), p and H of the target at temperature 1.

    The longest accepted path wins, of equally long ones that with the highest summed log-probability; the bonus is the
    chooser's token after it. With ε = 1 and α = 0 every token of positive probability stands.
    """

    lossless = False

    def __init__(self, chooser: Chooser, *, epsilon: float = 0.09, alpha: float = 0.3) -> None:
        self.chooser, self.epsilon, self.alpha = chooser, epsilon, alpha

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        parents, count, depths = draft.tree.parents, len(draft.tree), draft.tree.depths
        p, bounds, entropies = self._judge(draft, scored)
        passed, total, best = [True] * count, [0.0] * count, 0
        for node in range(1, count):
            passed[node] = passed[parents[node]] and p[node] > bounds[node]
            if passed[node]:
                total[node] = total[parents[node]] + math.log(p[node])
                if (depths[node], total[node]) > (depths[best], total[best]):
                    best = node
        bonus = self.chooser.choices(scored.logits[best : best + 1]).after(0)
        verdict = judged(draft, draft.tree.path(best), bonus)
        reasons = list(verdict.reasons)
        for node in range(1, count):
            if passed[parents[node]]:
                sign = ">" if passed[node] else "≤"
                lost = passed[node] and verdict.status[node] != "accepted"
                reasons[node] = "another path won" if lost else f"p = {p[node]:.3g} {sign} {bounds[node]:.3g}"
        terms = {"typical": np.asarray(bounds), "entropy": np.asarray(entropies)}
        return Verdict(verdict.path, bonus, verdict.status, tuple(reasons), terms)

    def _judge(self, draft: Draft, scored: Scored) -> tuple[list[float], list[float], list[float]]:
        """Per node, after its parent: the target's probability, the bound it must pass, and the entropy (root: nan)."""
        tree, nan = draft.tree, float("nan")
        if not tree.drafted:
            return [nan], [nan], [nan]
        inner, row = np.unique(tree.parents[1:], return_inverse=True)
        logits = scored.logits[torch.as_tensor(inner, device=scored.logits.device)].float()
        bound, entropy = typical_bound(logits, self.epsilon, self.alpha)
        rows = torch.as_tensor(row, device=logits.device)
        tokens = torch.as_tensor(tree.tokens[1:], device=logits.device)
        p = logits.softmax(-1)[rows, tokens]
        return [nan, *p.tolist()], [nan, *bound[rows].tolist()], [nan, *entropy[rows].tolist()]


def typical_bound(
    logits: Float[Tensor, "rows vocab"], epsilon: float, alpha: float
) -> tuple[Float[Tensor, "rows"], Float[Tensor, "rows"]]:
    """min(ε, α · exp(−H)) and H (nats) of each row.

    >>> bound, entropy = typical_bound(torch.tensor([[0.0, 0.0, -1e9]]), 0.09, 0.1)
    >>> round(float(bound), 3), round(float(entropy), 3)
    (0.05, 0.693)
    """
    logs = logits.log_softmax(-1)
    entropy = -(logs.exp() * logs.clamp_min(-1e30)).sum(-1)
    return (alpha * torch.exp(-entropy)).clamp_max(epsilon), entropy
