"""Published heads of Medusa and Hydra beside a target: their names and sizes in this network's terms.

Medusa-1 (``{head}.{block}.linear.*``, ``{head}.{blocks}.weight``) and Medusa-2's heads, which stand in a whole model;
Hydra (``hydra_mlp.{head}.{place}.linear.*`` and ``.res_connection.*``, ``hydra_lm_head.{head}.*``), whose places count
layers without weights too; Hydra++'s prefix layer is a Llama layer and a norm (``prefix_embeding_layer.*``) of the
target's own sizes. The number of heads is what is stored: Medusa's configurations say 2 where 5 are.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from torch import Tensor

from decoders.draft_models.fit import Fit
from decoders.draft_models.published import Published
from decoders.draft_models.published_fields import check_equal, check_fields, flag
from decoders.errors import UserError
from decoders.model.files.shape import rotaries
from decoders.model.target_model.target import Target

from .eagle_head import EagleConfig
from .heads import HeadsConfig

MEDUSA, HYDRA = ("medusa", "medusa-2"), ("hydra", "hydra++")
PREFIX = "prefix_embeding_layer."


def fit(kind: str, head: Published, target: Target) -> Fit:
    """Published heads of this kind (medusa, hydra), checked against the target. Raises UserError in one sentence for
    those of another kind, size or vocabulary, and of a variant that is not read.
    """
    if head.format not in (MEDUSA if kind == "medusa" else HYDRA):
        raise UserError(f"{head.place} holds {head.title}, not heads for the method {kind}")
    check_fields(head)
    names = dict(_names(head))
    spare = (f"{PREFIX}embed_tokens.weight", "inv_freq")
    if extra_names := sorted(name for name in head.shapes if name not in names and not name.endswith(spare)):
        raise UserError(
            f"{head.place} is of a variant that is not read: it has {extra_names[0]}, which {head.title} have not"
        )
    grounded = kind == "hydra" and (head.config.get("grounded_heads") is None or flag(head, "grounded_heads"))
    config = _config(head, names, target, grounded)
    if reason := config.misfit(target.shape):
        raise UserError(f"{head.place} was made for another target than {target.name}: {reason}")
    weights: dict[str, Tensor] = {names[name]: tensor for name, tensor in head.read().items() if name in names}
    for number in range(config.heads):
        for block in range(1, config.blocks):  # one block several times is stored once in some files
            for part in ("weight", "bias"):
                name = f"heads.{number}.{block}.linear.{part}"
                weights.setdefault(name, weights[f"heads.{number}.{block - 1}.linear.{part}"])
    about = {
        "format": head.format, "title": head.title, "fingerprint": head.fingerprint(weights), "heads": config.heads,
        "features": [config.layer(target.shape)], "draft_vocab": config.vocab, "warnings": [],
    }  # fmt: skip
    return Fit(config, weights, about)


def _names(head: Published) -> Iterator[tuple[str, str]]:
    """A stored tensor's name, and its name in the network."""
    places: dict[str, set[int]] = defaultdict(set)
    for name in head.shapes:
        if match := re.fullmatch(r"(?:hydra_mlp\.)?(\d+)\.(\d+)\.(?:linear|res_connection)\.(?:weight|bias)", name):
            places[match[1]].add(int(match[2]))
    block = {
        number: {place: i for i, place in enumerate(sorted(head_places))} for number, head_places in places.items()
    }
    for name in head.shapes:
        if match := re.fullmatch(r"(?:hydra_mlp\.)?(\d+)\.(\d+)\.(linear|res_connection)\.(weight|bias)", name):
            part = "linear" if match[3] == "linear" else "skip"
            yield name, f"heads.{match[1]}.{block[match[1]][int(match[2])]}.{part}.{match[4]}"
        elif match := re.fullmatch(r"(?:hydra_lm_head\.)?(\d+)\.(?:\d+\.)?(weight|bias)", name):
            yield name, f"outputs.{match[1]}.{match[2]}"
        elif match := re.fullmatch(rf"{PREFIX}layers\.0\.(?!.*rotary)(.*)", name):
            yield name, f"prefix.layer.{match[1]}"
        elif name == f"{PREFIX}norm.weight":
            yield name, "prefix.norm.weight"


