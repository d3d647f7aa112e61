"""Fields of published heads' configurations, by format: which are read, which must have a value, which change nothing.

Any other field is refused by name: a head drafts otherwise where a field is passed over. Here stand the fields that
formats share: a decoder layer's, those of speculators, and what transformers writes beside a format's own.
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


def field_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# written by transformers beside a configuration's own fields, or about training and generate()
TRANSFORMERS = Fields(
    inert=field_names("""
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
    read=field_names("""
        rope_type type rope_theta factor original_max_position_embeddings low_freq_factor high_freq_factor beta_fast
        beta_slow mscale mscale_all_dim attention_factor truncate
    """),
    must={"partial_rotary_factor": (1, 1.0)},
    inert=field_names("finetuned"),
)
# a decoder layer of Llama's kind; pretraining_tp cuts its products into pieces of the same sum
LAYER = Fields(
    read=field_names("""
        hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim rms_norm_eps
        vocab_size max_position_embeddings rope_theta attention_bias layer_types
    """),
    must={"hidden_act": ("silu", "swish"), "mlp_bias": (False,), "partial_rotary_factor": (1, 1.0)},
    inert=field_names("pretraining_tp"),
    inner={"rope_scaling": ROPE, "rope_parameters": ROPE},
)
VERIFIER = Fields(inert=field_names("name_or_path architectures"))
PROPOSALS = Fields(inert=field_names("proposal_methods default_proposal_method"), inner={"verifier": VERIFIER})
SPECULATORS_LAYER = replace(TRANSFORMERS, inert=TRANSFORMERS.inert - {"model_type"}) | LAYER | Fields(
    field_names("tie_word_embeddings sliding_window use_sliding_window max_window_layers"),
    {"model_type": ("llama", "qwen3")},
)  # fmt: skip
def check_fields(head: Published) -> None:
    """Raise UserError, by its name, for a field of the head's configuration that is not read rightly."""
    if fault := head.form.fields.fault(head.config):
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


def option(head: Published, name: str, place: str) -> Any:
    """A setting of a head, from the object of its own in the configuration (``place``) or beside it. Raises UserError
    where both places have it and differ.
    """
    nested = head.config.get(place)
    inner = nested if isinstance(nested, Mapping) else {}
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
