"""DFlash (Chen et al. 2026): a block of tokens from one forward of a small network that reads the target's states.

Rows of masks behind the root see one another and all of the text; each guesses its own token, so that the forward's
time does not depend on how many are drafted. DSpark and DFlash2 are entries of their own over the same network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from decoders.draft.params import param
from decoders.errors import UserError
from decoders.method.method import Method
from decoders.method.part import HEADS, Kind, Training
from decoders.model.target_model.target import Target
from decoders.parts import load_part
from decoders.trace.origins import DRAFTER
from decoders.verifiers.block import BlockVerifier
from decoders.verifiers.residual import ResidualVerifier
from specviz.extras.heads.eagle import heads_of

from . import block_published
from .block_chains import BlockChain
from .block_drafter import NODE_TERMS, STEP_TERMS, BlockDrafter
from .block_formats import DFLASH_FORMATS
from .block_network import MOST_BLOCK, BlockConfig, BlockNetwork
from .block_run import BlockRun

MATCH, RATIO, JOINT = "match", "ratio", "block"


@dataclass(frozen=True)
class BlockParams:
    part: str | None = param(
        None, "Drafter",
        "Folder, file or hub id of a published block drafter, or folder of one that was trained here. Off: the one "
        "trained for this target.",
    )  # fmt: skip
    tokens: int | None = param(
        None, "Tokens", "How many tokens of each block are drafted. Off: all that it guesses.", low=1, high=MOST_BLOCK
    )
    tree: int | None = param(
        None, "Tree",
        "Nodes of a tree through the block's candidates, the root included: the likeliest paths by Σ log p (DDTree). "
        "Off: the chain that the walk takes. Trees are matched.", low=2, high=256,
    )  # fmt: skip
    rule: str = param(
        MATCH, "Sampled verification",
        "Match: the likeliest tokens are drafted and the target's draw is looked for, so that a seed gives plain "
        "decoding's tokens. Ratio: tokens are drawn from the drafter and tested one by one, each by p/q. Block: drawn, "
        "and tested all together. All have the target's distribution.", choices=(MATCH, RATIO, JOINT),
    )  # fmt: skip


def build_block(kind: str, target: Target, params: Any, run: Callable[[Any], Any] = BlockRun) -> BlockDrafter:
    """The drafter of a block network of this kind, which ``run`` has at work on a text. Raises UserError for more
    tokens than a block guesses.
    """
    network = load_part(target, kind, params.part)
    if params.tokens is not None and params.tokens > network.config.places:
        raise UserError(
            f"tokens={params.tokens} is not allowed: a block of this drafter guesses {network.config.places} tokens; "
            "choose fewer, or leave it off"
        )
    threshold = getattr(params, "threshold", 0.0)
    if params.tree is not None and (params.rule != MATCH or threshold):
        what = f"rule={params.rule}" if params.rule != MATCH else f"threshold={threshold}"
        raise UserError(f"tree={params.tree} cannot stand beside {what}, which is for chains: leave one of them out")
    return BlockDrafter(network, run(network), params.tokens, threshold, params.rule != MATCH, params.tree)


drafts_blocks = partial(heads_of, make=build_block)


def lesson() -> Any:
    """The lesson, as a training begins."""
    from .block_lesson import BlockBatch

    return BlockBatch()


KIND = Kind(
    "dflash", "DFlash drafter", BlockConfig, BlockNetwork, partial(block_published.fit, "dflash"),
    Training(
        HEADS, "a DFlash drafter for a target", "a network that drafts a whole block in one forward, for dflash",
        own=("mlp", "block"), lesson=lesson, worth=0.1,
        defaults={"draft_vocab": 16384, "positions": 256, "matrix_lr": 0.02},
    ),
    reads=DFLASH_FORMATS, chain=BlockChain,
)  # fmt: skip

METHOD = Method(
    name="dflash",
    family="heads",
    title="DFlash",
    paper="Chen et al. 2026, DFlash: block diffusion for flash speculative decoding",
    bibtex=r"""
@article{chen2026dflash,
  author = {Jian Chen and Yesheng Liang and Zhijian Liu},
  title = {{DFlash}: Block Diffusion for Flash Speculative Decoding},
  journal = {arXiv preprint arXiv:2602.06036},
  year = {2026},
}
""",
    summary="A small network that reads the target's states drafts a whole block of tokens in one forward.",
    params=BlockParams,
    **drafts_blocks(KIND),
    origins=(DRAFTER,),
    node_terms=NODE_TERMS,
    step_terms=STEP_TERMS,
    verifier=lambda params, chooser, stop_ids: (
        BlockVerifier(chooser) if params.rule == JOINT else ResidualVerifier(chooser)
    ),
    order=46,
)
