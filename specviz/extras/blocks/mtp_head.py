"""The layers for multi-token prediction that models are published with (DeepSeek-V3, arXiv:2412.19437, eq. 21–23).

Layer k reads, at a token's position, the token's embedding and the state of the position before: for the first layer
the target's last one, after its norm, for any other that of the layer before it. h' = M·[norm(E[x]); norm(h)], one
decoder layer of the target's own family over that, a norm, and the target's head. Parameters have the names of
transformers' ``MtpModel``, with ``block`` for the decoder layer.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from decoders.draft_models.borrowing import Borrowing, ConfigJson
from decoders.errors import UserError, first_line
from decoders.model.files.shape import FULL, ModelShape
from decoders.model.state.attention import NAME as ATTENTION
from decoders.model.state.cache_name import cache_input, takes_cache

MOST_LAYERS = 16
READS = "position_embeddings", "hidden_states"  # what a decoder layer is given


@dataclass(frozen=True, slots=True)
class MtpConfig(ConfigJson):
    """The shape of a model's MTP layers.

    Args:
        vocab, hidden: The target's.
        features: The target's state that the first layer reads, as ``Needs.layers`` counts them: the last one.
        layers: How many there are. One goes on from its own states; of several, each drafts one token.
        family: transformers' ``model_type`` of the target, whose decoder layer each of them is.
        settings: That family's configuration, as transformers writes it.
        experts: Their MLPs are mixtures of experts, where the family has such.

    Raises ValueError for sizes that are not possible.
    """

    vocab: int
    hidden: int
    features: tuple[int, ...]
    layers: int
    family: str
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    experts: bool = True
    shared = True
    draft_vocab = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(map(int, self.features)))
        if not (1 <= self.layers <= MOST_LAYERS and len(self.features) == 1 and min(self.vocab, self.hidden) > 0):
            raise ValueError(f"{self.layers} MTP layers that read {len(self.features)} states are not possible")

    @classmethod
    def of(cls, shape: ModelShape, config: Any, layers: int = 1, experts: bool = True) -> MtpConfig:
        """MTP layers of a target of this shape and transformers configuration."""
        settings = {name: value for name, value in config.to_diff_dict().items() if not name.startswith("_")}
        settings = {name: str(value) if isinstance(value, torch.dtype) else value for name, value in settings.items()}
        return cls(shape.vocab, shape.hidden, (shape.layers,), layers, shape.family, settings, experts)

    def misfit(self, shape: ModelShape) -> str | None:
        """The reason why layers of this shape cannot run on such a target, in a clause; None if they can."""
        if self.family != shape.family:
            return f"they are decoder layers of the family {self.family!r}, and the model is {shape.family!r}"
        if (self.hidden, self.vocab) != (shape.hidden, shape.vocab):
            return (
                f"they read states of {self.hidden:,} numbers and draft for {self.vocab:,} tokens, and the model has "
                f"{shape.hidden:,} and {shape.vocab:,}"
            )
        if self.features != (shape.layers,):
            return f"they read state {self.features[0]}, and the model has {shape.layers} layers"
        return None

    def layer_config(self) -> Any:
        """The transformers configuration that the decoder layers are built from: they attend to everything and are
        counted from 0. Raises UserError where transformers cannot read it.
        """
        from transformers import AutoConfig

        settings = {name: value for name, value in self.settings.items() if name not in ("model_type", "dtype")}
        try:
            config = AutoConfig.for_model(self.family, **settings)
        except Exception as error:
            raise UserError(f"MTP layers of the family {self.family!r} cannot be built: {first_line(error)}") from error
        layer_indices = list(range(self.layers))
        fields = {
            "num_hidden_layers": self.layers, "layer_types": [FULL] * self.layers, "sliding_window": None,
            "mlp_layer_types": ["sparse" if self.experts else "dense"] * self.layers, "per_layer_config": None,
            "first_k_dense_replace": 0 if self.experts else self.layers, "decoder_sparse_step": 1,
            "mlp_only_layers": [] if self.experts else layer_indices,
        }  # fmt: skip
        for name, value in fields.items():
            if getattr(config, name, None) is not None:
                setattr(config, name, value)
        config._attn_implementation, config._experts_implementation = ATTENTION, "eager"
        return config


def decoder_layer(config: Any) -> type[nn.Module]:
    """The decoder layer's class of a family. Raises UserError where it is none that reads positions and a cache."""
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError:
        model = None
    module = sys.modules[model.__module__] if model is not None else None
    for name in getattr(model, "_no_split_modules", None) or ():
        layer = getattr(module, name, None)
        if layer is not None and takes_cache(layer.forward, *READS):
            return layer
    raise UserError(
        f"MTP layers of the family {config.model_type!r} are not read: its decoder layer is of another form"
    )


class MtpLayer(nn.Module):
    """One MTP layer: a token and the state before it, joined, through a decoder layer of the target's family."""

    def __init__(self, config: Any, index: int, block: type[nn.Module]) -> None:
        super().__init__()
        self.block: Any = block(config, index)
        norm = next(type(part) for name, part in self.block.named_modules() if "norm" in name)
        width, eps = config.hidden_size, config.rms_norm_eps
        self.enorm, self.hnorm, self.post_norm = (norm(width, eps=eps) for _ in range(3))
        self.eh_proj = nn.Linear(2 * width, width, bias=False)


class MtpHead(Borrowing):
    """A model's MTP layers, with the target's embedding and head; random weights until they are loaded."""

    config: MtpConfig

    def __init__(self, config: MtpConfig) -> None:
        super().__init__(0)
        self.config = config
        layer_config = config.layer_config()
        block = decoder_layer(layer_config)
        self.layers: Any = nn.ModuleList(MtpLayer(layer_config, index, block) for index in range(config.layers))

    def forward(
        self, index: int, state: Float[Tensor, "rows hidden"], tokens: Int[Tensor, " rows"],
        positions: Int[Tensor, " rows"], rotary: Any, mask: Tensor | None, cache: Any,
    ) -> Float[Tensor, "rows hidden"]:  # fmt: skip
        """States of layer ``index``, before its norm, of tokens at their ``positions`` and the states before them; its
        keys and values go to ``cache``. ``rotary`` is the target's.
        """
        layer = self.layers[index]
        embedded = self.embedding(tokens[None]).to(state.dtype)
        hidden = layer.eh_proj(torch.cat([layer.enorm(embedded), layer.hnorm(state[None])], -1))
        output = layer.block(
            hidden, attention_mask=mask, position_ids=positions[None], **cache_input(layer.block, cache),
            position_embeddings=None if rotary is None else rotary(hidden, position_ids=positions[None]),
        )  # fmt: skip
        return (output[0] if isinstance(output, tuple) else output)[0]

    def normalize(self, index: int, states: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows hidden"]:
        """A layer's states after its norm: the head reads them, and the next layer."""
        return self.layers[index].post_norm(states)

    def say(self, normed: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows vocab"]:
        """Logits after normed states."""
        return self.head(normed)
