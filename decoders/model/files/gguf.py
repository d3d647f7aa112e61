"""GGUF files: read by transformers, dequantised, and kept as an ordinary model folder in the cache.

A file is converted once per dtype. The folder is named by the file's hash and appears whole or not at all.
"""

from __future__ import annotations

import copy
import errno
import functools
import hashlib
import json
import logging
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import torch
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from decoders.errors import UserError, first_line
from decoders.folders import cache_folder, write_json

from .gguf_header import check_magic, damage_error, read_header
from .shape import ModelShape

SUFFIX = ".gguf"
SOURCE = "gguf.json"  # in a converted folder: what it was made from
FORMAT = 1  # of converted folders; another one is converted again
# a float type that holds a model's weights, whichever dtype they are opened in
STORED_TYPES = {torch.float64: torch.float32}
SPARE_BYTES = 64 << 20  # tokenizer, configuration, and what a file system rounds up

# how llama.cpp splits text for a byte-level vocabulary, where transformers' reader takes GPT-2's way for it
DIGITS_APART = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
# what changes a model's numbers and transformers' reader leaves out; the value that changes nothing
UNREAD = {"logit_scale": 1.0, "residual_scale": 1.0, "embedding_scale": 1.0, "attention.scale": None, "expert_count": 0}

Progress = Callable[[str, float], None]  # what is being done, and the share that is done
_one_at_a_time = threading.Lock()
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GgufSource:
    """The file that a model was dequantised from. ``types``: how many tensors it keeps in which quantisation."""

    file: str
    sha256: str
    bytes: int
    types: dict[str, int]


def gguf_file(place: Path) -> Path | None:
    """The GGUF file that a path names: itself, or the one in a folder without a ``config.json``; None for others.

    Raises UserError for a folder with several.
    """
    if place.suffix.lower() == SUFFIX and not place.is_dir():
        if not place.is_file():
            raise UserError(f"there is no GGUF file {str(place)!r}")
        return place
    if not place.is_dir() or (place / "config.json").is_file():
        return None
    files = sorted(file for file in place.iterdir() if file.suffix.lower() == SUFFIX)
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:6])
        raise UserError(f"{str(place)!r} holds {len(files)} GGUF files ({names}): name one of them")
    return files[0] if files else None


def source_of(folder: Path) -> GgufSource | None:
    """The GGUF file that a converted folder was made from; None for any other folder."""
    try:
        data = json.loads((folder / SOURCE).read_text(encoding="utf-8"))
        types = {str(name): int(count) for name, count in data["types"].items()}
        return GgufSource(str(data["file"]), str(data["sha256"]), int(data["bytes"]), types)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def converted_folder() -> Path:
    """The folder of converted models."""
    return cache_folder() / "gguf"


def convert(file: Path, dtype: torch.dtype, progress: Progress | None = None) -> Path:
    """The folder with a GGUF file's model, its weights dequantised; converted now where that was not done before.

    Raises UserError in one sentence for a file that cannot be opened, and where there is no room.
    """
    report = progress or (lambda words, share: None)
    try:
        check_magic(file)
        key = _sha256(file, report)
        folders = _folders(key, dtype)
        for folder in folders:
            if source_of(folder) is not None:
                return folder
        folders[0].parent.mkdir(parents=True, exist_ok=True)
        with _turn(folders[0], report):
            if source_of(folders[0]) is None:
                _convert(file, key, STORED_TYPES.get(dtype, dtype), folders[0], report)
    except OSError as error:
        raise UserError(_no_room(file, error)) from error
    return folders[0]


def converted_models() -> list[tuple[Path, GgufSource]]:
    """The folders of the models that were converted, with what they were made from."""
    folders = sorted(converted_folder().glob("*/")) if converted_folder().is_dir() else []
    return [(folder, source) for folder in folders if not folder.name.startswith(".") and (source := source_of(folder))]


