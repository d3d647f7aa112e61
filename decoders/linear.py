"""Linear layers that cost the same for one row and for sixteen.

On a CPU, a few rows through ``F.linear`` cost nearly as much each as one row alone, so short drafts lose. oneDNN's
pre-packed weights are flat; where they are missing, the plain layers stay. Heads of half-precision bodies run in fp32.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

PACK_ROWS = 16  # rows the packed layout is tuned for: a usual draft


class PackedLinear(nn.Module):
    """A linear layer over a oneDNN-packed copy of ``weight`` [out, in]; ``weight`` stays for whoever reads it."""

    def __init__(self, weight: Float[Tensor, "out in"], bias: Tensor | None, rows: int = PACK_ROWS) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight, requires_grad=False), bias
        self.out_features, self.in_features = weight.shape
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)

    def forward(self, x: Float[Tensor, "*rows in"]) -> Float[Tensor, "*rows out"]:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def packable(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this build packs such weights and gives the right answer."""
    if device.type != "cpu" or dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    try:
        weight, x = torch.randn(8, 4), torch.randn(3, 4)
        return torch.allclose(PackedLinear(weight, None)(x), x @ weight.T, atol=1e-5)
    except (RuntimeError, AttributeError):
        return False


def pack(model: nn.Module) -> int:
    """Replace every linear layer of a frozen fp32 CPU model by a packed one; returns how many."""
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                packed = PackedLinear(child.weight.detach(), child.bias)
            elif type(child) is Conv1D:  # GPT-2 keeps its weights transposed
                packed = PackedLinear(child.weight.detach().T.contiguous(), child.bias)
            else:
                continue
            setattr(parent, name, packed)
            count += 1
    return count


class Head(nn.Module):
    """The language-model head, in fp32 whatever the body's dtype, able to keep the top next tokens of every row.

    With ``keep`` set, a forward over all rows stores the ``keep`` likeliest next tokens and their log-probabilities
    per row
    in ``kept`` (in blocks, so that rows x vocabulary never lie in memory at once) and returns the last row's logits
    only.
    """

    BLOCK = 256

    def __init__(self, head: nn.Module, softcap: float | None) -> None:
        super().__init__()
        half = next(head.parameters()).dtype in (torch.float16, torch.bfloat16)
        if half:  # the embedding may be tied to it and stays as it is
            weight = head.weight.detach().float()
            full = nn.Linear(weight.shape[1], weight.shape[0], bias=head.bias is not None, device="meta")
            full.weight = nn.Parameter(weight, requires_grad=False)
            if head.bias is not None:
                full.bias = nn.Parameter(head.bias.detach().float(), requires_grad=False)
            head = full
        self.inner, self.softcap, self.half = head, softcap, half
        self.keep = 0
        self.kept: tuple[Tensor, Tensor] | None = None

    @property
    def weight(self) -> Tensor:
        return self.inner.weight

    def forward(self, hidden: Float[Tensor, "1 rows hidden"]) -> Float[Tensor, "1 rows vocab"]:
        if self.half:
            hidden = hidden.float()
        if not self.keep:
            return self.inner(hidden)
        ids, logprobs = [], []
        for start in range(0, hidden.shape[1], self.BLOCK):
            logits = self.inner(hidden[:, start : start + self.BLOCK])
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
