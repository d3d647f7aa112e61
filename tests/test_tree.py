"""Draft trees: what is a tree, how it is cut, and who sees whom."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.draft.tree import DraftTree

# root 5; 8 → 5 → 7 is the main chain, 2 hangs on the root, 9 on the 8
TREE = DraftTree((5, 8, 5, 7, 9, 2), (-1, 0, 1, 2, 1, 0))


@pytest.mark.parametrize(
    ("tokens", "parents", "says"),
    [
        ((), (), "at least the root"),
        ((1, 2), (-1,), "2 tokens and 1 parents"),
        ((1,), (0,), "root and has parent -1; got 0"),
        ((1, 2), (-1, 1), "node 1 has parent 1"),
        ((1, 2), (-1, -1), "node 1 has parent -1"),
        ((1, 2, 3), (-1, 2, 0), "node 1 has parent 2; a parent comes before its child"),
        ((1, 2, 2), (-1, 0, 0), "node 0 has two children with token 2"),
    ],
)
def test_what_is_no_tree_is_refused(tokens: tuple[int, ...], parents: tuple[int, ...], says: str):
    with pytest.raises(ValueError, match=says):
        DraftTree(tokens, parents)


def test_the_same_token_may_stand_under_different_parents():
    assert len(DraftTree((0, 0, 0), (-1, 0, 1))) == 3  # token 0 is a token like any other


def test_shape():
    assert len(TREE) == 6 and TREE.drafted == 5 and not TREE.is_chain
    assert TREE.depths == (0, 1, 2, 3, 2, 1)
    assert TREE.path(3) == [0, 1, 2, 3] and TREE.path(0) == [0]
    assert TREE.children() == [{8: 1, 2: 5}, {5: 2, 9: 4}, {7: 3}, {}, {}, {}]


def test_chain():
    chain = DraftTree.chain(4, [7, 7, 7])
    assert chain == DraftTree((4, 7, 7, 7), (-1, 0, 1, 2)) and chain.is_chain and chain.depths == (0, 1, 2, 3)
    empty = DraftTree.chain(4)
    assert empty.drafted == 0 and empty.is_chain and empty.children() == [{}]


def test_a_node_sees_its_ancestors_and_itself():
    seen = [set(np.flatnonzero(row).tolist()) for row in TREE.ancestors()]
    assert seen == [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 4}, {0, 5}]


def test_kept_drops_what_hangs_on_the_dropped():
    smaller, order = TREE.subtree([2, 3, 5])  # 2 and 3 hang on 1, which is not kept
    assert smaller == DraftTree((5, 2), (-1, 0)) and order == [0, 5]
    smaller, order = TREE.subtree([1, 4, 3])
    assert smaller == DraftTree((5, 8, 9), (-1, 0, 1)) and order == [0, 1, 4]
    assert TREE.subtree([]) == (DraftTree.chain(5), [0])
    assert TREE.subtree(range(6)) == (TREE, list(range(6)))


def test_within_depth():
    assert TREE.within_depth(1) == (DraftTree((5, 8, 2), (-1, 0, 0)), [0, 1, 5])
    assert TREE.within_depth(0) == (DraftTree.chain(5), [0])
    assert TREE.within_depth(3) == TREE.within_depth(99) == (TREE, list(range(6)))


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    parents = [-1]
    for node in range(draw(st.integers(0, 12))):
        parents.append(draw(st.integers(0, node)))
    return DraftTree(tuple(range(len(parents))), tuple(parents))  # distinct tokens: any parents make a tree


@given(trees(), st.data())
def test_cutting_keeps_whole_paths(tree: DraftTree, data: st.DataObject):
    wanted = data.draw(st.sets(st.integers(0, len(tree) - 1)))
    smaller, order = tree.subtree(wanted)
    assert order == [n for n in range(len(tree)) if set(tree.path(n)) <= wanted | {0}]
    for node, old in enumerate(order):
        assert smaller.tokens[node] == tree.tokens[old]
        assert [order[n] for n in smaller.path(node)] == tree.path(old)


@given(trees())
def test_ancestors_are_the_path(tree: DraftTree):
    sees = tree.ancestors()
    for node in range(len(tree)):
        assert np.flatnonzero(sees[node]).tolist() == sorted(tree.path(node))
        assert tree.depths[node] == len(tree.path(node)) - 1
