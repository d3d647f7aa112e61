"""Trained parts: draft models and prompt tokens, kept with their target's fingerprint and refused on any other."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from decoders.draft_models.borrowing import Borrowing
from decoders.draft_models.fit import Fit
from decoders.draft_models.part_files import PartFiles, PartSource
from decoders.draft_models.published import Published
from decoders.draft_models.stored_weights import read_weights, stored_form
from decoders.folders import refuse_pointer, settings_folder
from decoders.method.part import COMPANION, DRAFT_MODELS, Kind, how_to_get, kinds, train_command
from decoders.model.engines.linear import pack, pack_if_faster, packable
from decoders.model.files.catalog import SHIPPED, current_key, shipped_key

from .errors import UserError
from .folders import ASSETS, replacing, typed_path, write_bytes

if TYPE_CHECKING:
    from decoders.model.target_model.target import Target

log = logging.getLogger(__name__)

SCHEMA = "specpart/1"
PACKAGE_PARTS = tuple(folder / "parts" for folder in SHIPPED.values())
DESCRIPTION, WEIGHTS = "part.json", "part.safetensors"
NUMBERS = re.compile(r"\[\s+([-+.\deE,\s]+?)\s+\]")  # a list of them in JSON
MOST_JSON = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """A trained part's description: its kind, the target it belongs to, its shape, and its training."""

    kind: str
    model_key: str
    model: str
    config: Any
    training: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "kind": self.kind, "model_key": self.model_key, "model": self.model,
            "config": self.config.to_json(), "training": self.training,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Any) -> Part:
        """Back from ``to_json``. Raises ValueError in one sentence for anything else."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA or data.get("kind") not in kinds():
            raise ValueError(f"not a trained part of this version ({SCHEMA})")
        try:
            config = kinds()[data["kind"]].config.from_json(data["config"])
            key = current_key(str(data["model_key"]))
            return cls(data["kind"], key, str(data["model"]), config, dict(data.get("training", {})))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a damaged trained part ({error})") from None


def own_place(kind: str, key: str) -> Path:
    """The place of the user's part of this kind for the model with this fingerprint, beside the user's settings."""
    return settings_folder() / "parts" / key / kind


def save_part(part: Part, weights: Mapping[str, Tensor], folder: Path, *, dtype: torch.dtype = torch.float16) -> Path:
    """Write a part's folder, whole or not at all; one that is there is replaced. ``dtype`` is that of its numbers:
    int8 stores each matrix as int8 with a scale per row, and the rest in half precision.
    """
    from safetensors.torch import save_file

    with replacing(folder) as new:
        save_file(stored_form(weights, dtype), new / WEIGHTS, metadata={"format": "pt"})
        # a list of numbers, of a training's log for example, is one line
        text = NUMBERS.sub(lambda match: f"[{' '.join(match[1].split())}]", json.dumps(part.to_json(), indent=1))
        (new / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
        (new / WEIGHTS).chmod(0o644)
    return folder


def part_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a part's folder by their names in its network, rounded ones in fp32. Raises UserError."""
    from safetensors import SafetensorError

    try:
        return read_weights(folder / WEIGHTS)
    except (OSError, SafetensorError, LookupError, RuntimeError) as error:
        raise UserError(f"{folder} holds no usable part: {error}") from None


def shrink_part(folder: Path, bits: int = 8) -> tuple[int, int]:
    """Store a part's matrices in ``bits`` (8, 6 or 4), in place; gives its file's bytes before and after. Raises
    UserError.
    """
    from safetensors.torch import save

    read_part(folder)
    file, weights = folder / WEIGHTS, part_weights(folder)
    old_size = file.stat().st_size
    if any(tensor.ndim == 2 for tensor in weights.values()):  # prompt tokens are small as they are
        write_bytes(file, save(stored_form(weights, torch.int8, bits), metadata={"format": "pt"}))
    return old_size, file.stat().st_size


