"""Block drafters: one forward drafts a whole block. DFlash, DSpark and DFlash2 are one network with options.

A block has the root and B - 1 masks as rows, at the positions from the root's on. Every row sees the whole block and,
as keys and values in front of it, the target's states at all earlier positions: norm(fc([states of some layers])),
through each layer's own k_proj and v_proj. In the published layouts

- DFlash (z-lab): the row of a mask guesses its own token, B - 1 drafts; every position by itself.
- DSpark (DeepSpec): a row guesses the next token, the root's the first one (``anchor``), B drafts. A Markov head adds
  W2 W1[x] to the logits behind a token x, so that the walk goes from left to right; a confidence head says how likely
  a token is to be accepted.
- DFlash2 (z-lab): convolutions over the block around attention and MLP, x'_i = Σ_t (b_t + δ_i,t) x_(i-t), and a
  candidate selector: of the ``selector_top_k`` likeliest tokens of a position, c after p scores
  logit(c) + ⟨A[p] ⊙ W h, B[c]⟩.

Parameters have the names of the published checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from decoders.draft_models.borrowing import Borrowing
from decoders.draft_models.network import Norm, attend, rotate
from decoders.errors import UserError
from decoders.model.files.shape import ModelShape
from specviz.extras.heads.eagle_head import MLP, Attention, Beside

MOST_BLOCK, MOST_LAYERS, MOST_FEATURES = 64, 16, 32
KeysValues = tuple[Float[Tensor, "batch kv_heads positions size"], Float[Tensor, "batch kv_heads positions size"]]


@dataclass(frozen=True, slots=True)
class BlockConfig(Beside):
    """The shape of a block drafter.

    Args:
        block: Rows of a block, B.
        anchor: A row guesses the next token, so that the root's guesses too; else the row of a mask its own.
        mask_token: Whose embedding the masks have; -1: a vector of their own (``mask_embedding``).
        qk_norm: Its attention norms queries and keys.
        causal: Layers whose rows do not see later rows of the block.
        embedding_scale, logits_scale, softcap: Of what goes in, and of logits (0: no cap).
        markov_rank: Of DSpark's Markov head (0: none).
        confidence, confidence_markov: DSpark's confidence head; whether it reads W1[x] of the token before.
        conv_taps, conv_group: Of DFlash2's convolutions: positions, and channels that share a kernel (0: none).
        selector_rank, selector_top_k: Of DFlash2's candidate selector (0: none).
    """

    block: int = 8
    anchor: bool = False
    mask_token: int = -1
    qk_norm: bool = True
    causal: tuple[bool, ...] = ()
    embedding_scale: float = 1.0
    logits_scale: float = 1.0
    softcap: float = 0.0
    markov_rank: int = 0
    confidence: bool = False
    confidence_markov: bool = False
    conv_taps: int = 0
    conv_group: int = 0
    selector_rank: int = 0
    selector_top_k: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "causal", tuple(map(bool, self.causal)))
        self.check(MOST_LAYERS, MOST_FEATURES)
        if self.places < 1 or self.block > MOST_BLOCK:
            minimum = 1 if self.anchor else 2
            raise ValueError(
                f"a block of {self.block} rows drafts nothing or too much: {minimum} to {MOST_BLOCK} rows are possible "
                f"where {'the root guesses too' if self.anchor else 'the masks alone guess'}"
            )
        if not -1 <= self.mask_token < self.vocab:
            raise ValueError(f"the mask token {self.mask_token:,} is none of {self.vocab:,} tokens")
        if (self.conv_taps > 0) != (self.conv_group > 0) or (self.conv_group and self.hidden % self.conv_group):
            raise ValueError(f"convolutions in groups of {self.conv_group} of {self.hidden} channels are not possible")
        if self.conv_taps > self.block:
            raise ValueError(f"convolutions over {self.conv_taps} rows of a block of {self.block} are not possible")
        drafted = self.draft_vocab or self.vocab
        if (self.selector_rank > 0) != (self.selector_top_k > 0) or self.selector_top_k > drafted:
            raise ValueError(f"a selector among {self.selector_top_k} of {drafted:,} candidates is not possible")
        if self.selector_rank and (self.markov_rank or self.draft_vocab):
            raise ValueError("a candidate selector goes without a Markov head, and over the whole vocabulary")
        if self.confidence_markov and not (self.confidence and self.markov_rank):
            raise ValueError("a confidence head that reads the Markov head's embeddings needs both")

    @classmethod
    def of(
        cls, shape: ModelShape, *, layers: int = 1, mlp: int | None = None, draft_vocab: int = 0, **options: Any
    ) -> BlockConfig:  # fmt: skip
        """A drafter to be trained for a target of this shape: of its width, with its embedding and head, reading the
        states behind the layers that DFlash takes (``spread``). Raises UserError for what is not possible.
        """
        features = tuple(layer + 1 for layer in spread(shape.layers, max(layers, options.pop("states", layers))))
        try:
            return cls.beside(shape, features, mlp=mlp, draft_vocab=draft_vocab, layers=layers, **options)
        except ValueError as error:
            raise UserError(str(error)) from None

    @property
    def places(self) -> int:
        """Tokens that a block drafts."""
        return self.block if self.anchor else self.block - 1


def spread(layers: int, count: int) -> list[int]:
    """Layers of a target whose outputs a drafter reads, where nothing else is said: the middle one, or ``count`` from
    the second to the fourth last (z-lab's DFlash).

    >>> spread(36, 5), spread(30, 1)
    ([1, 9, 17, 25, 33], [15])
    """
    if count == 1:
        return [layers // 2]
    return sorted({round(min(1, layers - 1) + i * max(0, layers - 4) / (count - 1)) for i in range(count)})


class BlockAttention(Attention):
    """Attention of a block's rows, whose keys and values may also come from the target's states."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__(config, config.hidden)
        if config.qk_norm:
            self.q_norm, self.k_norm = (Norm(config.head_dim, config.eps) for _ in range(2))

    def _heads(self, project: nn.Linear, x: Tensor, norm: str) -> Float[Tensor, "batch heads rows size"]:
        heads = project(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
        return getattr(self, norm)(heads) if hasattr(self, norm) else heads

    def queries(self, x: Float[Tensor, "batch rows hidden"], cos: Tensor, sin: Tensor) -> Tensor:
        return rotate(self._heads(self.q_proj, x, "q_norm"), cos, sin)

    def keys_values(self, x: Float[Tensor, "batch rows hidden"], cos: Tensor, sin: Tensor) -> KeysValues:
        """Keys after rotary, and values."""
        return rotate(self._heads(self.k_proj, x, "k_norm"), cos, sin), self._heads(self.v_proj, x, "")


class BlockConvolution(nn.Module):
    """DFlash2's two convolutions over a block's rows, around a sublayer: kernels are a base and, per group of
    ``conv_group`` channels, what a projection of the sublayer's input adds. Rows before the block are 0.
    """

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.taps, self.group = config.conv_taps, config.conv_group
        self.base_kernel = nn.Parameter(torch.zeros(2, self.taps, config.hidden))
        self.kernel_projection = nn.Linear(config.hidden, 2 * self.taps * (config.hidden // self.group), bias=False)
        with torch.no_grad():
            self.base_kernel[:, 0] = 1.0

    def mix_input(
        self, x: Float[Tensor, "batch rows hidden"]
    ) -> tuple[Tensor, Float[Tensor, "batch rows taps groups"]]:
        """The sublayer's input, and what is added to the kernels behind it."""
        kernel_offsets = self.kernel_projection(x).unflatten(-1, (2, self.taps, -1))
        return self._mix(x, kernel_offsets[:, :, 0], 0), kernel_offsets[:, :, 1]

    def mix_output(
        self, x: Float[Tensor, "batch rows hidden"], kernel_offsets: Tensor
    ) -> Float[Tensor, "batch rows hidden"]:
        """The sublayer's output."""
        return self._mix(x, kernel_offsets, 1)

    def _mix(self, x: Tensor, kernel_offsets: Tensor, side: int) -> Tensor:
        kernels = self.base_kernel[side] + kernel_offsets.repeat_interleave(self.group, -1)
        rows = x.shape[1]
        shifted = [F.pad(x, (0, 0, tap, 0))[:, :rows] for tap in range(self.taps)]
        return sum((kernels[:, :, tap] * shifted[tap] for tap in range(self.taps)), torch.zeros_like(x))


class BlockLayer(nn.Module):
    """A decoder layer over a block's rows."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.self_attn, self.mlp = BlockAttention(config), MLP(config)
        self.input_layernorm, self.post_attention_layernorm = (Norm(config.hidden, config.eps) for _ in range(2))
        if config.conv_taps:
            self.attention_conv, self.mlp_conv = BlockConvolution(config), BlockConvolution(config)

    def forward(
        self, x: Float[Tensor, "batch rows hidden"], context: KeysValues | None, cos: Tensor, sin: Tensor,
        mask: Bool[Tensor, "*batch rows keys"] | None,
    ) -> Float[Tensor, "batch rows hidden"]:  # fmt: skip
        read, kernel_offsets = self.input_layernorm(x), torch.zeros(0)
        if hasattr(self, "attention_conv"):
            read, kernel_offsets = self.attention_conv.mix_input(read)
        keys, values = self.self_attn.keys_values(read, cos, sin)
        if context is not None:
            context_parts = [part.expand(len(x), -1, -1, -1).to(keys.dtype) for part in context]
            keys, values = torch.cat([context_parts[0], keys], 2), torch.cat([context_parts[1], values], 2)
        attention = self.self_attn.o_proj(attend(self.self_attn.queries(read, cos, sin), keys, values, mask))
        x = x + (
            self.attention_conv.mix_output(attention, kernel_offsets) if hasattr(self, "attention_conv") else attention
        )
        read = self.post_attention_layernorm(x)
        if hasattr(self, "mlp_conv"):
            read, kernel_offsets = self.mlp_conv.mix_input(read)
            return x + self.mlp_conv.mix_output(self.mlp(read), kernel_offsets)
        return x + self.mlp(read)


class MarkovHead(nn.Module):
    """DSpark's transition: what is added to the logits behind a token, W2 W1[x]."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(config.vocab, config.markov_rank)
        self.markov_w2 = nn.Linear(config.markov_rank, config.draft_vocab or config.vocab, bias=False)


class ConfidenceHead(nn.Module):
    """DSpark's acceptance probability of a drafted token, before the sigmoid."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.proj = nn.Linear(config.hidden + config.markov_rank * config.confidence_markov, 1)


class CandidateSelector(nn.Module):
    """DFlash2's transition between candidates of neighbouring positions: ⟨A[p] ⊙ W h, B[c]⟩."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.zeros(config.vocab, config.selector_rank))
        self.successor_codebook = nn.Parameter(torch.zeros(config.vocab, config.selector_rank))
        self.hidden_projection = nn.Linear(config.hidden, config.selector_rank, bias=False)


class BlockNetwork(Borrowing):
    """A block drafter; random weights until it is trained or loaded."""

    config: BlockConfig

    def __init__(self, config: BlockConfig, seed: int = 0) -> None:
        super().__init__(config.draft_vocab)
        self.config = config
        self.fc = nn.Linear(len(config.features) * config.target_hidden, config.hidden, bias=False)
        self.hidden_norm, self.norm = Norm(config.hidden, config.eps), Norm(config.hidden, config.eps)
        self.layers: Any = nn.ModuleList(BlockLayer(config) for _ in range(config.layers))
        if config.mask_token < 0:
            self.mask_embedding = nn.Parameter(torch.zeros(config.hidden))
        self.add_own_tables()
        if config.markov_rank:
            self.markov_head = MarkovHead(config)
        if config.confidence:
            self.confidence_head = ConfidenceHead(config)
        if config.selector_rank:
            self.candidate_selector = CandidateSelector(config)
        self.draw_weights(seed)

    def read(self, states: Float[Tensor, "*rows read"]) -> Float[Tensor, "*rows hidden"]:
        """The target's states, joined, as the layers project keys and values of them."""
        return self.hidden_norm(self.fc(states))

    def context(self, read: Float[Tensor, "batch positions hidden"], cos: Tensor, sin: Tensor) -> list[KeysValues]:
        """Keys and values of the target's states (as ``read``) per layer."""
        return [layer.self_attn.keys_values(read, cos, sin) for layer in self.layers]

    def rows(self, roots: Int[Tensor, " blocks"]) -> Float[Tensor, "blocks block hidden"]:
        """The input rows: each root and the masks behind it."""
        root, masks = self.embedding(roots)[:, None], self.config.block - 1
        if self.config.mask_token < 0:
            mask = self.mask_embedding.to(root.dtype)
        else:
            mask = self.embedding(roots.new_tensor(self.config.mask_token))
        return torch.cat([root, mask.expand(len(roots), masks, -1)], 1) * self.config.embedding_scale

    def forward(
        self, roots: Int[Tensor, " blocks"], context: Sequence[KeysValues], cos: Tensor, sin: Tensor,
        masks: Sequence[Tensor | None] = (),
    ) -> Float[Tensor, "blocks block hidden"]:  # fmt: skip
        """Final states of blocks, those that the head reads. ``context`` has keys and values per layer, of one text or
        one per block (empty: none), ``masks`` which of these and of its block each row sees (None: all).
        """
        x = self.rows(roots).to(self.fc.weight.dtype)
        for i, layer in enumerate(self.layers):
            x = layer(x, context[i] if context else None, cos, sin, masks[i] if masks else None)
        return self.norm(x)

    def guessing(self, states: Float[Tensor, "blocks block hidden"]) -> Float[Tensor, "blocks places hidden"]:
        """Of a block's states, those that guess a token, in the order of the tokens."""
        return states if self.config.anchor else states[:, 1:]

    def say(self, states: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows drafted"]:
        """Logits of the tokens that can be drafted, each position by itself."""
        config = self.config
        logits = (self.head if config.shared else self.lm_head)(states).float() * config.logits_scale
        return config.softcap * torch.tanh(logits / config.softcap) if config.softcap else logits
