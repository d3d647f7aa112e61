"""Training of DFlash's drafter: blocks at many positions of a text at once, each with the states before its root.

It begins as a copy of one of the target's layers: its highest state is what goes into that layer, so that the keys and
values that it makes of it are the target's own, and queries, MLP and the vector of the masks are what is left to learn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from decoders.draft_models.lesson import HeadKind, Lesson
from decoders.model.files.shape import ModelShape

from .block_network import BlockConfig, BlockNetwork
from .block_run import visible

STATES = 3  # of the target that a new drafter reads
DECAY = 4.0  # tokens: a guess at distance d counts exp(-(d - 1) / DECAY), as the released code of DSpark has it


class BlockBatch(HeadKind):
    """DFlash's drafter: the divergence of every guess of a block, those nearer to the root more (Chen et al. 2026)."""

    dtype = torch.int8  # with an MLP of the target's width, SmolLM2's is 4.6 MB

    def network(self, shape: ModelShape, recipe: Any, seed: int) -> BlockNetwork:
        config = BlockConfig.of(
            shape, mlp=recipe.mlp or None, block=recipe.block, states=STATES, draft_vocab=recipe.draft_vocab,
            qk_norm=shape.query_norm, qkv_bias=shape.query_bias,
            rope={"rope_type": "default", "rope_theta": shape.rotary_theta},
        )  # fmt: skip
        return BlockNetwork(config, seed)

    def layers(self, shape: ModelShape) -> tuple[int, ...]:
        return tuple(layer for layer in BlockConfig.of(shape, states=STATES).features if layer < shape.layers)

    @torch.no_grad()
    def begin(self, network: Any, model: Any) -> None:
        """The layer that reads the highest of its states, as far as sizes agree, and the target's last norm."""
        config, stack = network.config, model.base_model
        source_state, layer = (
            stack.layers[min(config.features[-1], len(stack.layers) - 1)].state_dict(),
            network.layers[0],
        )
        for name, parameter in layer.named_parameters():
            if name in source_state and source_state[name].shape == parameter.shape:
                parameter.copy_(source_state[name])
            elif name == "mlp.down_proj.weight":
                parameter.zero_()  # another width than the target's: it adds nothing yet
        network.hidden_norm.weight.copy_(source_state["input_layernorm.weight"])
        network.norm.weight.copy_(stack.norm.weight)
        network.fc.weight.zero_()
        network.fc.weight[:, -config.hidden :] = torch.eye(config.hidden)
        embedding = model.get_input_embeddings().weight.float()
        network.mask_embedding.copy_(embedding.mean(0))

    def distances(self, recipe: Any) -> int:
        return recipe.block - 1

    def guesses(self, lesson: Lesson) -> Iterator[Float[Tensor, "positions hidden"]]:
        network = lesson.network
        assert isinstance(network, BlockNetwork)
        block_states = network.guessing(self._blocks(network, lesson))
        yield from block_states[:, : lesson.weights.shape[1]].unbind(1)

    def _blocks(self, network: BlockNetwork, lesson: Lesson) -> Float[Tensor, "positions block hidden"]:
        """Blocks behind each of the lesson's positions; the root is the token after it."""
        config, length, states = network.config, lesson.ids.shape[1], lesson.features
        cos, sin = config.rotary(length + config.block, states)
        read = network.context(network.read(states), cos[:length], sin[:length])
        context = [(keys[lesson.rows], values[lesson.rows]) for keys, values in read]
        starts = (lesson.at + 1).clamp_max(length - 1)
        places = starts[:, None] + torch.arange(config.block, device=starts.device)
        masks = visible(config, starts, length)
        roots = lesson.ids[lesson.rows, starts]
        return network(roots, context, cos[places][:, None], sin[places][:, None], masks)

    def loss(self, lesson: Lesson) -> Float[Tensor, ""]:
        decay = torch.exp(-torch.arange(lesson.weights.shape[1]) / DECAY)
        losses = [lesson.loss(d, guess) for d, guess in enumerate(self.guesses(lesson), 1)]
        return (torch.stack(losses) * decay.to(losses[0])).sum()