@dataclass(frozen=True, slots=True)
class TrainedPart:
    """A method's trained part (``Method.part``): its kind, and the parameter that names another than the target's own.

    ``offered`` is the parameter that names a whole draft model: left open, one that was offered for all runs drafts.
    ``owner`` gives the model that the part belongs to, where that is not the target: what is missing there is
    the method's to say (``Method.available``). ``instead`` ends the sentence on a missing part with another way.
    """

    kind: Kind
    parameter: str = "part"
    offered: str = ""
    instead: str = ""
    owner: Callable[[Target, Any], Target] | None = None

    def is_named(self, params: Any) -> bool:
        """True where the parameters name it, so that the target's own is not needed."""
        return self.owner is None and getattr(params, self.parameter) is not None

    def missing(self, target: Target) -> str | None:
        """The part that is missing for the target, in one sentence; None if it is there."""
        if self.owner is not None or (self.offered and COMPANION in target.companions):
            return None
        reason = missing_part(target, self.kind.name)
        return reason and f"{reason}{self.instead}"

    def load(self, target: Target, params: Any) -> Any:
        """The network of a run with these parameters. Raises UserError as ``load_part``."""
        owner = target if self.owner is None else self.owner(target, params)
        return load_part(owner, self.kind.name, getattr(params, self.parameter))

    def about(self, target: Target, params: Any) -> dict[str, Any]:
        """A run's record of the part that drafts: kind, where from, format and fingerprint. Of a whole model that
        drafts in its place (a companion of the target under the kind and its source) its name and fingerprint.
        """
        if self.offered and self.owner is None:
            source = getattr(params, self.offered) or target.companions.get(COMPANION)
            if (model := target.companions.get((self.kind.name, source))) is not None:
                return {"kind": self.kind.name, "from": model.name, "format": "causal LM", "fingerprint": model.key}
            return load_part(target, self.kind.name, source).about
        return self.load(target, params).about


def is_part(folder: Path) -> bool:
    """True for a folder that holds a trained part."""
    return (folder / DESCRIPTION).is_file()


def read_part(folder: Path) -> Part:
    """A part's description. Raises UserError in one sentence."""
    path = folder / DESCRIPTION
    refuse_pointer(path)
    try:
        if path.stat().st_size > MOST_JSON:
            raise ValueError(f"a description of {path.stat().st_size >> 20} MiB")
        return Part.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError:
        raise UserError(f"there is no trained part in {folder}: give the folder that holds {DESCRIPTION}") from None
    except ValueError as error:
        raise UserError(f"{folder} holds no usable part: {error}") from None


def read_part_for(place: Path, kind: str, key: str, model: str) -> Part:
    """A part's description. Raises UserError for one of another kind, or of another model than that with the
    fingerprint ``key``, called ``model``.
    """
    part = read_part(place)
    if part.kind != kind:
        raise UserError(f"{place} holds a {kinds()[part.kind].title}, not a {kinds()[kind].title}")
    if part.model_key != key:
        command = train_command(kind, "...")
        raise UserError(
            f"the {kinds()[kind].title} in {place} was trained for {part.model} (fingerprint {part.model_key}), "
            f"not for {model} ({key}): {f'train one for it with `{command}`' if command else how_to_get(kind)}"
        )
    return part


def training_facts(training: Mapping[str, Any]) -> dict[str, Any]:
    """Training of a part, as far as its record says: ``tokens`` read, ``seconds`` of computing, and on held-out text
    ``acceptance`` (draft models: expected share of drafted tokens that stand) or ``top1`` (heads, prompt tokens: share
    of first guesses that are the target's own).

    >>> training_facts({"tokens": 218731, "seconds": 2521, "log": [{"acceptance": 0.2017}, {"acceptance": 0.204}]})
    {'tokens': 218731, 'seconds': 2521, 'acceptance': 0.204}
    >>> training_facts({"training_tokens": 21043, "log": [{"top1": [0.2484, 0.1473]}]}), training_facts({})
    ({'tokens': 21043, 'top1': 0.2484}, {})
    """
    last = next(iter([*training.get("log", ())][::-1]), {})
    first = last.get("top1") or [None]
    facts = {
        "tokens": training.get("training_tokens", training.get("tokens")), "seconds": training.get("seconds"),
        "acceptance": last.get("acceptance"), "top1": first[0],
    }  # fmt: skip
    return {name: value for name, value in facts.items() if isinstance(value, int | float)}


