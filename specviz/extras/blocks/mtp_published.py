"""MTP layers of published checkpoints, by this project's names and checked against a target.

Two layouts are read. Qwen3-Next and Qwen3.5 name theirs ``mtp.*``: ``fc``, ``pre_fc_norm_embedding``,
``pre_fc_norm_hidden``, ``norm`` and one decoder layer. DeepSeek-V3 counts them on behind the model's own layers:
``model.layers.N.{enorm, hnorm, eh_proj, shared_head.norm}`` and a decoder layer's tensors; its copies of the embedding
and of the head are the target's. Experts stand apart or joined.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decoders.draft_models.fit import Fit, about_of
from decoders.draft_models.published import CONFIG, Format, Published
from decoders.errors import UserError
from decoders.model.target_model.target import Target

from .mtp_head import MtpConfig, MtpHead


def _mtp(name: str) -> str | None:
    return name if name.startswith("mtp.") else None


def _layers_behind(config: Mapping[str, Any]) -> Callable[[str], str | None]:
    """DeepSeek's MTP layers: those counted on behind the model's own."""
    inner = config.get("text_config")
    layer_count = (inner if isinstance(inner, Mapping) else config).get("num_hidden_layers")

    def keeps(name: str) -> str | None:
        match = re.fullmatch(r"(?:model\.|language_model\.)*(layers\.(\d+)\..+)", name)
        return match[1] if match and isinstance(layer_count, int) and int(match[2]) >= layer_count else None

    return keeps


FORMATS = (
    Format(
        "mtp", "MTP layers as Qwen3-Next and Qwen3.5 have them", lambda config, shapes: any(map(_mtp, shapes)), _mtp,
        order=60,
    ),
    Format(
        "mtp-deepseek", "MTP layers as DeepSeek-V3 has them",
        lambda config, shapes: any(name.endswith(".eh_proj.weight") for name in shapes), reach=_layers_behind,
        order=61,
    ),
)  # fmt: skip

OUTER_TENSORS = {  # a tensor's name in a checkpoint → in the network, where it is not the decoder layer's
    "fc.weight": "layers.0.eh_proj.weight", "pre_fc_norm_embedding.weight": "layers.0.enorm.weight",
    "pre_fc_norm_hidden.weight": "layers.0.hnorm.weight", "norm.weight": "layers.0.post_norm.weight",
}  # fmt: skip
OF_LAYER = {
    "enorm.weight": "enorm.weight", "hnorm.weight": "hnorm.weight", "eh_proj.weight": "eh_proj.weight",
    "shared_head.norm.weight": "post_norm.weight",
}  # fmt: skip
COPIES = {"embed_tokens.weight": "embedding", "shared_head.head.weight": "head"}
EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")
Names = dict[str, tuple[str, ...]]  # a tensor of the network → those of the checkpoint that it is made of


def fit(head: Published, target: Target) -> Fit:
    """A checkpoint's MTP layers for this target.

    Raises UserError in one sentence, by name and with both numbers, for layers of another model, and for tensors that
    are missing, not known or of another size.
    """
    if not head.format.startswith("mtp"):
        raise UserError(f"{head.place} holds {head.title}: the method wants MTP layers")
    _check_model(head, target)
    names, copies, layers = _names_of(head, target)
    experts = any(".mlp.gate." in name or ".experts." in name for name in names)
    config = MtpConfig.of(target.shape, target.config, layers, experts)
    _check_width(head, names, target)
    with torch.device("meta"):
        network_shapes = {name: tuple(tensor.shape) for name, tensor in MtpHead(config).state_dict().items()}
    names = _join_experts(head, names, network_shapes)
    if extra_names := sorted(names.keys() - network_shapes.keys()):
        stored_name = names[extra_names[0]][0]
        raise UserError(
            f"{head.place} is of a variant that is not read: it has {stored_name}, which {head.title} of the family "
            f"{target.shape.family!r} do not{' (quantised weights are not read)' * ('scale' in stored_name)}"
        )
    if missing := sorted(network_shapes.keys() - names.keys()):
        raise UserError(f"{head.place} is incomplete: it lacks {_stored_name(head, missing[0], target)}")
    read = head.read()
    for name, part in copies.items():
        _check_copy(head, name, read.pop(name), target, part)
    weights = {}
    for name, shape in network_shapes.items():
        weights[name] = tensor = _assemble(read, names[name], shape)
        if tuple(tensor.shape) != shape:
            by, network_size = (" × ".join(map(str, dims)) for dims in (tensor.shape, shape))
            raise UserError(
                f"{head.place} does not fit together: {names[name][0]} is {by}, where {network_size} is wanted"
            )
    return Fit(config, weights, about_of(head, weights, config, layers=layers, verifier=""))


def own_checkpoint(target: Target) -> Path | None:
    """The folder of a target's own checkpoint, where it was opened from one that is on this machine."""
    place = str(getattr(target.config, "_name_or_path", "") or "")
    folder = Path(place).expanduser()
    if place and folder.is_dir():
        return folder
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", place):
        return None
    import huggingface_hub as hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(hub.snapshot_download(place, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        return None


def own_layers(target: Target) -> str | None:
    """The folder of a target's own MTP layers, its checkpoint's; None where it has none. Looked up once."""
    key = ("mtp", "own")
    if key not in target.companions:
        folder = own_checkpoint(target)
        try:
            is_mtp = folder is not None and Published.open(folder).format.startswith("mtp")
        except UserError:  # another format, or none
            is_mtp = False
        target.companions[key] = str(folder) if is_mtp else None
    return target.companions[key]


def _check_model(head: Published, target: Target) -> None:
    """Raise UserError for the layers of another family than the target's."""
    inner = head.config.get("text_config")
    config = inner if isinstance(inner, Mapping) else head.config
    model_type, family = config.get("model_type"), target.shape.family
    if model_type in (None, family) or f"{model_type}_text" == family:
        return
    hybrid_note = ", a hybrid model with recurrent layers beside attention" if target.shape.recurrent_layers else ""
    raise UserError(
        f"{head.place} holds MTP layers of a {model_type!r} model, and {target.name} is {family!r}{hybrid_note}: MTP "
        "layers are "
        "trained with their model, take those of its own checkpoint (leave part out)"
    )


def _names_of(head: Published, target: Target) -> tuple[Names, dict[str, str], int]:
    """The checkpoint's tensors by the network's names, copies of what the target has, and the number of layers."""
    names: Names = {}
    copies = dict[str, str]()
    if head.format == "mtp":
        for name in head.shapes:
            inner = name.removeprefix("mtp.")
            match = re.fullmatch(r"layers\.(\d+)\.(.+)", inner)
            names[f"layers.{match[1]}.block.{match[2]}" if match else OUTER_TENSORS.get(inner, inner)] = (name,)
        numbers = {int(match[1]) for name in names if (match := re.match(r"layers\.(\d+)\.block", name))}
        if len(numbers) > 1:
            raise UserError(
                f"{head.place} has {len(numbers)} decoder layers behind one mtp.fc: of this layout one is read"
            )
        return names, copies, 1
    first, numbers = target.shape.layers, set[int]()
    for name in head.shapes:
        match = re.fullmatch(r"layers\.(\d+)\.(.+)", name)
        assert match is not None
        number, inner = int(match[1]) - first, match[2]
        if inner in COPIES:
            copies[name] = COPIES[inner]
            continue
        numbers.add(number)
        names[f"layers.{number}.{OF_LAYER.get(inner, f'block.{inner}')}"] = (name,)
    layer_count = head.config.get("num_nextn_predict_layers", head.config.get("num_mtp_layers"))
    if not numbers or numbers != set(range(len(numbers))):
        layer_names = ", ".join(str(number + first) for number in sorted(numbers)) or "none"
        raise UserError(
            f"{head.place} does not fit {target.name}: its MTP layers are {layer_names}, and those behind the model's "
            "own "
            f"layers begin at {first}"
        )
    if layer_count not in (None, len(numbers)):
        raise UserError(
            f"{head.place} does not fit together: its {CONFIG} says {layer_count!r} MTP layers, and its tensors are of "
            f"{len(numbers)}"
        )
    return names, copies, len(numbers)


def _check_width(head: Published, names: Names, target: Target) -> None:
    """Raise UserError where the layers read states of another width than the target's."""
    width = target.shape.hidden
    for name, (stored_name, *_) in names.items():
        shape = head.shapes[stored_name]
        if name.endswith("eh_proj.weight") and shape != (width, 2 * width):
            raise UserError(
                f"{head.place} was made for another target: {stored_name} reads and makes states of {shape[0]:,} "
                "numbers, "
                f"and those of {target.name} have {width:,}"
            )


def _join_experts(head: Published, names: Names, network_shapes: Mapping[str, tuple[int, ...]]) -> Names:
    """The same names where experts stand joined in the network and apart in the checkpoint, in the experts' order.
    Raises UserError for one that is missing or too many.
    """
    joined_names, expert_parts = dict[str, tuple[str, ...]](), defaultdict[str, dict[tuple[int, str], str]](dict)
    for name, stored_names in names.items():
        match = EXPERT.fullmatch(name)
        if match is None or name in network_shapes or f"{match[1]}.down_proj" not in network_shapes:
            joined_names[name] = stored_names
            continue
        joint_name = "down_proj" if match[3] == "down" else "gate_up_proj"
        expert_parts[f"{match[1]}.{joint_name}"][int(match[2]), match[3]] = stored_names[0]
    for name, parts in expert_parts.items():
        halves = ("down",) if name.endswith("down_proj") else ("gate", "up")
        expert_halves = [(expert, half) for expert in range(network_shapes[name][0]) for half in halves]
        if odd := sorted({*expert_halves} ^ parts.keys()):
            (expert, half), prefix = odd[0], next(iter(parts.values())).rpartition(".experts.")[0]
            verb, full_name = "has" if odd[0] in parts else "lacks", f"{prefix}.experts.{expert}.{half}_proj.weight"
            count = network_shapes[name][0]
            raise UserError(
                f"{head.place} does not fit together: it {verb} {full_name}, and the model has {count} experts"
            )
        joined_names[name] = tuple(parts[key] for key in expert_halves)
    return joined_names


def _assemble(read: Mapping[str, Tensor], stored_names: tuple[str, ...], shape: tuple[int, ...]) -> Tensor:
    """One tensor of the network: as it is stored, or of the experts' own ones."""
    if len(stored_names) == 1 and len(shape) == read[stored_names[0]].ndim:
        return read[stored_names[0]]
    parts = [read[name] for name in stored_names]
    if any(part.shape != parts[0].shape for part in parts):
        return parts[0]  # refused by its size
    if stored_names[0].endswith("down_proj.weight"):
        return torch.stack(parts)
    return torch.stack([torch.cat(pair) for pair in zip(parts[::2], parts[1::2], strict=True)])


def _stored_name(head: Published, name: str, target: Target) -> str:
    """A tensor of the network by the name that the checkpoint would give it."""
    _, number, inner = name.split(".", 2)
    if head.format == "mtp":
        stored_names = {inner_name: name for name, inner_name in OUTER_TENSORS.items()}
        return f"mtp.{stored_names.get(name) or f'layers.{number}.' + inner.removeprefix('block.')}"
    layer_names = {inner_name: name for name, inner_name in OF_LAYER.items()}
    return f"model.layers.{int(number) + target.shape.layers}.{layer_names.get(inner) or inner.removeprefix('block.')}"


def _check_copy(head: Published, name: str, copy: Tensor, target: Target, part: str) -> None:
    """Raise UserError where a layer's own embedding or head is not the target's, which it would be drafted with."""
    target_table: Any = target.embeddings.weight if part == "embedding" else target.head.weight
    target_table = target_table.detach().cpu().to(target.dtype)
    if copy.shape != target_table.shape or not torch.equal(copy.to(target.dtype), target_table):
        raise UserError(f"{head.place} is of a variant that is not read: its {name} is not the {part} of {target.name}")
