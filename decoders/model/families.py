"""Which model families verify a tree rightly through stock code, which are refused, and why."""

from __future__ import annotations

from transformers import PreTrainedConfig

from decoders.errors import UserError

TESTED = (
    "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt2", "phi",
    "gemma", "gemma2", "gemma3_text", "olmo2", "stablelm",
    "opt",
)  # fmt: skip
# these take one mask per layer type where a sliding window is in use
MASK_PER_LAYER_TYPE = ("qwen2", "qwen3", "gemma2", "gemma3_text")

_ALIBI = "its alibi biases follow the order of the rows, not their position ids, so a tree would be scored wrongly"
_RECURRENT = "its recurrent state cannot be rolled back to an accepted path"
_ENCODER = "it is an encoder-decoder, not a causal language model"
REFUSED = {
    "bloom": _ALIBI,
    "mpt": _ALIBI,
    "gpt_neo": "its attention builds its own local masks by row order, so a tree would be scored wrongly",
    "xglm": "its sinusoidal positions are counted by row, not taken from position ids",
    "xlnet": "it is not an ordinary causal language model",
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), _RECURRENT),
    **dict.fromkeys(
        (
            "jamba",
            "zamba",
            "zamba2",
            "bamba",
            "recurrent_gemma",
            "granitemoehybrid",
            "falcon_h1",
            "lfm2",
            "nemotron_h",
            "qwen3_next",
            "minimax",
            "olmo_hybrid",
        ),
        _RECURRENT + " (hybrid cache)",
    ),
    **dict.fromkeys(("t5", "bart", "mbart", "pegasus", "marian", "encoder-decoder"), _ENCODER),
}


def check(config: PreTrainedConfig) -> None:
    """Raise UserError for a family whose tree verification would be silently wrong."""
    family = config.model_type
    reason = REFUSED.get(family)
    if reason is None and (getattr(config, "alibi", False) or getattr(config, "use_alibi", False)):
        reason = _ALIBI
    if reason is None and set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}:
        kinds = ", ".join(sorted(set(config.layer_types)))
        reason = f"its layers are of kinds this engine cannot roll back ({kinds})"
    if reason is None and getattr(config, "is_encoder_decoder", False):
        reason = _ENCODER
    if reason is None and family in ("gemma3_text",) and getattr(config, "use_bidirectional_attention", False):
        reason = "it looks both ways, so it cannot continue a text"
    if reason:
        raise UserError(
            f"models of the family {family!r} are refused: {reason}. Supported and tested: {', '.join(TESTED)}."
        )


def window_of(config: PreTrainedConfig) -> tuple[tuple[int | None, ...], bool]:
    """(windows in use, whether masks are given per layer type). None in the windows stands for full attention."""
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    if config.model_type in MASK_PER_LAYER_TYPE:
        if "sliding_attention" not in kinds or not window:
            return (None,), False
        return (None, window), True
    if config.model_type == "mistral" and window:
        return (window,), False
    if kinds == {"sliding_attention"} and window:
        return (window,), False
    if "sliding_attention" in kinds:
        return (None, window), True
    return (None,), False
