"""Hydra (Ankner et al. 2024): Medusa's heads, each of which also reads the tokens that were drafted before its own.

So a child's guess depends on its path: the tree is filled level by level, one batch of a head's rows per level.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from decoders.parts import missing_part

from .medusa import MEDUSA, build_heads, heads_needs

BIBTEX = r"""
@inproceedings{ankner2024hydra,
  author = {Zachary Ankner and Rishab Parthasarathy and Aniruddha Nrusimha and Christopher Rinard and
            Jonathan Ragan-Kelley and William Brandon},
  title = {Hydra: Sequentially-Dependent Draft Heads for {Medusa} Decoding},
  booktitle = {Conference on Language Modeling},
  year = {2024},
}
"""

METHOD = replace(
    MEDUSA,
    name="hydra",
    title="Hydra",
    paper="Ankner et al. 2024, Hydra: sequentially-dependent draft heads for Medusa decoding",
    bibtex=BIBTEX,
    summary="Medusa's heads that also read the tokens drafted before their own, so that guesses follow their path.",
    build=partial(build_heads, "hydra"),
    needs=partial(heads_needs, "hydra"),
    available=lambda target: missing_part(target, "hydra"),
    order=42,
)
