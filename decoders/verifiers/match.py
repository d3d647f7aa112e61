"""Verifiers: which drafted tokens stand."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoders.draft.draft import Draft, Scored, Verdict
from decoders.model.state.transfer import fetch, rows_of, send
from decoders.names import AFTER_STOP

from .sampling import Chooser
from .verifier import Verifier, VerifierCard, pass_or_fail


class MatchVerifier(Verifier):
    """One decision per visited node: draw (or argmax) the target's token once, descend if a child carries it, else
    emit it.

    Lossless for any drafter and any tree, greedy or sampled (methods.md §0; SpecInfer's token matching, one draw a
    node).
    """

    exact_chances = True

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser

    def chances(self, draft: Draft, scored: Scored) -> Float[np.ndarray, " nodes"]:
        if self.chooser.sampling.greedy or not draft.tree.drafted:
            return super().chances(draft, scored)
        _, rows, tokens = before_nodes(draft, scored)
        inner = sorted(set(draft.tree.parents[1:]))
        (token_probs,) = fetch(self.chooser.probabilities(rows_of(scored.logits, inner))[rows, tokens].double())
        return down_the_tree(draft, token_probs)

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        children = draft.tree.children()
        choices = self.chooser.choices(scored.logits, draft.tree.depths)
        path = [0]
        while True:
            token = choices.draw_after(path[-1])
            child = children[path[-1]].get(token)
            if child is None:
                return judged(draft, path, token)
            path.append(child)


class LossyVerifier(Verifier):
    """Of the paths whose nodes all pass a rule, takes the likeliest of the longest (``likely_path``)."""

    lossless, exact_chances = False, True

    def draws(self, route: str, drafted: int, accepted: int) -> int:
        """The bonus alone is drawn."""
        return 1

    def chances(self, draft: Draft, scored: Scored) -> Float[np.ndarray, " nodes"]:
        """0 or 1: no chance decides on a drafted token."""
        return self._count_trials(draft, scored, 1)

    def passes(self, p: Float[Tensor, "rows vocab"]) -> Bool[Tensor, "rows vocab"] | None:
        """Tokens that stand, p the target's probabilities at the run's temperature; None where that is not all that
        the rule asks.
        """
        return None

    def emits(
        self, p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"]
    ) -> Float[Tensor, "rows vocab"] | None:
        return None if (passes := self.passes(p)) is None else pass_or_fail(p, q, passes)

    def emits_after(
        self, logits: Float[Tensor, "rows vocab"], p: Float[Tensor, "rows vocab"], q: Float[Tensor, "rows vocab"]
    ) -> Float[Tensor, "rows vocab"] | None:
        """A token stands by its probability before top-k and top-p; where none does, the target draws after them."""
        passes = self.passes((logits.double() / self.chooser.sampling.temperature).softmax(-1))
        return None if passes is None else pass_or_fail(p, q, passes)


def down_the_tree(draft: Draft, acceptances: Float[np.ndarray, " drafted"]) -> Float[np.ndarray, " nodes"]:
    """The chance of each node to be accepted, from its chance once its parent is."""
    chances = np.ones(len(draft.tree))
    for node, parent in enumerate(draft.tree.parents[1:], start=1):
        chances[node] = chances[parent] * acceptances[node - 1]
    return chances


def judged(
    draft: Draft, path: list[int], bonus: int | None, *, accepted: str = "match", rejected: str = "mismatch"
) -> Verdict:
    """A verdict with one status and one reason per node, from the accepted path."""
    on_path = set(path)
    reasons = {"root": "root", "accepted": accepted, "rejected": rejected, "unreached": "parent rejected"}
    status = ["root"]
    for node, parent in enumerate(draft.tree.parents[1:], start=1):
        status.append("accepted" if node in on_path else "rejected" if parent in on_path else "unreached")
    return Verdict(tuple(path), bonus, tuple(status), tuple(map(reasons.__getitem__, status)))


def before_nodes(
    draft: Draft, scored: Scored
) -> tuple[Float[Tensor, "inner vocab"], Int[Tensor, " drafted"], Int[Tensor, " drafted"]]:
    """The target's logits after every node with children, and per drafted node its row there and its token."""
    inner, row = np.unique(np.asarray(draft.tree.parents[1:], dtype=np.int64), return_inverse=True)
    drafted = np.asarray(draft.tree.tokens[1:], dtype=np.int64)
    (rows, tokens) = send(scored.logits.device, row.reshape(-1), drafted)
    return rows_of(scored.logits, inner.tolist()).float(), rows, tokens


