"""Trees that an EAGLE head grows: EAGLE-1's, settled before the step, and EAGLE-2's, which follows its confidence."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.tree import DraftTree
from decoders.model.state.transfer import Mark, fetch, mark

from .eagle_head import EagleHead
from .head_trees import NodePlaces, RankTree

# EAGLE-1's tree (eagle/model/choices.py): 25 nodes, whatever its name mc_sim_7b_63 says
_TREE = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"
EAGLE_TREE = tuple(tuple(map(int, path)) for path in _TREE.split())

# logits after the tokens of the next level; parents are rows of the last one
Extend = Callable[[Int[Tensor, " rows"], Int[Tensor, " rows"]], Float[Tensor, "rows drafted"]]


@dataclass(frozen=True, slots=True)
class CandidateTree:
    """All that a head scored in a step; node 0 is the root, and parents precede their children.

    ``logprobs`` are of each token after its parent, among the tokens that the head can draft; ``scores`` their sums
    along the path; ``ranks`` its place among the head's choices there (0: the first). ``rows`` has the row of
    ``logits`` that stands for what follows a node that the head went on from, ``first`` the log-probability of its
    first choice there; ``spans`` are its forwards.
    """

    tokens: list[int]
    parents: list[int]
    logprobs: list[float]
    scores: list[float]
    ranks: list[int]
    rows: dict[int, int]
    first: dict[int, float]
    logits: list[Float[Tensor, "rows drafted"]]
    spans: list[tuple[Mark, Mark]]

    def best(self, count: int) -> list[int]:
        """The best ``count`` nodes by score, best first; a node's ancestors are among them, as no score grows."""
        order = np.argsort(-np.asarray(self.scores[1:]), kind="stable")[:count] + 1
        return order.tolist()

    def subtree(self, nodes: Sequence[int]) -> tuple[DraftTree, list[int]]:
        """The tree of these nodes, the likeliest chain first, and the number here of each of its nodes."""
        children: dict[int, list[int]] = {}
        for node in sorted(nodes, key=lambda node: (-self.scores[node], node)):
            children.setdefault(self.parents[node], []).append(node)
        order, waiting = list[int](), [0]
        while waiting:
            order.append(waiting.pop())
            waiting += reversed(children.get(order[-1], ()))
        place = {node: i for i, node in enumerate(order)}
        return DraftTree(
            tuple(self.tokens[node] for node in order), tuple(place.get(self.parents[node], -1) for node in order)
        ), order

    def logits_after(self, nodes: Sequence[int]) -> list[Float[Tensor, " drafted"]]:
        """Logits of the tokens that can be drafted, after nodes that the head went on from."""
        starts = [0, *accumulate(map(len, self.logits))]
        level = [bisect_right(starts, self.rows[node]) - 1 for node in nodes]
        return [self.logits[at][self.rows[node] - starts[at]] for node, at in zip(nodes, level, strict=True)]


@dataclass(frozen=True, slots=True)
class Choices:
    """A level of a tree, on the device. ``rows`` and ``ranks`` say whose choices its nodes are and which, ``tokens``,
    ``logprobs`` and ``scores`` what they are; ``best`` has the log-probability of each row's first one. ``inner`` are
    the nodes that the head goes on from, the rows of the next level.
    """

    rows: Int[Tensor, " nodes"]
    ranks: Int[Tensor, " nodes"]
    tokens: Int[Tensor, " nodes"]
    logprobs: Float[Tensor, " nodes"]
    scores: Float[Tensor, " nodes"]
    best: Float[Tensor, " rows"]
    inner: Int[Tensor, "next"]


