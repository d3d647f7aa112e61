"""Ratio-and-residual verification of drawn drafts (Leviathan et al. 2023; Chen et al. 2023): exact in distribution."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.distributions import NodeDistributions
from decoders.draft.draft import Draft, Later, Scored, Verdict
from decoders.draft.terms import Term
from decoders.errors import UserError
from decoders.model.state.transfer import fetch, rows_of, send

from .match import MatchVerifier, down_the_tree, judged
from .sampling import Chooser, drawn_tokens
from .verifier import Verifier, VerifierCard

NODE_TERMS = (
    Term("overlap", "overlap β", "Σ min(p, q) of the target's and the drafter's distributions at this position.", 0, 1),
    Term("accept_ratio", "accept ratio", "min(1, p / q) of a drawn token: how likely it was to be accepted.", 0, 1),
    Term("draw", "draw", "The uniform number that decided: a token is accepted below its accept ratio "
    "(a block: h).", 0, 1),
)


def overlap(target: Float[Tensor, "*rows vocab"], drafter: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows"]:
    """β: the probability that a token drawn from the drafter's distribution is accepted.

    >>> round(float(overlap(torch.tensor([0.6, 0.4]), torch.tensor([0.3, 0.7]))), 6)
    0.7
    """
    return torch.minimum(target, drafter).sum(-1)


def residual(
    target: Float[Tensor, "*rows vocab"], drafter: Float[Tensor, "*rows vocab"]
) -> Float[Tensor, "*rows vocab"]:
    """The distribution that replaces a rejected token: the normalised positive part of p - q."""
    excess = (target.double() - drafter.double()).clamp_min(0)
    total = excess.sum(-1, keepdim=True)
    return torch.where(total > 0, excess / total, target.double())  # p = q: nothing is ever rejected


class ResidualVerifier(Verifier):
    """Drawn chains by ratio and residual, all other drafts by matching the target's choice; both are lossless.

    A token x drawn from q is accepted with min(1, p(x) / q(x)); the first rejected one is replaced by a draw from the
    residual. β is recorded wherever the draft brings its distributions.
    """

    exact_chances = True
    ratio_words = "p/q"

    def stands(self, ratio: Float[Tensor, " drafted"]) -> Float[Tensor, " drafted"]:
        """The chance of a drawn token to be accepted, from its p / q; above 1 it is certain."""
        return ratio

    def by_ratio(self, draft: Draft) -> bool:
        """True where a draft is judged by p/q and not matched."""
        return draft.drawn and draft.tree.drafted > 0

    def chances(self, draft: Draft, scored: Scored) -> Float[np.ndarray, " nodes"]:
        if not self.by_ratio(draft):
            return self.match.chances(draft, scored)
        p, q = self.distributions(draft, scored)
        (tokens,) = send(p.device, np.asarray(draft.tree.tokens[1:], dtype=np.int64))
        ratio = p[:-1].gather(1, tokens[:, None]) / q.gather(1, tokens[:, None])
        (acceptances,) = fetch(self.stands(ratio[:, 0]).nan_to_num(1.0).clamp_max(1))
        return down_the_tree(draft, acceptances)

    def __init__(self, chooser: Chooser) -> None:
        self.chooser, self.match = chooser, MatchVerifier(chooser)

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        if self.by_ratio(draft):
            return self._draw(draft, scored)
        verdict = self.match(draft, scored)
        if draft.distributions:
            verdict = replace(verdict, terms=Later(partial(overlaps, draft, scored)))
        return verdict

    def draws(self, route: str, drafted: int, accepted: int) -> int:
        """Random numbers of a sampled step: drawn drafts take one per token tested and one for what follows."""
        return accepted + 1 + (route == "drawn" and accepted < drafted)

    def distributions(
        self, draft: Draft, scored: Scored
    ) -> tuple[Float[Tensor, "nodes vocab"], Float[Tensor, "drafted vocab"]]:
        """p after every node of a drawn chain, and q after all but the last, in fp64. Raises UserError where the draft
        is no chain, or its drafter's distributions are missing: without them nothing can be judged by ratio.
        """
        drafter_probs, drafted = draft.distributions or {}, draft.tree.drafted
        missing = drafted - sum(node in drafter_probs for node in range(drafted))
        if missing or not draft.tree.is_chain:
            has = f"lacks {missing} of its {drafted} distributions" if missing else "is a tree"
            raise UserError(
                f"a drawn draft {has}: tokens are verified by p/q in chains alone, with the distribution that each was "
                "drawn from; a drafter that does not have them leaves drawn=False, and its drafts are matched"
            )
        p = self.chooser.probabilities(scored.logits).double()
        return p, torch.stack([drafter_probs[node].to(p) for node in range(drafted)])

    @staticmethod
    def check_overlap(overlap_values: Float[np.ndarray, " drafted"]) -> None:
        """Raise UserError where a drafter's distributions are not finite, by their overlaps with the target's."""
        if not np.isfinite(overlap_values).all():
            node = int(np.flatnonzero(~np.isfinite(overlap_values))[0])
            raise UserError(
                f"the drafter's distribution after node {node} of a draft is not finite (NaN or infinity), so no token "
                "can be verified by p/q: get the draft model's weights anew, or take another dtype"
            )

    def _draw(self, draft: Draft, scored: Scored) -> Verdict:
        p, q = self.distributions(draft, scored)
        tree, random = draft.tree, self.chooser.random
        count, nan = len(tree), float("nan")
        random_points = self.chooser.draws_ahead(count + 1)  # a token that was tested first takes the one before
        drafted = np.asarray(tree.tokens[1:], dtype=np.int64)
        tokens, points = send(p.device, drafted, np.append(random_points[1:count], random_points[count - 1]))
        ratio = p[:-1].gather(1, tokens[:, None]) / q.gather(1, tokens[:, None])
        residuals = torch.cat([residual(p[:-1], q), p[-1:]])  # what follows a rejection at each node, or none
        redrawn = drawn_tokens(residuals, points)
        overlap_values, ratios, instead = fetch(overlap(p[:-1], q), self.stands(ratio[:, 0]), redrawn)
        self.check_overlap(overlap_values)
        terms = {term.key: np.full(count, nan) for term in NODE_TERMS}
        terms["overlap"][1:] = overlap_values
        path, reasons = [0], ["root"]
        for node in range(1, count):
            accept, draw = min(1.0, float(ratios[node - 1])), float(random.random())
            terms["accept_ratio"][node], terms["draw"][node] = accept, draw
            if draw >= accept:
                reasons.append(f"draw {draw:.3g} ≥ {self.ratio_words} = {accept:.3g}: redrawn from the residual")
                break
            path.append(node)
            reasons.append(f"draw {draw:.3g} < {self.ratio_words} = {accept:.3g}")
        random.random()  # what follows was drawn with this number
        verdict = judged(draft, path, int(instead[path[-1]]))
        return replace(verdict, reasons=(*reasons, *verdict.reasons[len(reasons) :]), terms=terms)


class PointVerifier(ResidualVerifier):
    """Judges every chain of a sampled run by p/q: one that was not drawn had its token for certain, q = 1. Trees and
    greedy runs are matched.
    """

    def by_ratio(self, draft: Draft) -> bool:
        return draft.tree.drafted > 0 and draft.tree.is_chain and not self.chooser.sampling.greedy

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        verdict = super().__call__(draft, scored)
        if not (self.by_ratio(draft) or self.chooser.sampling.greedy or verdict.accepted == draft.tree.drafted):
            self.chooser.random.random()  # a tree takes as many numbers as a chain
        return verdict

    def draws(self, route: str, drafted: int, accepted: int) -> int:
        """One per token tested and one for what follows."""
        return accepted + 1 + (accepted < drafted)

    def distributions(
        self, draft: Draft, scored: Scored
    ) -> tuple[Float[Tensor, "nodes vocab"], Float[Tensor, "drafted vocab"]]:
        if draft.drawn:
            return super().distributions(draft, scored)
        p = self.chooser.probabilities(scored.logits).double()
        tokens = torch.tensor(draft.tree.tokens[1:], device=p.device)
        return p, torch.zeros_like(p[1:]).scatter_(1, tokens[:, None], 1.0)


def overlaps(draft: Draft, scored: Scored) -> dict[str, np.ndarray]:
    """β after the nodes whose distribution a draft brings, at temperature 1, noted at their children."""
    distributions = NodeDistributions.of(draft.distributions or {})
    (overlap_values,) = fetch(overlaps_of(distributions, rows_of(scored.logits, list(distributions)).softmax(-1)))
    shared = dict(zip(distributions, overlap_values.tolist(), strict=True))
    return {"overlap": np.asarray([shared.get(parent, np.nan) for parent in draft.tree.parents])}


def overlaps_of(distributions: NodeDistributions, target: Float[Tensor, "nodes vocab"]) -> Float[Tensor, " nodes"]:
    """β after the nodes of ``distributions``, in their order; ``target`` has the target's distribution after each."""
    draft_probs = distributions.probabilities[list(distributions.row.values())].to(target)
    return overlap(
        target if distributions.vocab is None else target.index_select(-1, distributions.vocab.tokens), draft_probs
    )


VERIFIER = VerifierCard(
    "ratio", "p/q and residual",
    "Leviathan et al. 2023; Chen et al. 2023; vLLM's rejection_sample_method \"probabilistic\"",
    "A token drawn from q is accepted with probability min(1, p/q); the first that is not is redrawn from the "
    "residual (p − q)+. Drafts that were not drawn are matched.",
    lambda params, chooser, stop_ids: ResidualVerifier(chooser), node_terms=NODE_TERMS, greedy_match=True, order=20,
)  # fmt: skip
