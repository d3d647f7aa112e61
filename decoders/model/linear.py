"""Linear layers whose cost hardly grows from one row to sixteen.

On a CPU, each row of a short draft through ``F.linear`` costs nearly as much as one row alone, so short drafts lose.
oneDNN's pre-packed weights are flat; where they are missing, the plain layers stay. Heads of half-precision bodies
run in fp32.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

PACK_ROWS = 8  # rows the packed layout is tuned for: a short draft
TRIED_ROWS = (1, 2, 3, 4, 8, 16)
NEVER = 1 << 30  # rows: the packed copy is not worth having


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
def crossover(outputs: int, inputs: int, threads: int) -> int:
    """Rows from which the packed copy of an [outputs, inputs] weight is the faster one on this machine, by trying.

    Takes up to 0.3 s for a large shape, once; weights are cycled so that they come from memory as in a real forward.
    """
    random = torch.Generator().manual_seed(0)
    copies = max(2, min(8, 32_000_000 // (outputs * inputs * 4)))
    layers = [PackedLinear(torch.randn(outputs, inputs, generator=random), None) for _ in range(copies)]

    def seconds(layer_call: Callable[[PackedLinear, Tensor], Tensor], x: Tensor) -> float:
        best = math.inf
        for _ in range(4):
            started = time.perf_counter()
            for layer in layers:
                layer_call(layer, x)
            best = min(best, time.perf_counter() - started)
        return best

    first = NEVER
    for rows in reversed(TRIED_ROWS):
        x = torch.randn(rows, inputs, generator=random)
        plain = seconds(lambda layer, x: F.linear(x, layer.weight), x)
        if seconds(lambda layer, x: layer(x), x) > plain:
            break
        first = rows
    return first


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
    threads = torch.get_num_threads()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                weight = child.weight.detach()
            elif type(child) is Conv1D:  # GPT-2 keeps its weights transposed
                weight = child.weight.detach().T.contiguous()
            else:
                continue
            from_rows = crossover(*weight.shape, threads) if packed_from is None else packed_from
            if from_rows < NEVER:
                setattr(parent, name, PackedLinear(weight, child.bias, from_rows))
                count += 1
    return count


@torch.no_grad()
def packed(layer: nn.Linear) -> nn.Module:
    """A frozen fp32 CPU layer packed, where that is faster; else the layer itself."""
    from_rows = crossover(*layer.weight.shape, torch.get_num_threads())
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