def part_folders(key: str, kind: str) -> Iterator[Path]:
    """The folders of parts for the model with this fingerprint: the user's own first, then what is shipped."""
    for folder in (own_place(kind, key), *(package_root / kind for package_root in PACKAGE_PARTS)):
        with suppress(UserError):
            part = read_part(folder)
            if (part.kind, part.model_key) == (kind, key):
                yield folder


def find_part(key: str, kind: str) -> Path | None:
    """The first of ``part_folders``."""
    return next(part_folders(key, kind), None)


def missing_part(target: Target, kind: str) -> str | None:
    """The missing part and the command that makes it, in one sentence; None if the part is there."""
    if find_part(target.key, kind) is not None:
        return None
    make, training = how_to_get(kind), kinds()[kind].training
    if training is not None and train_command(kind):
        make += " --model and this model" if target.name != "specviz-demo" else ""
        if training.family != DRAFT_MODELS:
            training_note = target.shape.unlike_llama("none can be trained here for", "they can for")
            make = f"{training_note}. Name one that fits (`part`)" if training_note else make
    reason = f"there is no {kinds()[kind].title} for {target.name}: {make}"
    return f"{reason}, or {elsewhere}" if (elsewhere := left_out(target.key, kind)) else reason


def left_out(key: str, kind: str) -> str:
    """The command that brings a shipped part for which a wheel had no room (setup.py), in a clause; "" of others."""
    file = ASSETS / "left-out.txt"
    names = file.read_text(encoding="utf-8").split() if file.is_file() else ()
    for model, folder in SHIPPED.items():
        place = f"{folder.name}/parts/{kind}"
        if place in names and shipped_key(model) == key:
            return (
                "bring the one that had no room in this wheel, from a checkout of specviz's repository, with "
                f"`specviz parts add assets/{place} --model {model}`"
            )
    return ""


def load_part(target: Target, kind: str, folder: str | Path | None = None) -> Any:
    """The part for this target, ready to run: the network of its kind. ``folder`` is where it lies, if not in the usual
    places; of kinds that others publish, it may be their folder, file or hub id. Its ``about`` is what a
    run's record says of it.

    Loaded once per target. Raises UserError for a part that is missing, damaged or of another target or kind.
    """
    place = find_part(target.key, kind) if folder is None else typed_path(folder)
    if place is None:
        raise UserError(str(missing_part(target, kind)))
    if (fit := kinds()[kind].published) is not None and not is_part(place):
        return _open_checkpoint(target, kind, str(folder), fit)
    part = read_part_for(place, kind, target.key, target.name)
    weights = place / WEIGHTS
    if not weights.is_file():
        raise UserError(f"{place} holds no usable part: {WEIGHTS} is missing")
    refuse_pointer(weights)
    version = (kind, str(place.resolve()), weights.stat().st_mtime_ns)
    if version not in target.companions:
        target.companions[version] = _open(part, weights, target)
    return target.companions[version]


def _open_checkpoint(target: Target, kind: str, place: str, fit: Callable[[Published, Target], Fit]) -> nn.Module:
    """A head that others published, beside this target; read again where one of its files changed."""
    entry = target.companions.get((kind, place))
    if entry is not None and all(file.is_file() and file.stat().st_mtime_ns == time for file, time in entry[1].items()):
        return entry[0]
    head = Published.open(place)
    conversion = fit(head, target)
    with torch.device("meta"):  # no random weights first: heads may be large
        network: Any = kinds()[kind].network(conversion.config)
    network.load_state_dict(conversion.weights, assign=True)
    to_target(network, target)
    check_finite(network, head.name)
    facts = conversion.settle(network) if conversion.settle is not None else {}
    network.about = {"kind": kind, "from": head.name, **conversion.about, **facts}
    for words in network.about.get("warnings", ()):
        log.warning("%s: %s", network.about["from"], words)
    target.companions[kind, place] = network, {file: file.stat().st_mtime_ns for file in head.files}
    return network


def keep_published(target: Target, place: str) -> tuple[Part, Path]:
    """Keep a head that others published, or a part's folder, as this target's own part of its kind, where methods find
    it.

    Raises UserError as ``load_part`` does.
    """
    folder = typed_path(place)
    if is_part(folder):
        part = read_part(folder)
        load_part(target, part.kind, folder)
        with replacing(own_place(part.kind, target.key)) as new:
            for name in (DESCRIPTION, WEIGHTS):
                shutil.copyfile(folder / name, new / name)
        return part, own_place(part.kind, target.key)
    kind = Published.open(place).kind
    network = load_part(target, kind, place)
    part = Part(kind, target.key, target.name, network.config, {"published": network.about})
    return part, save_part(part, network.state_dict(), own_place(kind, target.key), dtype=target.dtype)