def likely_path(
    draft: Draft, scored: Scored, chooser: Chooser, p: Sequence[float], clauses: Sequence[tuple[bool, str]],
    likeliest: Sequence[int],
) -> Verdict:  # fmt: skip
    """A lossy verdict: of the paths whose nodes all pass, the longest; of equally long ones that with the highest
    summed log-probability; and the chooser's token after it.

    ``p`` is the target's probability of each node, ``clauses`` whether it passes by itself and why (of the root too),
    ``likeliest`` the target's first choice after each.
    """
    parents, count, depths = draft.tree.parents, len(draft.tree), draft.tree.depths
    passes, total, best = [True] * count, [0.0] * count, 0
    for node in range(1, count):
        passes[node] = clauses[node][0] and passes[parents[node]]
        if passes[node]:
            total[node] = total[parents[node]] + math.log(p[node]) if p[node] > 0 else -math.inf
            if (depths[node], total[node]) > (depths[best], total[best]):
                best = node
    bonus = likeliest[best]
    if not chooser.sampling.greedy:
        bonus = chooser.choices(scored.logits[best : best + 1]).draw_after(0)
    verdict = judged(draft, draft.tree.path(best), bonus)
    reasons = list(verdict.reasons)
    for node in range(1, count):
        if passes[parents[node]]:
            is_lost = passes[node] and verdict.status[node] != "accepted"
            reasons[node] = "passes, but a longer or likelier path won" if is_lost else clauses[node][1]
    return replace(verdict, reasons=tuple(reasons))


def cut_behind(draft: Draft, verdict: Verdict, count: int, reason: str) -> Verdict:
    """The verdict with only the first ``count`` of the tokens that it emits; ``reason`` is the reason of nodes
    behind.
    """
    if count > verdict.accepted:
        return verdict
    path, tree = verdict.path[: count + 1], draft.tree
    status, reasons = list(verdict.status), list(verdict.reasons)
    cut_flags = [False] * len(tree)
    for node, parent in enumerate(tree.parents[1:], start=1):
        cut_flags[node] = cut_flags[parent] or parent == path[-1]
        if cut_flags[node]:
            status[node], reasons[node] = "unreached", reason
    return replace(verdict, path=path, bonus=None, status=tuple(status), reasons=tuple(reasons))


def cut_at_stop(draft: Draft, verdict: Verdict, stop_ids: Collection[int]) -> Verdict:
    """The verdict cut at the first stop token inside the accepted path; what follows it is dropped.

    >>> from decoders.draft.tree import DraftTree
    >>> draft = Draft(DraftTree.chain(5, (6, 1, 7)))
    >>> cut_at_stop(draft, judged(draft, [0, 1, 2, 3], 8), {1}).path
    (0, 1, 2)
    """
    for count, node in enumerate(verdict.path[1:], start=1):
        if draft.tree.tokens[node] in stop_ids:
            return cut_behind(draft, verdict, count, AFTER_STOP)
    return verdict


VERIFIER = VerifierCard(
    "match", "Match",
    "Miao et al. 2024, SpecInfer; transformers, EAGLE and Medusa match greedy tokens so",
    "The target draws its own token after each node, and accepts a drafted one that is the same.",
    lambda params, chooser, stop_ids: MatchVerifier(chooser), greedy_match=True, order=10,
)  # fmt: skip
