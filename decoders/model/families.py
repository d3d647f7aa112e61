"""Which model families verify a tree rightly through stock code, which are refused, and what sets some apart.

Names are transformers' ``model_type``. All else that families differ in is in their configurations: ``shape`` reads it.
"""

from __future__ import annotations

TESTED = (
    "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gpt2", "phi", "gemma", "gemma2", "gemma3_text", "olmo2",
    "stablelm", "opt",
)  # fmt: skip
# decoder layers of Llama's build, which GLIDE and the trainings compute by code of their own
LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3")
QUERY_BIAS = ("qwen2",)  # whatever their configurations say
QUERY_NORM = ("qwen3",)
WINDOW_IN_EVERY_LAYER = ("mistral",)  # a sliding window without layer types

_ALIBI = "its alibi biases follow the order of the rows, not their position ids, so a tree would be scored wrongly"
_RECURRENT = "its recurrent state cannot be rolled back to an accepted path"
_HYBRID = (
    "jamba", "zamba", "zamba2", "bamba", "recurrent_gemma", "granitemoehybrid", "falcon_h1", "lfm2", "nemotron_h",
    "qwen3_next", "minimax", "olmo_hybrid",
)  # fmt: skip
_ENCODER = "it is an encoder-decoder, not a causal language model"
REFUSED = {
    "bloom": _ALIBI,
    "mpt": _ALIBI,
    "gpt_neo": "its attention builds its own local masks by row order, so a tree would be scored wrongly",
    "xglm": "its sinusoidal positions are counted by row, not taken from position ids",
    "xlnet": "it is not an ordinary causal language model",
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), _RECURRENT),
    **dict.fromkeys(_HYBRID, _RECURRENT + " (hybrid cache)"),
    **dict.fromkeys(("t5", "bart", "mbart", "pegasus", "marian", "encoder-decoder"), _ENCODER),
}
# settings of a configuration that refuse a model of any family
REFUSED_SETTINGS = {
    "alibi": _ALIBI,
    "use_alibi": _ALIBI,
    "is_encoder_decoder": _ENCODER,
    "use_bidirectional_attention": "it looks both ways, so it cannot continue a text",
}