def export_part(
    target: Target, place: str, form: str, folder: Path, *, verifier: str = "", dtype: torch.dtype | None = None
) -> tuple[Part, PartFiles]:
    """Write a part in a published format (``Kind.formats``): a new folder with config.json and model.safetensors.

    Args:
        place: A part's folder, or the kind of the target's own part.
        verifier: The hub id or path by which a server opens the target (default: the target's name).
        dtype: Of the numbers (default: the target's). Parts in int8 are dequantised first.

    Raises UserError in one sentence for a part that the format has no place for, and for a folder that is there.
    """
    from safetensors.torch import save_file

    source = typed_path(place) if place not in kinds() or is_part(Path(place)) else find_part(target.key, place)
    if source is None:
        raise UserError(str(missing_part(target, place)))
    part = read_part(source)
    kind = kinds()[part.kind]
    if form not in kind.formats:
        options = ", ".join(
            f"{part_kind.name} ({', '.join(part_kind.formats)})" for part_kind in kinds().values() if part_kind.formats
        )
        raise UserError(f"a {kind.title} has no form called {form!r}; what can be exported, and as what: {options}")
    load_part(target, part.kind, source)  # of this target, and whole
    if folder.exists():
        raise UserError(f"{folder} is there already: name a new folder")
    weights = part_weights(source)
    export = kind.formats[form](PartSource(str(source), part.config, weights, target, verifier or target.name))
    stored_tensors = {
        name: tensor.detach().cpu().to(dtype or target.dtype if tensor.is_floating_point() else None).contiguous()
        for name, tensor in export.weights.items()
    }  # fmt: skip
    with replacing(folder) as new:
        save_file(stored_tensors, new / "model.safetensors", metadata={"format": "pt"})
        (new / "config.json").write_text(json.dumps(export.config, indent=2) + "\n", encoding="utf-8")
        if export.tokenizer is not None:
            export.tokenizer.save_pretrained(new)
        (new / "model.safetensors").chmod(0o644)
    return part, export


def _open(part: Part, weights: Path, target: Target) -> nn.Module:
    from safetensors import SafetensorError

    if reason := part.config.misfit(target.shape):
        raise UserError(f"{weights} does not fit {target.name}: {reason}")
    model: Any = kinds()[part.kind].network(part.config)
    try:
        model.load_state_dict(read_weights(weights))
    except (RuntimeError, KeyError, SafetensorError) as error:
        raise UserError(f"{weights} does not fit its description: {str(error).splitlines()[0]}") from None
    to_target(model, target)
    check_finite(model, str(weights))
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()[:24]
    title = kinds()[part.kind].title
    trained = {
        "kind": part.kind, "from": "trained here", "format": SCHEMA, "title": title, "fingerprint": digest,
        "training": training_facts(part.training),
    }  # fmt: skip
    model.about = part.training.get("published") or trained
    return model


def to_target(model: nn.Module, target: Target) -> nn.Module:
    """A part's network where the target is, in its dtype, with what it borrows of the target and with packed weights
    where the target's are.
    """
    model.to(target.device, target.dtype).eval().requires_grad_(False)
    if isinstance(model, Borrowing):
        model.share(cast(Any, target.embeddings).weight, target.head.weight)
        if packable(target.dtype, target.device) and target.info["packed"]:
            pack(model)
            if model.config.shared:
                object.__setattr__(model, "head", pack_if_faster(model.head))
    return model


def check_finite(model: nn.Module, place: str) -> None:
    """Raise UserError where weights are not finite: what is drafted by them would mean nothing."""
    for name, weights in model.named_parameters():
        if weights.is_floating_point() and not all(bool(torch.isfinite(end)) for end in torch.aminmax(weights)):
            kind = str(weights.dtype).removeprefix("torch.")
            raise UserError(
                f"{place} has weights that are not finite (NaN or infinity in {kind}), in {name}: get the part anew, "
                "or train it again"
            )
