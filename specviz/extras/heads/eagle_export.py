"""EAGLE's heads in the formats that servers open: SafeAILab's own, and speculators'.

The layouts are those that ``eagle_published`` reads: layer ids count hidden states (the input of layer i is state i),
as vLLM takes them in both formats; ``norm_before_residual`` is always written, since vLLM takes a missing one as true
in the form of speculators. A head that goes through the target's output layer gets rows of it as ``lm_head``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from decoders.draft_models.part_files import PartFiles, PartSource
from decoders.errors import UserError

from .eagle_head import EagleConfig
from .heads_export import training_hint

TOKENS = 5  # drafted at a time where a server is not told otherwise
LAYER = "layers.0."


def third(form: str, source: PartSource) -> PartFiles:
    """An EAGLE-3 head as ``speculators`` or ``eagle``. Raises UserError for a variant that has no place there."""
    config = _fitting(source)
    if source.target.shape.layers in config.features:
        raise UserError(
            f"{source.place} reads the target's last state behind its norm, and servers give the one before it: no "
            "server would draft as this head does"
        )
    weights = _tensors(source)
    weights["lm_head.weight"] = source.rows(config) if config.shared else source.weights["lm_head.weight"]
    if config.draft_vocab:
        drafted = source.weights["drafted"].long()
        weights["d2t"] = drafted - torch.arange(config.draft_vocab)
        weights["t2d"] = torch.zeros(config.vocab, dtype=torch.bool).index_fill_(0, drafted, True)
    options = {"norm_before_fc": config.norm_before_fc, "fc_norm": config.fc_norm, "norm_output": config.norm_output}
    variant: dict[str, Any] = {
        "draft_vocab_size": config.draft_vocab or config.vocab, "norm_before_residual": config.norm_before_residual,
        "eagle_aux_hidden_state_layer_ids": list(config.features),
        **{name: True for name, value in options.items() if value},
        **({"target_hidden_size": config.target_hidden} if config.target_hidden != config.hidden else {}),
    }  # fmt: skip
    notes = _notes(source, config)
    if form == "speculators":
        return PartFiles(_speculators(source, config, variant), weights, notes)
    if config.layers > 1:
        raise UserError(
            f"{source.place} has {config.layers} layers, and EAGLE's own form one: take --format speculators"
        )
    midlayer = {name.replace(LAYER, "midlayer.") if name.startswith(LAYER) else name: w for name, w in weights.items()}
    return PartFiles({**_layer(config), **variant, "architectures": ["LlamaForCausalLMEagle3"]}, midlayer, notes)


def first(source: PartSource) -> PartFiles:
    """An EAGLE-1 or -2 head in SafeAILab's form. Raises UserError where the form has no place for what it computes."""
    config = _fitting(source)
    if config.scaled:
        raise UserError(
            f"{source.place} reads and makes states in units of their spread, about their mean, and EAGLE-1's form has "
            "no place for that: the norm in front of its MLP is taken over the scaled state, so that no weight can "
            f"make up for it; EAGLE-3's heads are exported{training_hint('eagle3')}"
        )
    if config.draft_vocab:
        raise UserError(
            f"{source.place} drafts {config.draft_vocab:,} of {config.vocab:,} tokens, and EAGLE-1's form has no draft "
            f"vocabulary; EAGLE-3's has one{training_hint('eagle3')}"
        )
    config_fields = {**_layer(config), "bias": config.fc_bias, "qkv_bias": config.qkv_bias}
    return PartFiles({**config_fields, "architectures": ["LlamaForCausalLM"]}, _tensors(source))


def _fitting(source: PartSource) -> EagleConfig:
    config: EagleConfig = source.config
    if any(config.windows):
        raise UserError(
            f"{source.place} has layers that see the last {max(config.windows):,} positions alone, which is not "
            "written: publish the checkpoint that it was kept from"
        )
    return config


def _tensors(source: PartSource) -> dict[str, Tensor]:
    """Tensors that have the published names already."""
    tables = ("lm_head.weight", "drafted")
    return {name: tensor for name, tensor in source.weights.items() if name not in tables}


def _layer(config: EagleConfig) -> dict[str, Any]:
    """The decoder layer as a Llama configuration: rotary settings as transformers wrote them before and since 5."""
    kind = {name: value for name, value in config.rope.items() if name != "rope_theta"}
    scaled = {} if kind.get("rope_type", "default") == "default" else {"rope_scaling": kind}
    return {
        "model_type": "llama", "hidden_size": config.hidden, "intermediate_size": config.mlp,
        "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim, "vocab_size": config.vocab,
        "rms_norm_eps": config.eps, "hidden_act": "silu", "max_position_embeddings": config.context_length,
        "attention_bias": config.qkv_bias, "mlp_bias": False, "tie_word_embeddings": False,
        "rope_theta": config.rope["rope_theta"], "rope_parameters": dict(config.rope), **scaled,
    }  # fmt: skip


def _speculators(source: PartSource, config: EagleConfig, variant: Mapping[str, Any]) -> dict[str, Any]:
    proposal = {"proposal_type": "greedy", "speculative_tokens": TOKENS}
    return {
        "architectures": ["Eagle3DraftModel"], "speculators_model_type": "eagle3", **variant,
        "transformer_layer_config": _layer(config),
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy", "proposal_methods": [proposal],
            "verifier": {"name_or_path": source.verifier, "architectures": source.architectures},
        },
    }  # fmt: skip


def _notes(source: PartSource, config: EagleConfig) -> tuple[str, ...]:
    """Sentences for who serves it: servers take the layers from other places."""
    n = source.target.shape.layers
    if config.features == (2, n // 2, n - 3):
        return ()
    ids = ", ".join(map(str, config.features))
    return (
        f"it reads the states {ids}: vLLM takes them from config.json; SGLang reads 2, {n // 2}, {n - 3} unless it is "
        f"told otherwise, in eagle_config, where it counts layers (each id one less)",
    )