class Growing:
    """A tree that grows on the device, a forward for each level after the first; one copy brings all of it back.
    ``timed``: each forward is.
    """

    def __init__(self, first: Float[Tensor, " drafted"], extend: Extend, head: EagleHead, timed: bool = True) -> None:
        self.extend, self.head, self.timed = extend, head, timed
        self.logits, self.levels, self.spans = [first[None]], list[Choices](), list[tuple[Mark, Mark]]()
        self.scores = first.new_zeros(1)  # of the rows of the last level

    def choices(self, count: int) -> tuple[Tensor, Tensor]:
        """The first choices after each row of the last level: tokens and log-probabilities ``[rows, count]``."""
        logits = self.logits[-1]
        best, index = logits.topk(count, -1)
        tokens = index if self.head.drafted is None else self.head.drafted[index].long()
        return tokens, best - logits.logsumexp(-1, keepdim=True)

    def add(self, level: Choices) -> None:
        """One more level; where it has inner nodes, the head goes on from them."""
        self.levels.append(level)
        if not len(level.inner):
            return
        device = self.scores.device
        start_mark = mark(device) if self.timed else None
        self.scores = level.scores[level.inner]
        self.logits.append(self.extend(level.tokens[level.inner], level.rows[level.inner]))
        if self.timed:
            self.spans.append((start_mark, mark(device)))

    def without_memory(self) -> Growing:
        """The same, which cannot grow on: it holds no memory but its own."""
        self.extend = _stop
        return self

    def with_own_logits(self) -> Growing:
        """The same with logits of its own, where a graph writes over them."""
        growing = copy.copy(self)
        growing.logits = list(torch.cat(self.logits).split([len(rows) for rows in self.logits]))
        return growing

    def tree(self, root: int) -> CandidateTree:
        """The scored nodes behind a root."""
        columns = ("rows", "ranks", "tokens", "logprobs", "scores", "best", "inner")
        parts = fetch(*(torch.cat([getattr(level, name) for level in self.levels]) for name in columns))
        rows, ranks, tokens, logprobs, scores, best, inner = parts
        nodes, parents, at = [np.zeros(1, dtype=np.int64)], list[np.ndarray](), 0  # nodes: that each row stands for
        for level in self.levels:
            count, start = (
                len(level.tokens),
                sum(len(earlier_level.inner) for earlier_level in self.levels[: len(nodes) - 1]),
            )
            parents.append(nodes[-1][rows[at : at + count]])
            nodes.append(inner[start : start + len(level.inner)] + at + 1)
            at += count
        stands = np.concatenate(nodes).tolist()
        return CandidateTree(
            [root, *tokens.tolist()], [-1, *np.concatenate(parents).tolist()], [0.0, *logprobs.tolist()],
            [0.0, *scores.tolist()], [0, *ranks.tolist()], {node: row for row, node in enumerate(stands)},
            dict(zip(stands, best.tolist(), strict=True)), self.logits, self.spans,
        )  # fmt: skip


def _stop(tokens: Tensor, parents: Tensor) -> Tensor:
    raise AssertionError("this tree has grow_behind")


@dataclass(frozen=True, slots=True)
class Expansion:
    """A way to grow a tree: ``key`` names it, ``rows`` are those that the head goes on from behind the root."""

    key: tuple[Hashable, ...]
    rows: int
    expand: Callable[[Growing], Growing]


def grow_behind(run: Any, context: Any, expansion: Expansion) -> tuple[Growing, Mark]:
    """The tree that an expansion grows from what a run says behind a context, and when the context was read."""
    first = run.read(context)
    read = mark(first.device)
    return expansion.expand(Growing(first, run.extend, run.head)), read


def dynamic(growing: Growing, *, levels: int, top_k: int) -> Growing:
    """EAGLE-2's expansion: per level, ``top_k`` choices after each node of the frontier, of which the ``top_k`` best by
    cumulative log-probability are the next one (§4.1; ``topK_genrate``).
    """
    count = min(top_k, growing.logits[0].shape[-1])
    for level in range(levels):
        tokens, logprobs = growing.choices(count)
        scores = (growing.scores[:, None] + logprobs).flatten()
        order = scores.sort(descending=True, stable=True).indices
        indices = torch.arange(len(scores), device=scores.device)
        inner = order[: top_k if level + 1 < levels else 0]
        growing.add(
            Choices(
                indices // count, indices % count, tokens.flatten(), logprobs.flatten(), scores, logprobs[:, 0], inner
            )
        )
    return growing


def expand_static(growing: Growing, tree: RankTree, places: Sequence[NodePlaces]) -> Growing:
    """EAGLE-1's expansion: at every level the ranks that ``tree`` names; ``places`` says where they stand."""
    for level, place in zip(tree.levels, places, strict=True):
        tokens, logprobs = growing.choices(int(level.ranks.max()) + 1)
        scores = growing.scores[place.rows] + logprobs[place.rows, place.ranks]
        growing.add(
            Choices(
                place.rows, place.ranks, tokens[place.rows, place.ranks], logprobs[place.rows, place.ranks], scores,
                logprobs[:, 0], place.inner,
            )
        )  # fmt: skip
    return growing
