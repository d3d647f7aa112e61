"""Differences of models, read from their configurations here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from decoders.errors import UserError, first_line

from . import families

FULL, SLIDING = "full_attention", "sliding_attention"
HYBRID = "hybrid"  # attention beside a state
RECURRENT = {"linear_attention", "conv", HYBRID}
STATELESS = {"mlp", "moe"}
ROTARIES = ("default", "linear", "llama3", "yarn")  # one fixed frequency per pair, whatever the length
SWITCHING = "longrope"  # two sets of frequencies: one for short texts, one for long ones


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's sizes and the ways in which its family differs from others.

    ``layer_windows``: each layer's sliding window, None for full attention, as the configuration names them; a target
    asks its model's own code. ``rotary`` is the kind of its rotary positions, ``rotary_share`` the share of
    a head that they turn, ``rotary_theta`` their base; ``rotary_switch`` the length of text beyond which they take
    other frequencies (longrope), or None. ``norm_eps`` is that of RMS norms. Softcaps are None where
    scores or logits are not squashed; ``logits_scale`` is what logits are multiplied by; ``tied``: the head is the
    embedding; ``stop_ids`` end a text. ``kv_layers`` cache keys and values; ``recurrent_layers`` keep a state, of
    ``state_bytes`` and ``row_bytes`` more for a row until its verdict, as a target sees in its model's own code.
    """

    family: str
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    mlp: int
    vocab: int
    context_length: int
    layer_windows: tuple[int | None, ...]
    rotary: str
    rotary_share: float
    rotary_theta: float
    rotary_switch: int | None
    norm_eps: float
    attention_softcap: float | None
    logits_softcap: float | None
    logits_scale: float
    query_norm: bool
    query_bias: bool
    mlp_bias: bool
    tied: bool
    stop_ids: tuple[int, ...]
    kv_layers: tuple[int, ...]
    recurrent_layers: tuple[int, ...] = ()
    state_bytes: int = 0
    row_bytes: int = 0

    @classmethod
    def of(cls, config: Any) -> ModelShape:
        """Of a transformers configuration. Raises UserError for one whose tree verification would be silently wrong, or
        that cannot be read.
        """
        _check(config)
        try:
            return cls._read(config)
        except Exception as error:
            reason = f"its configuration cannot be read ({type(error).__name__}: {first_line(error, 120)})"
            raise refusal(config.model_type, reason) from error

    @classmethod
    def _read(cls, config: Any) -> ModelShape:
        family, heads, hidden = config.model_type, config.num_attention_heads, config.hidden_size
        ropes = rotaries(config)
        rope = next((setting for setting in ropes if setting.get("rope_type", "default") != "default"), ropes[0])
        rotary = rope.get("rope_type", "default")
        return cls(
            family=family,
            layers=config.num_hidden_layers,
            heads=heads,
            kv_heads=int(_setting(config, "num_key_value_heads", heads)),
            head_dim=int(_setting(config, "head_dim", hidden // heads)),
            hidden=hidden,
            mlp=_setting(config, "intermediate_size", 4 * hidden),
            vocab=config.vocab_size,
            context_length=int(_setting(config, "max_position_embeddings", getattr(config, "n_positions", 2048))),
            layer_windows=_windows(config),
            rotary=rotary,
            rotary_share=rope.get("partial_rotary_factor", 1.0),
            rotary_theta=rope.get("rope_theta", 10_000.0),
            rotary_switch=rope["original_max_position_embeddings"] if rotary == SWITCHING else None,
            norm_eps=float(_setting(config, "rms_norm_eps", 1e-6)),
            attention_softcap=getattr(config, "attn_logit_softcapping", None),
            logits_softcap=getattr(config, "final_logit_softcapping", None),
            logits_scale=float(_setting(config, "logit_scale", 1.0)) / float(_setting(config, "logits_scaling", 1.0)),
            query_norm=family in families.QUERY_NORM,
            query_bias=family in families.QUERY_BIAS or bool(getattr(config, "attention_bias", False)),
            mlp_bias=bool(getattr(config, "mlp_bias", False)),
            tied=bool(getattr(config, "tie_word_embeddings", False)),
            stop_ids=token_ids(getattr(config, "eos_token_id", None)),
            kv_layers=_kv_layers(config),
        )

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers, key/value heads and head size of what is cached."""
        return len(self.kv_layers), self.kv_heads, self.head_dim

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) of all query heads."""
        return tuple((layer, head) for layer in self.kv_layers for head in range(self.heads))

    def unlike_llama(self, impossible: str, possible: str) -> str | None:
        """The reason why code written for Llama's layers cannot run this model, in one sentence; None if it can."""
        if self.family not in families.LLAMA_LIKE:
            *first, last = families.LLAMA_LIKE
            return f"{impossible} {self.family!r} models: {possible} {', '.join(first)} and {last}"
        if self.rotary not in ROTARIES or self.rotary_share != 1.0:
            return (
                f"{impossible} models with rotary positions of kind {self.rotary!r}: {possible} the kinds "
                f"{', '.join(ROTARIES)}, on whole heads"
            )
        return None


def token_ids(ids: int | Sequence[int] | None) -> tuple[int, ...]:
    """Token ids as a configuration gives them: several, one or none."""
    return () if ids is None else (int(ids),) if isinstance(ids, int) else tuple(ids)


def _setting(config: Any, name: str, default: Any) -> Any:
    """A setting that some configurations lack, or carry as None."""
    return getattr(config, name, None) or default


def rotaries(config: Any) -> list[dict[str, Any]]:
    """The rotary settings in a configuration, of each kind of layer where these differ; empty ones without any."""
    settings = _setting(config, "rope_parameters", {})
    return [setting for setting in settings.values() if isinstance(setting, dict)] or [settings]


def refusal(family: str, reason: str) -> UserError:
    """The error for a model that this engine cannot decode rightly, with the reason in one clause."""
    return UserError(
        f"models of the family {family!r} are refused: {reason}. Supported are {len(families.TESTED_FAMILIES)} "
        "families, such "
        "as llama, mistral, qwen3, gemma2, phi3 and gpt_oss."
    )


def _check(config: Any) -> None:
    reason = families.REFUSED.get(config.model_type)
    unknown_types = set(_setting(config, "layer_types", ())) - {FULL, SLIDING} - RECURRENT - STATELESS
    if reason is None and unknown_types:
        kinds = ", ".join(sorted(set(config.layer_types)))
        reason = f"its layers are of kinds this engine cannot roll back ({kinds})"
    for name, meaning in families.REFUSED_SETTINGS.items():
        if reason is None and getattr(config, name, False):
            reason = meaning
    fills_gaps = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if reason is None and fills_gaps and not getattr(config, "is_decoder", True):
        reason = families.LOOKS_BOTH_WAYS
    if reason:
        raise refusal(config.model_type, reason)


def _kv_layers(config: Any) -> tuple[int, ...]:
    """The layers that attend, by their types; without types, all."""
    kinds = _setting(config, "layer_types", (FULL,) * config.num_hidden_layers)
    return tuple(layer for layer, kind in enumerate(kinds) if kind in (FULL, SLIDING, HYBRID))


def _windows(config: Any) -> tuple[int | None, ...]:
    """Each layer's window, by transformers' rule: that of its layer type; without types, the same in every layer."""
    window, count = getattr(config, "sliding_window", None), config.num_hidden_layers
    if not window or not hasattr(type(config), "sliding_window"):  # a setting that its family does not have is not read
        return (None,) * count
    kinds = _setting(config, "layer_types", (SLIDING,) * count)
    return tuple(window if kind == SLIDING else None for kind in kinds)
