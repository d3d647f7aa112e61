"""Block verification of drawn drafts (Sun et al. 2024): all tokens of a chain are judged together; exact in
distribution, and in expectation never fewer accepted tokens than one by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.draft.params import param
from decoders.draft.terms import Term
from decoders.model.state.transfer import fetch, send

from .match import judged
from .residual import NODE_TERMS as RATIO_TERMS
from .residual import ResidualVerifier, overlap
from .sampling import Chooser, drawn_tokens
from .verifier import VerifierCard

RULE = param(
    "ratio", "Sampled verification",
    "Ratio: drawn tokens are tested one by one, each by p/q. Block: all together, which accepts as many or more. Both "
    "have the target's distribution. Drafts that were not drawn are matched.", choices=("ratio", "block"),
)  # fmt: skip
JOINT = Term("block_p", "block P", "min(1, P of the token before · p / q): what block verification carries on.", 0, 1)
ACCEPT = Term("block_h", "block h", "A draw below it accepts all tokens up to here (block verification).", 0, 1)
NODE_TERMS = (JOINT, ACCEPT)


def joint_ratios(p: Float[Tensor, " drafted"], q: Float[Tensor, " drafted"]) -> Float[Tensor, " nodes"]:
    """P after the root and each drafted token: P = min(1, P of the one before · p / q), 1 at the root.

    ``p`` and ``q`` are the probabilities of the drafted tokens. A token with p = 0 ends every block (P = 0 from there
    on); one with q = 0 that the target may write counts as a ratio without bound.

    >>> joint_ratios(torch.tensor([0.25, 0.75]), torch.tensor([0.5, 0.5])).tolist()
    [1.0, 0.5, 0.75]
    """
    ratios = p.double() / q.double().clamp_min(1e-300)
    joint = [ratios.new_ones(())]
    for ratio in ratios.unbind():
        joint.append((joint[-1] * ratio).clamp_max(1))
    return torch.stack(joint)


def block_residual(
    joint: Float[Tensor, "*rows"], target: Float[Tensor, "*rows vocab"], drafter: Float[Tensor, "*rows vocab"]
) -> Float[Tensor, "*rows vocab"]:
    """max(P · p - q, 0), not normalised: the next token is drawn from it where a block ends before the draft does."""
    return (joint[..., None] * target.double() - drafter.double()).clamp_min(0)


def block_acceptance(joint: Float[Tensor, " nodes"], mass: Float[Tensor, " drafted"]) -> Float[Tensor, " nodes"]:
    """h of each node: S / (S + 1 - P), S the mass of the residual after it; P at the last, after which none is drawn.

    Where P = 1 the fraction is 1 for any S; so it is for S = 0 (there p = q, and the next token has P = 1 again).

    >>> block_acceptance(torch.tensor([1.0, 0.5, 0.75]), torch.tensor([0.3, 0.25])).tolist()
    [1.0, 0.3333333333333333, 0.75]
    """
    earlier_joint, mass = joint[:-1].double(), mass.double()
    acceptances = torch.where(earlier_joint < 1, mass / (mass + 1 - earlier_joint).clamp_min(1e-300), 1.0)
    return torch.cat([acceptances, joint[-1:].double()])


class BlockVerifier(ResidualVerifier):
    """Drawn chains by block verification, all other drafts as ``ResidualVerifier`` does; lossless.

    Every drafted token has a uniform number of its own. The longest prefix whose last token's number is below its h is
    accepted, be the numbers before as they may; what follows is drawn from ``block_residual`` there, or from p behind
    the whole draft (Sun et al. 2024, algorithm 2).
    """

    def draws(self, route: str, drafted: int, accepted: int) -> int:
        """Random numbers of a sampled step: one per drafted token and one for what follows, however many stand."""
        return 1 + (drafted if route == "drawn" else accepted)

    def chances(self, draft: Draft, scored: Scored) -> Float[np.ndarray, " nodes"]:
        """A node is accepted where its own number, or that of one behind it, lies below h."""
        if not self.by_ratio(draft):
            return self.match.chances(draft, scored)
        p, q = self.distributions(draft, scored)
        (tokens,) = send(p.device, np.asarray(draft.tree.tokens[1:], dtype=np.int64))
        joint = joint_ratios(*(probs.gather(1, tokens[:, None])[:, 0] for probs in (p[:-1], q)))
        (ends,) = fetch(block_acceptance(joint, block_residual(joint[:-1], p[:-1], q).sum(-1)))
        return np.append(1.0, 1 - np.cumprod(1 - ends[:0:-1])[::-1])

    def _draw(self, draft: Draft, scored: Scored) -> Verdict:
        p, q = self.distributions(draft, scored)
        count, random = len(draft.tree), self.chooser.random
        draws = np.append(np.nan, random.random(count - 1))
        tokens, points = send(
            p.device, np.asarray(draft.tree.tokens[1:], dtype=np.int64), np.full(count, random.random())
        )
        joint = joint_ratios(*(probs.gather(1, tokens[:, None])[:, 0] for probs in (p[:-1], q)))
        residuals = block_residual(joint[:-1], p[:-1], q)
        mass = residuals.sum(-1)
        redraw_probs = torch.cat(
            [torch.where(mass[:, None] > 0, residuals, p[:-1]), p[-1:]]
        )  # no mass: rounding alone ends there
        overlap_values, shares, accepts, instead = fetch(
            overlap(p[:-1], q), joint, block_acceptance(joint, mass), drawn_tokens(redraw_probs, points)
        )
        self.check_overlap(overlap_values)
        stands = np.flatnonzero(draws < accepts)
        last = int(stands[-1]) if len(stands) else 0
        accepts[0] = np.nan  # of the root nothing is decided
        verdict = judged(draft, [*range(last + 1)], int(instead[last]))
        reasons = ["root"]
        for node in range(1, count):
            words = f"draw {draws[node]:.3g} {'<' if draws[node] < accepts[node] else '≥'} h = {accepts[node]:.3g}"
            if node < last:
                words += ", inside the accepted block"
            elif node == last + 1:
                words += ", none behind it is accepted: redrawn from the residual"
            reasons.append(words)
        terms = {"overlap": np.append(np.nan, overlap_values), "draw": draws, JOINT.key: shares, ACCEPT.key: accepts}
        return replace(verdict, reasons=tuple(reasons), terms=terms)


def drawn_verifier(params: Any, chooser: Chooser, stop_ids: frozenset[int]) -> ResidualVerifier:
    """The verifier that the parameter ``rule`` names, of methods whose chains are drawn in sampled runs."""
    return (BlockVerifier if params.rule == "block" else ResidualVerifier)(chooser)


VERIFIER = VerifierCard(
    "block", "Block verification", "Sun et al. 2024; vLLM and SGLang have it too",
    "All tokens of a drawn chain are judged together: it accepts as many as p/q or more, and the distribution is the "
    "same. Drafts that were not drawn are matched.",
    lambda params, chooser, stop_ids: BlockVerifier(chooser), node_terms=(*RATIO_TERMS, *NODE_TERMS),
    greedy_match=True, order=30,
)  # fmt: skip
