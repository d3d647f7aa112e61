"""DFlash2 (z-lab 2026): DFlash's blocks with convolutions between rows, and a selector of candidates.

Of every position the likeliest tokens are candidates; the selector scores each pair of neighbours, and the draft is
the walk that is best at every step.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from decoders.method.part import Kind

from . import block_published
from .block_chains import BlockChain
from .block_formats import DFLASH2_FORMATS
from .block_network import BlockConfig, BlockNetwork
from .dflash import METHOD as DFLASH
from .dflash import drafts_blocks

KIND = Kind(
    "dflash2", "DFlash2 drafter", BlockConfig, BlockNetwork, partial(block_published.fit, "dflash2"),
    reads=DFLASH2_FORMATS, chain=BlockChain,
)  # fmt: skip
METHOD = replace(
    DFLASH,
    name="dflash2",
    title="DFlash2",
    paper="z-lab 2026, DFlash2 (released code), after Chen et al. 2026, DFlash",
    summary="DFlash's blocks with convolutions between rows, and a selector that walks through their candidates.",
    **drafts_blocks(KIND),
    order=48,
)