def _config(head: Published, names: dict[str, str], target: Target, grounded: bool) -> HeadsConfig:
    """The shape of the heads, as far as their tensors fit together."""
    shapes = {new: head.shapes[old] for old, new in names.items() if not new.startswith("prefix.")}
    heads = 1 + max((int(name.split(".")[1]) for name in shapes), default=-1)
    block_count = 1 + max((int(name.split(".")[2]) for name in shapes if name.startswith("heads.")), default=0)
    blocks = head.setting(setting := f"{head.kind}_num_layers", block_count)
    if blocks < block_count or (grounded and block_count == 1):  # only later blocks are the same one several times
        check_equal(head, setting, blocks, block_count)
    if head.kind == "hydra":  # Medusa's count is none
        check_equal(head, "hydra_num_heads", head.config.get("hydra_num_heads"), heads)
    for number in range(heads):
        for name in (f"heads.{number}.0.linear.weight", f"outputs.{number}.weight"):
            if name not in shapes:
                raise UserError(f"{head.place} is incomplete: head {number + 1} of {heads} lacks a tensor ({name})")
    hidden, vocab = shapes["heads.0.0.linear.weight"][0], shapes["outputs.0.weight"][0]
    check_equal(head, "hidden_size", head.config.get("hidden_size"), hidden)
    check_equal(head, "vocab_size", head.config.get("vocab_size"), vocab)
    mixed = "heads.0.0.skip.weight" in shapes
    for number in range(heads):
        reads = shapes[f"heads.{number}.0.linear.weight"][1]
        expected = hidden * (number + 2) if grounded else hidden
        if reads != expected:
            raise UserError(
                f"{head.place} is of a variant that is not read: head {number + 1} reads {reads:,} numbers, where "
                f"{expected:,} are wanted"
            )
    prefix, offset = _prefix(head, target) if head.format == "hydra++" else None, head.config.get("hidden_state_offset")
    if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int)):
        raise UserError(f"{head.place} cannot be read: its config.json says hidden_state_offset = {offset!r}")
    try:
        return HeadsConfig(
            vocab, hidden, heads, blocks, grounded, mixed, shared=False, bias="outputs.0.bias" in shapes, prefix=prefix,
            hidden_state_offset=offset or 0,
        )  # fmt: skip
    except ValueError as error:
        raise UserError(f"{head.place} cannot be read: {error}") from error


def _prefix(head: Published, target: Target) -> EagleConfig:
    """The prefix layer's shape: of one of the target's own layers, as it is made from the target's configuration."""
    shape, layer_prefix = target.shape, f"{PREFIX}layers.0."
    expected_sizes = {
        "self_attn.q_proj.weight": (shape.heads * shape.head_dim, shape.hidden),
        "self_attn.k_proj.weight": (shape.kv_heads * shape.head_dim, shape.hidden),
        "mlp.gate_proj.weight": (shape.mlp, shape.hidden),
    }
    for name, size in expected_sizes.items():
        if head.shapes.get(layer_prefix + name) != size:
            raise UserError(
                f"{head.place} was made for another target than {target.name}: its prefix layer has {name} of the size "
                f"{head.shapes.get(layer_prefix + name)}, and a layer of the model {size}"
            )
    rope = {"rope_type": "default", **(rotaries(target.config) or [{}])[0]}
    return EagleConfig(
        shape.vocab, shape.hidden, shape.hidden, (shape.layers,), shape.heads, shape.kv_heads, shape.head_dim,
        shape.mlp, eps=shape.norm_eps, qkv_bias=f"{layer_prefix}self_attn.q_proj.bias" in head.shapes, rope=rope,
        context_length=shape.context_length,
    )  # fmt: skip
