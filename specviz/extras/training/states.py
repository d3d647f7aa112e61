"""The frozen target's states of training documents, stored on disk: computed once, learnt from in every epoch. A GPU
computes them anew, sooner than a disk gives them back.

Of each document: keys and values of the layers that a draft model glimpses at, the states that the head reads, and
those of other layers where a part wants them. Parts that are trained on the same documents share them. They are kept by
the document and by what the target computes, so that another target's are never taken for them.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from decoders.model.files.calibration import fingerprint
from decoders.model.files.shape import ModelShape

from .batches import IGNORED, Batch
from .frozen_target import FrozenTarget
from .teacher import KeysValues

DTYPE = torch.bfloat16


@dataclass(frozen=True, slots=True)
class Shelf:
    """A folder in which trainings of one target's parts in bf16 share its states of all layers, up to so many bytes."""

    folder: Path
    most_bytes: int

    def open(self, model: Any, kv_layers: Sequence[int]) -> States:
        """The states, of which the keys and values of these layers are read."""
        return States(model, kv_layers, self.folder, half=True, whole=True, most_bytes=self.most_bytes)


class States:
    """States of documents, by their tokens, in ``folder``; ``half`` computes new ones in bf16, as they are kept.

    ``layers`` are hidden states that are kept besides the last one after the norm, each the input of that layer. Keys
    and values are kept of the layers that are read (``kv_layers``); where they are kept ``whole``, of all layers, and
    what is read is in bf16. Beyond ``most_bytes`` in the folder nothing more is kept.
    """

    def __init__(
        self, model: Any, kv_layers: Sequence[int], folder: Path, *, layers: Sequence[int] = (), half: bool = False,
        whole: bool = False, most_bytes: float = math.inf,
    ) -> None:  # fmt: skip
        self.model, self.kv_layers, self.folder, self.half = model, tuple(kv_layers), folder, half
        self.layers, self.whole, self.most_bytes = tuple(layers), whole, most_bytes
        self.shape = ModelShape.of(model.config)
        self.kept_layers = range(self.shape.layers) if whole else self.kv_layers
        self.dtype = DTYPE if whole else model.dtype
        self.key = fingerprint(model.config, model.base_model.parameters())
        self.on_cpu = model.device.type == "cpu"
        self.target: FrozenTarget | None = None  # made when a document is new
        if self.on_cpu:
            folder.mkdir(parents=True, exist_ok=True)
        self.bytes = sum(file.stat().st_size for file in folder.glob("*")) if most_bytes < math.inf else 0

    def of(self, batch: Batch) -> tuple[list[KeysValues], Float[Tensor, "rows length hidden"]]:
        """Keys and values per layer, and the head's states, 0 behind each document's end."""
        read = self.read(batch)
        return [(read[f"keys.{layer}"], read[f"values.{layer}"]) for layer in self.kv_layers], read["states"]

    def read(self, batch: Batch) -> dict[str, Tensor]:
        """All that is kept, by name, 0 behind each document's end: ``states`` and ``hidden.N`` are (rows, length,
        hidden), ``keys.N`` and ``values.N`` (rows, kv_heads, length, head_dim).
        """
        if not self.on_cpu:
            padding = (batch.kinds == IGNORED).to(self.model.device)[:, None, :, None]
            read = self._compute(batch.ids, self.kv_layers)
            return {
                name: tensor.masked_fill(padding if tensor.ndim == 4 else padding[:, 0], 0).to(self.dtype)
                for name, tensor in read.items()
            }
        lengths = (batch.kinds != IGNORED).sum(1).tolist()
        documents = [row[:length] for row, length in zip(batch.ids, lengths, strict=True)]
        names = {*self._shapes(0, self.kv_layers)}
        entries = [self._read(document, names) for document in documents]
        new = [i for i, record in enumerate(entries) if not names <= {*record}]
        if new:
            length = max(lengths[i] for i in new)
            for i, entry in zip(new, self._make(batch.ids[new, :length], [lengths[i] for i in new]), strict=True):
                entries[i] = entry
                self._write(documents[i], {**self._read(documents[i]), **entry})  # what other parts want of it stays
        device, length = self.model.device, batch.ids.shape[1]
        out = {
            name: torch.zeros(len(entries), *shape, dtype=self.dtype, device=device)
            for name, shape in self._shapes(length, self.kv_layers).items()
        }
        for i, entry in enumerate(entries):
            for name, tensor in out.items():
                part = entry[name].to(device, tensor.dtype)
                tensor[i, ..., : part.shape[-2], :] = part
        return out

    def rotary(self, length: int) -> tuple[Float[Tensor, "length size"], Float[Tensor, "length size"]]:
        """The target's cos and sin of positions 0 … length − 1."""
        positions = torch.arange(length, device=self.model.device)[None]
        cos, sin = self.model.model.rotary_emb(self.model.get_input_embeddings().weight[:1, None], positions)
        return cos[0], sin[0]

    def _shapes(self, length: int, kv_layers: Sequence[int]) -> dict[str, tuple[int, ...]]:
        cached = (self.shape.kv_heads, length, self.shape.head_dim)
        names = [f"{name}.{layer}" for layer in kv_layers for name in ("keys", "values")]
        hidden = ["states", *(f"hidden.{layer}" for layer in self.layers)]
        return {**dict.fromkeys(names, cached), **dict.fromkeys(hidden, (length, self.shape.hidden))}

    @torch.no_grad()
    def _compute(self, ids: Int[Tensor, "rows length"], kv_layers: Sequence[int]) -> dict[str, Tensor]:
        """The target's states of a batch, padding included, by name; keys and values of these layers."""
        if self.target is None:
            self.target = FrozenTarget(self.model, dtype=DTYPE if self.half else None)
        with torch.autocast(self.model.device.type, enabled=False):
            text = self.target.read(ids.to(self.model.device), self.layers)
        out = {"states": text.states, **{f"hidden.{layer}": states for layer, states in text.hidden.items()}}
        for layer in kv_layers:
            out[f"keys.{layer}"], out[f"values.{layer}"] = text.kvs[layer]
        return out

    def _make(self, ids: Int[Tensor, "rows length"], lengths: Sequence[int]) -> list[dict[str, Tensor]]:
        """The same per document, in the form that is kept."""
        read = self._compute(ids, self.kept_layers)
        return [
            {name: tensor[i, ..., :length, :].to("cpu", DTYPE).contiguous() for name, tensor in read.items()}
            for i, length in enumerate(lengths)
        ]

    def _place(self, document: Int[Tensor, " length"]) -> Path:
        ids = np.ascontiguousarray(document.numpy(), dtype=np.int32).tobytes()
        name = hashlib.sha256(self.key.encode() + ids).hexdigest()[:24]
        return self.folder / f"{name}.safetensors"

    def _read(self, document: Tensor, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Stored states of a document, or these of it; nothing where it is new, or its file is damaged."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self._place(document), "pt") as file:
                return {name: file.get_tensor(name) for name in file.keys() if names is None or name in names}  # noqa: SIM118
        except (OSError, SafetensorError):
            return {}

    def _write(self, document: Tensor, entry: dict[str, Tensor]) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        self.bytes += sum(tensor.nbytes for tensor in entry.values())
        if self.bytes > self.most_bytes:
            return
        place = self._place(document)
        new = place.with_suffix(".new")
        try:
            save_file(entry, new)
            new.replace(place)
        except (OSError, SafetensorError):
            if not self.whole:
                raise
            self.most_bytes = 0  # a full disk, or the folder is gone: a shelf saves time, and no training needs it
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
