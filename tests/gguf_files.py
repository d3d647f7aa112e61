"""GGUF files written in the test: a tiny model and its tokenizer, as llama.cpp's converter lays them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from .models import VOCAB, network, tiny_tokenizer

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def write_gguf(
    path: Path, model: Any = None, *, kind: str = "Q8_0", architecture: str = "llama", tokens: list[str] | None = None,
    tokenizer: bool = True, leave_out: str = "", split: str = "gpt-2", extra: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """Write a tiny Llama (``network("llama")``) with its tokenizer; gives back the model with the weights that the file
    holds, dequantised.

    ``tokens`` are other tokens than the tokenizer's own, ``leave_out`` a tensor that is not written, ``extra`` more
    settings (numbers, texts).
    """
    model = network("llama") if model is None else model
    config, quantised = model.config, gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("a tiny llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    for name, value in (extra or {}).items():
        {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)](name, value)
    if tokenizer:
        _write_tokenizer(writer, tokens, split)
    state = model.state_dict()
    for name, tensor in state.items():
        short, weights = _short(name), tensor.float().numpy()
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(short.split(".")[-2])
        if short == leave_out:
            continue
        if weights.ndim == 1:
            writer.add_tensor(short, weights)
            continue
        data = gguf.quantize(_interleave(weights, heads), quantised)
        writer.add_tensor(short, data, raw_dtype=quantised)
        kept = gguf.dequantize(data, quantised).reshape(weights.shape)
        state[name] = torch.tensor(_interleave(kept, heads, back=True))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model.load_state_dict(state)
    return model


def _write_tokenizer(writer: Any, tokens: list[str] | None, split: str) -> None:
    own = tiny_tokenizer()
    pieces = tokens or [token for token, _ in sorted(own.get_vocab().items(), key=lambda pair: pair[1])]
    pieces += [] if tokens else [f"[PAD{number}]" for number in range(len(pieces), VOCAB)]
    special = set(own.all_special_tokens)
    merges = json.loads(own.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(pieces)
    writer.add_token_types([3 if piece in special else 5 if piece.startswith("[PAD") else 1 for piece in pieces])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_bos_token_id(own.bos_token_id)
    writer.add_eos_token_id(own.eos_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(own.chat_template)


def _short(name: str) -> str:
    """A weight's name in a GGUF file: ``model.layers.0.mlp.up_proj.weight`` is ``blk.0.ffn_up.weight``."""
    body, _, end = name.rpartition(".")
    if body in NAMES:
        return f"{NAMES[body]}.{end}"
    _, _, layer, rest = body.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.{end}"


def _interleave(weights: np.ndarray, heads: int | None, *, back: bool = False) -> np.ndarray:
    """Query and key weights with a head's two halves interleaved, as llama.cpp turns them; others as they are."""
    if heads is None:
        return weights
    pairs = weights.shape[0] // heads // 2
    rows = weights.reshape(heads, *((pairs, 2) if back else (2, pairs)), -1)
    return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(weights.shape))
