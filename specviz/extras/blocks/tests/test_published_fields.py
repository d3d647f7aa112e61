"""Configurations of published heads, field by field and format by format: none is passed over."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from decoders.draft_models.published import Published, formats
from decoders.draft_models.published_fields import Fields
from decoders.errors import UserError
from specviz.extras.blocks import block_published, peagle
from specviz.extras.heads import eagle_published, heads_published
from specviz.extras.heads.tests.eagle_oracle import LLAMA, publish, tensors
from specviz.extras.heads.tests.test_medusa import store
from specviz.extras.heads.tests.tiny_parts import tiny_heads
from tests.tiers import matrix

from . import block_oracle

LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
FIRST, THIRD = tensors(False), tensors(True, drafted=90)
WIDE = {"bias": True, "qkv_bias": False, "attention_bias": False}
DRAFTS = {
    "draft_vocab_size": 90, "target_hidden_size": 64, "norm_before_residual": False, "norm_before_fc": False,
    "fc_norm": False, "norm_output": False, "eagle_aux_hidden_state_layer_ids": [0, 1, 2],
}  # fmt: skip
SPECULATORS = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in THIRD.items()}
ROPES = ("rope_scaling", "rope_parameters")
HYDRA = {"hydra_num_heads": 2, "hydra_num_layers": 1, "grounded_heads": True, "hidden_state_offset": 0}
SIZES = {"hidden_size": 64, "vocab_size": 320}
# values of the fields that are read, which fit the tensors; those of a layer with scaled rotary positions
LAYER = {
    **LLAMA, "head_dim": 16, "attention_bias": False, "layer_types": ["full_attention"], "rope_scaling": LLAMA3,
    "rope_parameters": LLAMA3,
}  # fmt: skip
BLOCK_LAYER = {**block_oracle.QWEN, "layer_types": ["full_attention"] * 2, **{n: LLAMA3 for n in ROPES}}
BLOCKS: dict[str, dict[str, Any]] = {
    kind: {**block_oracle.configuration(kind), **BLOCK_LAYER} for kind in ("dflash", "dspark", "dflash2")
}
for kind in ("dflash", "dflash2"):
    BLOCKS[kind]["dflash_config"] |= {"input_embedding_scale": 2.0, "output_multiplier": 2.0}
BLOCKS["dspark"]["sample_from_anchor"] = True


def in_speculators(kind: str) -> dict[str, Any]:
    """A block drafter's configuration as speculators writes it."""
    config = block_oracle.configuration(kind)
    inner = config.pop("dflash_config", {})
    names = ("block_size", "num_anchors", "markov_rank", "markov_head_type", "enable_confidence_head")
    kept = {name: config[name] for name in (*names, "confidence_head_with_markov") if name in config}
    return {
        **kept, "speculators_model_type": kind, "speculators_config": {"verifier": {}}, "sample_from_anchor": False,
        "transformer_layer_config": {**BLOCK_LAYER, "model_type": "qwen3"}, "mask_token_id": block_oracle.MASK,
        "aux_hidden_state_layer_ids": [1, 3],
        **{name: value for name, value in inner.items() if name.startswith(("conv", "selector"))},
    }  # fmt: skip


CONFIGS: dict[str, dict[str, Any]] = {
    "eagle": {**LAYER, **WIDE},
    "eagle3": {**LAYER, **WIDE, **DRAFTS, "bias": False},
    "eagle3-specforge": {**LAYER, **WIDE, **DRAFTS, "bias": False, "eagle_config": {"use_aux_hidden_state": True}},
    "eagle3-speculators": {
        **DRAFTS, "speculators_model_type": "eagle3", "speculators_config": {"verifier": {}},
        "transformer_layer_config": {**LAYER, "layer_types": ["sliding_attention"], "sliding_window": 5},
    },
    "dflash": BLOCKS["dflash"],
    "dflash2": BLOCKS["dflash2"],
    "dflash-transformers": {
        **BLOCK_LAYER, **block_oracle.OF_BLOCK, "block_size": 6, "layer_types": ["sliding_attention"] * 2,
        "sliding_window": 5,
    },
    "dflash-deepspec": {
        **BLOCK_LAYER, **block_oracle.OF_BLOCK, "block_size": 6, "num_anchors": 512, "markov_rank": 0,
        "sample_from_anchor": True,
    },
    "dspark": BLOCKS["dspark"],
    "peagle": {**LAYER, **WIDE, **DRAFTS, "bias": False, "mask_token_id": 11, "ptd_token_id": 11, "pard_token": 11},
    "peagle-speculators": {
        **DRAFTS, "speculators_model_type": "peagle", "mask_token_id": 11,
        "speculators_config": {"verifier": {}, "proposal_methods": [{"speculative_tokens": 5}]},
        "transformer_layer_config": {**LAYER, "layer_types": ["sliding_attention"], "sliding_window": 5},
    },
    **{f"{kind}-speculators": in_speculators(kind) for kind in BLOCKS},
    "medusa": {"medusa_num_layers": 1, **SIZES},
    "medusa-2": {"medusa_num_layers": 1, **SIZES},
    "hydra": {**HYDRA, **SIZES},
    "hydra++": {**HYDRA, **SIZES},
}  # fmt: skip
# another value of a field that is read, where it is no number, truth value or list of layers
OTHERS = {
    "rope_type": "yarn", "type": "linear", "layer_types": ["some_attention"], "mscale": 2.0, "truncate": False,
    "markov_head_type": "rnn",
}  # fmt: skip


