"""Heads of random weights for tiny targets, and the facts that hold for their kinds."""

from __future__ import annotations

from typing import Any

from decoders.model.target_model.target import Target
from tests.drafts import PartFacts, random_weights

from ..eagle_head import EagleConfig, EagleHead
from ..heads import HeadsConfig, ParallelHeads


def tiny_heads(target: Target, kind: str, *, seed: int = 3, **options: Any) -> ParallelHeads:
    """Random heads whose blocks matter; same seed, same weights."""
    config = HeadsConfig.of(target.shape, **{"grounded": kind == "hydra", **options})
    return random_weights(ParallelHeads(config, seed), target, seed)


def tiny_eagle(target: Target, kind: str, *, seed: int = 3, **options: Any) -> EagleHead:
    """A random EAGLE head; same seed, same weights."""
    config = EagleConfig.of(target.shape, third=kind == "eagle3", **options)
    return random_weights(EagleHead(config), target, seed, vectors=False)


TINY: dict[str, Any] = {"medusa": tiny_heads, "hydra": tiny_heads, "eagle": tiny_eagle, "eagle3": tiny_eagle}
MATCH = ({"rule": "match"},)
TREES = ({}, {"tree": "chain"}, {"top_k": 3, "heads": 2})
FACTS = {
    "medusa": PartFacts(
        ("medusa",), TREES, {"draft_vocab": 60},
        (({"hidden": 32}, "states of 32 numbers"), ({"vocab": 100}, "drafts for 100 tokens"),
         ({"heads": 99}, "99 heads"), ({"mixed": True}, "only heads that read the drafted tokens")),
    ),
    "hydra": PartFacts(("hydra",), TREES, {"draft_vocab": 60}),
    "eagle": PartFacts(("eagle", "eagle2"), rules=MATCH),
    "eagle3": PartFacts(("eagle3",), options={"draft_vocab": 40}, rules=MATCH),
}  # fmt: skip
