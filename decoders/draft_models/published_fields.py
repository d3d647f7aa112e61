"""Fields of published heads' configurations, by format: which are read, which must have a value, which change nothing.

Any other field is refused by name: a head drafts otherwise where a field is passed over. Sources are the released code
of SafeAILab's EAGLE (``EConfig``), SpecForge, Model-Optimizer, speculators (``Eagle3SpeculatorConfig``), Medusa
(``MedusaConfig``) and Hydra (``HydraConfig``), z-lab's DFlash, DeepSpec's DSpark, and what transformers writes beside
their own fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from decoders.errors import UserError

from .published import CONFIG, Published


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of an object in a configuration.

    Args:
        read: Their values are taken, or compared with the tensors.
        must: The values that the reader's equations stand for.
        inert: They change nothing of what a head drafts.
        inner: Objects with fields of their own.
    """

    read: frozenset[str] = frozenset()
    must: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    inert: frozenset[str] = frozenset()
    inner: Mapping[str, Fields] = field(default_factory=dict)

    def __or__(self, right: Fields) -> Fields:
        return Fields(
            self.read | right.read, {**self.must, **right.must}, self.inert | right.inert,
            {**self.inner, **right.inner},
        )  # fmt: skip

    def fault(self, config: Mapping[str, Any], prefix: str = "") -> str | None:
        """The first field that is not read rightly, in a clause; None if all are. A null says nothing."""
        for name, value in config.items():
            path = f"{prefix}{name}"
            if value is None or name in self.read or name in self.inert:
                continue
            if name in self.must:
                if not any(type(value) is type(choice) and value == choice for choice in self.must[name]):
                    requirement = " or ".join(map(repr, self.must[name]))
                    return f"its {CONFIG} says {path} = {value!r}, and {requirement} is read"
            elif name in self.inner:
                if not isinstance(value, Mapping):
                    return f"its {CONFIG} says {path} = {value!r}, where an object is wanted"
                if fault := self.inner[name].fault(value, f"{path}."):
                    return fault
            else:
                return (
                    f"its {CONFIG} has the field {path}, which is not known here and may change what it drafts; take "
                    "the field out if it does not"
                )
        return None


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# written by transformers beside a configuration's own fields, or about training and generate()
TRANSFORMERS = Fields(
    inert=_names("""
        architectures model_type torch_dtype dtype transformers_version _name_or_path name_or_path _commit_hash auto_map
        use_cache bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id initializer_range
        attention_dropout return_dict output_hidden_states output_attentions torchscript use_bfloat16 pruned_heads
        chunk_size_feed_forward is_decoder is_encoder_decoder id2label label2id num_labels finetuning_task problem_type
        tokenizer_class prefix task_specific_params _attn_implementation _attn_implementation_autoset
        has_no_defaults_at_init temperature top_k top_p typical_p repetition_penalty length_penalty
        no_repeat_ngram_size encoder_no_repeat_ngram_size do_sample early_stopping max_length min_length num_beams
        num_beam_groups diversity_penalty num_return_sequences output_scores return_dict_in_generate
        forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens
        begin_suppress_tokens bad_words_ids tie_encoder_decoder tf_legacy_loss
    """),
    must={"add_cross_attention": (False,)},
)  # fmt: skip
ROPE = Fields(
    read=_names("""
        rope_type type rope_theta factor original_max_position_embeddings low_freq_factor high_freq_factor beta_fast
        beta_slow mscale mscale_all_dim attention_factor truncate
    """),
    must={"partial_rotary_factor": (1, 1.0)},
    inert=_names("finetuned"),
)
# a decoder layer of Llama's kind; pretraining_tp cuts its products into pieces of the same sum
LAYER = Fields(
    read=_names("""
        hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim rms_norm_eps
        vocab_size max_position_embeddings rope_theta attention_bias layer_types
    """),
    must={"hidden_act": ("silu", "swish"), "mlp_bias": (False,), "partial_rotary_factor": (1, 1.0)},
    inert=_names("pretraining_tp"),
    inner={"rope_scaling": ROPE, "rope_parameters": ROPE},
)
# Model-Optimizer's switches, which stand for EAGLE-3's layer at these values
SWITCHES = Fields(
    read=_names("eagle_aux_hidden_state_layer_ids"),
    must={
        "use_aux_hidden_state": (True,), "use_input_layernorm_in_first_layer": (True,), "use_last_layernorm": (True,),
        "use_mtp_layernorm": (False,), "next_layer_regular": (True,), "parallel_draft_step": (1,),
    },
    inert=_names("parallel_draft_heads_num_layers has_lm_head"),
)  # fmt: skip
THIRD = Fields(
    read=_names("""
        draft_vocab_size target_hidden_size norm_before_residual norm_before_fc fc_norm norm_output
        eagle_aux_hidden_state_layer_ids tie_word_embeddings
    """)
)
# copied from a target's configuration, and read neither by SafeAILab's code nor by SpecForge's
COPIED = _names("max_sequence_length target_model_type decoder_sparse_step sliding_window max_window_layers")
VERIFIER = Fields(inert=_names("name_or_path architectures"))
PROPOSALS = Fields(
    must={"algorithm": ("eagle3",)}, inert=_names("proposal_methods default_proposal_method"),
    inner={"verifier": VERIFIER},
)  # fmt: skip
SAFEAI = TRANSFORMERS | LAYER | Fields(_names("bias qkv_bias"), {"use_sliding_window": (False,)}, COPIED)
EAGLE3 = SAFEAI | THIRD | SWITCHES
SPECULATORS_LAYER = replace(TRANSFORMERS, inert=TRANSFORMERS.inert - {"model_type"}) | LAYER | Fields(
    _names("tie_word_embeddings sliding_window use_sliding_window max_window_layers"),
    {"model_type": ("llama", "qwen3")},
)  # fmt: skip
MEDUSA = TRANSFORMERS | Fields(
    read=_names("medusa_num_layers hidden_size vocab_size"),
    # the number of heads is what is stored: public files say 2 where 5 are; version 2 is Medusa-2's
    inert=_names("medusa_num_heads base_model_name_or_path version"),
)
HYDRA = TRANSFORMERS | Fields(
    read=_names("hydra_num_heads hydra_num_layers grounded_heads hidden_state_offset hidden_size vocab_size"),
    inert=_names("base_model_name_or_path dropout_rate"),
)
# block drafters: what their layouts have beside the layers
BLOCK = LAYER | TRANSFORMERS | Fields(
    read=_names("block_size mask_token_id target_layer_ids sliding_window use_sliding_window"),
    inert=_names("tie_word_embeddings max_window_layers"),
)  # fmt: skip
NESTED = _names("""
    block_size mask_token_id target_layer_ids sample_from_anchor causal use_swa swa_window_size input_embedding_scale
    output_multiplier final_logit_softcapping
""")
SELECTOR_FIELDS = _names("conv_kernel_size conv_group_size selector_rank selector_top_k")
MARKOV = _names("markov_rank markov_head_type enable_confidence_head confidence_head_with_markov")
ZLAB = BLOCK | Fields(
    read=NESTED | _names("num_target_layers is_causal target_hidden_size"), inner={"dflash_config": Fields(NESTED)}
)
DEEPSPEC = BLOCK | Fields(
    read=MARKOV | _names("num_target_layers sample_from_anchor dspark_bonus_anchor"), inert=_names("num_anchors")
)