def heads_of(kind: str, target: Any) -> dict[str, torch.Tensor]:
    bias = kind.startswith("hydra")
    made = tiny_heads(target, kind.rstrip("+"), shared=False, bias=bias, mixed=bias, heads=2)
    weights = store(kind.rstrip("+"), made)
    if kind == "hydra++":
        layer = tensors(False)
        weights |= {f"prefix_embeding_layer.{name}": one for name, one in layer.items() if name.startswith("layers.")}
        weights["prefix_embeding_layer.layers.0.input_layernorm.weight"] = torch.ones(64)
        weights["prefix_embeding_layer.norm.weight"] = torch.ones(64)
        for part in ("gate_proj", "up_proj", "down_proj"):
            shape = (target.shape.mlp, 64) if part != "down_proj" else (64, target.shape.mlp)
            weights[f"prefix_embeding_layer.layers.0.mlp.{part}.weight"] = torch.zeros(shape)
    return weights


def fit(name: str, config: dict[str, Any], target: Any, folder: Any) -> Any:
    """The head's own configuration, fitted to the target. Raises UserError."""
    if name.startswith("eagle"):
        weights = {"eagle": FIRST, "eagle3-speculators": SPECULATORS}.get(name, THIRD)
        head = Published.open(publish(folder, config, weights))
        if head.format != name:
            raise UserError(f"another format: {config}")
        return eagle_published.fit(name != "eagle", head, target).config
    kind = name.partition("-")[0]
    if kind == "peagle":
        weights = {**(SPECULATORS if name.endswith("speculators") else THIRD), "mask_hidden": torch.ones(1, 1, 192)}
        head = Published.open(publish(folder, config, weights))
        if head.format != name:
            raise UserError(f"another format: {config}")
        return peagle.fit(head, target).config
    if kind in BLOCKS:
        weights = block_oracle.tensors("dflash" if name == "dflash-deepspec" else kind)
        if name == "dflash-transformers":
            for ours, theirs in (("fc", "encoder.fc"), ("hidden_norm", "encoder.output_norm_enc")):
                weights[f"{theirs}.weight"] = weights.pop(f"{ours}.weight")
        head = Published.open(publish(folder, config, weights))
        if head.format != name:
            raise UserError(f"another format: {config}")
        return block_published.fit(kind, head, target).config
    weights = heads_of(name.removesuffix("-2"), target)
    if name == "medusa-2":
        weights = {f"medusa_head.{key}": tensor for key, tensor in weights.items()}
    head = Published.open(publish(folder, config, weights))
    assert head.format == name
    return heads_published.fit(kind.rstrip("+"), head, target).config


def with_field(config: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = path
    inner = config.get(first)
    below = inner if isinstance(inner, dict) else {}
    return {**config, first: with_field(below, tuple(rest), value) if rest else value}


def at(config: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        config = (config or {}).get(name)
    return config


def walk(fields: Fields, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Fields]]:
    """Every object of a configuration with its fields."""
    below = [pair for name, inner in fields.inner.items() for pair in walk(inner, (*above, name))]
    return [(above, fields), *below]


def other(name: str, value: Any) -> Any:
    if name in OTHERS:
        return OTHERS[name]
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, list):
        return [0, 1, 1]
    return value + 1


def test_every_format_is_walked():
    of_targets = {"mtp", "mtp-deepseek"}  # their fields are the target's own, which transformers reads
    assert CONFIGS.keys() == {form.name for form in formats() if form.fields is not None}
    assert of_targets == {form.name for form in formats() if form.name} - CONFIGS.keys()


@pytest.mark.parametrize("name", matrix(CONFIGS, 2, "the other formats"))
def test_a_field_is_read_or_refused_by_name(target, tmp_path, name):
    """Of a field that is read, another value is another head, or refused; of one that must have a value, every other
    one is refused by name; of one that changes nothing, none makes a difference; a field of no list is refused.
    """
    config = CONFIGS[name]
    base, count = fit(name, config, target, tmp_path / "base"), 0

    def trial(path: tuple[str, ...], value: Any) -> Any:
        nonlocal count
        count += 1
        try:
            return fit(name, with_field(config, path, value), target, tmp_path / str(count))
        except UserError as error:
            return str(error)

    for above, fields in walk(next(form.fields for form in formats() if form.name == name)):
        for field in fields.read:
            path = (*above, field)
            if field in CASES:
                continue
            changed = trial(path, other(field, at(config, path)))
            assert changed != base, f"{name}: another {'.'.join(path)} makes no difference"
        for field, allowed in fields.must.items():
            for value in allowed if at(config, above) is not None else ():
                assert trial((*above, field), value) == base
            refused = trial((*above, field), "something else")
            assert isinstance(refused, str) and field in refused and "something else" in refused
        for field in fields.inert:
            assert trial((*above, field), 7) == base, f"{name}: {field} changes nothing"
        refused = trial((*above, "new_trick"), 1)
        assert f"the field {'.'.join((*above, 'new_trick'))}, which is not known here" in refused
        assert trial((*above, "new_trick"), None) == base, "a null says nothing"


