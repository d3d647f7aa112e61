"""A drawn draft as far as it may decide about itself: without the tokens that were drawn, and all that follows of them.

A token that was drawn from q is verified by p/q exactly in distribution only if nothing that depends on it decides
whether it is verified. The two types here have no field for such a value, the draft's length included: a drafter may
end its draft behind a token because of that token.
"""

from __future__ import annotations

from typing import NamedTuple

from .draft import Draft
from .tree import DraftTree

BEFORE_DRAWING = ("confidence",)  # numbers of a node that follow from the nodes before it


class Undrawn(NamedTuple):
    """A position of a drawn chain, as it is known before its token is drawn.

    ``depth`` counts from 1. ``above`` is the estimated survival of the positions before, ``conditional`` that of this
    one after them. ``limit`` is the depth that a draft may have at most, as known before anything of it was drawn.
    """

    depth: int
    above: float
    conditional: float
    limit: int


def without_draws(draft: Draft) -> Draft:
    """A drawn draft with blanks for its tokens, their probabilities, and all else that follows of them."""
    count = len(draft.tree)
    blank = DraftTree._part(tuple(range(count)), draft.tree.parents)
    terms = {name: values for name, values in draft.terms.items() if name in BEFORE_DRAWING}
    return Draft(blank, ("root",) + ("drafter",) * (count - 1), (-1,) * count, terms=terms, drawn=True)
