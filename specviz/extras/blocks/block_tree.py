"""DDTree (2026): a tree through a block's lattice, best first by Σ log p, in place of its likeliest chain.

Positions of a block are guessed side by side, so a token's probability does not know which one stands before it, but by
a Markov head or a candidate selector. The best paths are taken in turn by a heap: with a path, its last token's next
sibling and its likeliest child may come next.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from decoders.draft.lattice import Lattice
from decoders.draft.tree import DraftTree
from decoders.model.state.transfer import fetch


class LatticeTree(NamedTuple):
    """A tree through a lattice: per drafted node its probability after its parent, its position's rank by itself, and
    the Σ log p of its path.
    """

    tree: DraftTree
    probabilities: list[float]
    ranks: list[int]
    path_logprobs: list[float]


class Path(NamedTuple):
    """A path that may be taken: ordered by its negative Σ log p, and by when it was found."""

    loss: float
    number: int
    parent: int
    depth: int
    choices: Sequence[tuple[float, int]]  # of its last position, likeliest first: log-probability and candidate
    place: int  # among them
    prefix: float


def conditional_logprobs(lattice: Lattice) -> Float[Tensor, "positions before candidates"]:
    """The log-probability of each candidate after each of the position before, as transitions have it; without them it
    is that of its position. A position's candidates share the mass that they have by themselves.
    """
    unigram = lattice.logprobs[:, None, :]
    if lattice.transitions is None:
        return unigram
    mass = lattice.logprobs.logsumexp(-1)[:, None, None]
    return (unigram + lattice.transitions).log_softmax(-1) + mass


def best_tree(root: int, lattice: Lattice, nodes: int) -> LatticeTree:
    """The tree of ``nodes`` nodes, the root included, of the greatest sum of path probabilities."""
    logs, tokens = (array.tolist() for array in fetch(conditional_logprobs(lattice), lattice.tokens))
    rankings: dict[tuple[int, int], list[tuple[float, int]]] = {}

    def choices_of(depth: int, previous: int) -> list[tuple[float, int]]:
        """Candidates at a position behind one, likeliest first."""
        row = previous if len(logs[depth]) > 1 else 0
        if (depth, row) not in rankings:
            rankings[depth, row] = sorted(((log, place) for place, log in enumerate(logs[depth][row])), reverse=True)
        return rankings[depth, row]

    count, heap = 0, [Path(-choices_of(0, 0)[0][0], 0, 0, 0, choices_of(0, 0), 0, 0.0)]
    parents, drafted, probabilities, ranks, path_logprobs = [-1], [root], list[float](), list[int](), list[float]()
    while heap and len(drafted) < nodes:
        path = heapq.heappop(heap)
        log, candidate = path.choices[path.place]
        node = len(drafted)
        drafted.append(tokens[path.depth][candidate])
        parents.append(path.parent)
        probabilities.append(math.exp(log))
        ranks.append(candidate)
        path_logprobs.append(path.prefix + log)
        if path.place + 1 < len(path.choices):
            count += 1
            loss = -path.prefix - path.choices[path.place + 1][0]
            heapq.heappush(heap, path._replace(loss=loss, number=count, place=path.place + 1))
        if path.depth + 1 < len(logs):
            count += 1
            choices = choices_of(path.depth + 1, candidate)
            prefix = path.prefix + log
            heapq.heappush(heap, Path(-prefix - choices[0][0], count, node, path.depth + 1, choices, 0, prefix))
    return _depth_first(drafted, parents, probabilities, ranks, path_logprobs)


def _depth_first(
    tokens: list[int], parents: list[int], probabilities: list[float], ranks: list[int], path_logprobs: list[float]
) -> LatticeTree:
    """The tree listed depth first, as it was found: of siblings the likeliest first."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    order, stack = list[int](), [0]
    while stack:
        order.append(node := stack.pop())
        stack += reversed(children.get(node, ()))
    new = {node: number for number, node in enumerate(order)}
    tree = DraftTree(tuple(tokens[node] for node in order), tuple(new.get(parents[node], -1) for node in order))
    probs, logprobs = ([values[node - 1] for node in order[1:]] for values in (probabilities, path_logprobs))
    return LatticeTree(tree, probs, [ranks[node - 1] for node in order[1:]], logprobs)
