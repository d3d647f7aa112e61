"""The draft heads of EAGLE-1 and -2 (Li et al. 2024a, b) and EAGLE-3 (Li et al. 2025): feature + token → feature.

A head reads pairs: the target's state at position j and the token at j + 1. From each it makes the state of position
j + 1, from which the token at j + 2 is guessed; its own states stand in for the target's where a draft goes on.

- EAGLE-1's reads f_j, the target's last state after its norm: x = fc([E[x_(j+1)]; f_j]), one decoder layer without a
  norm in front of its attention, and the target's head on what comes out, which imitates f_(j+1).
- EAGLE-3's reads three states of the target, fc([g_low; g_middle; g_high]) = h. Its layer attends over
  [norm(E[x_(j+1)]); norm(h)] and adds to h; a norm and a head of its own, over a draft vocabulary, guess the token.
  What the layer gives goes back in as h, before that norm (EAGLE-3.1: after it).

Parameters have the names of the published checkpoints, with ``layers.0`` for EAGLE-3's ``midlayer``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from decoders.draft_models.borrowing import Borrowing, ConfigJson, drafted_count
from decoders.draft_models.forced_chain import usual_states
from decoders.draft_models.network import Norm, attend, rotate
from decoders.draft_models.own_cache import Remember
from decoders.model.files.shape import ROTARIES, ModelShape

THETA = 10_000.0  # of the rotary positions of heads that are trained here
MOST_LAYERS, MOST_FEATURES = 8, 16


@dataclass(frozen=True, slots=True)
class Beside(ConfigJson):
    """The shape of a network of Llama layers that reads states of a target beside it.

    Args:
        vocab: The target's.
        hidden: The network's own width.
        target_hidden: The width of the target's states.
        features: Which of the target's states it reads, as ``Needs.layers`` counts them.
        heads, kv_heads, head_dim, mlp, layers, eps: Of its decoder layers.
        qkv_bias, out_bias: Which linear layers of its attention have one.
        windows: Positions that each layer sees (of a block to one side), its own included (0: all); empty where all
            layers see everything.
        rope: Kind and settings of its rotary positions, as transformers names them.
        context_length: The longest text its rotary positions were made for.
        shared: Its output layer is the target's head, which its file does not hold.
        own_embedding: It has an embedding of its own; else the target's.
        draft_vocab: How many tokens it can draft (0: all).
    """

    vocab: int
    hidden: int
    target_hidden: int
    features: tuple[int, ...]
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    layers: int = 1
    eps: float = 1e-6
    qkv_bias: bool = False
    out_bias: bool = False
    windows: tuple[int, ...] = ()
    rope: dict[str, Any] = field(default_factory=lambda: {"rope_type": "default", "rope_theta": THETA})
    context_length: int = 2048
    shared: bool = True
    own_embedding: bool = False
    draft_vocab: int = 0

    @classmethod
    def beside(
        cls, shape: ModelShape, features: tuple[int, ...], *, mlp: int | None, draft_vocab: int, **options: Any
    ) -> Self:
        """A network to be trained for a target of this shape: of its width, with its embedding and head."""
        return cls(
            shape.vocab, shape.hidden, shape.hidden, features, shape.heads, shape.kv_heads, shape.head_dim,
            mlp or shape.mlp, eps=shape.norm_eps, context_length=shape.context_length,
            draft_vocab=drafted_count(draft_vocab, shape.vocab), **options,
        )  # fmt: skip

    def check(self, most_layers: int, most_features: int) -> None:
        """Have tuples where JSON has lists. Raise ValueError for sizes that are not possible."""
        for name in ("features", "windows"):
            object.__setattr__(self, name, tuple(map(int, getattr(self, name))))
        sizes = (self.vocab, self.hidden, self.target_hidden, self.heads, self.kv_heads, self.head_dim, self.mlp)
        if min(sizes) < 1 or self.heads % self.kv_heads or self.head_dim % 2:
            raise ValueError(f"a network of the sizes {sizes} is not possible")
        if not (1 <= self.layers <= most_layers and 1 <= len(self.features) <= most_features):
            raise ValueError(f"{self.layers} layers that read {len(self.features)} states are not possible")
        if not 0 <= self.draft_vocab < self.vocab:
            raise ValueError(f"a draft vocabulary of {self.draft_vocab:,} of {self.vocab:,} tokens is not possible")
        for name in ("windows", "causal"):
            if (indices := getattr(self, name, ())) and (len(indices) != self.layers or min(indices) < 0):
                raise ValueError(f"{name} of {indices} are not possible for {self.layers} layers")
        if (kind := self.rope.get("rope_type", "default")) not in ROTARIES:
            raise ValueError(f"rotary positions of kind {kind!r}: possible are {', '.join(ROTARIES)}")

    def misfit(self, shape: ModelShape) -> str | None:
        """The reason why a network of this shape cannot run on such a target, in a clause; None if it can."""
        if self.target_hidden != shape.hidden:
            return f"it reads states of {self.target_hidden:,} numbers, and the model's have {shape.hidden:,}"
        if self.vocab != shape.vocab:
            return f"it drafts for {self.vocab:,} tokens, and the vocabulary has {shape.vocab:,}"
        if max(self.features) > shape.layers:
            return f"it reads state {max(self.features)}, and the model has {shape.layers} layers"
        if (self.shared or not self.own_embedding) and self.hidden != shape.hidden:
            return f"it is {self.hidden:,} numbers wide, and the embedding that it shares {shape.hidden:,}"
        return None

    def rotary(self, rows: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin ``[rows, head size]`` of the first positions, in the dtype and on the device of ``like``."""
        from transformers import LlamaConfig  # seconds, which whoever opens no head need not spend
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        llama = LlamaConfig(
            hidden_size=self.heads * self.head_dim, num_attention_heads=self.heads, head_dim=self.head_dim,
            max_position_embeddings=self.context_length, rope_parameters=dict(self.rope),
        )  # fmt: skip
        positions = torch.arange(rows, device=like.device)[None] + getattr(self, "offset", 0)
        cos, sin = LlamaRotaryEmbedding(llama).to(like.device)(like.float(), positions)
        return cos[0].to(like.dtype), sin[0].to(like.dtype)


