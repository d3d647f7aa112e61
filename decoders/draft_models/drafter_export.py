"""A vanilla drafter as a causal LM of Llama's build: what servers and transformers draft with as a small model."""

from __future__ import annotations

from .config import DraftConfig
from .network import THETA
from .part_files import PartFiles, PartSource


def causal_lm(source: PartSource) -> PartFiles:
    """A drafter without cross-attention as a LlamaForCausalLM, with the embedding and head that it goes through and,
    where the target has one, the tokenizer. A layer of it is Llama's, but that it keeps the projections of queries,
    keys and values, and of gate and up, as one matrix each.
    """
    config: DraftConfig = source.config
    target, weights = source.target, source.weights
    table, head = weights.get("embedding.weight"), weights.get("head.weight")
    if config.shared:
        table, head = (module.weight.detach()[:, : config.hidden] for module in (target.embeddings, target.head))
    assert table is not None and head is not None
    tied = config.shared and bool(getattr(target.config, "tie_word_embeddings", False))
    tensors = {"model.embed_tokens.weight": table, "model.norm.weight": weights["norm.weight"]}
    if not tied:
        tensors["lm_head.weight"] = head
    for number in range(config.layers):
        source_prefix, export_prefix = f"layers.{number}.", f"model.layers.{number}."
        layer_weights = {
            name.removeprefix(source_prefix): tensor
            for name, tensor in weights.items()
            if name.startswith(source_prefix)
        }
        query, keys, values = layer_weights["qkv.weight"].chunk(3)
        gate, up = layer_weights["gate_up.weight"].chunk(2)
        named_tensors = {
            "input_layernorm": layer_weights["norm.weight"],
            "post_attention_layernorm": layer_weights["mlp_norm.weight"],
            "self_attn.q_proj": query, "self_attn.k_proj": keys, "self_attn.v_proj": values,
            "self_attn.o_proj": layer_weights["out.weight"], "mlp.gate_proj": gate, "mlp.up_proj": up,
            "mlp.down_proj": layer_weights["down.weight"],
        }  # fmt: skip
        tensors |= {f"{export_prefix}{name}.weight": tensor for name, tensor in named_tensors.items()}
    stops = sorted(target.stop_ids)
    config_fields = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": config.vocab,
        "hidden_size": config.hidden, "intermediate_size": config.mlp, "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads, "num_key_value_heads": config.heads, "rms_norm_eps": config.eps,
        "rope_theta": THETA, "rope_parameters": {"rope_type": "default", "rope_theta": THETA}, "hidden_act": "silu",
        "max_position_embeddings": target.context_length, "tie_word_embeddings": tied,
        **({"eos_token_id": stops} if stops else {}),
    }  # fmt: skip
    notes = ()
    if config.draft_vocab:
        notes = (
            f"It learnt to draft {config.draft_vocab:,} of {config.vocab:,} tokens; a causal LM gives the others the "
            "probabilities that the target's head has for them, so that it may draft one of these.",
        )
    return PartFiles(config_fields, tensors, notes, target.tokenizer)
