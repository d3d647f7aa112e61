"""Training of Medusa's and Hydra's heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxtyping import Float
from torch import Tensor, no_grad, stack

from decoders.draft_models.lesson import HeadKind, Lesson
from decoders.model.files.shape import ModelShape

from .heads import HeadsConfig, ParallelHeads


class Parallel(HeadKind):
    """Medusa's heads (Medusa-1: the target stays frozen) or, ``grounded``, Hydra's, which read the text's own tokens
    before theirs.

    The loss is the plain sum over heads, as in the released code (the paper's λᵏ is not there). Other than there,
    states and embeddings are read in units of their spread and size, as EAGLE's are.
    """

    def __init__(self, grounded: bool) -> None:
        self.grounded = grounded

    def network(self, shape: ModelShape, recipe: Any, seed: int) -> ParallelHeads:
        config = HeadsConfig.of(
            shape, heads=recipe.heads, blocks=recipe.blocks, grounded=self.grounded, draft_vocab=recipe.draft_vocab,
            prefix=recipe.prefix, scaled=not recipe.prefix,
        )  # fmt: skip
        return ParallelHeads(config, seed)

    @no_grad()
    def begin(self, network: Any, model: Any) -> None:
        if network.config.scaled:
            network.size.fill_(model.get_input_embeddings().weight.float().pow(2).mean().sqrt())

    def distances(self, recipe: Any) -> int:
        return recipe.heads

    def guesses(self, lesson: Lesson) -> Iterator[Float[Tensor, "positions hidden"]]:
        heads, tokens = lesson.network, None
        assert isinstance(heads, ParallelHeads)
        read = lesson.states
        if heads.prefix is not None:
            read = heads.prefix(read, *heads.prefix.config.rotary(read.shape[1], read))
        states = read[lesson.rows, lesson.at]
        for number in range(heads.config.heads):
            if self.grounded:
                ids = [lesson.ids[lesson.rows, lesson.targets_behind(place + 1)] for place in range(number + 1)]
                tokens = heads.embedding(stack(ids, 1))
            yield heads.outputs[number](heads.state(number, states, tokens))
