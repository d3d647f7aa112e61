"""Linear layers whose cost hardly grows from one row to sixteen.

On a CPU, each row of a short draft through ``F.linear`` costs nearly as much as one row alone, so short drafts lose.
oneDNN's pre-packed weights are flat, and mostly no slower at one row: then they are the only copy, and an embedding
that is tied to a packed head is looked up in it. Where packing is missing, the plain layers stay. Heads of
half-precision bodies run in fp32.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import functools
import json
import mmap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from decoders.folders import cache_folder, write_json
from decoders.top_k import top_k

from ..state.transfer import send
from .machine import machine

PACK_ROWS = 8  # rows the packed layout is tuned for: a short draft
TRIED_ROWS = (1, 2, 3, 4, 8, 16)
TRIED_BYTES = 32_000_000  # of weights, all copies together: more than the processor's own caches hold
FEWEST_CALLS, MOST_CALLS, CLEAR = 16, 48, 1.2  # of each kind; a clear result is no closer than this ratio
PACKED_ONLY = 1.1  # of the plain layer's time at one row: what the packed one takes at most to be the only copy
NEVER = 1 << 30  # rows: the packed copy is not worth having
NOTES = "packed.json"  # in the cache folder: what was tried
FEW_ROWS = 64  # whose log-softmax is sooner made than their log-sum
BLOCKS = (64, 48, 32, 24, 16, 8)  # outputs that oneDNN keeps side by side

# time that this thread has computed, where that clock is fine enough (not on Windows)
_clock = time.thread_time if time.get_clock_info("thread_time").resolution < 1e-5 else time.perf_counter


class WeightLayer(nn.Module):
    """A layer whose weights lie otherwise: its state dict has them as they are read."""

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.weight
        if self.bias is not None:
            destination[f"{prefix}bias"] = self.bias


class PackedLinear(WeightLayer):
    """A linear layer with a oneDNN-packed copy of ``weight`` [out, in], used from ``packed_from`` rows on.

    Below that, plain ``F.linear`` is faster: how far below depends on the processor and the shape (``crossover``). From
    one row on, the packed copy is the only one; ``weight`` is then unpacked at every reading.
    """

    def __init__(self, weight: Float[Tensor, "out in"], bias: Tensor | None, packed_from: int = 1) -> None:
        super().__init__()
        self.plain = nn.Parameter(weight, requires_grad=False) if packed_from > 1 else None
        self.bias = bias
        self.out_features, self.in_features = weight.shape
        self.packed_from = packed_from
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACK_ROWS)
        self.plain_weight: Tensor | None = None  # kept for those that hold the embedding

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        dense = self.plain_weight if self.plain is None else self.plain
        if dense is None:
            with torch.inference_mode(False), torch.no_grad():
                dense = self.packed.to_dense()
        return dense

    def forward(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        if self.plain is not None and x.numel() < self.packed_from * self.in_features:
            return F.linear(x, self.plain, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def packed_views(layer: PackedLinear) -> Iterator[Tensor]:
    """The memory of a packed copy in every way in which it may lie by its size [blocks, in, block]: outputs of a
    block side by side for each input. None where this build of torch does not show it; the layer has to stay.
    """
    try:
        size: int = torch.ops.mkldnn._nbytes(layer.packed) // 4
        numbers = (ctypes.c_float * size).from_address(torch.ops.mkldnn.data_ptr(layer.packed))
    except (AttributeError, RuntimeError):
        return
    flat = torch.from_numpy(np.ctypeslib.as_array(numbers))
    for block in BLOCKS:
        if -(-layer.out_features // block) * block * layer.in_features == size:
            yield flat.view(-1, layer.in_features, block)


class PackedEmbedding(nn.Module):
    """An embedding that is tied to a packed head: rows are read out of the packed copy, in which blocks of tokens lie
    transposed (``raw`` [blocks, in, tokens of a block]). ``weight`` is unpacked when it is first asked for, and kept.
    """

    def __init__(self, head: PackedLinear, raw: Float[Tensor, " blocks in block"]) -> None:
        super().__init__()
        object.__setattr__(self, "head", head)  # past nn.Module: it is a part of the model already
        self.raw = raw.mT
        self.num_embeddings, self.embedding_dim = head.out_features, head.in_features

    @classmethod
    def of(cls, head: PackedLinear, weight: Float[Tensor, "out in"]) -> PackedEmbedding | None:
        """None where the packed copy lies otherwise: every number of it is compared."""
        for raw in packed_views(head):
            embedding = cls(head, raw)
            tokens = torch.arange(len(weight)).split(4096)
            if all(torch.equal(embedding(part), weight[part]) for part in tokens):
                return embedding
        return None

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        head: Any = self.head
        head.plain_weight = head.weight
        return head.plain_weight

    def forward(self, ids: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows in"]:
        block = self.raw.shape[1]
        return self.raw[ids // block, ids % block]

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        head: Any = self.head
        destination[f"{prefix}weight"] = head.weight


def table_rows(embeddings: Any, ids: Sequence[int]) -> Float[Tensor, "rows hidden"]:
    """Rows of an embedding's table, as they are."""
    if isinstance(embeddings, PackedEmbedding):
        return embeddings(torch.as_tensor(ids, dtype=torch.long))
    return embeddings.weight[send(embeddings.weight.device, np.asarray(ids, dtype=np.int64))[0]]


