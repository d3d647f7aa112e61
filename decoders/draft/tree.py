"""Draft trees: the shape every method proposes and every verifier walks (stdlib + numpy only)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Tokens proposed after the last committed one.

    Node 0 is the root: the last committed token, emitted but not yet processed by the target. A parent
    precedes its children, and siblings carry distinct tokens. Nodes are listed depth-first with the likeliest
    chain first, so that keeping an accepted path usually moves nothing in the cache.

    >>> tree = DraftTree((5, 8, 5, 2), (-1, 0, 1, 0))
    >>> tree.depths
    (0, 1, 2, 1)
    >>> tree.path(2)
    [0, 1, 2]
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents) or not self.tokens:
            raise ValueError(
                f"a draft tree needs one parent per token and at least the root; got {len(self.tokens)} tokens and "
                f"{len(self.parents)} parents"
            )
        if self.parents[0] != -1:
            raise ValueError(f"node 0 is the root and has parent -1; got {self.parents[0]}")
        edges: set[tuple[int, int]] = set()
        for node, (token, parent) in enumerate(zip(self.tokens[1:], self.parents[1:], strict=True), 1):
            if not 0 <= parent < node:
                raise ValueError(f"node {node} has parent {parent}; a parent comes before its child (0 to {node - 1})")
            if (parent, token) in edges:
                raise ValueError(f"node {parent} has two children with token {token}; siblings are distinct")
            edges.add((parent, token))

    @classmethod
    def chain(cls, root: int, tokens: Sequence[int] = ()) -> DraftTree:
        """A single line of tokens below the root; ``chain(root)`` is the empty draft."""
        return cls((root, *tokens), tuple(range(-1, len(tokens))))

    @classmethod
    def chains(cls, root: int, tokens: Sequence[int], deepest: int) -> DraftTree:
        """Lines of at most ``deepest`` tokens below the root, one after another; their first tokens have to differ.

        >>> DraftTree.chains(9, (1, 2, 3, 4, 5), 2).depths
        (0, 1, 2, 1, 2, 1)
        """
        return cls((root, *tokens), (-1, *(0 if n % deepest == 0 else n for n in range(len(tokens)))))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def drafted(self) -> int:
        """Number of proposed tokens (the root excluded)."""
        return len(self.tokens) - 1

    @property
    def is_chain(self) -> bool:
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @property
    def depths(self) -> tuple[int, ...]:
        """Distance of every node from the root (root: 0)."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    def children(self) -> list[dict[int, int]]:
        """For every node, its children as token → node."""
        children: list[dict[int, int]] = [{} for _ in self.tokens]
        for node in range(1, len(self.tokens)):
            children[self.parents[node]][self.tokens[node]] = node
        return children

    def path(self, node: int) -> list[int]:
        """Nodes from the root to ``node``, both included."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def ancestors(self) -> np.ndarray:
        """Boolean ``[nodes, nodes]``: row sees column (its ancestors and itself)."""
        sees = np.zeros((len(self), len(self)), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                sees[node] = sees[parent]
            sees[node, node] = True
        return sees

    def subtree(self, nodes: Iterable[int]) -> tuple[DraftTree, list[int]]:
        """The tree with only ``nodes`` (and the root), and the old index of every node that stays.

        A node whose parent is dropped is dropped with it.
        """
        selection = set(nodes) | {0}
        order: list[int] = []
        new_index: dict[int, int] = {}
        for node, parent in enumerate(self.parents):
            if node in selection and (parent < 0 or parent in new_index):
                new_index[node] = len(order)
                order.append(node)
        tokens = tuple(self.tokens[node] for node in order)
        parents = tuple(-1 if self.parents[node] < 0 else new_index[self.parents[node]] for node in order)
        return DraftTree._part(tokens, parents), order

    def first(self, count: int) -> tuple[DraftTree, range]:
        """The tree of its first ``count`` nodes alone, and their numbers, as ``subtree`` gives them."""
        return DraftTree._part(self.tokens[:count], self.parents[:count]), range(count)

    @classmethod
    def _part(cls, tokens: tuple[int, ...], parents: tuple[int, ...]) -> DraftTree:
        """A part of a tree, which needs no second check."""
        tree = object.__new__(cls)
        object.__setattr__(tree, "tokens", tokens)
        object.__setattr__(tree, "parents", parents)
        return tree

    def within_depth(self, depth: int) -> tuple[DraftTree, list[int]]:
        """The tree cut below ``depth``: how a draft is kept inside the token budget."""
        return self.subtree(node for node, d in enumerate(self.depths) if d <= depth)
