"""A draft with some of its nodes left out, and all that is recorded of a draft cut to those that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import SupportsFloat

import numpy as np
from torch import Tensor

from .distributions import NodeDistributions
from .draft import Draft, Later, Layout, Looks, Probe, PrunedNodes

COST, RANK, GRAMMAR = ("cost", "rank", "grammar")


def pruned_draft(
    draft: Draft,
    nodes: Sequence[int],
    survival: Sequence[float],
    terms: Mapping[str, np.ndarray] | None = None,
    *,
    notes: Mapping[str, SupportsFloat] | None = None,
    reason: str | None = None,
    proposal: Draft | None = None,
    cause: str = COST,
) -> Draft:
    """The draft of ``nodes`` alone: ascending, the root first, each with its parent. What is left out is recorded
    (``left_out``), likeliest first by ``survival`` [nodes], before what the drafter itself had left out. Probes go with
    the node they hang on. ``Draft.nodes`` has each node's number in the proposal. ``terms`` [nodes], ``notes``
    and ``reason`` take the place of the draft's own. ``cause`` says what is wrong with what is left out: COST (more
    than it brings), RANK (beyond what may be verified) or GRAMMAR.

    >>> from .tree import DraftTree
    >>> cut = pruned_draft(Draft(DraftTree((5, 8, 5, 2), (-1, 0, 1, 0))), (0, 1, 3), (1, .9, .1, .3))
    >>> cut.tree.tokens, cut.nodes, cut.left_out.tokens, cut.left_out.parents
    ((5, 8, 2), (0, 1, 3), (5,), (1,))
    """
    tree, order = draft.tree.first(len(nodes)) if isinstance(nodes, range) else draft.tree.subtree(nodes)
    prefix = order[-1] == len(order) - 1

    def of_nodes(values: tuple) -> tuple:
        return values[: len(order)] if prefix else tuple([values[node] for node in order]) if values else values

    def own_terms() -> Mapping[str, np.ndarray]:
        index = slice(len(order)) if prefix else np.asarray(order)
        return {key: np.asarray(values)[index] for key, values in (terms or draft.terms).items()}

    new = {node: number for number, node in enumerate(order)}
    probes, rows = _probes(draft, new)
    distributions = draft.distributions
    return replace(
        draft,
        tree=tree,
        origins=of_nodes(draft.origins),
        sources=of_nodes(draft.sources),
        probabilities=None if draft.probabilities is None else of_nodes(draft.probabilities),
        probes=probes,
        reason=draft.reason if reason is None else reason,
        pool=of_nodes(draft.pool),
        terms=Later(own_terms),
        notes=draft.notes if notes is None else notes,
        distributions=None if distributions is None else NodeDistributions.of(distributions).of_nodes(new),
        looks=None if draft.looks is None else _looks(draft.looks, new, rows, len(tree)),
        layout=None if draft.layout is None else _layout(draft.layout, [*order, *rows], len(draft.tree), bool(probes)),
        proposal=draft.proposal if proposal is None else proposal,
        nodes=tuple(draft.proposed_nodes(order) if proposal is None else order),
        pruned=None,
        pruned_later=partial(_left_out, draft, new, survival, cause),
    )


def _probes(draft: Draft, new: dict[int, int]) -> tuple[tuple[Probe, ...], list[int]]:
    """Probes of the nodes that stay, and the rows that they had in the draft."""
    place: dict[int, int] = {}
    for number, probe in enumerate(draft.probes):
        if probe.parent in new and all(index in place for index in probe.sees):
            place[number] = len(place)
    probes = [
        replace(draft.probes[number], parent=new[draft.probes[number].parent],
                sees=tuple(place[index] for index in draft.probes[number].sees))
        for number in place
    ]  # fmt: skip
    return tuple(probes), [len(draft.tree) + number for number in place]


def _layout(layout: Layout, rows: Sequence[int], nodes: int, probes: bool) -> Layout:
    index = np.asarray(rows)
    embeddings = layout.embeddings
    if embeddings is not None:
        embeddings = embeddings[[row - nodes for row in rows if row >= nodes]] if probes else None
    return Layout(layout.offsets[index], None if layout.sees is None else layout.sees[np.ix_(index, index)], embeddings)


def _looks(looks: Looks, new: dict[int, int], rows: Sequence[int], count: int) -> Looks | None:
    """The looks of what stays; ``rows`` are the probes' in the whole draft."""
    number = {**new, **{row: count + place for place, row in enumerate(rows)}}
    stays = [place for place, node in enumerate(looks.nodes) if node in number]
    if not stays:
        return None

    def weights() -> Tensor:
        return looks.weights()[:, :, stays]

    return Looks(tuple(number[looks.nodes[place]] for place in stays), looks.layers, weights)


def _left_out(draft: Draft, new: dict[int, int], survival: Sequence[float], cause: str) -> PrunedNodes | None:
    tree, q, pruned_nodes = draft.tree, draft.probabilities, draft.left_out
    out = sorted((node for node in range(len(tree)) if node not in new), key=lambda node: (-survival[node], node))
    if not out:
        return pruned_nodes
    count = len(new)
    number = {**new, **{node: count + place for place, node in enumerate(out)}}
    drafter_nodes = pruned_nodes or PrunedNodes((), (), (), ())
    # earlier entries of the drafter's own follow those of this list
    drafter_parents = [
        number[parent] if parent < len(tree) else parent - len(tree) + count + len(out)
        for parent in drafter_nodes.parents
    ]
    return PrunedNodes(
        (*(tree.tokens[node] for node in out), *drafter_nodes.tokens),
        (*(number[tree.parents[node]] for node in out), *drafter_parents),
        (*(float("nan") if q is None else q[node] for node in out), *drafter_nodes.probabilities),
        (*(survival[node] for node in out), *drafter_nodes.scores),
        (*[cause] * len(out), *drafter_nodes.reasons),
    )
