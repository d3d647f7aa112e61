"""Verifiers: which drafted tokens stand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from .protocols import Draft, Scored, Verdict
from .sampling import Chooser


class MatchVerifier:
    """One decision per visited node: draw (or argmax) the target's token once, descend if a child carries it, else
    emit it.

    Lossless for any drafter and any tree, greedy or sampled (methods.md §0; SpecInfer's token matching, one draw a
    node).
    """

    lossless = True

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser

    def __call__(self, draft: Draft, scored: Scored) -> Verdict:
        children = draft.tree.children()
        choices = self.chooser.choices(scored.logits)
        path = [0]
        while True:
            token = choices.after(path[-1])
            child = children[path[-1]].get(token)
            if child is None:
                return judged(draft, path, token)
            path.append(child)


def judged(
    draft: Draft, path: list[int], bonus: int | None, *, accepted: str = "match", rejected: str = "mismatch"
) -> Verdict:
    """A verdict with one status and one reason per node, from the accepted path."""
    on_path = set(path)
    status, reasons = ["root"], ["root"]
    for node in range(1, len(draft.tree)):
        if node in on_path:
            status.append("accepted")
            reasons.append(accepted)
        elif draft.tree.parents[node] in on_path:
            status.append("rejected")
            reasons.append(rejected)
        else:
            status.append("unreached")
            reasons.append("parent rejected")
    return Verdict(tuple(path), bonus, tuple(status), tuple(reasons))


def stopped(draft: Draft, verdict: Verdict, stop_ids: Collection[int]) -> Verdict:
    """The verdict cut at the first stop token inside the accepted path; what follows it is dropped.

    >>> from decoders.tree import DraftTree
    >>> draft = Draft(DraftTree.chain(5, (6, 1, 7)))
    >>> stopped(draft, judged(draft, [0, 1, 2, 3], 8), {1}).path
    (0, 1, 2)
    """
    tokens = draft.tree.tokens
    for i, node in enumerate(verdict.path[1:], start=1):
        if tokens[node] in stop_ids:
            kept = verdict.path[: i + 1]
            status, reasons = list(verdict.status), list(verdict.reasons)
            for other in range(1, len(tokens)):
                if node in draft.tree.path(other)[:-1]:
                    status[other], reasons[other] = "unreached", "after stop"
            return replace(verdict, path=kept, bonus=None, status=tuple(status), reasons=tuple(reasons))
    return verdict
