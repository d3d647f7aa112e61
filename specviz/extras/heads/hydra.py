"""Hydra (Ankner et al. 2024): Medusa's heads, each of which also reads the tokens that were drafted before its own.

So a child's guess depends on its path: the tree is filled level by level, one batch of a head's rows per level.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from decoders.method.part import HEADS, Kind, Training

from . import heads_export, heads_published
from .head_chains import ParallelChain
from .head_formats import HYDRA_FORMATS
from .head_ranks import head_ranks
from .heads import HeadsConfig, ParallelHeads
from .medusa import HEADS_OPTIONS, MEDUSA, heads_of


def lesson() -> Any:
    """The lesson, as a training begins."""
    from .parallel_lesson import Parallel

    return Parallel(grounded=True)


KIND = Kind(
    "hydra", "set of Hydra heads", HeadsConfig, ParallelHeads, partial(heads_published.fit, "hydra"),
    Training(
        HEADS, "Hydra's heads for a target", "heads that also read the tokens drafted before theirs, for hydra",
        own=(*HEADS_OPTIONS, "prefix"), lesson=lesson, worth=0.12,
    ),
    {"hydra": heads_export.hydra}, reads=HYDRA_FORMATS, chain=ParallelChain, ranks=head_ranks,
)  # fmt: skip
METHOD = replace(
    MEDUSA,
    name="hydra",
    title="Hydra",
    paper="Ankner et al. 2024, Hydra: sequentially-dependent draft heads for Medusa decoding",
    bibtex=r"""
@inproceedings{ankner2024hydra,
  author = {Zachary Ankner and Rishab Parthasarathy and Aniruddha Nrusimha and Christopher Rinard and
            Jonathan Ragan-Kelley and William Brandon},
  title = {Hydra: Sequentially-Dependent Draft Heads for {Medusa} Decoding},
  booktitle = {Conference on Language Modeling},
  year = {2024},
}
""",
    summary="Medusa's heads that also read the tokens drafted before their own, so that guesses follow their path.",
    **heads_of(KIND),
    order=42,
)
