"""Published block drafters: DFlash, DSpark and DFlash2 in this project's form, checked against a target.

Layouts: z-lab's (``dflash_config``), transformers' (Muse Glimmer's assistant), DeepSpec's (fields beside the layer's
own) and speculators'. Layer ids name layers, whose outputs are read: id i is hidden state i + 1; speculators' count
hidden states. What a row of a block guesses, its own token or the next one (``anchor``), is the format's or the
checkpoint's to say; as a wrong reading shifts every draft by one, both are tried on a short text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from decoders.draft_models.fit import (
    Fit,
    Trial,
    about_of,
    agreement,
    read_text,
    rope_of,
    same_table,
    shifts,
    take_best,
    tensors_of,
)
from decoders.draft_models.published import CONFIG, Published
from decoders.draft_models.published_fields import check_equal, check_fields, check_there, flag, option
from decoders.errors import UserError
from decoders.model.target_model.target import Target

from .block_formats import OWN
from .block_network import BlockConfig, BlockNetwork
from .block_run import visible

CAUSAL = ("causal", "causal_head")
FIRST_ROOT, ROOT_EVERY = 8, 3  # of the short text: where blocks are tried


def _option(head: Published, name: str) -> Any:
    """A setting of a drafter, of its own object in the configuration or beside it."""
    return option(head, name, OWN)


def fit(kind: str, head: Published, target: Target) -> Fit:
    """A published drafter of this kind (dflash, dspark, dflash2) for the target.

    Raises UserError in one sentence for one of another target, of a variant that is not read, and where something is
    missing or out of range.
    """
    if head.kind != kind:
        raise UserError(
            f"{head.place} holds {head.title}, and the method {kind} wants another: use it with {head.kind}"
        )
    check_fields(head)
    config = _config(head, target)
    if reason := config.misfit(target.shape):
        raise UserError(f"{head.place} was made for another target than {target.name}: {reason}")
    weights = tensors_of(head, BlockNetwork, config, target)
    for name, table, instead in (
        ("embed_tokens.weight", target.embeddings, {"own_embedding": False}),
        ("lm_head.weight", target.head, {"shared": True}),
    ):
        if name in weights and config.hidden == target.shape.hidden and same_table(weights[name], table):
            del weights[name]
            config = replace(config, **instead)
    warnings = list[str]()
    about = about_of(head, weights, config, anchor=config.anchor, block=config.block, warnings=warnings)
    return Fit(config, weights, about, partial(settle, target=target, warnings=warnings))


def _whole(head: Published, name: str, value: Any, low: int, high: int, advice: str) -> int:
    """A whole number in a range. Raises UserError, with what is allowed and the advice."""
    if type(value) is not int or not low <= value <= high:
        raise UserError(
            f"{head.place} cannot be read: its {CONFIG} says {name} = {value!r}, and {low:,} to {high:,} are possible"
            f"; {advice}"
        )
    return value


def features_of(head: Published, target: Target) -> tuple[int, ...]:
    """The states that a drafter reads, as transformers counts hidden states. Raises UserError."""
    layers, speculators = target.shape.layers, head.format.endswith("speculators")
    name = "aux_hidden_state_layer_ids" if speculators else "target_layer_ids"
    ids = _option(head, name)
    if not isinstance(ids, list) or not ids or any(type(layer) is not int for layer in ids):
        raise UserError(
            f"{head.place} cannot be read: its {CONFIG} says {name} = {ids!r}, and a list of the target's layers is "
            "wanted; bring the file that was published beside the weights"
        )
    first, last = (0, layers) if speculators else (0, layers - 1)
    if head.format.startswith("dspark"):
        first = 0 if speculators else -1  # -1: the embedding
    if out := [layer for layer in ids if not first <= layer <= last]:
        raise UserError(
            f"{head.place} was made for another target: {name} names {out[0]}, and {target.name} has {layers} layers, "
            f"{first} to {last}; open the model that it was trained for"
        )
    if ids != sorted(set(ids)):
        raise UserError(f"{head.place} cannot be read: {name} = {ids!r} is not in ascending order; bring the original")
    return tuple(layer if speculators else layer + 1 for layer in ids)


def _config(head: Published, target: Target) -> BlockConfig:
    fields, shape, sizes = head.layer, target.shape, head.shapes
    check_there(head, "fc.weight", "layers.0.self_attn.q_proj.weight")
    features = features_of(head, target)
    hidden, reads = sizes["fc.weight"]
    width, remainder = divmod(reads, len(features))
    if remainder:
        raise UserError(
            f"{head.place} does not fit together: its fc reads {reads:,} numbers, which are not {len(features)} states "
            "of one width"
        )
    heads = head.setting("num_attention_heads")
    size = head.setting("head_dim", hidden // heads)
    layers = 1 + max(int(name.split(".")[1]) for name in sizes if name.startswith("layers."))
    kv_heads = sizes["layers.0.self_attn.k_proj.weight"][0] // size
    mlp = sizes["layers.0.mlp.gate_proj.weight"][0] if "layers.0.mlp.gate_proj.weight" in sizes else shape.mlp
    vocab = fields.get("vocab_size", shape.vocab)
    drafted = sizes["lm_head.weight"][0] if "lm_head.weight" in sizes and "d2t" in sizes else 0
    qkv_bias = "layers.0.self_attn.q_proj.bias" in sizes
    for name, stored_value in (
        ("hidden_size", hidden), ("num_key_value_heads", kv_heads), ("intermediate_size", mlp),
        ("num_hidden_layers", layers), ("attention_bias", qkv_bias), ("target_hidden_size", width),
    ):  # fmt: skip
        check_equal(head, name, fields.get(name, head.config.get(name)), stored_value)
    for name, stored_value in (("draft_vocab_size", drafted or vocab), ("num_target_layers", shape.layers)):
        check_equal(head, name, head.config.get(name), stored_value)
    anchor = anchor_of(head)
    block = _whole(
        head, "block_size", _option(head, "block_size"), 1 if anchor else 2, 64,
        "a block holds its root and the masks behind it, and with one row nothing is drafted: bring the original",
    )  # fmt: skip
    mask = -1
    if "mask_embedding" not in sizes:
        rows = sizes.get("embed_tokens.weight", (vocab,))[0]
        mask = _whole(
            head, "mask_token_id", _option(head, "mask_token_id"), 0, rows - 1,
            "the masks' embedding is looked up there"
        )
    windows, causal = seen_by(head, layers)
    markov = head.config.get("markov_rank") or 0
    confidence = "confidence_head.proj.weight" in sizes
    for name, has_part in (("markov_head_type", markov), ("confidence_head_with_markov", confidence)):
        if head.config.get(name) and not has_part:
            raise UserError(f"{head.place} does not fit together: its {CONFIG} says {name}, and it has no such head")
    if markov and head.config.get("markov_head_type", "vanilla") != "vanilla":
        raise UserError(
            f"{head.place} is of a variant that is not read: its Markov head is of the type "
            f"{head.config['markov_head_type']!r}, and 'vanilla' is read"
        )
    check_equal(head, "enable_confidence_head", head.config.get("enable_confidence_head"), confidence)
    size_fields = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
    try:
        taps, group, rank, top_k = (int(_option(head, name) or 0) for name in size_fields)
        return BlockConfig(
            vocab, hidden, width, features, heads, kv_heads, size, mlp, layers, float(fields.get("rms_norm_eps", 1e-6)),
            block=block, anchor=anchor, mask_token=mask, qk_norm="layers.0.self_attn.q_norm.weight" in sizes,
            qkv_bias=qkv_bias, out_bias="layers.0.self_attn.o_proj.bias" in sizes, windows=windows, causal=causal,
            rope=rope_of(head), context_length=head.setting("max_position_embeddings", shape.context_length),
            shared="lm_head.weight" not in sizes, own_embedding="embed_tokens.weight" in sizes, draft_vocab=drafted,
            embedding_scale=float(_option(head, "input_embedding_scale") or 1),
            logits_scale=float(_option(head, "output_multiplier") or 1),
            softcap=float(_option(head, "final_logit_softcapping") or 0), markov_rank=int(markov),
            confidence=confidence,
            confidence_markov=confidence and flag(head, "confidence_head_with_markov"),
            conv_taps=taps, conv_group=group, selector_rank=rank, selector_top_k=top_k,
        )  # fmt: skip
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise UserError(f"{head.place} cannot be read: {error}") from error


def anchor_of(head: Published) -> bool:
    """True where a row guesses the next token, by the checkpoint, else by its format's reading (DeepSpec's: yes)."""
    value = _option(head, "sample_from_anchor")
    if value is not None and type(value) is not bool:
        raise UserError(
            f"{head.place} cannot be read: its {CONFIG} says sample_from_anchor = {value!r}, not true or false"
        )
    bonus = head.config.get("dspark_bonus_anchor")
    if value is not None and bonus is value:
        raise UserError(
            f"{head.place} does not fit together: its {CONFIG} says sample_from_anchor and dspark_bonus_anchor are "
            f"{value!r}, and they are opposites"
        )
    if value is not None or bonus is not None:
        return bool(value) if value is not None else not bonus
    return head.format in ("dspark", "dflash-deepspec")


def seen_by(head: Published, layers: int) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Windows of a drafter's layers, and which of them are causal; empty where none is. Raises UserError.

    z-lab's layers with a window are causal unless the checkpoint says otherwise (``_causal``), and see fewer positions
    than it says; transformers' look both ways, as far as it says; speculators' by ``sliding_window_non_causal``.
    """
    types, width = head.layer.get("layer_types"), _option(head, "swa_window_size") or head.layer.get("sliding_window")
    if _option(head, "use_swa") and (types is None or "sliding_attention" not in types):
        types = ["sliding_attention"] * layers
        sliding_causal = False
    else:
        sliding_causal = head.format in ("dflash", "dflash2")
    if types is not None and (
        not isinstance(types, list)
        or len(types) != layers
        or any(kind not in ("full_attention", "sliding_attention") for kind in types)
    ):
        raise UserError(
            f"{head.place} cannot be read: its {CONFIG} says layer_types = {types!r}, and {layers} × full_attention or "
            "sliding_attention are wanted"
        )
    if types is None and head.layer.get("use_sliding_window"):
        raise UserError(
            f"{head.place} is of a variant that is not read: its {CONFIG} says use_sliding_window without layer_types; "
            "name the layers that slide there"
        )
    sliding = [kind == "sliding_attention" for kind in types or [""] * layers]
    causal = _causal(head)
    if head.format.endswith("speculators"):
        causal = head.config.get("sliding_window_non_causal") is False
    looks_back = [sliding_causal and is_sliding if causal is None else bool(causal) for is_sliding in sliding]
    if any(sliding) and head.format in ("dspark", "dflash-deepspec"):
        raise UserError(f"{head.place} is of a variant that is not read: {head.title} has no layer_types that slide")
    if any(sliding) and (type(width) is not int or width < 1):
        raise UserError(
            f"{head.place} cannot be read: its {CONFIG} asks for sliding_attention, with sliding_window = {width!r}"
        )
    reach = int(width or 0) + (head.format == "dflash-transformers")  # there the last one counts too
    windows = tuple(reach * is_sliding for is_sliding in sliding) if any(sliding) else ()
    return windows, tuple(looks_back) if any(looks_back) else ()


