"""DSpark (DeepSpec 2026): DFlash's blocks, read from the root on, with two heads on top of them.

The Markov head adds what the token before says to every position's logits, so that a block is walked from left to
right; the confidence head says of each token how likely it is to stand, and a draft may end where that falls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from decoders.draft.params import param
from decoders.method.part import Kind

from . import block_published
from .block_chains import BlockChain
from .block_drafter import ACCEPTANCE
from .block_formats import DSPARK_FORMATS
from .block_network import BlockConfig, BlockNetwork
from .dflash import METHOD as DFLASH
from .dflash import BlockParams, drafts_blocks


@dataclass(frozen=True)
class SparkParams(BlockParams):
    threshold: float = param(
        0.0, "Confidence threshold",
        "A draft ends before the first token whose acceptance the confidence head puts below this; 0: it never does.",
        low=0, high=1,
    )  # fmt: skip


KIND = Kind(
    "dspark", "DSpark drafter", BlockConfig, BlockNetwork, partial(block_published.fit, "dspark"),
    reads=DSPARK_FORMATS, chain=BlockChain,
)  # fmt: skip
METHOD = replace(
    DFLASH,
    name="dspark",
    title="DSpark",
    paper="DeepSpec 2026, DSpark: blocks with a Markov head and a confidence head",
    bibtex=r"""
@misc{deepspec2026dspark,
  author = {{DeepSeek-AI}},
  title = {{DSpark}},
  howpublished = {https://github.com/deepseek-ai/DeepSpec},
  year = {2026},
}
""",
    summary="DFlash's blocks, walked from left to right by a Markov head, and cut where a confidence head is unsure.",
    params=SparkParams,
    **drafts_blocks(KIND),
    node_terms=(*DFLASH.node_terms, ACCEPTANCE),
    order=47,
)
