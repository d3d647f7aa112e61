"""The configurations: family × window × rotary positions × grouping of heads, and those that must be refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers import AutoConfig

VOCAB, WINDOW, SWITCH, LAYERS = 320, 16, 32, 4
BASE: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "max_position_embeddings": 512, "pad_token_id": None, "bos_token_id": 0,
    "eos_token_id": None,
}  # fmt: skip
MULTI, GROUPED = "multi-head", "grouped"
FULL, SLIDING = "full_attention", "sliding_attention"
MIXED = [SLIDING, FULL] * (LAYERS // 2)
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
QWEN_MOE = {**EXPERTS, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
GPT = {
    "vocab_size": VOCAB, "n_embd": 64, "n_layer": LAYERS, "n_head": 4, "n_positions": 512, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
LATENT = {
    "kv_lora_rank": 24, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 2, "topk_group": 1,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip

RECURRENT = "linear_attention"
DELTA = {  # gated delta rule
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "head_dim": 16, "layer_types": [RECURRENT, RECURRENT, RECURRENT, FULL],
}  # fmt: skip
KIMI = {
    "linear_head_dim": 16, "linear_num_heads": 4, "num_local_experts": 4, "n_group": 1, "topk_group": 1,
    "layer_types": [RECURRENT, RECURRENT, RECURRENT, FULL],
}  # fmt: skip
MAMBA = {
    "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 12, "mamba_expand": 2, "mamba_n_groups": 2,
    "mamba_chunk_size": 16,
}  # fmt: skip
NEMOTRON = {
    "layers_block_type": [RECURRENT, "moe", FULL, "mlp", RECURRENT, FULL], "num_hidden_layers": 6, "head_dim": 16,
    "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 12, "n_groups": 2, "chunk_size": 16,
    "n_routed_experts": 4, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
ZAMBA = {
    "mamba_d_state": 12, "n_mamba_heads": 8, "mamba_ngroups": 2, "chunk_size": 16, "num_mem_blocks": 2,
    "layers_block_type": [RECURRENT, "hybrid", RECURRENT, "hybrid"],
}  # fmt: skip


def rotary(kind: str, pairs: int = 8) -> dict[str, Any]:
    """Settings of scaled rotary positions whose text outgrows what the model was first made for."""
    settings: dict[str, Any] = {
        "linear": {"factor": 4.0},
        "dynamic": {"factor": 4.0},
        "yarn": {"factor": 8.0, "original_max_position_embeddings": SWITCH},
        "llama3": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": SWITCH,
        },
        "longrope": {
            "factor": 16.0, "original_max_position_embeddings": SWITCH,
            "short_factor": [1.0 + pair / 10 for pair in range(pairs)],
            "long_factor": [2.0 + pair / 2 for pair in range(pairs)],
        },
    }[kind]  # fmt: skip
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **settings}}


KINDS = ("linear", "dynamic", "yarn", "llama3", "longrope")
PHI = {"original_max_position_embeddings": SWITCH}  # this family's own name for where longrope changes


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration. ``refused``: whether the engine must not open it."""

    family: str
    window: str = "–"
    rotary: str = "default"
    heads: str = MULTI
    settings: tuple[tuple[str, Any], ...] = ()
    refused: bool = False

    @property
    def name(self) -> str:
        parts = (self.family, self.window, self.rotary, self.heads)
        return " ".join(part for part in parts if part not in ("–", "default", MULTI))

    def config(self) -> Any:
        return AutoConfig.for_model(self.family, **dict(self.settings))


def case(
    family: str, settings: dict[str, Any] | None = None, *, base: dict[str, Any] = BASE, heads: str = MULTI,
    kind: str = "default", window: str = "–", pairs: int = 8, refused: bool = False,
) -> Case:  # fmt: skip
    groups = {"num_key_value_heads": 2 if heads == GROUPED else 4} if base is BASE else {}
    context = {"max_position_embeddings": 48} if kind == "dynamic" else {}  # where it would begin to change
    scaled = {} if kind == "default" else rotary(kind, pairs)
    merged = {**base, **groups, **context, **scaled, **(settings or {})}
    return Case(family, window, kind, heads, tuple(merged.items()), refused)


