"""A draft tree that grows node by node, with the provenance of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .draft import Candidates, Draft
from .tree import DraftTree


class GrowingTree:
    """Chains below a root, merged where they begin alike; the first to bring a node says where it came from.

    >>> tree = GrowingTree(5)
    >>> tree.chain([8, 5], "main", source=3), tree.chain([8, 2], "main", source=9)
    ([1, 2], [1, 3])
    >>> tree.draft(route="two").tree.parents
    (-1, 0, 1, 1)
    """

    def __init__(self, root: int) -> None:
        self.tokens, self.parents, self.origins = [root], [-1], ["root"]
        self.sources, self.places = [-1], [-1]
        self.terms: dict[str, dict[int, float]] = {}
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, parent: int, token: int, origin: str, source: int = -1, place: int = -1, **terms: float) -> int:
        """The child of ``parent`` with ``token``, made where there is none: copied from position ``source`` of the text
        or ``place`` of the pool, if from anywhere (-1). ``terms`` are numbers of it; of each the first stays.
        """
        node = self._children.setdefault((parent, token), len(self.tokens))
        if node == len(self.tokens):
            self.tokens.append(token)
            self.parents.append(parent)
            self.origins.append(origin)
            self.sources.append(source)
            self.places.append(place)
        for key, value in terms.items():
            self.terms.setdefault(key, {}).setdefault(node, value)
        return node

    def term(self, key: str) -> np.ndarray:
        """A number of every node; nan where it has none."""
        column, values = np.full(len(self), np.nan), self.terms.get(key, {})
        column[list(values)] = list(values.values())
        return column

    def chain(
        self, tokens: Sequence[int], origin: str, *, parent: int = 0, source: int = -1, place: int = -1, **terms: float
    ) -> list[int]:
        """The nodes of tokens one below the other, copied from ``source`` (or ``place`` of the pool) on."""
        nodes = []
        for step, token in enumerate(tokens):
            parent = self.add(
                parent, token, origin, source + step if source >= 0 else -1, place + step if place >= 0 else -1, **terms
            )
            nodes.append(parent)
        return nodes

    def draft(self, *, route: str, candidates: Candidates | None = None, reason: str = "", **fields: object) -> Draft:
        """The draft; ``reason`` says why it is empty, where it is. ``fields``: other fields of Draft."""
        if len(self.tokens) == 1:
            return Draft.empty(self.tokens[0], reason, candidates=candidates)
        return Draft(
            DraftTree(tuple(self.tokens), tuple(self.parents)), tuple(self.origins), tuple(self.sources),
            candidates=candidates, route=route, pool=tuple(self.places) if max(self.places) >= 0 else (),
            terms={key: self.term(key) for key in self.terms}, **fields,  # pyright: ignore[reportArgumentType]
        )  # fmt: skip