@dataclass(frozen=True, slots=True)
class EagleConfig(Beside):
    """The shape of a head. EAGLE-1's reads the target's last state.

    Args:
        third: EAGLE-3's layer and feedback; else EAGLE-1's.
        fc_bias: Whether what joins state and embedding has one.
        norm_before_residual: What its attention is added to is the normed state (a variant of EAGLE-3).
        norm_before_fc, fc_norm: Norms in front of EAGLE-3's ``fc``: one over the target's joined states, or one each.
        norm_output: What goes back in is the state after the last norm (EAGLE-3.1).
        offset: Position of the first pair.
        scaled: EAGLE-1's states are read and made in units of their spread, about their mean; its file has both. (A
            target may have dimensions that are tens of times larger than the others, in every state.)
    """

    third: bool = False
    fc_bias: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    offset: int = 0
    scaled: bool = False

    def __post_init__(self) -> None:
        self.check(MOST_LAYERS, MOST_FEATURES)
        if self.scaled and (self.third or self.target_hidden != self.hidden):
            raise ValueError("only an EAGLE-1 head of the target's width has scaled states")
        if not self.third and (self.norm_before_fc or self.fc_norm or self.norm_output):
            raise ValueError("norm_before_fc, fc_norm and norm_output are EAGLE-3's")
        if self.norm_before_fc and self.fc_norm:
            raise ValueError("norm_before_fc and fc_norm exclude each other")

    @property
    def cache_width(self) -> int:
        """Numbers of its keys at a position, and of its values."""
        return self.layers * self.kv_heads * self.head_dim

    @classmethod
    def of(
        cls, shape: ModelShape, *, third: bool = False, mlp: int | None = None, draft_vocab: int = 0, **options: Any
    ) -> EagleConfig:
        """A head to be trained for a target of this shape: of its width, with its embedding and head. EAGLE-3's reads
        several states (``usual_states``).
        """
        n = shape.layers
        features = (n,)
        if third:
            features = usual_states(n)
        return cls.beside(shape, features, mlp=mlp, draft_vocab=draft_vocab, third=third, fc_bias=not third, **options)