def cases() -> list[Case]:
    grouped = partial(case, heads=GROUPED)
    both = [
        one(family, settings)
        for family, settings in {
            "llama": {}, "qwen2": {}, "qwen3": {"head_dim": 16}, "gemma": {"head_dim": 16}, "olmo": {}, "olmo2": {},
            "granite": {"logits_scaling": 4.0, "embedding_multiplier": 2.0}, "cohere": {"logit_scale": 0.5},
            "stablelm": {}, "glm": {"head_dim": 16}, "glm4": {"head_dim": 16}, "nemotron": {"head_dim": 16},
            "ernie4_5": {"head_dim": 16}, "seed_oss": {"head_dim": 16}, "smollm3": {"no_rope_layer_interval": 2},
        }.items()
        for one in (case, grouped)
    ]  # fmt: skip
    plain = [
        grouped("helium", {"head_dim": 16}), grouped("apertus"), grouped("arcee", {"head_dim": 16}),
        grouped("hunyuan_v1_dense", {"head_dim": 16}), case("persimmon"), case("phi"), case("gpt_neox"),
        case("biogpt"), case("gpt2", base=GPT), case("gpt_bigcode", base=GPT),
        case("gpt_bigcode", {"multi_query": False}, base=GPT, window="every head cached"),
        case("gptj", {"rotary_dim": 8}, base=GPT), case("codegen", {"rotary_dim": 8, "n_ctx": 512}, base=GPT),
        case("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
        case("falcon", {"alibi": False, "multi_query": True, "new_decoder_architecture": False}, window="one kv head"),
        case("falcon", {"alibi": False, "num_kv_heads": 2, "new_decoder_architecture": True}, window="new decoder"),
        case("deepseek_v3", LATENT, heads="latent"),
        case("deepseek_v3", LATENT, heads="latent", kind="yarn"),
        grouped("olmoe", EXPERTS), grouped("granitemoe", LOCAL_EXPERTS), grouped("mixtral", LOCAL_EXPERTS),
        grouped("qwen2_moe", {**QWEN_MOE, "shared_expert_intermediate_size": 32}), grouped("qwen3_moe", QWEN_MOE),
        grouped("mistral", {"sliding_window": None}), grouped("phi3"), grouped("starcoder2"),
    ]  # fmt: skip
    w, typed = {"sliding_window": WINDOW}, {"sliding_window": WINDOW, "layer_types": MIXED}
    every, mixed = partial(grouped, window="window"), partial(grouped, window="mixed windows")
    windowed = [
        every("mistral", w), every("phi3", w), every("starcoder2", w), every("mixtral", {**w, **LOCAL_EXPERTS}),
        case("phi3", w, window="window"), case("starcoder2", w, window="window"),
        every("phimoe", {**w, **LOCAL_EXPERTS}), every("qwen3_moe", {**w, **QWEN_MOE, "use_sliding_window": True}),
        every("ministral", {**w, "layer_types": [SLIDING] * LAYERS, "head_dim": 16}),
        mixed("ministral", {**typed, "head_dim": 16}),
        mixed("qwen2", {**typed, "use_sliding_window": True}),
        mixed("qwen3", {**typed, "use_sliding_window": True, "head_dim": 16}),
        mixed("qwen2_moe", {**typed, **QWEN_MOE, "use_sliding_window": True, "shared_expert_intermediate_size": 32}),
        mixed("gemma2", {**typed, "head_dim": 16}), mixed("gemma3_text", {**typed, "head_dim": 16}),
        mixed("cohere2", typed), mixed("exaone4", typed), mixed("olmo3", typed),
        mixed("smollm3", {**typed, "use_sliding_window": True, "no_rope_layer_interval": 2}),
        mixed("gpt_oss", {**typed, **LOCAL_EXPERTS, "head_dim": 16, "rope_parameters": {"rope_type": "default"}}),
        mixed("gpt_oss", {**typed, **LOCAL_EXPERTS, "head_dim": 16}, kind="yarn"),
    ]  # fmt: skip
    scaled = [
        *(one("llama", kind=kind) for kind in KINDS for one in (case, grouped)),
        *(grouped("qwen2", kind=kind) for kind in KINDS),
        *(grouped("qwen3", {"head_dim": 16}, kind=kind) for kind in ("yarn", "dynamic")),
        *(every("mistral", w, kind=kind) for kind in ("yarn", "linear", "longrope")),
        every("starcoder2", w, kind="dynamic"),
        grouped("phi3", PHI, kind="longrope"), case("phi3", PHI, kind="longrope"),
        every("phi3", {**PHI, **w}, kind="longrope"),
        grouped("gpt_neox", kind="linear"), grouped("granite", kind="llama3"), grouped("smollm3", kind="yarn"),
        grouped("stablelm", kind="linear", pairs=2), grouped("apertus", kind="llama3"),
        case("falcon", {"alibi": False, "multi_query": True, "new_decoder_architecture": False}, kind="linear"),
        mixed("exaone4", typed, kind="llama3"),
    ]  # fmt: skip
    hybrid = partial(grouped, window="hybrid")
    hybrids = [
        hybrid("qwen3_next", {**DELTA, **QWEN_MOE, "shared_expert_intermediate_size": 32}),
        hybrid("qwen3_5_text", DELTA),
        hybrid("qwen3_5_moe_text", {**DELTA, **QWEN_MOE, "shared_expert_intermediate_size": 32}),
        hybrid("olmo_hybrid", {**DELTA, "layer_types": [RECURRENT, FULL] * 2}),
        case("kimi_linear", {**LATENT, **KIMI}, window="hybrid", heads="latent"),
        hybrid("lfm2", {"layer_types": ["conv", FULL] * 2, "block_auto_adjust_ff_dim": False}),
        hybrid("lfm2_moe", {"layer_types": ["conv", FULL] * 2, **EXPERTS, "num_dense_layers": 1,
                            "moe_intermediate_size": 32}),
        hybrid("bamba", {**MAMBA, "attn_layer_indices": [1, 3]}),
        hybrid("granitemoehybrid", {**MAMBA, **LOCAL_EXPERTS, "layer_types": [RECURRENT, FULL] * 2,
                                    "shared_intermediate_size": 32, "logits_scaling": 4.0}),
        hybrid("falcon_h1", {**MAMBA, "mamba_d_ssm": 128}),
        hybrid("nemotron_h", NEMOTRON),
        case("zamba2", ZAMBA, window="hybrid"),
    ]  # fmt: skip
    small = {"vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
    no = partial(case, base=small, refused=True)
    refused = [
        no("bloom"), no("mpt", base={"vocab_size": VOCAB, "d_model": 64, "n_layers": 2, "n_heads": 4}),
        no("gpt_neo", base={"vocab_size": VOCAB, "hidden_size": 64, "num_layers": 2, "num_heads": 4,
                            "attention_types": [[["global", "local"], 1]]}),
        no("falcon", {"alibi": True}, window="alibi"), no("mamba", base={"vocab_size": VOCAB, "hidden_size": 64}),
        no("xglm", base={"vocab_size": VOCAB, "d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 96}),
        *(no(encoder, {"intermediate_size": 96}) for encoder in ("bert", "roberta", "electra")),
        no("bart", base={"vocab_size": VOCAB, "d_model": 64}),
    ]  # fmt: skip
    return [*both, *plain, *windowed, *scaled, *hybrids, *refused]
