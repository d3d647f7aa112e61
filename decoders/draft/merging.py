"""Several drafters' drafts after one root, merged into one trie, and each drafter's share of what became of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .distributions import NodeDistributions
from .draft import Draft, Looks, Probe, Scored, Verdict
from .pruning import pruned_draft
from .survival import count_match
from .tree import DraftTree

NAN = float("nan")


@dataclass(frozen=True)
class MergedTree:
    """The union of the ``drafts``' paths. ``numbers[drafter][node]`` is the number that a node of the tree has in that
    drafter's own draft (-1: it did not propose the node), ``places[drafter]`` the way back.

    >>> first, second = (Draft(DraftTree.chain(5, tokens)) for tokens in ([8, 2], [8, 3]))
    >>> tree = merge_trees([first, second])
    >>> tree.tree.tokens, tree.tree.parents, tree.masks
    ((5, 8, 2, 3), (-1, 0, 1, 1), (0, 3, 1, 2))
    >>> tree.classes
    ('root', '3 of 3', '1 of 3', '2 of 3')
    """

    drafts: tuple[Draft, ...]
    tree: DraftTree
    numbers: tuple[tuple[int, ...], ...]

    @cached_property
    def places(self) -> tuple[dict[int, int], ...]:
        return tuple({number: node for node, number in enumerate(row) if number >= 0} for row in self.numbers)

    @cached_property
    def masks(self) -> tuple[int, ...]:
        """Masks of the drafters that proposed each node: bit i is the i-th one's. The root's is 0."""
        masks = [sum(1 << i for i, number in enumerate(row) if number >= 0) for row in zip(*self.numbers, strict=True)]
        return 0, *masks[1:]

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Each node's class: the mask of those who proposed it, of the mask of those who proposed any child of its
        parent. Two drafters have five: both; either one alone, or beside another guess of the other's.
        """
        spoke = [0] * len(self.masks)
        for node, parent in enumerate(self.tree.parents[1:], 1):
            spoke[parent] |= self.masks[node]
        return ("root", *(f"{self.masks[n]} of {spoke[parent]}" for n, parent in enumerate(self.tree.parents[1:], 1)))

    def with_empty(self, draft: Draft) -> MergedTree:
        """The same tree with one drafter more, whose draft is only the root."""
        return MergedTree((*self.drafts, draft), self.tree, (*self.numbers, (0, *(-1,) * (len(self.tree) - 1))))

    def per_drafter(self, values: Sequence[Sequence[float]]) -> list[list[float]]:
        """Numbers of each drafter's own nodes, by the nodes of the tree; nan where it did not propose one."""
        return [
            [drafter_values[number] if node and number >= 0 else NAN for node, number in enumerate(row)]
            for drafter_values, row in zip(values, self.numbers, strict=True)
        ]

    def depth_first(self, survival: Sequence[float]) -> tuple[MergedTree, list[int]]:
        """The tree listed depth first, of siblings the one of the greatest ``survival`` first; and each node's former
        number.
        """
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.tree.parents):
            children.setdefault(parent, []).append(node)
        order, stack = list[int](), [0]
        while stack:
            order.append(node := stack.pop())
            stack += sorted(children.get(node, ()), key=lambda child: (survival[child], -child))
        new = {node: number for number, node in enumerate(order)}
        parents = tuple(-1 if node == 0 else new[self.tree.parents[node]] for node in order)
        tree = DraftTree(tuple(self.tree.tokens[node] for node in order), parents)
        numbers = tuple(tuple(row[node] for node in order) for row in self.numbers)
        return MergedTree(self.drafts, tree, numbers), order

    def draft(self, probabilities: Sequence[float]) -> Draft:
        """The draft of all nodes. Of a node that several proposed, origin, source and numbers are those of the first of
        them; candidates, distributions and looks are those of the first drafter that has any.
        """
        drafts, count = self.drafts, len(self.tree)
        rows = zip(*self.numbers, strict=True)
        first = [next((i, number) for i, number in enumerate(row) if number >= 0) for row in rows]
        probes = list[Probe]()
        looks: Looks | None = None
        for places, draft in zip(self.places, drafts, strict=True):
            base = len(probes)
            if looks is None and draft.looks is not None:
                nodes = [places[n] if n in places else n - len(draft.tree) + count + base for n in draft.looks.nodes]
                looks = replace(draft.looks, nodes=tuple(nodes))
            probes += [
                replace(
                    probe, parent=places[probe.parent], sees=tuple(base + other_probe for other_probe in probe.sees)
                )
                for probe in draft.probes
            ]
        distributions = next(
            (NodeDistributions.of(draft.distributions).of_nodes(self.places[i])
             for i, draft in enumerate(drafts) if draft.distributions is not None), None,
        )  # fmt: skip
        return Draft(
            self.tree,
            ("root", *(drafts[i].origins[number] for i, number in first[1:])),
            (-1, *(drafts[i].sources[number] for i, number in first[1:])),
            (1.0, *probabilities[1:]),
            candidates=next((draft.candidates for draft in drafts if draft.candidates is not None), None),
            probes=tuple(probes),
            route="merged",
            pool=(-1, *(drafts[i].pool[number] if drafts[i].pool else -1 for i, number in first[1:]))
            if any(draft.pool for draft in drafts) else (),
            distributions=distributions,
            looks=looks,
        )  # fmt: skip

    def terms(self) -> dict[str, np.ndarray]:
        """The drafters' own numbers of nodes; where several give the same one, the first of them that proposed it."""
        terms: dict[str, np.ndarray] = {}
        for i in reversed(range(len(self.drafts))):
            numbers = np.asarray(self.numbers[i])
            has = numbers >= 0
            for key, values in self.drafts[i].terms.items():
                column = terms.setdefault(key, np.full(len(numbers), np.nan))
                column[has] = np.asarray(values, dtype=np.float64)[numbers[has]]
                column[0] = np.nan
        return terms


