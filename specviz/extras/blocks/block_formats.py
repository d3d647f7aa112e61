"""Formats in which block drafters are published (z-lab's DFlash, DeepSpec's DSpark, JetSpec, speculators' P-EAGLE and
others, transformers), with the fields of their configurations.
"""

from __future__ import annotations

import re
from dataclasses import replace

from decoders.draft_models.published import Format, has_part, speculators_kind
from decoders.draft_models.published_fields import (
    LAYER,
    PROPOSALS,
    SPECULATORS_LAYER,
    TRANSFORMERS,
    Fields,
    field_names,
)
from specviz.extras.heads.head_formats import EAGLE3, is_parallel, midlayer_name, speculators_fields

OWN = "dflash_config"  # the object of their own in a configuration
# block drafters: what their layouts have beside the layers
BLOCK = LAYER | TRANSFORMERS | Fields(
    read=field_names("block_size mask_token_id target_layer_ids sliding_window use_sliding_window"),
    inert=field_names("tie_word_embeddings max_window_layers"),
)  # fmt: skip
NESTED = field_names("""
    block_size mask_token_id target_layer_ids sample_from_anchor causal causal_head use_swa swa_window_size
    input_embedding_scale output_multiplier final_logit_softcapping
""")
SELECTOR_FIELDS = field_names("conv_kernel_size conv_group_size selector_rank selector_top_k")
MARKOV = field_names("markov_rank markov_head_type enable_confidence_head confidence_head_with_markov")
ZLAB = BLOCK | Fields(
    read=NESTED | field_names("num_target_layers is_causal target_hidden_size"), inner={OWN: Fields(NESTED)}
)
DEEPSPEC = BLOCK | Fields(
    read=MARKOV | field_names("num_target_layers sample_from_anchor dspark_bonus_anchor"),
    inert=field_names("num_anchors"),
)


def _speculators_fields(kind: str, extra_names: frozenset[str] = frozenset()) -> Fields:
    return TRANSFORMERS | Fields(
        read=extra_names | field_names("""
            block_size mask_token_id aux_hidden_state_layer_ids sample_from_anchor draft_vocab_size target_hidden_size
            sliding_window_non_causal
        """),
        must={"speculators_model_type": (kind,), "use_aux_hidden_state": (True,), "tie_word_embeddings": (False,)},
        inert=field_names("speculators_version num_anchors max_anchors"),
        inner={
            "speculators_config": PROPOSALS | Fields(must={"algorithm": (kind,)}),
            "transformer_layer_config": SPECULATORS_LAYER,
        },
    )  # fmt: skip


def _block(name: str) -> str:
    """A name of a block drafter as z-lab has it."""
    name = name.replace("encoder.fc.", "fc.").replace("encoder.output_norm_enc.", "hidden_norm.")
    return re.sub(r"(candidate_selector\.\w+_codebook)\.weight$", r"\1", name)


def _of_speculators(kind: str, title: str, order: int, extra_names: frozenset[str] = frozenset()) -> Format:
    return Format(
        f"{kind}-speculators", f"{title} in the form of speculators",
        lambda config, shapes: speculators_kind(config) == kind, _block,
        fields=_speculators_fields(kind, extra_names), order=order,
    )  # fmt: skip


DFLASH_FORMATS = (
    _of_speculators("dflash", "DFlash", 12),
    Format(
        "dflash-deepspec", "DFlash as DeepSpec publishes it",
        lambda config, shapes: "num_anchors" in config and "fc.weight" in shapes, _block, fields=DEEPSPEC, order=15,
    ),
    Format(
        "dflash-transformers", "DFlash as transformers has it",
        lambda config, shapes: "encoder.output_norm_enc.weight" in shapes, _block, fields=BLOCK, order=16,
    ),
    Format(
        "dflash", "DFlash as z-lab publishes it", lambda config, shapes: OWN in config, _block, fields=ZLAB, order=17
    ),
)  # fmt: skip
DSPARK_FORMATS = (
    _of_speculators("dspark", "DSpark", 11, MARKOV),
    Format(
        "dspark", "DSpark as DeepSpec publishes it", lambda config, shapes: has_part(shapes, "markov_head."), _block,
        fields=DEEPSPEC, order=14,
    ),
)  # fmt: skip
DFLASH2_FORMATS = (
    _of_speculators("dflash2", "DFlash2", 10, SELECTOR_FIELDS),
    Format(
        "dflash2", "DFlash2 as z-lab publishes it",
        lambda config, shapes: has_part(shapes, "candidate_selector."), _block,
        fields=ZLAB | Fields(read=SELECTOR_FIELDS, inner={OWN: Fields(NESTED | SELECTOR_FIELDS)}), order=13,
    ),
)  # fmt: skip
MASK_TOKENS = ("mask_token_id", "ptd_token_id", "pard_token")  # as speculators and vLLM name it
OF_PEAGLE = speculators_fields("peagle")
PROPOSED = replace(OF_PEAGLE.inner["speculators_config"], inert=PROPOSALS.inert - {"proposal_methods"})
PEAGLE_FORMATS = (
    Format(
        "peagle-speculators", "P-EAGLE in the form of speculators",
        lambda config, shapes: speculators_kind(config) == "peagle", midlayer_name,
        fields=OF_PEAGLE | Fields(
            read=field_names("mask_token_id"),
            inner={"speculators_config": PROPOSED | Fields(read=field_names("proposal_methods"))},
        ), order=18,
    ),
    Format(
        "peagle", "P-EAGLE beside EAGLE-3's fields", is_parallel, midlayer_name,
        fields=EAGLE3 | Fields(read=frozenset(MASK_TOKENS)), order=19,
    ),
)  # fmt: skip
