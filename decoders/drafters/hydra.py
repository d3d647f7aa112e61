"""Hydra (Ankner et al. 2024): Medusa's heads, each of which also reads the tokens that were drafted before its own.

So a child's guess depends on its path: the tree is filled level by level, one batch of a head's rows per level.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from decoders.draft_models import heads_export, heads_published
from decoders.draft_models.heads import HeadsConfig, ParallelHeads
from decoders.method.part import HEADS, Kind, Training

from .medusa import HEADS_OPTIONS, MEDUSA, heads_of

KIND = Kind(
    "hydra", "set of Hydra heads", HeadsConfig, ParallelHeads, partial(heads_published.fit, "hydra"),
    Training(
        HEADS, "Hydra's heads for a target", "heads that also read the tokens drafted before theirs, for hydra",
        own=(*HEADS_OPTIONS, "prefix"), lesson="grounded heads", worth=0.12,
    ),
    {"hydra": heads_export.hydra},
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