class Attention(nn.Module):
    def __init__(self, config: Any, reads: int) -> None:
        super().__init__()
        heads, kv_heads, size = config.heads, config.kv_heads, config.head_dim
        self.size = size
        self.q_proj = nn.Linear(reads, heads * size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(reads, kv_heads * size, bias=config.qkv_bias)
        self.v_proj = nn.Linear(reads, kv_heads * size, bias=config.qkv_bias)
        self.o_proj = nn.Linear(heads * size, config.hidden, bias=config.out_bias)

    def project(self, x: Float[Tensor, "batch rows read"], cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys after rotary, and values, each ``[batch, heads, rows, size]``."""
        query, keys, values = (
            project(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rotate(query, cos, sin), rotate(keys, cos, sin), values


class MLP(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(config.hidden, config.mlp, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(config.mlp, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class EagleLayer(nn.Module):
    """A decoder layer: the first one of EAGLE-1 without a norm in front, that of EAGLE-3 over token and state."""

    def __init__(self, config: EagleConfig, first: bool) -> None:
        super().__init__()
        self.pairs = first and config.third
        self.norm_before_residual = config.norm_before_residual and self.pairs
        self.self_attn = Attention(config, 2 * config.hidden if self.pairs else config.hidden)
        self.mlp = MLP(config)
        if config.third or not first:
            self.input_layernorm = Norm(config.hidden, config.eps)
        if self.pairs:
            self.hidden_norm = Norm(config.hidden, config.eps)
        self.post_attention_layernorm = Norm(config.hidden, config.eps)

    def into_attention(self, state: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The attention's input, and the states that its output is added to."""
        if self.pairs:
            normed = self.hidden_norm(state)
            attention_input = torch.cat([self.input_layernorm(embedded), normed], -1)
            return attention_input, normed if self.norm_before_residual else state
        return self.input_layernorm(state) if hasattr(self, "input_layernorm") else state, state

    def out_of_attention(self, residual: Tensor, attention_out: Tensor) -> Tensor:
        """The layer's state, from what the heads gave, joined."""
        state = residual + self.self_attn.o_proj(attention_out)
        return state + self.mlp(self.post_attention_layernorm(state))


class EagleHead(Borrowing):
    """A draft head; random weights until it is trained or loaded."""

    embedding: nn.Embedding
    config: EagleConfig
    center: Tensor
    spread: Tensor

    def __init__(self, config: EagleConfig, seed: int = 0) -> None:
        super().__init__(config.draft_vocab)
        self.config = config
        reads = len(config.features) * config.target_hidden + (0 if config.third else config.hidden)
        self.fc = nn.Linear(reads, config.hidden, bias=config.fc_bias)
        self.layers: Any = nn.ModuleList(EagleLayer(config, i == 0) for i in range(config.layers))
        if config.third:
            self.norm = Norm(config.hidden, config.eps)
        if config.norm_before_fc:
            self.input_norm = Norm(reads, config.eps)
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(Norm(config.target_hidden, config.eps) for _ in config.features)
        if config.scaled:
            self.register_buffer("center", torch.zeros(config.hidden))
            self.register_buffer("spread", torch.ones(config.hidden))
        self.add_own_tables()
        self.draw_weights(seed)

    def read(self, features: Float[Tensor, "*rows read"]) -> Float[Tensor, "*rows hidden"]:
        """The target's states, joined, as the state that a pair takes."""
        if self.config.third:
            if self.config.norm_before_fc:
                features = self.input_norm(features)
            elif self.config.fc_norm:
                states = features.chunk(len(self.fc_norm), -1)
                features = torch.cat([norm(state) for norm, state in zip(self.fc_norm, states, strict=True)], -1)
            return self.fc(features)
        return (features - self.center) / self.spread if self.config.scaled else features

    def stands_for(self, states: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows hidden"]:
        """The output layer's input from the head's states: the target's next ones (EAGLE-1), or their norm."""
        if self.config.third:
            return states if self.config.norm_output else self.norm(states)
        return states * self.spread + self.center if self.config.scaled else states

    def fuse(
        self, state: Float[Tensor, "*rows state"], embedded: Float[Tensor, "*rows hidden"]
    ) -> Float[Tensor, "*rows hidden"]:
        """Pairs of a state (of ``read``, or the head's own) and a token, as its first layer takes them."""
        return state if self.config.third else self.fc(torch.cat([embedded, state], -1))

    def forward(
        self, state: Float[Tensor, "batch rows state"], tokens: Int[Tensor, "batch rows"], cos: Tensor, sin: Tensor,
        mask: Tensor | None = None, remember: Remember | None = None,
        distances: Int[Tensor, "rows keys"] | None = None, last_only: bool = False,
    ) -> Float[Tensor, "batch said hidden"]:  # fmt: skip
        """The states that pairs lead to, as they go back in, or the last one's alone. Without ``mask`` all rows are
        seen where there is one, else those before. Windows go by ``distances``, in positions; without them the rows
        are a text's first.
        """
        if self.config.windows and distances is None:
            at = torch.arange(state.shape[1], device=state.device)
            distances = at[:, None] - at
        embedded = self.embedding(tokens).to(state.dtype)
        x = self.fuse(state, embedded)
        for i, layer in enumerate(self.layers):
            read, residual = layer.into_attention(x, embedded)
            query, keys, values = layer.self_attn.project(read, cos, sin)
            if remember is not None:
                keys, values = remember(i, keys, values)
            sees, causal = mask, mask is None and query.shape[2] > 1
            if distances is not None and (window := self.config.windows[i]):
                sees, causal = (distances < window) & (distances >= 0 if mask is None else mask), False
            if last_only and i == self.config.layers - 1:
                residual, query, causal = residual[:, -1:], query[:, :, -1:], False
                sees = None if sees is None else sees[-1:]
            x = layer.out_of_attention(residual, attend(query, keys, values, sees, causal))
        return self.norm(x) if self.config.norm_output else x

    def say(self, states: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows drafted"]:
        """Logits of the tokens that can be drafted, after these states."""
        return self.output(self.stands_for(states))

    @property
    def output(self) -> Any:
        """The output layer: the target's, or its own."""
        return self.head if self.config.shared else self.lm_head
