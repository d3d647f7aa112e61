"""Fused norms give the same bits, or are not used."""

import pytest
import torch
from torch import nn

from decoders.model.engines.norms import FusedRMSNorm, fuse_norms

from .models import network, tiny_target


class DoubledRMSNorm(nn.Module):
    """A norm of another formula under a usual name."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(size)), 1e-6

    def forward(self, x):
        return 2 * x / (x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon).sqrt()


@pytest.mark.parametrize("family", ["llama", "qwen3", "olmo2"])
def test_a_model_says_the_same_bit_for_bit(family):
    ids = torch.arange(5, 45)[None]
    model = network(family)
    with torch.inference_mode():
        before = model(ids).logits
        assert fuse_norms(model) > 2
        assert torch.equal(model(ids).logits, before)


def test_another_formula_stays_as_it_is():
    model = nn.ModuleList([DoubledRMSNorm(8)])
    assert fuse_norms(model) == 0 and type(model[0]) is DoubledRMSNorm


def test_a_target_uses_them():
    target = tiny_target("llama")
    assert target.info["fused_norms"] == sum(isinstance(m, FusedRMSNorm) for m in target.model.modules()) > 0
