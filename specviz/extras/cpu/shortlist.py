"""The output layer of a draft model, of which only the likeliest tokens are computed in fp32.

Beside a small network its output layer is most of what a draft reads. Logits of eight bits (``kernel``) say which
tokens are likeliest, in a quarter of the time; these are computed again from the layer itself. A draft is made of them,
so it is that of the layer's own logits unless one of its tokens fell out of the shortlist; the other tokens' logits,
some hundredths off, count only in the sum of a softmax. What is drafted is verified by the target in any case.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from decoders.model.engines.linear import PackedEmbedding, PackedLinear
from decoders.top_k import top_k

from .kernel import KERNELS
from .rounding import KernelLinear, fits

LENGTH = 16  # tokens of a row that are computed in fp32
FEWEST = 4096  # outputs: of a smaller layer nothing is gained


class ShortlistHead(nn.Module):
    """An output layer's logits, of the ``LENGTH`` likeliest tokens of each row as the layer has them."""

    def __init__(self, rough: KernelLinear, table: Any) -> None:
        super().__init__()
        self.rough, self.table = rough, table

    @classmethod
    def of(cls, head: Any) -> nn.Module:
        """For an output layer; the layer itself where it is small, has a bias, or the kernels are not there."""
        outputs, inputs = head.out_features, head.in_features
        if KERNELS.library is None or outputs < FEWEST or head.bias is not None or not fits(outputs, inputs, 8):
            return head
        weight = head.weight.detach()
        if isinstance(head, PackedLinear) and head.plain is None:
            table: Any = PackedEmbedding.of(head, weight)  # rows are read where they lie
        else:
            table = nn.Embedding.from_pretrained(weight)
        return head if table is None else cls(KernelLinear(weight, None, 8), table)

    def forward(self, states: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows vocab"]:
        logits = self.rough(states)
        _, likeliest = top_k(logits, LENGTH)
        return logits.scatter_(1, likeliest, torch.einsum("rth,rh->rt", self.table(likeliest), states))
