"""P-EAGLE's head (Hui et al. 2026): EAGLE-3's layers, asked for all tokens of a draft in one forward.

Pair j is the target's state at position j with the token at j + 1, as in EAGLE-3. Behind the root's pair come rows of
masks, at the positions that follow: the mask token's embedding with one learned state (``mask_hidden``, as wide as the
target's joined states) in place of the target's. Each row sees the text's pairs and the rows of its block before it,
and guesses the token after its position, whatever the others guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from decoders.draft_models.draft_run import forwards_of
from decoders.draft_models.forced_chain import usual_states
from decoders.model.files.shape import ModelShape
from decoders.model.state.memory import Context
from decoders.model.state.transfer import send
from specviz.extras.heads.eagle_head import EagleConfig, EagleHead
from specviz.extras.heads.eagle_run import EagleRun

from .block_network import MOST_BLOCK


@dataclass(frozen=True, slots=True)
class PEagleConfig(EagleConfig):
    """The shape of a head.

    Args:
        mask_token: Whose embedding the masks have.
        places: Tokens of a draft: the root's row guesses the first one, each mask another.
    """

    mask_token: int = 0
    places: int = 8

    # what block drafters may have beside it
    markov_rank: ClassVar[int] = 0
    selector_rank: ClassVar[int] = 0
    selector_top_k: ClassVar[int] = 0
    confidence: ClassVar[bool] = False

    def __post_init__(self) -> None:
        EagleConfig.__post_init__(self)
        if not self.third:
            raise ValueError("a P-EAGLE head has EAGLE-3's layers")
        if not 1 <= self.places <= MOST_BLOCK:
            raise ValueError(f"drafts of {self.places} tokens are not possible: 1 to {MOST_BLOCK} are")
        if not 0 <= self.mask_token < self.vocab:
            raise ValueError(f"the mask token {self.mask_token:,} is none of {self.vocab:,} tokens")

    @classmethod
    def of(cls, shape: ModelShape, **options: Any) -> Self:
        """A head of a target's shape."""
        settings = {"mlp": None, "draft_vocab": 0, "third": True, **options}
        return cls.beside(shape, usual_states(shape.layers), **settings)


class PEagleHead(EagleHead):
    """A head with a state for its masks."""

    config: PEagleConfig

    def __init__(self, config: PEagleConfig, seed: int = 0) -> None:
        super().__init__(config, seed)
        self.mask_hidden = nn.Parameter(torch.zeros(1, 1, self.fc.in_features))


class PEagleRun(EagleRun):
    """A head that reads a text and drafts whole blocks behind it. Rows of masks are never kept: the next pairs take
    their places.
    """

    head: PEagleHead

    @torch.inference_mode()
    def block(self, context: Context) -> Float[Tensor, "places hidden"]:
        """The states that guess the tokens behind the root, in the forward that reads the last pairs."""
        have, pairs = self._catch_up(context)
        masks = self.head.config.places - 1
        self.places, states = [*range(pairs, pairs + masks)], torch.zeros(0)
        for start, stop, mask in forwards_of(have, pairs, context, self.device):
            features = torch.cat([context.hidden_at(layer)[start:stop] for layer in self.config.features], -1)
            tokens, end = self.tokens[start + 1 : stop + 1], stop
            features = features.to(self.like.dtype)
            if stop == pairs:
                end, tokens = stop + masks, np.append(tokens, [self.head.config.mask_token] * masks)
                features = torch.cat([features, self.head.mask_hidden[0].expand(masks, -1).to(features)])
                mask = torch.ones(end - start, end, dtype=torch.bool, device=self.device).tril(start)
            (ids,) = send(self.device, tokens)
            cos, sin = self.cache.cos[start:end], self.cache.sin[start:end]
            distances = self.distances(range(start, end), end)
            remember = self.cache.rows(start, end)
            states = self.head(self.head.read(features)[None], ids[None], cos, sin, mask, remember, distances)[0]
        return states[-masks - 1 :]