def _block_speculators(kind: str, extra_names: frozenset[str] = frozenset()) -> Fields:
    return TRANSFORMERS | Fields(
        read=extra_names | _names("""
            block_size mask_token_id aux_hidden_state_layer_ids sample_from_anchor draft_vocab_size target_hidden_size
            sliding_window_non_causal
        """),
        must={"speculators_model_type": (kind,), "use_aux_hidden_state": (True,), "tie_word_embeddings": (False,)},
        inert=_names("speculators_version num_anchors max_anchors"),
        inner={
            "speculators_config": PROPOSALS | Fields(must={"algorithm": (kind,)}),
            "transformer_layer_config": SPECULATORS_LAYER,
        },
    )  # fmt: skip


# fields of the whole model that Medusa-2's heads stand in, which is not read
WHOLE = LAYER.read | LAYER.inert | COPIED | {*LAYER.must, *LAYER.inner, "tie_word_embeddings", "use_sliding_window"}
OF_FORMAT: dict[str, Fields] = {
    "eagle": SAFEAI | Fields(inert=_names("tie_word_embeddings")),  # its head is the target's
    "eagle3": EAGLE3,
    "eagle3-specforge": EAGLE3 | Fields(inner={"eagle_config": SWITCHES}),
    "eagle3-speculators": TRANSFORMERS | THIRD | Fields(
        must={"speculators_model_type": ("eagle3",)},
        inert=_names("speculators_version embed_requires_grad enable_sp_ulysses"),
        inner={"speculators_config": PROPOSALS, "transformer_layer_config": SPECULATORS_LAYER},
    ),
    "dflash": ZLAB,
    "dflash2": ZLAB | Fields(read=SELECTOR_FIELDS, inner={"dflash_config": Fields(NESTED | SELECTOR_FIELDS)}),
    "dflash-transformers": BLOCK,
    "dflash-deepspec": DEEPSPEC,
    "dspark": DEEPSPEC,
    "dflash-speculators": _block_speculators("dflash"),
    "dflash2-speculators": _block_speculators("dflash2", SELECTOR_FIELDS),
    "dspark-speculators": _block_speculators("dspark", MARKOV),
    "medusa": MEDUSA,
    "medusa-2": MEDUSA | Fields(inert=WHOLE - MEDUSA.read),
    "hydra": HYDRA | Fields(must={"hydra_head_arch": ("mlp",)}),
    "hydra++": HYDRA | Fields(must={"hydra_head_arch": ("prefix-mlp",)}),
}  # fmt: skip