# fields that say something together with others: format, more of the configuration, the field with another value, and
# what the sentence says (nothing: another head)
INNER = "transformer_layer_config"
SLIDING = {**LLAMA, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0}
CASES = {
    "use_sliding_window": ("eagle3-speculators", {INNER: SLIDING}, (INNER, "use_sliding_window"), False, ""),
    "max_window_layers": ("eagle3-speculators", {INNER: SLIDING}, (INNER, "max_window_layers"), 1, ""),
    "sliding_window": (
        "eagle3-speculators", {INNER: {**LLAMA, "layer_types": ["sliding_attention"], "sliding_window": 5}},
        (INNER, "sliding_window"), None, "asks for sliding_attention, with sliding_window = None",
    ),
    "rope_theta": ("eagle3", {}, ("rope_theta",), 5000.0, ""),
    "factor": ("eagle", {"rope_parameters": None}, ("rope_scaling", "factor"), 4.0, ""),
    "mscale": ("eagle", {"rope_scaling": None}, ("rope_parameters", "mscale"), 4.0, ""),
    "type": (
        "eagle3", {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
        ("rope_scaling", "type"), "yarn", "",
    ),
    "swa_window_size": (
        "dflash", {"dflash_config": {**BLOCKS["dflash"]["dflash_config"], "use_swa": True, "swa_window_size": 5}},
        ("dflash_config", "swa_window_size"), 6, "",
    ),
    "use_swa": ("dflash", {"sliding_window": 5, "layer_types": None}, ("dflash_config", "use_swa"), True, ""),
    "is_causal": ("dflash", {}, ("is_causal",), True, ""),
    "causal": ("dflash", {}, ("dflash_config", "causal"), True, ""),
    "causal_head": ("dflash", {}, ("dflash_config", "causal_head"), True, ""),
    "sliding_window_non_causal": ("dflash-speculators", {}, ("sliding_window_non_causal",), False, ""),
    "dspark_bonus_anchor": ("dspark", {"sample_from_anchor": None}, ("dspark_bonus_anchor",), True, ""),
    "confidence_head_with_markov": (
        "dspark", {}, ("confidence_head_with_markov",), False, "confidence_head.proj.weight is 1 × 72",
    ),
    "tie_word_embeddings": ("eagle3", {}, ("tie_word_embeddings",), True, ""),
}  # fmt: skip


@pytest.mark.parametrize("field", CASES)
def test_fields_that_go_together(target, tmp_path, field):
    name, more, path, value, sentence = CASES[field]
    config = {**CONFIGS[name], **more}
    if field == "rope_theta":
        del config["rope_scaling"], config["rope_parameters"]
    base = fit(name, config, target, tmp_path / "base")
    if field == "tie_word_embeddings":  # what is stored is the head; where nothing is, tying makes another one
        assert fit(name, with_field(config, path, value), target, tmp_path / "tied") == base
        head = Published.open(publish(tmp_path / "none", with_field(config, path, value), {
            key: one for key, one in tensors(True).items() if key != "lm_head.weight"
        }))  # fmt: skip
        head.config.pop("draft_vocab_size")
        with pytest.raises(UserError, match="its tie_word_embeddings is true"):
            eagle_published.fit(True, head, target)
    elif sentence:
        with pytest.raises(UserError, match=sentence):
            fit(name, with_field(config, path, value), target, tmp_path / "other")
    else:
        assert fit(name, with_field(config, path, value), target, tmp_path / "other") != base


@pytest.mark.parametrize("name", ["eagle", "eagle3", "eagle3-specforge"])
def test_windows_that_a_formats_code_has_not_are_refused(target, tmp_path, name):
    config = {**CONFIGS[name], "sliding_window": 5, "layer_types": ["sliding_attention"]}
    with pytest.raises(UserError, match=r"layer_types = \['sliding_attention'\], and of EAGLE.* 1 × full_attention"):
        fit(name, config, target, tmp_path / "head")


def test_what_norm_output_may_mean_is_said(target, tmp_path):
    for name in ("eagle3", "eagle3-speculators"):
        weights = SPECULATORS if name == "eagle3-speculators" else THIRD
        head = Published.open(publish(tmp_path / name, {**CONFIGS[name], "norm_output": True}, weights))
        made = eagle_published.fit(True, head, target)
        said = [words for words in made.about["warnings"] if "norm_output = True is read as servers" in words]
        assert made.config.norm_output and len(said) == (name == "eagle3")
