"""Draft trees that are settled before a step: each node is a rank per distance, and only its token is new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from decoders.draft.draft import Draft, Layout, layout_of
from decoders.draft.tree import DraftTree
from decoders.model.state.transfer import send

Ranks = tuple[int, ...]
# Medusa's tree of 63 nodes, from simulated acceptances on Vicuna 7B (medusa/model/medusa_choices.py): Hydra's, too
_MC_SIM = """
0 1 2 3 4 5 6 7 8 9
00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 20 21 22 30 31 40 50 60 70 80 90
000 001 002 003 004 005 006 007 008 010 011 012 020 021 030 040 050 060 070 100 101 200 009
0000 0001
"""
MC_SIM = tuple(tuple(map(int, path)) for path in _MC_SIM.split())


@dataclass(frozen=True)
class RankTree:
    """A draft tree without its tokens: ``paths`` has each node's ranks from the root on, the root's own () first;
    parents precede their children, the likeliest first.

    >>> tree = RankTree.of([(0,), (1,), (0, 0)])
    >>> tree.paths, tree.parents
    (((), (0,), (0, 0), (1,)), (-1, 0, 1, 0))
    """

    paths: tuple[Ranks, ...]

    @classmethod
    def of(cls, paths: Sequence[Ranks], depth: int = 1 << 30, ranks: int = 1 << 30) -> RankTree:
        """These paths, as far as they are at most ``depth`` long and of the first ``ranks`` ranks alone."""
        return cls(((), *sorted(path for path in paths if path and len(path) <= depth and max(path) < ranks)))

    @cached_property
    def parents(self) -> tuple[int, ...]:
        number = {path: node for node, path in enumerate(self.paths)}
        return (-1, *(number[path[:-1]] for path in self.paths[1:]))

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Per distance, who has children and who they are."""
        levels = list[Level]()
        for depth in range(max(map(len, self.paths))):
            children = [node for node, path in enumerate(self.paths) if len(path) == depth + 1]
            inner = sorted({self.parents[node] for node in children})
            row = {node: i for i, node in enumerate(inner)}
            levels.append(
                Level(
                    tuple(inner), tuple(children), np.asarray([row[self.parents[node]] for node in children]),
                    np.asarray([self.paths[node][-1] for node in children]),
                )
            )  # fmt: skip
        return tuple(levels)

    @cached_property
    def layout(self) -> Layout:
        """That of its drafts."""
        return layout_of(Draft(DraftTree(tuple(range(len(self.paths))), self.parents)))

    @cached_property
    def terms(self) -> dict[str, np.ndarray]:
        """The recorded numbers of its nodes that are alike in every draft."""
        ranks = np.asarray([np.nan, *(path[-1] for path in self.paths[1:])])
        return {"distance": np.asarray([np.nan, *map(len, self.paths[1:])]), "draft_rank": ranks}


@dataclass(frozen=True)
class Level:
    """One distance of a tree: the nodes with children (``inner``), these ``children``, and for each of them the place
    of its parent in ``inner`` and its rank there.
    """

    inner: tuple[int, ...]
    children: tuple[int, ...]
    rows: np.ndarray
    ranks: np.ndarray


@dataclass(frozen=True)
class NodePlaces:
    """The places of a level's children, on the device: the row of each one's parent among the inner nodes, its rank
    there, and which of the children have children of their own.
    """

    rows: Int[Tensor, " children"]
    ranks: Int[Tensor, " children"]
    inner: Int[Tensor, "next"]


class SettledTrees:
    """The trees of some paths, cut below a depth, and where their nodes stand on the device: made and sent once."""

    def __init__(self, paths: Sequence[Ranks], ranks: int) -> None:
        self.paths, self.ranks = paths, ranks
        self._cut_trees: dict[int, tuple[RankTree, list[NodePlaces]]] = {}

    def at(self, depth: int, device: torch.device) -> tuple[RankTree, list[NodePlaces]]:
        """The tree of this depth at most, and the places of each level."""
        if depth not in self._cut_trees:
            tree = RankTree.of(self.paths, depth, self.ranks)
            following = [level.inner for level in tree.levels[1:]] + [()]
            self._cut_trees[depth] = (
                tree,
                [_places(level, inner, device) for level, inner in zip(tree.levels, following, strict=True)],
            )
        return self._cut_trees[depth]


def _places(level: Level, following: Sequence[int], device: torch.device) -> NodePlaces:
    number = {node: place for place, node in enumerate(level.children)}
    inner = np.asarray([number[node] for node in following], dtype=np.int64)
    return NodePlaces(*send(device, level.rows, level.ranks, inner))
