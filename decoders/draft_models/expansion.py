"""Wider drafts from a draft model: CAPE (GLIDE §4.2), fixed-size expansion, and beam search to compare with.

An expansion adds the drafter's next best tokens beside each token of a chain, as leaves: the chain alone goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.draft.tree import DraftTree
from decoders.model.state.transfer import fetch, send

BINS = (8, 8, 8, 6, 6, 6, 4, 4, 2, 2)  # candidates at a position by tenth of confidence, the first choice included
EXPANSIONS = ("none", "confidence", "fixed", "beam 4", "beam 8")


def bin_of(confidence: float) -> int:
    """The tenth that a confidence falls into; 1.0 counts to the last.

    >>> [bin_of(p) for p in (0.05, 0.3, 1.0)]
    [0, 3, 9]
    """
    return min(9, int(10 * confidence))


def extras(confidence: float) -> int:
    """Number of further tokens beside a token of this confidence (CAPE: 7, 5, 3 or 1).

    >>> [extras(p) for p in (0.05, 0.3, 0.45, 0.65, 0.95, 1.0)]
    [7, 5, 5, 3, 1, 1]
    """
    return BINS[bin_of(confidence)] - 1


@dataclass(frozen=True, slots=True)
class Proposal:
    """A draft tree in the making: per node the drafter's probability, its rank at its position (0 = first choice), and
    whether it is an expansion. ``rows`` names the row of distributions that stands for what follows a node;
    ``confidences`` are the highest probabilities of those rows.
    """

    tree: DraftTree
    probabilities: tuple[float, ...]
    ranks: tuple[int, ...]
    is_expanded: tuple[bool, ...]
    rows: dict[int, int]
    confidences: tuple[float, ...]


def expand(
    root: int, drafted: Sequence[int] | Int[Tensor, " positions"], distributions: Float[Tensor, "positions vocab"],
    kind: str, size: int = 4,
) -> Proposal:  # fmt: skip
    """The chain that was drafted with leaves beside its tokens, most likely first: by confidence, ``size`` in all each,
    or none. All that is read of the device comes in one copy.

    >>> told = torch.tensor([[0.7, 0.2, 0.06, 0.04], [0.04, 0.06, 0.2, 0.7]])
    >>> expand(9, [0, 3], told, "fixed", 2).tree
    DraftTree(tokens=(9, 0, 3, 1, 2), parents=(-1, 0, 1, 0, 1))
    """
    if not isinstance(drafted, Tensor):
        (drafted,) = send(distributions.device, np.asarray(drafted, dtype=np.int64))
    token_probs = distributions.gather(1, drafted[:, None])
    wide = 1 if kind == "none" else min(max(size, BINS[0]), distributions.shape[-1])
    higher_counts = (distributions > token_probs).sum(-1) if kind == "none" else torch.zeros_like(drafted)
    chain, probable, chain_ranks, top, ids = fetch(
        drafted,
        token_probs[:, 0],
        higher_counts,
        *(distributions.topk(wide, dim=-1) if wide > 1 else distributions.max(-1, True)),
    )
    tokens, parents = [root, *chain.tolist()], list(range(-1, len(chain)))
    ranks, probabilities = [0, *chain_ranks.tolist()], [1.0, *probable.tolist()]
    if kind != "none":
        for position, (values, ranking) in enumerate(zip(top.tolist(), ids.tolist(), strict=True)):
            extra = extras(values[0]) if kind == "confidence" else size - 1
            leaf_ranks = [i for i, token in enumerate(ranking) if token != chain[position]][:extra]
            tokens += [ranking[i] for i in leaf_ranks]
            parents += [position] * len(leaf_ranks)
            probabilities += [values[i] for i in leaf_ranks]
            ranks += range(1, len(leaf_ranks) + 1)
    leaves = len(tokens) - len(chain) - 1
    return Proposal(
        DraftTree(tuple(tokens), tuple(parents)), tuple(probabilities), tuple(ranks),
        (False,) * (len(chain) + 1) + (True,) * leaves, {i: i for i in range(len(chain))}, tuple(top[:, 0].tolist()),
    )  # fmt: skip


def beam_search(
    root: int,
    first: Float[Tensor, " vocab"],
    extend: Callable[[list[int], list[int]], Float[Tensor, "rows vocab"]],
    width: int,
    depth: int,
) -> tuple[Proposal, Float[Tensor, "rows vocab"]]:
    """The ``width`` best continuations of ``depth`` tokens as one tree, best first, and the distributions it names.

    ``extend(tokens, parents)`` gives logits after more rows; parents count those given before (-1: the root). A level
    is read from the device in one copy.
    """
    tokens, parents, probabilities, ranks = [root], [-1], [1.0], [0]
    last = first.float().softmax(-1)[None]  # after the beams
    distributions, confidences = [last], list[float]()
    row_of: dict[int, int] = {0: 0}  # node → row of the distributions
    beams, scores = [0], torch.zeros(1, device=first.device)
    for level in range(depth):
        total = scores[:, None] + last.log()
        best, index = total.flatten().topk(min(width, total.numel()))
        beam, token = index // last.shape[1], index % last.shape[1]
        chances = last[beam]
        chance = chances.gather(1, token[:, None])
        read = fetch(best, beam, token, chance[:, 0], (chances > chance).sum(-1), last.amax(-1))
        *columns, highest = (column.tolist() for column in read)
        confidences += highest
        live = sum(score > -np.inf for score in columns[0])  # best first, so those that are not are the last ones
        _, parent_beams, level_tokens, level_probs, level_ranks = (column[:live] for column in columns)
        nodes = list(range(len(tokens), len(tokens) + live))
        tokens += level_tokens
        parents += [beams[i] for i in parent_beams]
        probabilities += level_probs
        ranks += level_ranks
        beams, scores = nodes, best[:live]
        if level + 1 < depth:
            last = extend(level_tokens, [row_of[parents[node]] - 1 for node in nodes]).float().softmax(-1)
            row_of |= {node: len(row_of) + i for i, node in enumerate(nodes)}
            distributions.append(last)
    full_tree = DraftTree(tuple(tokens), tuple(parents))
    order = list(
        dict.fromkeys(node for beam in beams for node in full_tree.path(beam))
    )  # each path after the better ones
    place = {node: i for i, node in enumerate(order)}
    tree = DraftTree(tuple(tokens[n] for n in order), tuple(place.get(parents[n], -1) for n in order))
    inner = {place[parents[n]] for n in order[1:]}
    return Proposal(
        tree, tuple(probabilities[n] for n in order), tuple(ranks[n] for n in order),
        tuple(place[n] > depth for n in order), {i: row_of[order[i]] for i in sorted(inner)}, tuple(confidences),
    ), torch.cat(distributions)  # fmt: skip
