"""Formats in which Medusa's, Hydra's and EAGLE's heads are published, with the fields of their configurations.

Sources are the released code of SafeAILab's EAGLE (``EConfig``), SpecForge, Model-Optimizer, speculators
(``Eagle3SpeculatorConfig``), Medusa (``MedusaConfig``) and Hydra (``HydraConfig``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from decoders.draft_models.published import Format, Shapes, has_part, speculators_kind
from decoders.draft_models.published_fields import (
    LAYER,
    PROPOSALS,
    SPECULATORS_LAYER,
    TRANSFORMERS,
    Fields,
    field_names,
)

# Model-Optimizer's switches, which stand for EAGLE-3's layer at these values
SWITCHES = Fields(
    read=field_names("eagle_aux_hidden_state_layer_ids"),
    must={
        "use_aux_hidden_state": (True,), "use_input_layernorm_in_first_layer": (True,), "use_last_layernorm": (True,),
        "use_mtp_layernorm": (False,), "next_layer_regular": (True,), "parallel_draft_step": (1,),
    },
    inert=field_names("parallel_draft_heads_num_layers has_lm_head"),
)  # fmt: skip
THIRD = Fields(
    read=field_names("""
        draft_vocab_size target_hidden_size norm_before_residual norm_before_fc fc_norm norm_output
        eagle_aux_hidden_state_layer_ids tie_word_embeddings
    """)
)
# copied from a target's configuration, and read neither by SafeAILab's code nor by SpecForge's
COPIED = field_names("max_sequence_length target_model_type decoder_sparse_step sliding_window max_window_layers")
SAFEAI = TRANSFORMERS | LAYER | Fields(field_names("bias qkv_bias"), {"use_sliding_window": (False,)}, COPIED)
EAGLE3 = SAFEAI | THIRD | SWITCHES
MEDUSA = TRANSFORMERS | Fields(
    read=field_names("medusa_num_layers hidden_size vocab_size"),
    # the number of heads is what is stored: public files say 2 where 5 are; version 2 is Medusa-2's
    inert=field_names("medusa_num_heads base_model_name_or_path version"),
)
HYDRA = TRANSFORMERS | Fields(
    read=field_names("hydra_num_heads hydra_num_layers grounded_heads hidden_state_offset hidden_size vocab_size"),
    inert=field_names("base_model_name_or_path dropout_rate"),
)
# fields of the whole model that Medusa-2's heads stand in, which is not read
WHOLE = LAYER.read | LAYER.inert | COPIED | {*LAYER.must, *LAYER.inner, "tie_word_embeddings", "use_sliding_window"}


def speculators_fields(kind: str) -> Fields:
    """Fields of a head with EAGLE-3's layers in the form of speculators."""
    return TRANSFORMERS | THIRD | Fields(
        must={"speculators_model_type": (kind,)},
        inert=field_names("speculators_version embed_requires_grad enable_sp_ulysses"),
        inner={
            "speculators_config": PROPOSALS | Fields(must={"algorithm": (kind,)}),
            "transformer_layer_config": SPECULATORS_LAYER,
        },
    )  # fmt: skip


def is_parallel(config: Mapping[str, Any], shapes: Shapes) -> bool:
    """True for a head of P-EAGLE."""
    return speculators_kind(config) == "peagle" or "mask_hidden" in shapes


def _medusa(name: str) -> str | None:
    match = re.fullmatch(r"(?:medusa_head\.)?(\d+\.\d+\.(?:linear\.)?(?:weight|bias))", name)
    return match[1] if match else None


def _hydra(name: str) -> str | None:
    name = name.removeprefix("hydra_head.")
    return name if name.startswith(("hydra_mlp.", "hydra_lm_head.", "prefix_embeding_layer.")) else None


def midlayer_name(name: str) -> str:
    """A name in the form of speculators, where the first layer is not called midlayer."""
    return re.sub(r"^midlayer\.", "layers.0.", name)


def _eagle3(shapes: Shapes) -> bool:
    return "fc.weight" in shapes and any(f"{layer}.hidden_norm.weight" in shapes for layer in ("midlayer", "layers.0"))


def _first(config: Mapping[str, Any], shapes: Shapes) -> bool:
    return {"fc.weight", "layers.0.self_attn.q_proj.weight"} <= shapes.keys()


EAGLE_FORMATS = (
    Format("", "P-EAGLE", is_parallel, order=20),  # told apart where no annex reads it
    Format(
        "", "EAGLE-1 in the form of speculators", lambda config, shapes: speculators_kind(config) == "eagle", order=31
    ),
    Format(
        "eagle", "EAGLE-1 or -2 as SafeAILab publishes it", _first,
        fields=SAFEAI | Fields(inert=field_names("tie_word_embeddings")), order=43,  # its head is the target's
    ),
)  # fmt: skip
EAGLE3_FORMATS = (
    Format(
        "eagle3-speculators", "EAGLE-3 in the form of speculators",
        lambda config, shapes: speculators_kind(config) == "eagle3" and _eagle3(shapes), midlayer_name,
        fields=speculators_fields("eagle3"), order=40,
    ),
    Format(
        "eagle3-specforge", "EAGLE-3 with SpecForge's eagle_config",
        lambda config, shapes: "eagle_config" in config and _eagle3(shapes), midlayer_name,
        fields=EAGLE3 | Fields(inner={"eagle_config": SWITCHES}), order=41,
    ),
    Format(
        "eagle3", "EAGLE-3 as SafeAILab publishes it", lambda config, shapes: _eagle3(shapes), midlayer_name,
        fields=EAGLE3, order=42,
    ),
)  # fmt: skip
MEDUSA_FORMATS = (
    Format(
        "medusa", "Medusa-1's heads", lambda config, shapes: "0.0.linear.weight" in shapes, _medusa,
        fields=MEDUSA, order=44,
    ),
    Format(
        "medusa-2", "Medusa-2's heads inside a whole model",
        lambda config, shapes: "medusa_head.0.0.linear.weight" in shapes, _medusa,
        fields=MEDUSA | Fields(inert=WHOLE - MEDUSA.read), order=45,
    ),
)  # fmt: skip
HYDRA_FORMATS = (
    Format(
        "hydra++", "Hydra++'s heads", lambda config, shapes: has_part(shapes, "prefix_embeding_layer."), _hydra,
        fields=HYDRA | Fields(must={"hydra_head_arch": ("prefix-mlp",)}), order=46,
    ),
    Format(
        "hydra", "Hydra's heads", lambda config, shapes: has_part(shapes, "hydra_mlp."), _hydra,
        fields=HYDRA | Fields(must={"hydra_head_arch": ("mlp",)}), order=47,
    ),
)  # fmt: skip
