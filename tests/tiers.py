"""The suite's two tiers. ``pytest`` runs the first, in six minutes; ``pytest -m ""`` runs both, as ``.ci/run`` does.

The first is the core's: a test belongs to it unless a marker of ``SECOND`` says otherwise, and a marker says why in one
sentence: ``@pytest.mark.slow("trains three parts")``. Every kind of failure has a test in the first tier; what stands
in the second is dear and finds more of the same, or is an annex's (``pytest specviz/extras/lab`` runs those of an
annex). Files and tests that are named on the command line run whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

SECOND = ("annex", "matrix", "cluster", "compile", "slow")  # pyproject.toml says what each is for
FIRST = " and ".join(f"not {marker}" for marker in SECOND)  # as pyproject.toml asks for it
FIRST_OF_AN_ANNEX = FIRST.removeprefix("not annex and ")


def matrix(rows: Iterable[Any], first: int | Collection[Any], why: str) -> list[Any]:
    """Rows for ``parametrize``, of which the first so many, or those named in ``first``, run in the first tier.

    >>> [len(getattr(row, "marks", ())) for row in matrix("abc", 1, "the other letters")]
    [0, 1, 1]
    """
    mark = pytest.mark.matrix(why)
    parameters = []
    for number, row in enumerate(rows):
        runs = number < first if isinstance(first, int) else row in first
        values = row if isinstance(row, tuple) else (row,)
        parameters.append(row if runs else pytest.param(*values, marks=mark))
    return parameters