def is_converted(file: Path, dtype: torch.dtype = torch.float32) -> bool:
    """True where opening a GGUF file takes no conversion; the file is not read for it."""
    key = _read_note(file)
    return key is not None and any(map(source_of, _folders(key, dtype)))


def _folders(key: str, dtype: torch.dtype) -> list[Path]:
    """The folders of a converted file in the float type that holds a dtype, and in fp32."""
    kinds = (str(kind).removeprefix("torch.") for kind in (STORED_TYPES.get(dtype, dtype), torch.float32))
    return [converted_folder() / f"{key[:24]}-{kind}-{FORMAT}" for kind in kinds]


# --- the file's hash, which is noted by path, size and time of change


def _sha256(file: Path, report: Progress) -> str:
    key = _read_note(file)
    if key is None:
        report(f"Reading {file.name}", 0.0)
        with file.open("rb") as stream:
            key = hashlib.file_digest(stream, "sha256").hexdigest()
        write_json(_note(file), {**_marks(file), "sha256": key})
    return key


def _read_note(file: Path) -> str | None:
    try:
        note = json.loads(_note(file).read_text(encoding="utf-8"))
        return str(note["sha256"]) if note == {**_marks(file), "sha256": note["sha256"]} else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _note(file: Path) -> Path:
    name = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:24]
    return converted_folder() / "hashes" / f"{name}.json"


def _marks(file: Path) -> dict[str, Any]:
    stat = file.stat()
    return {"path": str(file.resolve()), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


# --- converting


@contextmanager
def _turn(folder: Path, report: Progress) -> Iterator[None]:
    """One process converts at a time; the others wait, and find it done. What killed ones left behind goes."""
    lock = filelock.FileLock(folder.with_name(f".{folder.name}.lock"))
    while True:
        try:
            lock.acquire(timeout=0.5)
            break
        except filelock.Timeout:
            report("Waiting for another process that converts this file", 0.0)
    try:
        for leftover in folder.parent.glob(f".{folder.name}.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with _one_at_a_time:
            yield
    finally:
        lock.release()


def _convert(file: Path, key: str, dtype: torch.dtype, folder: Path, report: Progress) -> None:
    """Write the folder, whole or not at all."""
    report(f"Reading {file.name}", 0.02)
    header = _Header(file)
    need = header.parameters * dtype.itemsize + SPARE_BYTES
    free = shutil.disk_usage(folder.parent).free
    if free < need:
        raise UserError(_too_full(file, need, free))
    new = folder.with_name(f".{folder.name}.new-{os.getpid()}")
    new.mkdir()
    try:
        with _lend(header, lambda share: report(f"Converting {file.name}: weights", 0.1 + 0.75 * share)):
            _write(file, header, dtype, new, report)
        source = GgufSource(file.name, key, file.stat().st_size, header.types)
        (new / SOURCE).write_text(json.dumps({**asdict(source), "notes": header.notes}, indent=1) + "\n", "utf-8")
        new.rename(folder)
        for note in header.notes:
            log.warning("%s: %s", file.name, note)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _write(file: Path, header: _Header, dtype: torch.dtype, folder: Path, report: Progress) -> None:
    """Model, tokenizer and configuration of a GGUF file as a model folder."""
    try:
        config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name).get_text_config(decoder=True)
    except Exception as error:
        raise UserError(
            f"{file.name} is of the architecture {header.architecture!r}, which transformers does not read from GGUF "
            f"files ({first_line(error, 160)}): give the model as a folder with config.json and weights"
        ) from error
    ModelShape.of(config)  # refuses a family before its weights are read
    header.check(config)
    report(f"Converting {file.name}: its tokenizer", 0.05)
    tokenizer = _tokenizer(file, header)
    network = _network(file, config, dtype)
    report(f"Converting {file.name}: writing", 0.9)
    config = network.config
    config.specviz_name = file.stem[:80]
    config.bos_token_id, config.eos_token_id = header.number("tokenizer.ggml.bos_token_id"), header.stops or None
    network.generation_config.bos_token_id = config.bos_token_id
    network.generation_config.eos_token_id = config.eos_token_id
    try:
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # safetensors says "I/O error: No space left on device (os error 28)"
        if "os error" not in str(error):
            raise
        code = errno.ENOSPC if f"os error {errno.ENOSPC}" in str(error) else errno.EIO
        raise OSError(code, first_line(error, 160), str(folder)) from error


def _tokenizer(file: Path, header: _Header) -> Any:
    try:
        tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(file.parent, gguf_file=file.name)
    except Exception as error:
        raise UserError(
            f"the tokenizer in {file.name} (kind {header.text('tokenizer.ggml.model')!r}) cannot be read: "
            f"{first_line(error, 160)}"
        ) from error
    if header.text("tokenizer.ggml.model") == "gpt2" and header.text("tokenizer.ggml.pre") in DIGITS_APART:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    return tokenizer


def _network(file: Path, config: Any, dtype: torch.dtype) -> Any:
    """The model on dequantised weights, as plain transformers code: one read from a GGUF file cannot be saved."""
    try:
        loaded_pair: Any = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, config=copy.deepcopy(config), dtype=dtype, output_loading_info=True
        )
        read, about = loaded_pair
    except Exception as error:
        raise UserError(f"the weights in {file.name} cannot be read: {first_line(error, 160)}") from error
    lacking = sorted(about["missing_keys"]) + sorted(str(key) for key in about["mismatched_keys"])
    if lacking:
        raise UserError(
            f"{file.name} lacks {len(lacking)} of the model's weights, or holds them in another shape: {lacking[0]}"
        )
    with torch.device("meta"):
        network: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    network.load_state_dict(read.state_dict(), assign=True)
    network.tie_weights()
    network.generation_config = copy.deepcopy(read.generation_config)
    return network


