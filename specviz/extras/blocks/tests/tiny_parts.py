"""Block drafters and MTP layers of random weights for tiny targets, and the facts that hold for their kinds."""

from __future__ import annotations

from typing import Any

import torch

from decoders.model.target_model.target import Target
from tests.drafts import PartFacts, random_weights

from ..block_network import BlockConfig, BlockNetwork
from ..mtp_head import MtpConfig, MtpHead
from ..peagle_head import PEagleConfig, PEagleHead


def tiny_mtp(target: Target, kind: str, *, seed: int = 3, **options: Any) -> MtpHead:
    """Random MTP layers; same seed, same weights."""
    return random_weights(MtpHead(MtpConfig.of(target.shape, target.config, **options)), target, seed, vectors=False)


BLOCKS: dict[str, dict[str, Any]] = {
    "dflash": {}, "dspark": {"markov_rank": 8, "confidence": True, "confidence_markov": True, "anchor": True},
    "dflash2": {"conv_taps": 2, "conv_group": 16, "selector_rank": 8, "selector_top_k": 5},
}  # fmt: skip


def tiny_block(target: Target, kind: str, *, seed: int = 3, **options: Any) -> BlockNetwork:
    """A random block drafter; same seed, same weights."""
    config = BlockConfig.of(target.shape, **{"layers": 2, "block": 5, **BLOCKS[kind], **options})
    return random_weights(BlockNetwork(config), target, seed, vectors=False)


def tiny_peagle(target: Target, kind: str, *, seed: int = 3, **options: Any) -> PEagleHead:
    """A random P-EAGLE head; same seed, same weights."""
    head = PEagleHead(PEagleConfig.of(target.shape, **{"layers": 2, "places": 5, "mask_token": 7, **options}))
    generator = torch.Generator().manual_seed(seed)
    head.mask_hidden.data.normal_(0, 0.5, generator=generator)
    return random_weights(head, target, seed, vectors=False)


TINY: dict[str, Any] = {"mtp": tiny_mtp, "peagle": tiny_peagle, **dict.fromkeys(BLOCKS, tiny_block)}
MATCH = ({"rule": "match"},)
FACTS = {
    "dflash": PartFacts(("dflash",), rules=MATCH),
    **{kind: PartFacts((kind,), rules=MATCH, command="parts add") for kind in ("dspark", "dflash2", "peagle")},
}
OF_SOME_TARGETS = {"mtp"}  # their layers belong to targets that have them: test_mtp.py
