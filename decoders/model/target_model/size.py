"""A model's memory, from what its files say before a weight is read, and the free memory."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decoders.errors import TooLarge, UserError, first_line

from ..engines.fewer_bits import rounded_bytes
from ..files.catalog import model_name
from ..files.gguf import is_converted
from ..files.gguf_header import damage_error, read_header
from ..files.headers import tensor_sizes
from ..files.shape import ModelShape
from ..state.room import free_memory, gigabytes
from .load import chosen_device, chosen_dtype, chosen_engine, local_place

TEXT = 2048  # tokens whose keys and values are counted
SPARE_ROWS = 512  # cache rows beside them


@dataclass(frozen=True, slots=True)
class Size:
    """A model's memory in a dtype on a device, in bytes.

    Args:
        parameters: How many there are; those that two layers share count once.
        weights: Of the opened model, a head in fp32 included.
        opening: Of weights while they are read: a GGUF file is dequantised when it is opened for the first time.
        cache: Of the keys and values of ``TEXT`` tokens.
    """

    parameters: int
    weights: int
    opening: int
    cache: int

    @property
    def bytes(self) -> int:
        """The most that is needed at a time."""
        return max(self.weights + self.cache, self.opening)


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """Sizes that a text's cache depends on, the size of the head, and that of the embedding and the head together."""

    layers: int
    kv_heads: int
    head_dim: int
    context_length: int
    head: int
    tables: int

    @classmethod
    def of(cls, config: Any) -> CacheFacts:
        shape = ModelShape.of(config)
        head = shape.vocab * shape.hidden
        return cls(*shape.cache_shape, shape.context_length, head, head * (1 if config.tie_word_embeddings else 2))


def size_of(
    model: str | Path, *, dtype: str | None = None, device: str | None = None, weights: str | None = None,
    engine: str | None = None, parameters: int = 0, fetch: bool = True,
) -> Size:  # fmt: skip
    """The size of a folder, GGUF file, hub id or named model; dtype, device, weights and engine as of ``load_target``.

    ``parameters`` is their number where it was counted before. Without ``fetch`` nothing is asked of a hub.

    Raises UserError in one sentence for a model that is not there, whose files are damaged, or of a refused family.
    """
    torch_device = torch.device(chosen_device(device))
    kind = chosen_dtype(dtype, torch_device)
    engine, place = chosen_engine(engine), local_place(model)
    if isinstance(place, Path) and place.is_file():
        stat = place.stat()
        count, cached = _read_gguf(place, stat.st_size, stat.st_mtime_ns)
        dequantised_bytes = 0 if is_converted(place, kind) else count * torch.float32.itemsize
        return _size(count, cached, kind, torch_device, weights, engine, dequantised=dequantised_bytes)
    try:
        config = AutoConfig.from_pretrained(str(place), local_files_only=not fetch).get_text_config(decoder=True)
        cached = CacheFacts.of(config)
        count = _count_stored(Path(place)) or parameters or _count_parameters(config)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the model {str(model)!r} is not there, or cannot be read: {first_line(error, 200)}; give a folder with "
            "config.json, weights and tokenizer, a GGUF file, or a hub id such as org/name"
        ) from error
    return _size(count, cached, kind, torch_device, weights, engine)


def check_fits(name: str, size: Size, *, device: str | None = None) -> None:
    """Raise TooLarge, with both numbers, where a model needs more memory than is free on a device."""
    device_name = chosen_device(device)
    free = free_memory(device_name)
    if free is not None and size.bytes > free:
        raise TooLarge(
            f"about {gigabytes(size.bytes)} of memory are needed for {name}, and {gigabytes(free)} are free on "
            f"{device_name}: choose a smaller model, or start again with it alone (--model) or in a smaller dtype "
            "(--dtype bfloat16)"
        )


def check_room(model: str | Path, *, device: str | None = None, **opening: Any) -> None:
    """Raise TooLarge where a model needs more memory than is free, before a weight is read; arguments and further
    errors as of ``size_of``.
    """
    check_fits(model_name(str(model)), size_of(model, device=device, **opening), device=device)


def _size(
    count: int, cached: CacheFacts, kind: torch.dtype, torch_device: torch.device, rounded: str | None, engine: str, *,
    dequantised: int = 0,
) -> Size:  # fmt: skip
    """``rounded``: what the weights between embedding and head are rounded to, once they are read."""
    read = count * kind.itemsize
    weights = rounded_bytes(rounded, count, cached.head, cached.tables, engine, kind.itemsize)
    copies = cached.head * torch.float32.itemsize if kind.itemsize < 4 else 0
    rows = min(TEXT, cached.context_length) + SPARE_ROWS
    cache = 2 * cached.layers * cached.kv_heads * cached.head_dim * rows * kind.itemsize
    return Size(count, weights + copies, read + dequantised, cache)


def _count_parameters(config: Any) -> int:
    """The parameters of a model made from a configuration, without its weights."""
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    network.tie_weights()
    return sum(p.numel() for p in {id(p): p for p in network.parameters()}.values())


# --- folders


def _count_stored(folder: Path) -> int:
    """The numbers that a folder's safetensors files hold; 0 where there are none."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        files = [folder / str(name) for name in sorted(names)]
    else:
        files = [folder / "model.safetensors"]
        files = files if files[0].is_file() else sorted(folder.glob("*.safetensors"))
    return sum(math.prod(shape) for file in files for shape, _ in tensor_sizes(file).values())


# --- GGUF files


@functools.lru_cache(maxsize=64)
def _read_gguf(file: Path, size: int, mtime_ns: int) -> tuple[int, CacheFacts]:
    """The numbers that a GGUF file holds, and what its cache depends on; ``size`` and ``mtime_ns`` tell files apart."""
    settings, tensors = read_header(file)
    try:
        family = settings["general.architecture"]

        def setting(name: str) -> int:
            value = settings[f"{family}.{name}"]
            return max(value) if isinstance(value, list) else int(value)

        heads, hidden = setting("attention.head_count"), setting("embedding_length")
        kv_heads = setting("attention.head_count_kv") if f"{family}.attention.head_count_kv" in settings else heads
        head_dim = setting("attention.key_length") if f"{family}.attention.key_length" in settings else hidden // heads
        head = math.prod(tensors["token_embd.weight"])
        tables = head * (2 if "output.weight" in tensors else 1)
        cached = CacheFacts(setting("block_count"), kv_heads, head_dim, setting("context_length"), head, tables)
        return sum(math.prod(shape) for shape in tensors.values()), cached
    except KeyError as error:
        raise UserError(f"{file.name} holds no model: it does not say {error.args[0]!r}") from error
    except (ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
        raise damage_error(file, error) from error