def _causal(head: Published) -> bool | None:
    """True where no row sees later ones, as JetSpec's heads say (``causal_head``); None where nothing is said. Raises
    UserError.
    """
    values = {"is_causal": head.config.get("is_causal"), **{name: _option(head, name) for name in CAUSAL}}
    flags = {name: value for name, value in values.items() if value is not None}
    if any(type(value) is not bool for value in flags.values()) or len({*flags.values()}) > 1:
        raise UserError(
            f"{head.place} cannot be read: its {CONFIG} says {' and '.join(f'{k} = {v!r}' for k, v in flags.items())}, "
            "and one of true and false is wanted"
        )
    return next(iter(flags.values()), None)


# --- what a checkpoint leaves open, tried on a text


def settle(network: nn.Module, *, target: Target, warnings: list[str]) -> dict[str, Any]:
    """Give the network the states and the reading that a short text speaks for."""
    assert isinstance(network, BlockNetwork)
    trials = readings(network, target)
    return take_best(network, trials, _reading, warnings) if trials else {}


def _reading(fields: Mapping[str, Any]) -> str:
    rows = "rows that guess the next token" if fields["anchor"] else "rows that guess their own token"
    return f"{rows}, from states {', '.join(map(str, fields['features']))}"


@torch.inference_mode()
def readings(network: BlockNetwork, target: Target) -> list[Trial]:
    """Readings of a drafter on a short text, the checkpoint's own first: its states, those one below and one above,
    each with rows that guess the next token and with rows that guess their own. Empty where there is no tokenizer.
    """
    config = network.config
    if target.tokenizer is None:
        return []
    near = shifts(config.features, target)
    tokens, session = read_text(target, {layer for layers in near for layer in layers})
    memory, weight = session.context.memory, network.fc.weight
    starts = torch.arange(FIRST_ROOT, len(tokens) - 1, ROOT_EVERY, device=target.device)
    if not len(starts):
        return []
    positions, device = int(starts[-1]), target.device
    roots = torch.from_numpy(np.asarray(tokens, dtype=np.int64)).to(device)[starts]
    assert memory.top_ids is not None
    truth = memory.top_ids[starts, 0]
    cos, sin = config.rotary(positions + config.block, weight)
    at = starts[:, None] + torch.arange(config.block, device=device)
    trials = []
    for layers in near:
        states = torch.cat([memory.hidden[layer][:positions] for layer in layers], -1)
        context = network.context(network.read(states[None].to(weight.dtype)), cos[:positions], sin[:positions])
        block_states = network(roots, context, cos[at][:, None], sin[at][:, None], visible(config, starts, positions))
        for anchor in (config.anchor, not config.anchor):
            row = 0 if anchor else 1
            if row >= config.block:
                continue
            fields = {"features": layers, "anchor": anchor}
            trials.append(Trial(fields, agreement(network, block_states[:, row], truth)))
    return trials
