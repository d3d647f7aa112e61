"""Trees that an EAGLE head grows: EAGLE-1's, settled before the step, and EAGLE-2's, which follows its confidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.tree import DraftTree
from decoders.model.transfer import Mark, fetched, mark

from .eagle_head import EagleHead
from .head_trees import RankTree

# EAGLE-1's tree (eagle/model/choices.py): 25 nodes, whatever its name mc_sim_7b_63 says
_TREE = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"
EAGLE_TREE = tuple(tuple(map(int, path)) for path in _TREE.split())

# logits after draft tokens; parents count the rows of the draft, the root 0
Extend = Callable[[Sequence[int], Sequence[int]], Float[Tensor, "rows drafted"]]


@dataclass(slots=True)
class Grown:
    """All that a head scored in a step; node 0 is the root, and parents precede their children.

    ``logprobs`` are of each token after its parent, among the tokens that the head can draft; ``scores`` their sums
    along the path; ``ranks`` its place among the head's choices there (0: the first). ``rows`` has the row of
    ``logits`` that stands for what follows a node that the head went on from, ``first`` the log-probability of its
    first choice there; ``spans`` are its forwards.
    """

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    logprobs: list[float] = field(default_factory=lambda: [0.0])
    scores: list[float] = field(default_factory=lambda: [0.0])
    ranks: list[int] = field(default_factory=lambda: [0])
    rows: dict[int, int] = field(default_factory=dict)
    logits: list[Tensor] = field(default_factory=list)
    first: dict[int, float] = field(default_factory=dict)
    spans: list[tuple[Mark, Mark]] = field(default_factory=list)

    def add(self, parent: int, token: int, logprob: float, rank: int) -> int:
        """One more node; its number is given back."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.logprobs.append(logprob)
        self.scores.append(float(np.float32(self.scores[parent]) + np.float32(logprob)))
        self.ranks.append(rank)
        return len(self.tokens) - 1

    def best(self, count: int) -> list[int]:
        """The best ``count`` nodes by score, best first; a node's ancestors are among them, as no score grows."""
        order = np.argsort(-np.asarray(self.scores[1:]), kind="stable")[:count] + 1
        return order.tolist()

    def kept(self, nodes: Sequence[int]) -> tuple[DraftTree, list[int]]:
        """The tree of these nodes, the likeliest chain first, and the number here of each of its nodes."""
        below: dict[int, list[int]] = {}
        for node in sorted(nodes, key=lambda node: (-self.scores[node], node)):
            below.setdefault(self.parents[node], []).append(node)
        order, waiting = list[int](), [0]
        while waiting:
            order.append(waiting.pop())
            waiting += reversed(below.get(order[-1], ()))
        place = {node: i for i, node in enumerate(order)}
        return DraftTree(
            tuple(self.tokens[node] for node in order), tuple(place.get(self.parents[node], -1) for node in order)
        ), order

    def said(self, nodes: Sequence[int]) -> list[Float[Tensor, "drafted"]]:
        """Log-probabilities of the tokens that can be drafted, after nodes that the head went on from."""
        rows = torch.cat(self.logits)[[self.rows[node] for node in nodes]]
        return list(rows.log_softmax(-1))


class Growing:
    """A head's levels, one forward each: what the frontier's nodes are followed by."""

    def __init__(self, root: int, first: Tensor, extend: Extend, head: EagleHead) -> None:
        self.grown = Grown([root], rows={0: 0}, logits=[first[None]])
        self.extend, self.head = extend, head

    def choices(self, nodes: Sequence[int], count: int) -> tuple[np.ndarray, np.ndarray]:
        """The first choices after each of these nodes, the last level: tokens and log-probabilities
        ``[nodes, count]``.
        """
        logits = self.grown.logits[-1]
        best, index = logits.topk(min(count, logits.shape[-1]), -1)
        tokens = index if self.head.drafted is None else self.head.drafted.long()[index]
        ids, logprobs = fetched(tokens, best - logits.logsumexp(-1, keepdim=True))
        self.grown.first.update(zip(nodes, logprobs[:, 0].tolist(), strict=True))
        return ids, logprobs

    def forward(self, nodes: Sequence[int]) -> None:
        """Go on from these nodes."""
        grown, device = self.grown, self.head.fc.weight.device
        started = mark(device)
        tokens = [grown.tokens[node] for node in nodes]
        logits = self.extend(tokens, [grown.rows[grown.parents[node]] for node in nodes])
        grown.rows |= {node: len(grown.rows) + i for i, node in enumerate(nodes)}
        grown.logits.append(logits)
        grown.spans.append((started, mark(device)))


def dynamic(
    root: int, first: Float[Tensor, "drafted"], extend: Extend, head: EagleHead, *, levels: int, top_k: int
) -> Grown:
    """EAGLE-2's expansion: per level, ``top_k`` choices after each node of the frontier, of which the ``top_k`` best by
    cumulative log-probability are the next one (§4.1; ``topK_genrate``).
    """
    growing, frontier = Growing(root, first, extend, head), [0]
    grown = growing.grown
    for level in range(levels):
        ids, logprobs = growing.choices(frontier, top_k)
        new = [
            grown.add(parent, int(token), float(logprob), rank)
            for parent, *row in zip(frontier, ids.tolist(), logprobs.tolist(), strict=True)
            for rank, (token, logprob) in enumerate(zip(*row, strict=True))
        ]
        if level + 1 < levels:
            frontier = sorted(new, key=lambda node: -grown.scores[node])[:top_k]
            growing.forward(frontier)
    return grown


def settled(root: int, first: Float[Tensor, "drafted"], extend: Extend, head: EagleHead, shape: RankTree) -> Grown:
    """EAGLE-1's expansion: at every level the ranks that ``shape`` names."""
    growing, number = Growing(root, first, extend, head), {0: 0}
    grown = growing.grown
    for depth, level in enumerate(shape.levels):
        if depth:
            growing.forward([number[node] for node in level.inner])
        ids, logprobs = growing.choices([number[node] for node in level.inner], int(level.ranks.max()) + 1)
        for node, row, rank in zip(level.children, level.rows.tolist(), level.ranks.tolist(), strict=True):
            parent = number[level.inner[row]]
            number[node] = grown.add(parent, int(ids[row, rank]), float(logprobs[row, rank]), rank)
    return grown
