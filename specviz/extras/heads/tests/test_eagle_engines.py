"""Compiled forwards of EAGLE's heads: what they give is what stock code gives."""

from __future__ import annotations

import json

import pytest
import torch

from decoders import Prompt, load_target
from decoders.engine.decoding import generate
from decoders.model.engines.linear import PackedLinear
from specviz.extras.cpu.tests import test_draft_engines
from specviz.extras.cpu.tests.test_compiled_layers import interpret
from specviz.extras.cpu.tests.test_draft_engines import check_drafts, context_of
from specviz.extras.cpu.tests.test_draft_engines import openings as openings
from tests.models import prompt_ids, tiny_target
from tests.tiers import matrix

from ..eagle_compiled import CompiledEagle
from ..eagle_functional import EagleRows
from ..eagle_head import EagleConfig
from ..eagle_run import EagleRun
from .tiny_parts import tiny_eagle

test_draft_engines.ROWS[CompiledEagle.maker] = EagleConfig, EagleRows


HEADS = [
    ("eagle", {"scaled": True}), ("eagle", {"draft_vocab": 100, "layers": 2}), ("eagle3", {"draft_vocab": 100}),
    ("eagle3", {"norm_output": True, "fc_norm": True}),
]  # fmt: skip


@pytest.mark.parametrize("kind, options", HEADS)
@torch.inference_mode()
def test_levels_of_a_head_are_those_of_stock_code(kind, options, openings):
    """Behind any text, which is caught up with by several rows and by one; and nothing behind the rows is read."""
    target = tiny_target("llama")
    head = tiny_eagle(target, kind, **options)
    if head.config.scaled:
        head.center.normal_(0, 3, generator=torch.Generator().manual_seed(1))
        head.spread.fill_(1.5)
    target.engines = interpret(target)
    compiled = CompiledEagle.of(target, head)
    assert compiled is not None
    stock, ours = EagleRun(head), EagleRun(head, compiled)
    for length in (20, 24, 25, 33):
        context = context_of(target, prompt_ids(4, 40)[:length], head.config.features)
        said = [[run.read(context)[None]] for run in (stock, ours)]
        ours.cache.store[..., ours.base :, :] = float("nan")
        for level in (([5, 6, 7], [0, 0, 0]), ([8, 9], [0, 2]), ([3], [1])):
            for run, logits in zip((stock, ours), said, strict=True):
                logits.append(run.extend(*map(torch.tensor, level)))
        for one, other in zip(*said, strict=True):
            torch.testing.assert_close(other.softmax(-1), one.softmax(-1), atol=1e-5, rtol=0)
        torch.testing.assert_close(ours.states_of([0, 2, 6]), stock.states_of([0, 2, 6]), atol=1e-4, rtol=1e-4)
        ours.cache.store.nan_to_num_()
    calls = {json.loads(part.shape)["kind"]: made.calls for part, made in openings.items()}
    assert calls["level"] >= 8 and calls["text"] >= 2 and calls["row"] >= 5


@pytest.mark.parametrize(
    "method, kind", matrix([("eagle2", "eagle"), ("eagle", "eagle"), ("eagle3", "eagle3")], 1, "the other methods")
)
def test_methods_draft_the_same_and_stay_lossless(method, kind, openings):
    check_drafts(method, kind, openings)


def test_packed_weights_are_not_unpacked_at_every_draft(monkeypatch: pytest.MonkeyPatch):
    """As they were, to know their type and device: more than three times a draft."""
    target = load_target("bundled", device="cpu")
    readings, weight = [], PackedLinear.weight
    prompt = Prompt.from_text(target.tokenizer, "Say it twice: the old lamp. the old")
    generate(target, prompt, "eagle3", max_new_tokens=2)  # layers of its sizes are tried on this machine, once
    monkeypatch.setattr(PackedLinear, "weight", property(lambda layer: readings.append(layer) or weight.fget(layer)))
    assert len(generate(target, prompt, "eagle3", max_new_tokens=24)) == 24 and len(readings) < 5
