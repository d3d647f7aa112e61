"""Published EAGLE heads: their configurations and tensors in this project's form, checked against a target.

Formats differ in what a layer id means. SafeAI's code and speculators count hidden states (the input of layer i is
state i), SpecForge counts layers, whose output is the next state; and servers disagree. So the ids that a checkpoint
names are tried on a short text, with those one below and one above; so is the position of the first pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from decoders.draft_models.fit import (
    CLEARLY,
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

from .eagle_head import EagleConfig, EagleHead


def fit(third: bool, head: Published, target: Target) -> Fit:
    """A published head for this target: EAGLE-3's (``third``), or EAGLE-1's and -2's.

    Raises UserError in one sentence, with both numbers, for a head of another target, a variant that is not read, and
    a checkpoint that lacks something.
    """
    kind = "EAGLE-3" if third else "EAGLE"
    if head.format.startswith("eagle3") != third or not head.format.startswith("eagle"):
        raise UserError(f"{head.place} holds {head.title}: the method wants an {kind} head")
    return fit_head(third, head, target)


def fit_head(
    third: bool, head: Published, target: Target, network: type[EagleHead] = EagleHead,
    shape: Callable[[EagleConfig], EagleConfig] = lambda config: config,
) -> Fit:  # fmt: skip
    """A head of EAGLE's layers, or of a ``network`` that adds to them and a configuration of that ``shape``. Raises
    UserError.
    """
    check_fields(head)
    _check_sizes(head, third, target)
    config = shape(_config(head, third, target))
    copies = () if third else ("lm_head.weight",)  # some carry one of the target's
    weights = tensors_of(head, network, config, target, copies)
    has_embedding = "embed_tokens.weight" in weights
    warnings = []
    if has_embedding and config.hidden == target.shape.hidden:
        if same_table(weights["embed_tokens.weight"], target.embeddings):
            del weights["embed_tokens.weight"]
            has_embedding = False
        elif not third:
            warnings.append("its embedding is not the target's: it may have been trained for another model")
    unsure = head.config.get("norm_output") is not None and not in_speculators(head)
    if unsure:
        warnings.append(
            f"its norm_output = {head.config['norm_output']!r} is read as servers and today's SpecForge mean it, as "
            "whether the normed state is fed back; SpecForge before September 2026 never fed it back, and where it is "
            "false left away the norm in front of its head"
        )
    config = replace(config, own_embedding=has_embedding)
    about = about_of(head, weights, config, offset=config.offset, verifier=_verifier(head.config), warnings=warnings)
    options = {"target": target, "warnings": warnings, "unsure": unsure}
    return Fit(config, weights, about, partial(settle, **options) if third else None)


def _check_sizes(head: Published, third: bool, target: Target) -> None:
    """Raise UserError for a head of another target, each with both numbers."""
    shape, name = target.shape, target.name
    hidden, reads = head.shapes["fc.weight"]
    states = len(_layer_ids(head, target)) if third else 1
    width, remainder = divmod(reads if third else reads - hidden, states)
    if remainder:
        raise UserError(f"{head.place} reads {reads:,} numbers, which are not {states} states of one width")
    if width != shape.hidden:
        raise UserError(
            f"{head.place} was made for another target: it reads states of {width:,} numbers, and those of {name} have "
            f"{shape.hidden:,}"
        )
    vocab = head.layer.get("vocab_size", shape.vocab)
    rows = head.shapes.get("embed_tokens.weight", (vocab,))[0]
    t2d_size = head.shapes.get("t2d", (rows,))[0]
    for count, source in ((vocab, "its config.json says"), (rows, "its embedding has"), (t2d_size, "its t2d has")):
        if count != shape.vocab:
            raise UserError(
                f"{head.place} was made for another vocabulary: {source} {count:,} tokens, and {name} has "
                f"{shape.vocab:,}"
            )
    if "embed_tokens.weight" not in head.shapes and hidden != shape.hidden:
        raise UserError(
            f"{head.place} is {hidden:,} numbers wide and has no embedding of its own, and that of {name} is "
            f"{shape.hidden:,} wide"
        )
    if third:
        drafted = head.shapes["lm_head.weight"][0] if "lm_head.weight" in head.shapes else shape.vocab
        if drafted != shape.vocab and "d2t" not in head.shapes:
            raise UserError(
                f"{head.place} lacks d2t: it drafts {drafted:,} of {shape.vocab:,} tokens and does not say which; "
                "bring the checkpoint with its tensor d2t"
            )
        if "d2t" in head.shapes and head.shapes["d2t"][0] != drafted:
            raise UserError(
                f"{head.place} does not fit together: its head drafts {drafted:,} tokens, and d2t names "
                f"{head.shapes['d2t'][0]:,}"
            )
        if (last := max(_layer_ids(head, target))) > shape.layers:
            raise UserError(
                f"{head.place} was made for a deeper target: it reads state {last}, and {name} has {shape.layers} "
                "layers"
            )


def _layer_ids(head: Published, target: Target) -> tuple[int, ...]:
    """The states that a head reads, as transformers counts hidden states, by its format's convention."""
    n = target.shape.layers
    ids = option(head, "eagle_aux_hidden_state_layer_ids", "eagle_config")
    if ids is None:
        return (2, n // 2, n - 3)
    if not isinstance(ids, list) or not ids or not all(type(i) is int and i >= 0 for i in ids):
        raise UserError(f"{head.place} names the layers {ids!r} in its config.json: whole numbers are wanted")
    return tuple(i + 1 for i in ids) if head.format == "eagle3-specforge" else tuple(ids)


def _config(head: Published, third: bool, target: Target) -> EagleConfig:
    fields, shape, sizes = head.layer, target.shape, head.shapes
    hidden, heads = sizes["fc.weight"][0], head.setting("num_attention_heads")
    size = head.setting("head_dim", hidden // heads)
    drafted = sizes["lm_head.weight"][0] if "lm_head.weight" in sizes else 0
    check_there(head, "layers.0.self_attn.k_proj.weight", "layers.0.mlp.gate_proj.weight")
    layers = 1 + max(int(name.split(".")[1]) for name in sizes if name.startswith("layers."))
    kv_heads = sizes["layers.0.self_attn.k_proj.weight"][0] // size
    mlp = sizes["layers.0.mlp.gate_proj.weight"][0]
    is_copy = fields.get("num_hidden_layers") == shape.layers  # some configurations are copies of the target's
    fc_bias, qkv_bias = "fc.bias" in sizes, "layers.0.self_attn.q_proj.bias" in sizes
    for name, stored_value in (
        ("hidden_size", hidden), ("num_key_value_heads", kv_heads), ("intermediate_size", mlp),
        ("num_hidden_layers", shape.layers if is_copy else layers), ("attention_bias", qkv_bias),
        ("qkv_bias", qkv_bias), ("bias", fc_bias),
    ):  # fmt: skip
        check_equal(head, name, fields.get(name), stored_value)
    if third:
        check_equal(head, "target_hidden_size", head.config.get("target_hidden_size"), shape.hidden)
        check_equal(head, "draft_vocab_size", head.config.get("draft_vocab_size"), drafted or shape.vocab)
        if not drafted and (fields.get("tie_word_embeddings") or head.config.get("tie_word_embeddings")):
            raise UserError(f"{head.place} is of a variant that is not read: its tie_word_embeddings is true")
    flag_names = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output") if third else ()
    variants, sliding, rope = {name: flag(head, name) for name in flag_names}, _windows(head, layers), rope_of(head)
    scaled = rope["rope_type"] == "yarn" and "original_max_position_embeddings" not in rope  # by the longest text
    context_length = head.setting("max_position_embeddings", None if scaled else shape.context_length)
    try:
        return EagleConfig(
            shape.vocab, hidden, shape.hidden, _layer_ids(head, target) if third else (shape.layers,), heads,
            kv_heads, size, mlp, layers, float(fields.get("rms_norm_eps", 1e-6)), third=third, fc_bias=fc_bias,
            qkv_bias=qkv_bias, out_bias="layers.0.self_attn.o_proj.bias" in sizes,
            **variants, windows=sliding, rope=rope, context_length=context_length,
            shared="lm_head.weight" not in sizes or not third, draft_vocab=drafted % shape.vocab if third else 0,
            own_embedding="embed_tokens.weight" in sizes,
        )  # fmt: skip
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise UserError(f"{head.place} cannot be read: {error}") from error


def in_speculators(head: Published) -> bool:
    return head.format.endswith("-speculators")


def _verifier(config: Mapping[str, Any]) -> str:
    """The model that a head was trained for, as far as its configuration says."""
    inner = config.get("speculators_config")
    verifier = inner.get("verifier") if isinstance(inner, Mapping) else None
    return str(verifier.get("name_or_path") or "")[:200] if isinstance(verifier, Mapping) else ""


# --- what a checkpoint leaves open, tried on a text


def settle(network: nn.Module, target: Target, warnings: list[str], unsure: bool = False) -> dict[str, Any]:
    """Give the network the states and the position that a short text speaks for; the checkpoint's own unless others are
    clearly better. Where it is ``unsure`` what goes back in, so with the state before or after the last norm.
    """
    assert isinstance(network, EagleHead)
    trials = readings(network, target)
    if not trials:
        return {}
    settings = take_best(network, trials, _reading, warnings)
    return {**settings, **_settle_norm(network, target, warnings)} if unsure else settings


def _reading(fields: Mapping[str, Any]) -> str:
    return f"states {', '.join(map(str, fields['features']))} and position {fields['offset']}"


def _settle_norm(network: EagleHead, target: Target, warnings: list[str]) -> dict[str, Any]:
    shares, own_reading = second_guesses(network, target), network.config.norm_output
    if shares[not own_reading] >= shares[own_reading] + CLEARLY:
        network.config = replace(network.config, norm_output=not own_reading)
        sides = ("after", "before") if own_reading else ("before", "after")
        warnings.append(
            f"with the state {sides[1]} the last norm fed back the target agrees with {shares[not own_reading]:.0%} "
            "of its "
            f"second guesses on a short text, against {shares[own_reading]:.0%} with that {sides[0]} it: this is used"
        )
    return {
        "norm_output": network.config.norm_output,
        "second_guesses": {"normed": round(shares[True], 4), "as it is": round(shares[False], 4)},
    }  # fmt: skip


@torch.inference_mode()
def second_guesses(network: EagleHead, target: Target) -> dict[bool, float]:
    """Of a short text's tokens, the share that the head's second guess hits, as the target does: with the state after
    its last norm fed back (True), and with the one before it. The first guesses are the same in both.
    """
    config = network.config
    tokens, session = read_text(target, config.features)
    rows = len(tokens) - 4
    features = torch.cat([session.context.memory.hidden[layer][:rows] for layer in config.features], -1)
    truth = session.context.top_ids[2 : rows + 2, 0]
    first, second = (torch.tensor(tokens[at : at + rows], device=target.device)[None] for at in (1, 2))
    cos, sin = config.rotary(rows + 1, network.fc.weight)
    full_mask = torch.ones(rows, rows, dtype=torch.bool, device=target.device)
    sees = torch.cat(
        [full_mask.tril(), full_mask.tril() & full_mask.triu()], 1
    )  # the text's pairs up to its own, and itself
    shares = dict[bool, float]()
    for normed in (True, False):
        network.config, layer_rows = replace(config, norm_output=normed), list[tuple[Tensor, Tensor]]()

        def keep(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            layer_rows.append((keys, values))  # noqa: B023
            return keys, values

        def behind(layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            return torch.cat([layer_rows[layer][0], keys], 2), torch.cat([layer_rows[layer][1], values], 2)  # noqa: B023

        state = network.read(features[None].to(cos.dtype))
        states = network(state, first, cos[:-1], sin[:-1], remember=keep)
        shares[normed] = agreement(network, network(states, second, cos[1:], sin[1:], sees, behind)[0], truth)
    network.config = config
    return shares


@torch.inference_mode()
def readings(network: EagleHead, target: Target) -> list[Trial]:
    """Readings of a head on a short text, the checkpoint's own first: its states, those one below and one above, each
    with the first pair at position 0 and at 1. Empty where the target has no tokenizer.
    """
    config = network.config
    if target.tokenizer is None:
        return []
    near = shifts(config.features, target)
    tokens, session = read_text(target, {layer for layers in near for layer in layers})
    memory, rows = session.context.memory, len(tokens) - 3
    truth = session.context.top_ids[1 : rows + 1, 0]
    ids = torch.from_numpy(np.asarray(tokens[1 : rows + 1], dtype=np.int64)).to(target.device)
    trials = []
    for layers in near:
        features = torch.cat([memory.hidden[layer][:rows] for layer in layers], -1)
        for offset in (config.offset, 1 - config.offset):
            cos, sin = replace(config, offset=offset).rotary(rows, network.fc.weight)
            states = network(network.read(features[None].to(cos.dtype)), ids[None], cos, sin)
            fields = {"features": layers, "offset": offset}
            trials.append(Trial(fields, agreement(network, states[0], truth)))
    return trials


def _windows(head: Published, layers: int) -> tuple[int, ...]:
    """Number of positions that each decoder layer sees, its own included (0: all); empty where all see everything.

    speculators' layers slide where ``layer_types`` says so, which transformers derives for Qwen3 from
    ``use_sliding_window`` and ``max_window_layers``. The code of the other formats has no window: a configuration that
    asks for one is refused. Raises UserError.
    """
    fields, is_speculators = head.layer, in_speculators(head)
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
