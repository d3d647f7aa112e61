"""Linear layers whose cost hardly grows from one row to sixteen.

On a CPU, each row of a short draft through ``F.linear`` costs nearly as much as one row alone, so short drafts lose.
oneDNN's pre-packed weights are flat; where they are missing, the plain layers stay. Heads of half-precision bodies
run in fp32.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from decoders.folders import cache_folder, write_json

PACK_ROWS = 8  # rows the packed layout is tuned for: a short draft
TRIED_ROWS = (1, 2, 3, 4, 8, 16)
TRIED_BYTES = 32_000_000  # of weights, all copies together: more than the processor's own caches hold
FEWEST_CALLS, MOST_CALLS, CLEAR = 16, 48, 1.2  # of each kind; a clear result is no closer than this ratio
NEVER = 1 << 30  # rows: the packed copy is not worth having
NOTES = "linear.json"  # in the cache folder: what was tried

# time that this thread has computed, where that clock is fine enough (not on Windows)
_clock = time.thread_time if time.get_clock_info("thread_time").resolution < 1e-5 else time.perf_counter


class PackedLinear(nn.Module):
    """A linear layer with a oneDNN-packed copy of ``weight`` [out, in], used from ``packed_from`` rows on.

    Below that, plain ``F.linear`` is faster: how far below depends on the processor and the shape (``crossover``).
    """

    def __init__(self, weight: Float[Tensor, "out in"], bias: Tensor | None, packed_from: int = 1) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight, requires_grad=False), bias
        self.out_features, self.in_features = weight.shape
        self.packed_from = packed_from
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACK_ROWS)

    def forward(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        if x.numel() < self.packed_from * self.in_features:
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


@functools.cache
def crossover(outputs: int, inputs: int) -> int:
    """Rows from which the packed copy of an [outputs, inputs] weight is the faster one on this machine.

    Tried once, which takes up to 0.3 s for a large shape, and noted in the cache folder: later openings of any model
    with that shape read it there, and compute as the first one did.
    """
    here, shape = machine(), f"{outputs}x{inputs}"
    rows = _notes().get(here, {}).get(shape)
    if not isinstance(rows, int):
        rows = _tried(outputs, inputs)
        with contextlib.suppress(OSError):  # where nothing can be written, it is tried again
            notes = _notes()
            notes.setdefault(here, {})[shape] = rows
            write_json(cache_folder() / NOTES, notes)
    return rows


def _notes() -> dict[str, dict[str, int]]:
    """What was tried before: per machine, shape → rows. A file that cannot be read counts for nothing."""
    try:
        notes = json.loads((cache_folder() / NOTES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: shapes for name, shapes in notes.items() if isinstance(shapes, dict)} if type(notes) is dict else {}


def machine() -> str:
    """What the speed of a linear layer depends on besides its shape."""
    try:
        listed = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # another system
        listed = []
    name = next((line.partition(":")[2].strip() for line in listed if line.startswith("model name")), "")
    name = name or platform.processor() or platform.machine()
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def _tried(outputs: int, inputs: int) -> int:
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
    """Whether the packed copies take less time for ``x``: calls in alternation, of which the better ones count."""
    plain, packed = list[float](), list[float]()
    while True:
        for layer in layers:
            started = _clock()
            F.linear(x, layer.weight)
            between = _clock()
            layer(x)
            packed.append(_clock() - between)
            plain.append(between - started)
        times = [sorted(calls)[len(calls) // 4] for calls in (plain, packed)]
        if len(plain) >= MOST_CALLS or (len(plain) >= FEWEST_CALLS and max(times) > CLEAR * min(times)):
            return times[1] <= times[0]


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """With one thread and its own clock, trials say the same on a busy machine as on an idle one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def packable(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this build packs such weights and gives the right answer."""
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
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                weight = child.weight.detach()
            elif type(child) is Conv1D:  # GPT-2 keeps its weights transposed
                weight = child.weight.detach().T.contiguous()
            else:
                continue
            from_rows = crossover(*weight.shape) if packed_from is None else packed_from
            if from_rows < NEVER:
                setattr(parent, name, PackedLinear(weight, child.bias, from_rows))
                count += 1
    return count


@torch.no_grad()
def packed(layer: nn.Linear) -> nn.Module:
    """A frozen fp32 CPU layer packed, where that is faster; else the layer itself."""
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
        half = next(head.parameters()).dtype in (torch.float16, torch.bfloat16)
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
        self.kept: tuple[Tensor, Tensor] | None = None

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
            logits = self.inner(hidden[:, start : start + self.BLOCK])
            if self.scale != 1:
                logits = logits * self.scale
            if self.softcap:
                logits = self.softcap * torch.tanh(logits / self.softcap)
            best, index = top_tokens(logits[0], self.keep)
            ids.append(index)
            logprobs.append(best)
        self.kept = torch.cat(logprobs), torch.cat(ids)
        return self.inner(hidden[:, -1:])


def top_tokens(logits: Float[Tensor, "rows vocab"], k: int) -> tuple[Tensor, Tensor]:
    """The k likeliest next tokens per row: (log-probabilities, ids), both [rows, k], best first."""
    best, index = logits.topk(min(k, logits.shape[-1]), dim=-1)
    return best - logits.logsumexp(-1, keepdim=True), index