def check_fields(head: Published) -> None:
    """Raise UserError, by its name, for a field of the head's configuration that is not read rightly."""
    if fault := OF_FORMAT[head.format].fault(head.config):
        raise UserError(f"{head.place} is of a variant that is not read: {fault}")


def check_there(head: Published, *names: str) -> None:
    """Raise UserError for a tensor that a checkpoint lacks and its configuration is read off."""
    if missing := [name for name in names if name not in head.shapes]:
        raise UserError(f"{head.place} is incomplete: it lacks {missing[0]}; bring the whole checkpoint")


def check_equal(head: Published, name: str, value: Any, stored_value: Any) -> None:
    """Raise UserError where a field says something else than the tensors; None says nothing."""
    if value is not None and value != stored_value:
        raise UserError(
            f"{head.place} does not fit together: its {CONFIG} says {name} = {value!r}, and its tensors have "
            f"{stored_value!r}"
        )


def option(head: Published, name: str) -> Any:
    """A setting of a head, from the object of its own in the configuration (``dflash_config``, ``eagle_config``) or
    beside it. Raises UserError where both places have it and differ.
    """
    inner = {}
    for place in ("dflash_config", "eagle_config"):
        if isinstance(nested := head.config.get(place), Mapping):
            inner = nested
    within, outer_value = inner.get(name), head.config.get(name)
    if within is not None and outer_value not in (None, within):
        raise UserError(
            f"{head.place} does not fit together: its {CONFIG} says {name} twice, {within!r} and {outer_value!r}"
        )
    return outer_value if within is None else within


def flag(head: Published, name: str) -> bool:
    """True where a field of the configuration is set. Raises UserError where it is neither true nor false."""
    value = head.config.get(name)
    if value is not None and not isinstance(value, bool):
        raise UserError(f"{head.place} cannot be read: its {CONFIG} says {name} = {value!r}, not true or false")
    return bool(value)


def windows(head: Published, layers: int) -> tuple[int, ...]:
    """Number of positions that each decoder layer sees, its own included (0: all); empty where all see everything.

    speculators' layers slide where ``layer_types`` says so, which transformers derives for Qwen3 from
    ``use_sliding_window`` and ``max_window_layers``. The code of the other formats has no window: a configuration that
    asks for one is refused. Raises UserError.
    """
    fields, is_speculators = head.layer, head.format == "eagle3-speculators"
    types, width = fields.get("layer_types"), fields.get("sliding_window")
    if types is None and is_speculators and fields.get("use_sliding_window") and width is not None:
        start = fields.get("max_window_layers")
        start = 28 if start is None else int(start)  # Qwen3's default
        types = ["sliding_attention" if i >= start else "full_attention" for i in range(layers)]
    if types is None or (isinstance(types, list) and set(map(str, types)) == {"full_attention"}):
        return ()  # of however many layers: some configurations are copies of the target's
    kinds = ("full_attention", "sliding_attention")[: 1 + is_speculators]
    if not isinstance(types, list) or len(types) != layers or any(kind not in kinds for kind in types):
        raise UserError(
            f"{head.place} is of a variant that is not read: its {CONFIG} says layer_types = {types!r}, and of "
            f"{head.title} {layers} × {' or '.join(kinds)} is read"
        )
    if "sliding_attention" not in types:
        return ()
    if type(width) is not int or width < 1:
        raise UserError(
            f"{head.place} cannot be read: its {CONFIG} asks for sliding_attention, with sliding_window = {width!r}"
        )
    return tuple(width if kind == "sliding_attention" else 0 for kind in types)
