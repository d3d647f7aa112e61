"""Heads beside a frozen target, one per distance: Medusa's (Cai et al. 2024) and Hydra's (Ankner et al. 2024).

Head i (from 0) reads the target's final state h_t, after its norm, at the last processed position t (Hydra's option
``hidden_state_offset`` n: the state n layers below, which no norm has scaled) and guesses token t + 2 + i: the token
i + 1 places behind the root. Medusa's reads nothing else; Hydra's reads the embeddings of the tokens before its own
too, E[x_(t+1)] … E[x_(t+1+i)], so that its guess depends on what was drafted.

Hydra++'s heads read what a decoder layer of their own makes of the target's states (``heads_prefix``).

A published head has an output layer of its own. One that was trained here goes through the target's head, so that its
file holds residual blocks alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from decoders.draft_models.borrowing import Borrowing, ConfigJson, drafted_count
from decoders.errors import UserError
from decoders.model.files.shape import ModelShape

from .eagle_head import EagleConfig
from .heads_prefix import PrefixLayer

MOST_HEADS, MOST_BLOCKS = 16, 16


@dataclass(frozen=True, slots=True)
class HeadsConfig(ConfigJson):
    """The shape of parallel heads: how many ``heads``, of so many residual ``blocks`` each.

    ``grounded``: Hydra's, which read the drafted tokens. ``mixed``: the residual connection of a grounded head's first
    block is a linear map of all that it reads, as the published ones have it; else it is the target's state alone.
    ``prefix``: the decoder layer that Hydra++'s heads read through, as EAGLE's layers are described; None without.
    ``shared``: logits come from the target's head, of its ``draft_vocab`` commonest tokens (0: all); else each head has
    an output layer of its own, with a ``bias`` or without.
    ``scaled``: states are read in units of their spread, about their mean, and embeddings in units of their size; the
    file has all three. (A target may have dimensions that are tens of times larger than the others, in every state.)
    ``hidden_state_offset``: how many layers below the target's last state the one that they read lies (Hydra's option).
    """

    vocab: int
    hidden: int
    heads: int = 4
    blocks: int = 1
    grounded: bool = False
    mixed: bool = False
    shared: bool = True
    draft_vocab: int = 0
    bias: bool = False
    prefix: EagleConfig | None = None
    scaled: bool = False
    hidden_state_offset: int = 0

    @classmethod
    def of(cls, shape: ModelShape, *, draft_vocab: int = 0, prefix: bool = False, **options: Any) -> HeadsConfig:
        """Heads for a target of this shape, ``prefix`` with a layer of its sizes in front. Raises UserError for
        settings that are not possible.
        """
        layer = EagleConfig.of(shape) if prefix else None
        drafted = drafted_count(draft_vocab, shape.vocab)
        try:
            return cls(shape.vocab, shape.hidden, draft_vocab=drafted, prefix=layer, **options)
        except ValueError as error:
            raise UserError(str(error)) from None

    def __post_init__(self) -> None:
        if isinstance(self.prefix, dict):  # as JSON has it
            object.__setattr__(self, "prefix", EagleConfig.from_json(self.prefix))
        if not (1 <= self.heads <= MOST_HEADS and 1 <= self.blocks <= MOST_BLOCKS):
            raise ValueError(
                f"{self.heads} heads of {self.blocks} blocks are not possible: 1 to {MOST_HEADS} heads of 1 to "
                f"{MOST_BLOCKS} blocks"
            )
        if self.mixed and not self.grounded:
            raise ValueError("only heads that read the drafted tokens have a mixed residual connection")
        if self.prefix is not None and (not self.grounded or self.prefix.hidden != self.hidden):
            raise ValueError("a prefix layer is Hydra++'s, and as wide as what the heads read")
        if self.scaled and self.prefix is not None:
            raise ValueError("heads behind a prefix layer read states that its norm has scaled")
        if self.draft_vocab and not self.shared:
            raise ValueError("a draft vocabulary goes with the target's head")
        if not (0 <= self.draft_vocab < self.vocab and self.hidden > 0):
            raise ValueError(f"heads of {self.hidden} numbers over {self.draft_vocab} of {self.vocab} tokens")
        if self.hidden_state_offset < 0:
            raise ValueError(f"a hidden_state_offset of {self.hidden_state_offset} is not possible: 0 or more layers")

    def misfit(self, shape: ModelShape) -> str | None:
        """The reason why heads of this shape cannot run on such a target, in a clause; None if they can."""
        if self.hidden != shape.hidden:
            return f"its heads read states of {self.hidden} numbers, and the model's have {shape.hidden}"
        if self.vocab != shape.vocab:
            return f"it drafts for {self.vocab:,} tokens, and the vocabulary has {shape.vocab:,}"
        if self.hidden_state_offset > shape.layers:
            return f"its hidden_state_offset is {self.hidden_state_offset}, and the model has {shape.layers} layers"
        return None

    def layer(self, shape: ModelShape) -> int:
        """The target's states that the heads read, as ``Needs.layers`` counts them."""
        return shape.layers - self.hidden_state_offset