@contextmanager
def _lend(header: _Header, share_done: Callable[[float], None]) -> Iterator[None]:
    """Transformers' reader takes the file as it was read once (it would read it again for every question, which takes
    seconds), and reports its tensors here, instead of drawing a bar of its own.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as reader

    def count(tensors: Sequence[Any], **_: Any) -> Iterator[Any]:
        for index, tensor in enumerate(tensors):
            share_done(index / max(1, len(tensors)))
            yield tensor

    loans = (
        (gguf, "GGUFReader", lambda path: header.reader),
        (gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map)),
        (reader, "tqdm", count),
    )
    originals = [getattr(module, name) for module, name, _ in loans]
    try:
        for module, name, value in loans:
            setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(loans, originals, strict=True):
            setattr(module, name, value)


# --- what a file says of itself


def _quick(reader: Any) -> Any:
    """gguf's reader, which cuts a file into some 300,000 arrays: plain ones, made in a third of a memory map's time."""

    class Reader(reader):
        def _get(self, *args: Any, **options: Any) -> Any:
            if type(self.data) is not np.ndarray:
                self.data = np.asarray(self.data)
            return super()._get(*args, **options)

    return Reader


class _Header:
    """A GGUF file's settings and list of tensors. Raises UserError for a file that cannot become a model here."""

    def __init__(self, file: Path) -> None:
        try:
            import accelerate  # noqa: F401 (transformers reads GGUF files with both)
            from gguf import GGUFReader
        except ImportError as error:
            raise UserError(
                f"GGUF files are read by the packages gguf and accelerate, and {error.name} is not installed: "
                "pip install gguf accelerate"
            ) from None
        self.file = file
        read_header(file)  # gguf's reader makes as many entries as a file claims to have
        try:
            self.reader: Any = _quick(GGUFReader)(file)
            self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        except Exception as error:
            raise damage_error(file, error) from error
        self.architecture = self.text("general.architecture")
        self.types = dict(Counter(tensor.tensor_type.name for tensor in self.tensors.values()).most_common())
        self.parameters = sum(int(tensor.n_elements) for tensor in self.tensors.values())
        self.notes: list[str] = []
        self._check_whole()
        self._check_vocabulary()

    def value(self, key: str) -> Any:
        field = self.reader.fields.get(key)
        return None if field is None else field.contents()

    def text(self, key: str) -> str:
        return str(self.value(key) or "")

    def number(self, key: str) -> int | None:
        value = self.value(key)
        return None if value is None else int(value)

    @property
    def stops(self) -> list[int]:
        """Tokens that end an answer: of the text, and of a turn where that is another one."""
        ends = (self.number(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot", "eom"))
        return list(dict.fromkeys(token for token in ends if token is not None))

    def check(self, config: Any) -> None:
        """Raises UserError where the file asks for something that transformers' reader leaves out."""
        for name, harmless in UNREAD.items():
            if (value := self.value(f"{self.architecture}.{name}")) not in (None, harmless):
                raise UserError(self._left_out(f"{name} = {value}"))
        plain_rotary = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default") == "default"
        scaling = self.text(f"{self.architecture}.rope.scaling.type")
        if plain_rotary and scaling not in ("", "none"):
            raise UserError(self._left_out(f"rotary positions scaled by {scaling!r}"))
        for name, tensor in self.tensors.items():
            if plain_rotary and name.startswith(("rope_freqs", "rope_factors")) and (tensor.data != 1).any():
                raise UserError(self._left_out(f"rotary frequencies of its own ({name})"))
        for name, setting in (
            ("attention.sliding_window", "sliding_window"),
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ):
            value = self.value(f"{self.architecture}.{name}")
            if value and value != getattr(config, setting, None):
                raise UserError(self._left_out(f"{name} = {value}"))

    def _left_out(self, feature: str) -> str:
        return (
            f"{self.file.name} has {feature}, which transformers' GGUF reader leaves out, so it would compute another "
            "model: give the model as a folder with config.json and weights"
        )

    def _check_whole(self) -> None:
        if (parts := self.number("split.count") or 1) > 1:
            raise UserError(f"{self.file.name} is one of {parts} parts of a model: merge them into one GGUF file first")
        if not self.architecture or not self.tensors:
            raise UserError(f"{self.file.name} holds no model: it names no architecture, or has no tensors")

    def _check_vocabulary(self) -> None:
        token_field = self.reader.fields.get("tokenizer.ggml.tokens")
        if token_field is None or not self.text("tokenizer.ggml.model"):
            raise UserError(f"{self.file.name} holds no tokenizer (tokenizer.ggml.tokens): use a file that has one")
        embedding = self.tensors.get("token_embd.weight")
        rows = None if embedding is None else int(embedding.shape[-1])
        if rows != len(token_field.data):
            raise UserError(
                f"{self.file.name} has {len(token_field.data):,} tokens in its tokenizer and {rows or 0:,} rows in its "
                "embedding: its vocabulary does not match its weights"
            )
        split = self.text("tokenizer.ggml.pre")
        if self.text("tokenizer.ggml.model") == "gpt2" and split not in _known_splits():
            self.notes.append(f"text is split as for GPT-2: the file's own way {split!r} is not known here")


def _known_splits() -> set[str]:
    """Ways to split text that are followed: GPT-2's, those with digits apart, and transformers' own list."""
    try:
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS as gguf_splits
    except ImportError:  # another transformers
        gguf_splits = {}
    return {"gpt-2", "gpt2", "phi-2", "olmo", *DIGITS_APART, *gguf_splits}


def _no_room(file: Path, error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return _too_full(file)
    place = f" ({error.filename})" if error.filename else ""
    return f"{file.name} cannot be opened: {error.strerror or first_line(error)}{place}"


def _too_full(file: Path, need: int | None = None, free: int | None = None) -> str:
    sizes = "" if need is None or free is None else f": {need / 1e6:,.0f} MB are needed and {free / 1e6:,.0f} MB free"
    return (
        f"there is no room to convert {file.name} into {converted_folder()}{sizes}; make room, or set SPECVIZ_HOME "
        "to a folder on another disk"
    )
