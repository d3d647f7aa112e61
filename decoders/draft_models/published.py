"""Checkpoints of draft heads as others published them: told apart, sized and named before a weight is read.

A folder, a file or a hub id becomes a ``Published``: its configuration, its format and the shapes of its tensors.
Nothing in it is run: safetensors hold no code, and pickles are read by ``torch.load(weights_only=True)``.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from decoders.errors import TooLarge, UserError, first_line
from decoders.folders import refuse_pointer, typed_path
from decoders.method.part import kinds
from decoders.model.files.headers import tensor_sizes
from decoders.model.state.room import free_memory, gigabytes

Shapes = dict[str, tuple[int, ...]]

MOST_JSON = 16 << 20  # bytes of a configuration or an index
CONFIG = "config.json"
PICKLES = (".bin", ".pt", ".pth")
NO_WEIGHTS = re.compile(r"(training_args|optimizer|scheduler|rng_state|scaler)")  # what trainers leave beside them
FILE_PATTERNS = ["*.json", "*.safetensors", *(f"*{suffix}" for suffix in PICKLES)]  # of a hub's repository


@dataclass(frozen=True, slots=True)
class Format:
    """A format that heads are published in. ``tells`` says of a configuration and the tensors' shapes whether it is
    this one; ``keeps`` gives a tensor's name in the head, or None for one that is not the head's; ``reach``, where the
    configuration decides that, does so for it. ``fields`` are those of its configuration
    (``decoders.draft_models.published_fields.Fields``). Formats are tried by ``order``. Without ``name`` it is told
    apart only to be refused by its title.
    """

    name: str
    title: str
    tells: Callable[[Mapping[str, Any], Shapes], bool]
    keeps: Callable[[str], str | None] = lambda name: name
    reach: Callable[[Mapping[str, Any]], Callable[[str], str | None]] | None = None
    fields: Any = None
    order: int = 50


def speculators_kind(config: Mapping[str, Any]) -> str:
    """The kind that a configuration in the form of speculators names."""
    return str(config.get("speculators_model_type", ""))


def has_part(shapes: Shapes, part: str) -> bool:
    return any(part in name for name in shapes)


REFUSED = (
    Format("", "a recurrent drafter", lambda config, shapes: "rnn_u.weight" in shapes, order=30),
    Format("", "a LoRA adapter", lambda config, shapes: has_part(shapes, ".lora_A."), order=32),
    Format("", "a whole language model", lambda config, shapes: "model.layers.0.input_layernorm.weight" in shapes,
           order=100),
)  # fmt: skip


def formats() -> list[Format]:
    """All that are told apart, those that kinds of parts are published in (``Kind.reads``) and those that are refused:
    the first that fits is it.
    """
    return sorted((*REFUSED, *(form for kind in kinds().values() for form in kind.reads)), key=lambda form: form.order)


@dataclass(frozen=True, slots=True)
class Published:
    """A published head before its weights are read.

    Args:
        place: As it was named: a folder, a file or a hub id.
        files: What its tensors stand in.
        config: Its config.json; empty where it has none.
        format: The name of its format (``formats``).
        shapes: Of the head's tensors, by their names in the head.
        bytes: What reading them takes, in the dtype that they are stored in.
        stored: Of a tensor of the head: its name in the files.
    """

    place: str
    files: tuple[Path, ...]
    config: dict[str, Any]
    format: str
    shapes: Shapes
    bytes: int
    tensor_names: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, place: str | Path) -> Published:
        """Read the head in a folder or file, or of this hub id. A hub's files are fetched when they are not here yet.

        Raises UserError in one sentence for what is not there, damaged, a pickle with code, or of a format that is not
        read; TooLarge, with both numbers and before anything is fetched or read, for what does not fit.
        """
        folder = typed_path(place)
        if not folder.exists():
            folder = _fetch(str(place))
        file = (folder if folder.is_dir() else folder.parent) / CONFIG
        config = _json(file) if file.is_file() else {}
        files = _weight_files(folder)
        pickles = [file for file in files if file.suffix in PICKLES]
        if pickles:
            _check_room(str(place), sum(file.stat().st_size for file in pickles))
        entries: dict[str, tuple[tuple[int, ...], int]] = {}
        for file in files:
            entries |= _pickled_shapes(file) if file.suffix in PICKLES else tensor_sizes(file)
        shapes = {name: shape for name, (shape, _) in entries.items()}
        form = _format(str(place), config, shapes)
        keeps = form.keeps if form.reach is None else form.reach(config)
        stored_names = {part_name: name for name in shapes if (part_name := keeps(name)) is not None}
        size = sum(entries[name][1] for name in stored_names.values())
        if not pickles:
            _check_room(str(place), size)
        return cls(
            str(place), tuple(files), config, form.name,
            {part_name: shapes[name] for part_name, name in stored_names.items()}, size,
            stored_names,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The name where others may read it: a hub id, else the last name of its path."""
        path = Path(self.place).expanduser()
        return path.resolve().name if path.exists() else self.place

    @property
    def kind(self) -> str:
        """The kind of part: its format's name without the variant."""
        return self.format.partition("-")[0].rstrip("+")

    @property
    def title(self) -> str:
        """The format, in words."""
        return self.form.title

    @property
    def form(self) -> Format:
        """The format."""
        return next(form for form in formats() if form.name == self.format)

    def read(self) -> dict[str, Tensor]:
        """The head's tensors on the CPU, as they are stored. Raises UserError for a damaged file."""
        part_names = {name: part_name for part_name, name in self.tensor_names.items()}
        tensors = (pair for file in self.files for pair in _tensors(file, part_names))
        return {part_names[name]: tensor.clone() for name, tensor in tensors}  # they may be mapped from the file

    def fingerprint(self, weights: Mapping[str, Tensor]) -> str:
        """A key of this head: its configuration and a sample of every weight, in whatever dtype it was read."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True, default=str).encode())
        for name in sorted(weights):
            sample = weights[name].detach().flatten()[:64].to(torch.bfloat16)
            digest.update(name.encode() + sample.view(torch.int16).numpy().tobytes())
        return digest.hexdigest()[:24]

    def setting(self, name: str, default: int | None = None) -> int:
        """A whole number of the configuration, of its layer's (``layer``) first. Raises UserError where it is not there
        and has no default.
        """
        value = self.layer.get(name, self.config.get(name))
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UserError(
                f"{self.place} does not say {name} in its {CONFIG} ({value!r}): bring the file that was published "
                "beside the weights"
            )
        return value

    @property
    def layer(self) -> Mapping[str, Any]:
        """The settings of its decoder layer: the configuration, or the part that speculators keeps them in."""
        inner = self.config.get("transformer_layer_config")
        return inner if isinstance(inner, Mapping) else self.config


def _format(place: str, config: Mapping[str, Any], shapes: Shapes) -> Format:
    form = next((form for form in formats() if form.tells(config, shapes)), None)
    if form is not None and form.name:
        return form
    examples = ", ".join(sorted(shapes)[:3]) or "none"
    description = form.title if form else f"tensors of no known format ({examples}{', …' * (len(shapes) > 3)})"
    *first, last = [form.title for form in formats() if form.name] or ["none: no installed method drafts with such"]
    names = f"{', '.join(first)} and {last}" if first else last
    raise UserError(f"{place} holds {description}, which is not read: supported are {names}")


def _check_room(place: str, size: int) -> None:
    free = free_memory("cpu")
    if free is not None and size > free:
        raise TooLarge(
            f"the checkpoint {place} takes {gigabytes(size)} of memory, and {gigabytes(free)} are free: it is not "
            "read; use a machine with more memory, or a smaller head"
        )


# --- where it lies


def _fetch(place: str) -> Path:
    """The folder of a hub id: kept from before, or fetched now, if it fits. Raises UserError, TooLarge."""
    if place.startswith((".", "/", "~")) or not re.fullmatch(r"[\w.-]+/[\w.-]+", place):
        raise UserError(
            f"there is no checkpoint {place!r}: give a folder with {CONFIG} and weights, a weight file, or a hub id "
            "such as org/name"
        )
    import huggingface_hub as hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(hub.snapshot_download(place, allow_patterns=FILE_PATTERNS, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        pass
    try:
        siblings = hub.HfApi().model_info(place, files_metadata=True).siblings or []
        files = [file for file in siblings if file.rfilename.endswith((".safetensors", *PICKLES))]
        safe = [file for file in files if file.rfilename.endswith(".safetensors")]
        _check_room(place, sum(file.size or 0 for file in safe or files))
        patterns = FILE_PATTERNS[:2] if safe else FILE_PATTERNS
        return Path(hub.snapshot_download(place, allow_patterns=patterns))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the checkpoint {place!r} could not be fetched: {first_line(error, 200)}; give a folder that holds it"
        ) from error


def _json(file: Path) -> dict[str, Any]:
    refuse_pointer(file)
    try:
        if file.stat().st_size > MOST_JSON:
            raise ValueError(f"{file.stat().st_size >> 20} MiB")
        data = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError(f"a {type(data).__name__}, where an object is wanted")
        return data
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read: {first_line(error, 120)}") from error


def _weight_files(place: Path) -> list[Path]:
    """The files of the tensors: one, those that an index names, or all of a folder, safetensors before pickles."""
    if place.is_file():
        if place.suffix not in (".safetensors", *PICKLES):
            raise UserError(f"{place} holds no weights: give a .safetensors, .bin or .pt file, or its folder")
        return [place]
    for suffixes in ((".safetensors",), PICKLES):
        files = sorted(file for file in place.iterdir() if file.suffix in suffixes and not NO_WEIGHTS.match(file.name))
        for index in sorted(place.glob(f"*{suffixes[0]}.index.json")):
            indexed_files = {place / Path(str(name)).name for name in dict(_json(index).get("weight_map", {})).values()}
            if missing := sorted(file.name for file in indexed_files if not file.is_file()):
                raise UserError(f"{place} is incomplete: {missing[0]} is missing, which {index.name} names")
            files = sorted(indexed_files) or files
        if files:
            return files
    raise UserError(f"{place} holds no weights: a .safetensors, .bin or .pt file is wanted beside {CONFIG}")


# --- what stands in the files


def _unpickle(file: Path, **options: Any) -> dict[str, Tensor]:
    """The tensors of a file that torch.save wrote, by name; code in it is never run."""
    refuse_pointer(file)
    try:
        with warnings.catch_warnings(action="ignore"):  # of pickles that torch.save did not write
            data = torch.load(file, weights_only=True, mmap=zipfile.is_zipfile(file) or None, **options)
    except pickle.UnpicklingError as error:
        if "Weights only load failed" not in str(error):
            raise UserError(f"{file} is truncated or damaged ({first_line(error, 120)}): bring it again") from error
        raise UserError(
            f"{file} is a pickle with code in it, which is never run: ask for the head as safetensors, or convert it "
            "where you trust it"
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{file} is truncated or damaged ({first_line(error, 120)}): bring it again") from error
    for wrapper in ("state_dict", "model"):
        if isinstance(data, Mapping) and isinstance(data.get(wrapper), Mapping):
            data = data[wrapper]
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        raise UserError(f"{file} holds a {type(data).__name__}, where tensors by their names are wanted")
    return {name: tensor for name, tensor in data.items() if isinstance(tensor, Tensor)}


def _pickled_shapes(file: Path) -> dict[str, tuple[tuple[int, ...], int]]:
    weights = _unpickle(file, map_location="meta")
    return {name: (tuple(tensor.shape), tensor.numel() * tensor.itemsize) for name, tensor in weights.items()}


def _tensors(file: Path, part_names: Mapping[str, str]) -> Iterator[tuple[str, Tensor]]:
    """The wanted tensors of a file, one after another."""
    if file.suffix in PICKLES:
        yield from (
            (name, tensor) for name, tensor in _unpickle(file, map_location="cpu").items() if name in part_names
        )
        return
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as tensor_file:
            yield from ((name, tensor_file.get_tensor(name)) for name in tensor_file.keys() if name in part_names)  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file} is truncated or damaged ({first_line(error, 120)}): bring it again") from error
