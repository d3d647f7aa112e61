"""Wider drafts from a draft model: CAPE (GLIDE §4.2), fixed-size expansion, and beam search to compare with.

An expansion adds the drafter's next best tokens beside each token of a chain, as leaves: the chain alone goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft.tree import DraftTree

BINS = (8, 8, 8, 6, 6, 6, 4, 4, 2, 2)  # candidates at a position by tenth of confidence, the first choice included
EXPANSIONS = ("none", "confidence", "fixed", "beam 4", "beam 8")


def bin_of(confidence: float) -> int:
    """Which tenth a confidence falls into; 1.0 counts to the last.

    >>> [bin_of(p) for p in (0.05, 0.3, 1.0)]
    [0, 3, 9]
    """
    return min(9, int(10 * confidence))


def extras(confidence: float) -> int:
    """How many more tokens stand beside a token of this confidence (CAPE: 7, 5, 3 or 1).

    >>> [extras(p) for p in (0.05, 0.3, 0.45, 0.65, 0.95, 1.0)]
    [7, 5, 5, 3, 1, 1]
    """
    return BINS[bin_of(confidence)] - 1


@dataclass(frozen=True, slots=True)
class Proposal:
    """A draft tree in the making: per node the drafter's probability, its rank at its position (0 = first choice), and
    whether it is an expansion. ``rows`` names the row of distributions that stands for what follows a node.
    """

    tree: DraftTree
    probabilities: tuple[float, ...]
    ranks: tuple[int, ...]
    expanded: tuple[bool, ...]
    rows: dict[int, int]


def expanded(
    root: int, chain: Sequence[int], distributions: Float[Tensor, "positions vocab"], kind: str, size: int = 4
) -> Proposal:
    """The chain with leaves beside its tokens, most likely first: by confidence, ``size`` in all each, or none.

    >>> told = torch.tensor([[0.7, 0.2, 0.06, 0.04], [0.04, 0.06, 0.2, 0.7]])
    >>> expanded(9, [0, 3], told, "fixed", 2).tree
    DraftTree(tokens=(9, 0, 3, 1, 2), parents=(-1, 0, 1, 0, 1))
    """
    tokens, parents = [root, *chain], list(range(-1, len(chain)))
    positions = torch.arange(len(chain), device=distributions.device)
    own = distributions[positions, torch.as_tensor(chain, device=distributions.device)]
    ranks = [0, *(distributions > own[:, None]).sum(-1).tolist()] if kind == "none" else [0] * len(tokens)
    probabilities = [1.0, *own.tolist()]
    if kind != "none":
        top, ids = distributions.topk(min(max(size, BINS[0]), distributions.shape[-1]), dim=-1)
        for position, (values, ranked) in enumerate(zip(top.tolist(), ids.tolist(), strict=True)):
            extra = extras(values[0]) if kind == "confidence" else size - 1
            beside = [i for i, token in enumerate(ranked) if token != chain[position]][:extra]
            tokens += [ranked[i] for i in beside]
            parents += [position] * len(beside)
            probabilities += [values[i] for i in beside]
            ranks += range(1, len(beside) + 1)
    leaves = len(tokens) - len(chain) - 1
    return Proposal(
        DraftTree(tuple(tokens), tuple(parents)), tuple(probabilities), tuple(ranks),
        (False,) * (len(chain) + 1) + (True,) * leaves, {i: i for i in range(len(chain))},
    )  # fmt: skip


def beam_search(
    root: int,
    first: Float[Tensor, "vocab"],
    extend: Callable[[list[int], list[int]], Float[Tensor, "rows vocab"]],
    width: int,
    depth: int,
) -> tuple[Proposal, Float[Tensor, "rows vocab"]]:
    """The ``width`` best continuations of ``depth`` tokens as one tree, best first, and the distributions it names.

    ``extend(tokens, parents)`` gives logits after more rows; parents count those given before (-1: the root).
    """
    tokens, parents, probabilities, ranks = [root], [-1], [1.0], [0]
    distributions = [first.float().softmax(-1)[None]]
    row_of: dict[int, int] = {0: 0}  # node → row of the distributions
    beams, scores = [0], torch.zeros(1, device=first.device)
    for level in range(depth):
        last = torch.cat([torch.cat(distributions)[row_of[node]][None] for node in beams])
        total = scores[:, None] + last.log()
        best, index = total.flatten().topk(min(width, total.numel()))
        vocab, live = last.shape[1], best > -torch.inf
        best, index = best[live], index[live]
        chosen = [(beams[i // vocab], i // vocab, i % vocab) for i in index.tolist()]
        beams, scores = list(range(len(tokens), len(tokens) + len(chosen))), best
        for parent, beam, token in chosen:
            probability = last[beam, token]
            tokens.append(token)
            parents.append(parent)
            probabilities.append(float(probability))
            ranks.append(int((last[beam] > probability).sum()))
        if level + 1 < depth:
            logits = extend([token for _, _, token in chosen], [row_of[parent] - 1 for parent, _, _ in chosen])
            row_of |= {node: len(row_of) + i for i, node in enumerate(beams)}
            distributions.append(logits.float().softmax(-1))
    grown = DraftTree(tuple(tokens), tuple(parents))
    order = list(dict.fromkeys(node for beam in beams for node in grown.path(beam)))  # each path after the better ones
    place = {node: i for i, node in enumerate(order)}
    tree = DraftTree(tuple(tokens[n] for n in order), tuple(place.get(parents[n], -1) for n in order))
    inner = {place[parents[n]] for n in order[1:]}
    return Proposal(
        tree, tuple(probabilities[n] for n in order), tuple(ranks[n] for n in order),
        tuple(place[n] > depth for n in order), {i: row_of[order[i]] for i in sorted(inner)},
    ), torch.cat(distributions)  # fmt: skip
