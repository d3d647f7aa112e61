"""Model families that verify a tree rightly through stock code, those that are refused, and what sets some apart.

Names are transformers' ``model_type``. All else that families differ in is in their configurations: ``shape`` reads it.
"""

from __future__ import annotations

TESTED_FAMILIES = (
    "llama", "mistral", "ministral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2",
    "gemma3_text", "phi", "phi3", "phimoe", "gpt_oss", "deepseek_v3", "olmo", "olmo2", "olmo3", "olmoe", "granite",
    "granitemoe", "cohere", "cohere2", "smollm3", "starcoder2", "exaone4", "glm", "glm4", "nemotron", "helium",
    "persimmon", "ernie4_5", "apertus", "arcee", "seed_oss", "hunyuan_v1_dense", "stablelm", "falcon", "gptj",
    "codegen", "gpt2", "gpt_bigcode", "gpt_neox", "biogpt", "opt",
    # hybrids: recurrent layers beside attention (``recurrent``)
    "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid", "kimi_linear", "lfm2", "lfm2_moe",
    "granitemoehybrid", "falcon_h1", "nemotron_h", "bamba", "zamba2",
)  # fmt: skip
# decoder layers of Llama's build, which GLIDE and the trainings compute by code of their own
LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3")
QUERY_BIAS = ("qwen2",)  # whatever their configurations say
QUERY_NORM = ("qwen3",)
# kinds of rotary positions that the tested families were tested with
TESTED_ROTARIES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")

LOOKS_BOTH_WAYS = "it is an encoder (is_decoder is false): its tokens look both ways, so it cannot continue a text"
_ALIBI = "its alibi biases follow the order of the rows, not their position ids, so a tree would be scored wrongly"
_RECURRENT = "its recurrent state cannot be rolled back to an accepted path"
_HYBRID = ("jamba", "zamba", "recurrent_gemma", "minimax")
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
