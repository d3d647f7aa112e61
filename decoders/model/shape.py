"""What models differ in, read from their configurations here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from decoders.errors import UserError

from . import families

FULL, SLIDING = "full_attention", "sliding_attention"
ROTARIES = ("default", "linear", "llama3", "yarn")  # one fixed frequency per pair, whatever the length


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's sizes and the ways in which its family differs from others.

    ``layer_windows``: each layer's sliding window, None for full attention; with ``mask_per_layer_type`` the model
    takes a mask for each kind of layer. ``rotary`` is the kind of its rotary positions, ``rotary_share`` the share of
    a head that they turn, ``rotary_theta`` their base. ``norm_eps`` is that of RMS norms. Softcaps are None where
    scores or logits are not squashed; ``tied``: the head is the embedding; ``stop_ids`` end a text.
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
    mask_per_layer_type: bool
    rotary: str
    rotary_share: float
    rotary_theta: float
    norm_eps: float
    attention_softcap: float | None
    logits_softcap: float | None
    query_norm: bool
    query_bias: bool
    mlp_bias: bool
    tied: bool
    stop_ids: tuple[int, ...]

    @classmethod
    def of(cls, config: Any) -> ModelShape:
        """Of a transformers configuration. Raises UserError for one whose tree verification would be silently wrong."""
        _check(config)
        family, heads, hidden = config.model_type, config.num_attention_heads, config.hidden_size
        windows, mask_per_layer_type = _windows(config)
        rope = _setting(config, "rope_parameters", {})
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
            layer_windows=windows,
            mask_per_layer_type=mask_per_layer_type,
            rotary=rope.get("rope_type", "default"),
            rotary_share=rope.get("partial_rotary_factor", 1.0),
            rotary_theta=rope.get("rope_theta", 10_000.0),
            norm_eps=float(_setting(config, "rms_norm_eps", 1e-6)),
            attention_softcap=getattr(config, "attn_logit_softcapping", None),
            logits_softcap=getattr(config, "final_logit_softcapping", None),
            query_norm=family in families.QUERY_NORM,
            query_bias=family in families.QUERY_BIAS or bool(getattr(config, "attention_bias", False)),
            mlp_bias=bool(getattr(config, "mlp_bias", False)),
            tied=bool(getattr(config, "tie_word_embeddings", False)),
            stop_ids=token_ids(getattr(config, "eos_token_id", None)),
        )

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The windows that masks are needed for."""
        if self.mask_per_layer_type:
            return (None, next(window for window in self.layer_windows if window is not None))
        return self.layer_windows[:1]

    @property
    def cached(self) -> tuple[int, int, int]:
        """Layers, key/value heads and head size of what is cached."""
        return self.layers, self.kv_heads, self.head_dim

    def unlike_llama(self, impossible: str, possible: str) -> str | None:
        """Why code written for Llama's layers cannot run this model, in one sentence; None if it can."""
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


def _check(config: Any) -> None:
    reason = families.REFUSED.get(config.model_type)
    others = set(_setting(config, "layer_types", ())) - {FULL, SLIDING}
    if reason is None and others:
        kinds = ", ".join(sorted(set(config.layer_types)))
        reason = f"its layers are of kinds this engine cannot roll back ({kinds})"
    for name, meaning in families.REFUSED_SETTINGS.items():
        if reason is None and getattr(config, name, False):
            reason = meaning
    if reason:
        raise UserError(
            f"models of the family {config.model_type!r} are refused: {reason}. "
            f"Supported and tested: {', '.join(families.TESTED)}."
        )


def _windows(config: Any) -> tuple[tuple[int | None, ...], bool]:
    """Each layer's window, and whether the model takes a mask for each kind of layer."""
    window, kinds = getattr(config, "sliding_window", None), _setting(config, "layer_types", ())
    if not kinds and config.model_type in families.WINDOW_IN_EVERY_LAYER:
        kinds = (SLIDING,) * config.num_hidden_layers
    if not window or SLIDING not in kinds:
        return (None,) * config.num_hidden_layers, False
    windows = tuple(window if kind == SLIDING else None for kind in kinds)
    return windows, None in windows