class ResBlock(nn.Module):
    """x + SiLU(W x + b). One that reads several states of which the first goes on: x[:hidden] + SiLU(W x + b) or,
    ``mixed``, V x + c + SiLU(W x + b).

    It begins as the identity: W is 0, and V takes the first state alone.
    """

    def __init__(self, hidden: int, reads: int = 1, mixed: bool = False) -> None:
        super().__init__()
        self.hidden = hidden
        self.linear = nn.Linear(reads * hidden, hidden)
        self.skip = nn.Linear(reads * hidden, hidden) if mixed else None
        with torch.no_grad():
            self.linear.weight.zero_()
            if self.skip is not None:
                self.skip.weight.zero_()
                self.skip.weight[:, :hidden] = torch.eye(hidden)
                self.skip.bias.zero_()

    def forward(self, x: Float[Tensor, "*rows read"]) -> Float[Tensor, "*rows hidden"]:
        residual = x[..., : self.hidden] if self.skip is None else self.skip(x)
        return residual + F.silu(self.linear(x))


class ParallelHeads(Borrowing):
    """Heads that read one state; until they are trained, each says what the target would say of the next token."""

    center: Tensor
    spread: Tensor
    size: Tensor

    def __init__(self, config: HeadsConfig, seed: int = 0) -> None:
        super().__init__(config.draft_vocab)
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.heads = nn.ModuleList(
                nn.Sequential(
                    ResBlock(config.hidden, number + 2 if config.grounded else 1, config.mixed),
                    *(ResBlock(config.hidden) for _ in range(config.blocks - 1)),
                )
                for number in range(config.heads)
            )
            size = config.hidden if config.shared else config.vocab
            outputs = [nn.Linear(config.hidden, size, config.bias) for _ in range(config.heads)]
            self.outputs = nn.ModuleList(outputs)
            if config.shared:
                for output in outputs:
                    nn.init.zeros_(output.weight)
            self.prefix = None if config.prefix is None else PrefixLayer(config.prefix)
        if config.scaled:
            for name, size, value in (("center", config.hidden, 0.0), ("spread", config.hidden, 1.0), ("size", 1, 1.0)):
                self.register_buffer(name, torch.full((size,), value))

    def state(
        self, number: int, states: Float[Tensor, "*rows hidden"], tokens: Float[Tensor, "*rows tokens hidden"] | None
    ) -> Float[Tensor, "*rows hidden"]:
        """The state of head ``number`` from the target's states and, of a grounded one, the embeddings of the
        ``number`` + 1 tokens that follow each.
        """
        read = (states - self.center) / self.spread if self.config.scaled else states
        if self.config.grounded:
            assert tokens is not None and tokens.shape[-2] == number + 1, "a head reads all tokens before its own"
            embedded = tokens.flatten(-2)
            read = torch.cat([read, embedded / self.size if self.config.scaled else embedded], -1)
        return self.heads[number](read)

    def say(self, number: int, state: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows drafted"]:
        """Head ``number``'s logits, of the tokens that can be drafted."""
        out = self.outputs[number](state)
        return self.head(out) if self.config.shared else out

    def say_all(self, state: Float[Tensor, " hidden"], count: int) -> Float[Tensor, "heads drafted"]:
        """The logits of the first ``count`` heads, none of them grounded; through the target's head all at once."""
        states = [self.state(number, state, None) for number in range(count)]
        if self.config.shared:
            return self.head(
                torch.stack([output(head_state) for output, head_state in zip(self.outputs, states, strict=False)])
            )
        return torch.stack([self.say(number, head_state) for number, head_state in enumerate(states)])