def merge_trees(drafts: Sequence[Draft]) -> MergedTree:
    """Merge drafts after the same root, the first one's nodes first. A node is its parent and its token."""
    tokens, parents = [drafts[0].tree.tokens[0]], [-1]
    children: dict[tuple[int, int], int] = {}
    places = list[list[int]]()
    for draft in drafts:
        place = [0]
        for token, parent in zip(draft.tree.tokens[1:], draft.tree.parents[1:], strict=True):
            node = children.setdefault((place[parent], token), len(tokens))
            if node == len(tokens):
                tokens.append(token)
                parents.append(place[parent])
            place.append(node)
        places.append(place)
    numbers = [[-1] * len(tokens) for _ in drafts]
    for row, place in zip(numbers, places, strict=True):
        for node, at in enumerate(place):
            row[at] = node
    return MergedTree(tuple(drafts), DraftTree(tuple(tokens), tuple(parents)), tuple(map(tuple, numbers)))


def own_probabilities(draft: Draft) -> list[float]:
    """The drafter's probability of each node after its parent; nan where it gives none.

    It is what the draft says, or the quotient of its probabilities of whole paths.
    """
    if draft.probabilities is not None:
        return list(draft.probabilities)
    path = draft.terms.get("path_prob")
    if path is None:
        return [NAN] * len(draft.tree)
    of_path = np.asarray(path, dtype=np.float64).tolist()
    result = [1.0]
    for node, parent in enumerate(draft.tree.parents[1:], 1):
        parent_path = of_path[parent] if parent else 1.0
        result.append(of_path[node] / parent_path if parent_path > 0 else NAN)
    return result


def own_ranks(draft: Draft) -> list[float]:
    """Each node's rank among its siblings in the drafter's own tree, as it lists them (0: first)."""
    ranks, counts = [0.0] * len(draft.tree), [0] * len(draft.tree)
    for node, parent in enumerate(draft.tree.parents[1:], 1):
        ranks[node] = float(counts[parent])
        counts[parent] += 1
    return ranks


def copied_matches(draft: Draft, tokens: np.ndarray) -> list[float]:
    """Tokens up to the place that a node's copy begins behind which equal the last ones of the text; nan for nodes
    that are not copied on from the root.
    """
    matched, sources = [NAN] * len(draft.tree), draft.sources
    for node, parent in enumerate(draft.tree.parents[1:], 1):
        if sources and (source := sources[node]) > 0:
            if parent == 0:
                matched[node] = float(count_match(tokens, source - 1))
            elif sources[parent] == source - 1:
                matched[node] = matched[parent]
    return matched


def highest(columns: Sequence[Sequence[float]]) -> list[float]:
    """The highest of several numbers of each node; nan where none is defined.

    >>> highest([[0.1, float("nan")], [0.4, float("nan")]])
    [0.4, nan]
    """
    return [max((v for v in values if not math.isnan(v)), default=NAN) for values in zip(*columns, strict=True)]


def drafter_share(
    own_draft: Draft, places: Sequence[int], probe_start: int, draft: Draft, scored: Scored, verdict: Verdict
) -> tuple[Draft, Scored, Verdict]:
    """A drafter's share of a verified merged ``draft``: its ``own_draft`` as far as it was verified, with its scores,
    and the verdict that it would have had alone.

    ``places`` are its nodes' numbers in the verified draft (-1: left out), ``probe_start`` is the number of its first
    probe there. Where the accepted path leaves its nodes, the bonus is the token that comes next.
    """
    nodes = [node for node, place in enumerate(places) if place >= 0]
    rows = [places[node] for node in nodes]
    whole = len(nodes) == len(places)
    share = own_draft if whole else pruned_draft(own_draft, nodes, [0.0] * len(places), proposal=own_draft)
    number = {row: node for node, row in enumerate(rows)}
    count = next((i for i, node in enumerate(verdict.path) if node not in number), len(verdict.path))
    bonus = verdict.bonus if count == len(verdict.path) else draft.tree.tokens[verdict.path[count]]
    probe_rows = list(range(probe_start, probe_start + len(share.probes)))
    input_rows = [*rows, *(len(draft.tree) + row for row in probe_rows)]
    share_scored = replace(
        scored,
        logits=scored.logits[rows],
        probe_logits=scored.probe_logits[probe_rows] if scored.probe_logits is not None and probe_rows else None,
        queries={layer: queries[:, input_rows] for layer, queries in scored.queries.items()},
    )
    share_verdict = Verdict(
        tuple(number[node] for node in verdict.path[:count]), bonus, tuple(verdict.status[row] for row in rows),
        tuple(verdict.reasons[row] for row in rows),
    )  # fmt: skip
    return share, share_scored, share_verdict