@functools.cache
def crossover(outputs: int, inputs: int) -> int:
    """Rows from which the packed copy of an [outputs, inputs] weight is the faster one on this machine.

    Tried once, which takes up to 0.3 s for a large shape, and noted in the cache folder: later openings of any model
    with that shape read it there, and compute as the first one did.
    """
    machine_key, shape = machine(), f"{outputs}x{inputs}"
    rows = _notes().get(machine_key, {}).get(shape)
    if not isinstance(rows, int):
        rows = _try(outputs, inputs)
        with contextlib.suppress(OSError):  # where nothing can be written, it is tried again
            notes = _notes()
            notes.setdefault(machine_key, {})[shape] = rows
            write_json(cache_folder() / NOTES, notes)
    return rows


def _notes() -> dict[str, dict[str, int]]:
    """Results of earlier trials: per machine, shape → rows. A file that cannot be read counts for nothing."""
    try:
        notes = json.loads((cache_folder() / NOTES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: shapes for name, shapes in notes.items() if isinstance(shapes, dict)} if type(notes) is dict else {}


def _try(outputs: int, inputs: int) -> int:
    """``crossover`` by trying. Weights are cycled so that they come from memory as in a real forward; of a large weight
    some rows stand for all.
    """
    outputs = min(outputs, max(1, TRIED_BYTES // (2 * 4 * inputs)))
    copies = max(2, min(8, TRIED_BYTES // (outputs * inputs * 4)))
    layers = [PackedLinear(torch.full((outputs, inputs), 0.01), None) for _ in range(copies)]
    with _one_thread():
        slower = bisect.bisect_left(
            TRIED_ROWS, True, key=lambda rows: _packed_is_faster(layers, torch.full((rows, inputs), 0.01))
        )
    return TRIED_ROWS[slower] if slower < len(TRIED_ROWS) else NEVER


def _packed_is_faster(layers: list[PackedLinear], x: Tensor) -> bool:
    """True if the packed copies take less time for ``x``: calls in alternation, of which the better ones count."""
    plain, packed = list[float](), list[float]()
    while True:
        for layer in layers:
            start_time = _clock()
            F.linear(x, layer.weight)
            between = _clock()
            layer(x)
            packed.append(_clock() - between)
            plain.append(between - start_time)
        times = [sorted(calls)[len(calls) // 4] for calls in (plain, packed)]
        if len(plain) >= MOST_CALLS or (len(plain) >= FEWEST_CALLS and max(times) > CLEAR * min(times)):
            return times[1] <= times[0] * (PACKED_ONLY if x.shape[0] == 1 else 1)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """With one thread and its own clock, trials say the same on a busy machine as on an idle one."""
    thread_count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(thread_count)


def packable(dtype: torch.dtype, device: torch.device) -> bool:
    """True if this build packs such weights and gives the right answer."""
    if device.type != "cpu" or dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    try:
        weight, x = torch.randn(8, 4), torch.randn(3, 4)
        return torch.allclose(PackedLinear(weight, None)(x), x @ weight.T, atol=1e-5)
    except (RuntimeError, AttributeError):
        return False


@torch.no_grad()
def pack(model: nn.Module, packed_from: int | None = None) -> int:
    """Replace the linear layers of a frozen fp32 CPU model by packed ones where that is faster; returns how many.

    With ``packed_from``, all of them, the packed copy used from so many rows on.
    """
    count, owners, mapped_ranges = 0, owners_of(model), mapped_weights()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                weight = child.weight.detach()
            elif type(child) is Conv1D:  # GPT-2 keeps its weights transposed
                weight = child.weight.detach().T.contiguous()
            else:
                continue
            from_rows = crossover(*weight.shape) if packed_from is None else packed_from
            if from_rows == NEVER:
                continue
            layer = PackedLinear(weight, child.bias, from_rows)
            sharers = [place for place in owners[child.weight.data_ptr()] if place != (parent, name)]
            if layer.plain is None and sharers:
                shared = PackedEmbedding.of(layer, weight) if len(sharers) == 1 else None
                if shared is None or type(getattr(*sharers[0])) is not nn.Embedding:
                    if from_rows == 1:  # it is there for the embedding anyway
                        layer.plain = nn.Parameter(weight, requires_grad=False)
                else:
                    setattr(*sharers[0], shared)
                    sharers = []
            setattr(parent, name, layer)
            if layer.plain is None and not sharers:
                give_back(child.weight, mapped_ranges)
            count += 1
    if count:
        _move_out(model, mapped_ranges)
    return count


def owners_of(model: nn.Module) -> dict[int, list[tuple[nn.Module, str]]]:
    """Users of each weight: address → parents and names of the modules that hold it."""
    owners: dict[int, list[tuple[nn.Module, str]]] = {}
    for parent in model.modules():
        for name, child in parent.named_children():
            weight = getattr(child, "weight", None)
            if isinstance(weight, nn.Parameter):
                owners.setdefault(weight.data_ptr(), []).append((parent, name))
    return owners


def _move_out(model: nn.Module, mapped_ranges: list[tuple[int, int]]) -> None:
    """Give the weights that are left memory of their own, so that the file they were mapped from can be let go."""
    for tensor in (*model.parameters(), *model.buffers()):
        if any(first <= tensor.data_ptr() < last for first, last in mapped_ranges):
            tensor.data = tensor.data.clone()


def mapped_weights() -> list[tuple[int, int]]:
    """First and last address of each mapped file of weights of this process; none where the system does not say."""
    try:
        lines = [line.split(None, 5) for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError):  # another system
        return []
    ranges = (line[0].split("-") for line in lines if len(line) == 6 and line[5].endswith(".safetensors"))
    return [(int(start, 16), int(stop, 16)) for start, stop in ranges]


def give_back(tensor: Tensor, mapped_ranges: list[tuple[int, int]]) -> None:
    """Have the system drop the pages of a mapped file in which a tensor lies that was copied: they would count as this
    process's memory until the last of the file's tensors goes. Whoever reads them again has them from the file.
    """
    start, stop = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    if any(first <= start and stop <= last for first, last in mapped_ranges):
        start, stop = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, stop // mmap.PAGESIZE * mmap.PAGESIZE
        if stop > start:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), mmap.MADV_DONTNEED)


@torch.no_grad()
def pack_if_faster(layer: nn.Linear) -> nn.Module:
    """A frozen fp32 CPU layer packed, where that is faster; else the layer itself. Its weight stays as it is."""
    from_rows = crossover(*layer.weight.shape)
    return PackedLinear(layer.weight.detach(), layer.bias, from_rows) if from_rows < NEVER else layer


class Head(nn.Module):
    """The language-model head, in fp32 whatever the body's dtype, able to keep the top next tokens of every row.

    With ``keep`` set, a forward over all rows stores the ``keep`` likeliest next tokens of every row and their
    log-probabilities in ``kept`` (in blocks, so that rows x vocabulary never lie in memory at once), and returns the
    last row's logits only. ``scale`` and ``softcap`` are what the model's own code does with the logits behind it.
    """

    BLOCK = 256

    def __init__(self, head: Any, softcap: float | None, scale: float = 1.0) -> None:
        super().__init__()
        half = isinstance(head, nn.Linear) and head.weight.dtype in (torch.float16, torch.bfloat16)
        if half:  # the embedding may be tied to it and stays as it is
            weight = head.weight.detach().float()
            full = nn.Linear(weight.shape[1], weight.shape[0], bias=head.bias is not None, device="meta")
            full.weight = nn.Parameter(weight, requires_grad=False)
            if head.bias is not None:
                full.bias = nn.Parameter(head.bias.detach().float(), requires_grad=False)
            head = full
        self.inner: Any = head
        self.softcap, self.scale, self.in_half = softcap, scale, half
        self.keep = 0
        self.split_weight: tuple[Tensor, Tensor] | None = None

    @property
    def weight(self) -> Tensor:
        return self.inner.weight

    def forward(self, hidden: Float[Tensor, "1 rows hidden"]) -> Float[Tensor, "1 rows vocab"]:
        if self.in_half:
            hidden = hidden.float()
        if not self.keep:
            return self.inner(hidden)
        ids, logprobs = [], []
        for start in range(0, hidden.shape[1], self.BLOCK):
            logits = self.inner(hidden[:, start : start + self.BLOCK])[0]
            best, index = top_tokens(self.squash(logits), self.keep)
            ids.append(index)
            logprobs.append(best)
        self.split_weight = torch.cat(logprobs), torch.cat(ids)
        return self.inner(hidden[:, -1:])

    def squash(self, logits: Float[Tensor, "*rows vocab"]) -> Float[Tensor, "*rows vocab"]:
        """The head's logits as the model's own code scales and squashes them."""
        logits = logits * self.scale if self.scale != 1 else logits
        return self.softcap * torch.tanh(logits / self.softcap) if self.softcap else logits


def top_tokens(logits: Float[Tensor, "rows vocab"], k: int) -> tuple[Tensor, Tensor]:
    """The k likeliest next tokens per row: (log-probabilities, ids), both [rows, k], best first."""
    best, index = top_k(logits, k)
    if len(logits) > FEW_ROWS:  # of many rows, another copy of the logits would take more room than it saves time
        return best - logits.logsumexp(-1, keepdim=True), index
    return logits.log_softmax(-1).gather(-1, index), index
