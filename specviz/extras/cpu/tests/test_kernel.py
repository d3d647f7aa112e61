"""This project's own kernels for rounded weights: what they compute, that rows do not touch each other, and where they
cannot be had.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from decoders import Prompt, generate, record
from decoders.draft_models.draft_run import target_rotary
from decoders.model.engines import joint, linear
from decoders.model.engines.engines import Engines
from decoders.model.engines.joint import pack_joined
from decoders.model.engines.linear import PackedLinear, packable
from decoders.model.target_model.target import Target
from decoders.study.look.run_settings import other_model
from decoders.study.measure.stock import StockModel
from decoders.sweep.lossless import check_lossless
from tests.drafts import tiny_draft
from tests.families.compare import network as hybrid
from tests.models import network, prompt_ids, tiny_tokenizer
from tests.test_hybrid import HYBRIDS
from tests.test_static import both

from .. import compiled_parts, engine, kernel, kernel_forward, rounding
from ..compile_command import named_parts
from ..compiled_draft import CompiledDraft
from ..compiling import WORKSHOP, Workshop
from ..kernel import KERNELS, Kernels
from ..kernel_forward import KernelForward
from ..rounding import KernelLinear, RoundedLinear, _unable
from ..shortlist import FEWEST, ShortlistHead
from ..weights import CpuWeights
from .test_rounded import DENSE, HEAD_ALONE, apart, small_llama

torch.set_num_threads(1)
PROMPTS = [Prompt.from_ids(prompt_ids(3)), Prompt.from_ids([*range(5, 25)] * 4)]
BITS = (8, 4)
compiles = pytest.mark.compile("half a minute of compiling")


@pytest.fixture(scope="module")
def own(module_home: Path) -> Iterator[None]:
    """The kernels, compiled into a home of their own, for this file alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KERNELS, "library", None)
        patch.setattr(KERNELS, "failed", None)
        if reason := KERNELS.why_not():
            pytest.skip(reason)
        assert KERNELS.usable("compiled"), KERNELS.failed
        yield


def target_of(model: Any, weights: str = "int4", engine: str = "compiled") -> Target:
    target = Target(model, tiny_tokenizer(), "tiny", weights=weights, engine=engine)
    target.__dict__["calibration"] = None
    return target


def by_kernels(target: Target) -> bool:
    """True if one call computes all layers of a target."""
    return isinstance(target.rounded_weights, CpuWeights) and target.rounded_weights.by_kernels


# --- what they compute


@compiles
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("outputs, inputs", [(48, 96), (16, 32), (40, 80), (320, 64)])
def test_products_are_those_of_the_weights_and_a_row_is_the_same_whatever_stands_beside_it(own, bits, outputs, inputs):
    torch.manual_seed(bits)
    weight, bias = torch.randn(outputs, inputs) * 0.1, torch.randn(outputs)
    layer = KernelLinear(weight, bias, bits)
    assert 0 < float((layer.weight - weight).abs().max()) < (0.004 if bits == 8 else 0.03)
    assert torch.equal(layer.state_dict()["weight"], layer.weight)
    x = torch.randn(2, 65, inputs)
    whole, expected = layer(x), x @ layer.weight.T + bias
    assert float((whole - expected).abs().max()) < 0.05 * float(expected.std())
    rows = x.flatten(0, 1)
    for count in (1, 2, 3, 5, 8, 9, 16, 17, 25, 64):
        assert torch.equal(torch.cat([layer(part) for part in rows.split(count)]), whole.flatten(0, 1)), count
    torch.set_num_threads(3)
    try:
        assert torch.equal(layer(x), whole)
    finally:
        torch.set_num_threads(1)


@compiles
def test_rows_on_a_grid_of_255_are_multiplied_exactly(own):
    """Numbers that no rounding touches: the product is the one of whole numbers."""
    torch.manual_seed(0)
    q = torch.randint(0, 16, (32, 3, 32)).float()
    q[..., 0], q[..., 1] = 0, 15
    weight = ((q - 8) * 0.25).flatten(1)
    rows = torch.randint(-127, 128, (5, 96)).float()
    rows[:, ::32] = 127
    layer = KernelLinear(weight, None, 4)
    assert torch.equal(layer.weight, weight) and torch.equal(layer(rows), rows @ weight.T)
    assert torch.equal(layer(torch.zeros(2, 96)), torch.zeros(2, 32))


@compiles
@pytest.mark.parametrize("rows, keys, heads, kv_heads, size", [
    (1, 1, 9, 3, 64), (1, 77, 4, 2, 16), (7, 133, 9, 3, 64), (16, 200, 4, 4, 20), (5, 64, 8, 2, 128), (30, 30, 6, 1, 8),
])  # fmt: skip
def test_attention_norms_and_silu_are_those_of_torch(own, rows, keys, heads, kv_heads, size):
    torch.manual_seed(rows)
    query, mask = torch.randn(1, heads, rows, size), torch.ones(rows, keys).tril(keys - rows).bool()
    key, value = (torch.randn(1, kv_heads, keys + 5, size)[:, :, :keys] for _ in range(2))
    wide = [x.double().repeat_interleave(heads // kv_heads, 1) for x in (key, value)]
    expected = F.scaled_dot_product_attention(query.double(), *wide, attn_mask=mask).transpose(1, 2)
    added = torch.zeros(rows, keys).masked_fill(~mask, torch.finfo(torch.float32).min)
    for given in (None, mask[None, None], added[None, None]):
        ours = kernel.attention(query, key, value, given, size**-0.5)
        torch.testing.assert_close(ours.double(), expected, atol=2e-6, rtol=1e-5)
    weight = torch.randn(size)
    exact = F.rms_norm(query.double(), weight.shape, weight.double(), 1e-5)
    torch.testing.assert_close(kernel.rms_norm(query, weight, 1e-5).double(), exact, atol=1e-6, rtol=1e-6)
    wide_range = torch.cat([query.flatten() * 20, torch.tensor([-1e4, -88.0, 0.0, 88.0, 1e4])])
    torch.testing.assert_close(kernel.KernelSiLU()(wide_range), F.silu(wide_range), atol=1e-6, rtol=1e-6)


@compiles
def test_what_a_row_sees_is_summed_alike_wherever_it_lies(own):
    """Keys that are hidden between those of a row change no bit of it."""
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 3, 1, 64), torch.randn(1, 1, 90, 64), torch.randn(1, 1, 90, 64)
    seen = torch.ones(90, dtype=torch.bool)
    seen[[40, 41, 63, 64, 77, 88]] = False
    mask = torch.zeros(1, 1, 1, 90).masked_fill(~seen, torch.finfo(torch.float32).min)
    among = kernel.attention(query, key, value, mask, 0.125)
    assert torch.equal(among, kernel.attention(query, key[:, :, seen], value[:, :, seen], None, 0.125))


@compiles
@pytest.mark.parametrize("outputs, inputs", [(64, 32), (100, 7), (576, 96), (48, 64), (16, 5)])
def test_packed_products_are_torchs_and_a_row_is_the_same_whatever_stands_beside_it(own, outputs, inputs):
    if not packable(torch.float32, torch.device("cpu")):
        pytest.skip("this build of torch packs no weights")
    torch.manual_seed(outputs)
    layer = PackedLinear(torch.randn(outputs, inputs), torch.randn(outputs))
    if kernel.packed_block(layer) is None:
        with pytest.raises(AttributeError, match="another way"):
            kernel.packed_pointers(layer)
        return
    x, pointers = torch.randn(27, inputs), kernel.packed_pointers(layer)
    whole = kernel.product(x, pointers)
    torch.testing.assert_close(whole, layer(x), atol=1e-4, rtol=1e-5)
    for rows in (1, 2, 5, 6, 7, 13, 26):
        assert torch.equal(kernel.product(x[:rows], pointers), whole[:rows])
    torch.set_num_threads(2)
    try:
        assert torch.equal(kernel.product(x, pointers), whole)
    finally:
        torch.set_num_threads(1)
    if outputs > 32:
        assert torch.equal(kernel.product(x, kernel.packed_pointers(layer, 16)), whole[:, 16:])
        assert torch.equal(kernel.product(x, kernel.packed_pointers(layer, 0, 32)), whole[:, :32])


# --- whole forwards


def packed_target(family: str = "llama") -> Target:
    if not packable(torch.float32, torch.device("cpu")):
        pytest.skip("this build of torch packs no weights")
    target = Target(network(family), tiny_tokenizer(), f"tiny {family}", packed=True, engine="compiled")
    target.__dict__["calibration"] = None
    return target


@compiles
@pytest.mark.parametrize("family", ["llama", "mistral-window", "qwen2", "qwen2-window", "qwen3"])
def test_one_call_on_packed_weights_gives_what_stock_code_gives(own, family, monkeypatch):
    """Logits, taps and keys; joint linear layers and those that stand alone."""
    monkeypatch.setattr(kernel_forward, "WORKSHOP", Workshop())
    made = packed_target(family).engines
    assert isinstance(made.static, KernelForward) and made.static.kernels and made.ready()
    for length, rows in ((2, 1), (40, 1), (40, 5), (127, 2), (128, 17), (250, 16), (60, 128)):
        (_, stock, taps), (ran, ours, own_taps) = both(made.target, made, length, rows)
        assert (ran.engine, ran.rows) == ("compiled", rows)
        assert [list(kind) for kind in taps] == [list(kind) for kind in own_taps]
        for one, other in zip(stock, ours, strict=True):
            torch.testing.assert_close(other, one, atol=1e-5 * max(1.0, float(one.std())), rtol=1e-5)


@compiles
@pytest.mark.parametrize("packed_from", [1, 2])
def test_methods_are_lossless_on_packed_weights(own, packed_from, monkeypatch):
    """Those that read states and attention too; packed_from 2: nothing is joint, and one row is read unpacked by stock
    code.
    """
    monkeypatch.setattr(linear, "crossover", lambda *shape: packed_from)
    monkeypatch.setattr(joint, "crossover", lambda *shape: packed_from)
    monkeypatch.setattr(kernel_forward, "WORKSHOP", Workshop())
    model = network()
    assert pack_joined(model)
    target = Target(model, tiny_tokenizer(), "tiny", engine="compiled")
    target.__dict__["calibration"] = None
    assert isinstance(target.engines.static, KernelForward) and target.engines.static.kernels
    methods = dict.fromkeys(["pld", "pld+h", "pld+a", "recycling"])
    outcomes = check_lossless(target, PROMPTS, methods, max_new_tokens=24, stock=StockModel(network()))
    assert [(outcome.failed, outcome.identical, outcome.total) for outcome in outcomes] == [(0, 2, 2)] * 5
    assert all(set(outcome.engines) == {"compiled"} for outcome in outcomes[1:])


@compiles
def test_the_kernels_are_compiled_by_a_child_as_layers_are(fresh, home, monkeypatch):
    workshop = Workshop()
    for module in (kernel_forward, compiled_parts):
        monkeypatch.setattr(module, "WORKSHOP", workshop)
    monkeypatch.setattr(kernel, "KERNELS", fresh)
    monkeypatch.setattr(engine, "KERNELS", fresh)
    if reason := fresh.why_not():
        pytest.skip(reason)
    target = packed_target()
    made = target.engines = Engines(target, "auto")
    assert isinstance(made.static, KernelForward) and not made.ready() and not made.complete()
    assert made.prepare() and made.ready() and made.complete()
    assert {*named_parts(target)} >= {"the kernels"}
    (_, stock, _), (ran, ours, _) = both(target, made, 40, 5)
    assert ran.engine == "compiled"
    torch.testing.assert_close(ours[0], stock[0], atol=1e-4, rtol=1e-4)



@compiles
@pytest.mark.parametrize("family", ["llama", "mistral-window", "qwen2", "qwen2-window", "qwen3"])
@pytest.mark.parametrize("weights", ["int4", "int8"])
def test_one_call_gives_the_bits_of_stock_code(own, family, weights):
    target = target_of(network(family), weights)
    made = target.engines
    assert by_kernels(target) and isinstance(made.static, KernelForward) and made.ready() and made.complete()
    for length, rows in ((2, 1), (40, 1), (40, 5), (127, 2), (128, 17), (250, 16)):
        (_, stock, _), (ran, ours, _) = both(target, made, length, rows)
        assert (ran.engine, ran.rows) == ("compiled", rows)
        assert len(stock) == len(ours) > 1
        assert all(torch.equal(one, other) for one, other in zip(stock, ours, strict=True))
    _, (ran, _, _) = both(target, made, 40, 200)
    assert ran.engine == "eager", "by stock code, with the same bits"


@compiles
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_rows_that_are_verified_together_are_those_that_come_one_by_one(own, weights):
    target = Target(small_llama(), None, "small", weights=weights, engine="compiled")
    assert type(target.head.inner) is KernelLinear and target.cached_as is None and apart(target) == 0
    torch.set_num_threads(2)
    try:
        assert apart(target) == 0
    finally:
        torch.set_num_threads(1)


@compiles
@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("family", DENSE)
def test_rows_of_a_hybrid_are_those_that_come_one_by_one(own, family, weights):
    """Linear layers by our kernels, the rest in double as beside torch's."""
    target = Target(hybrid(HYBRIDS[family]), None, family, weights=weights, engine="compiled")
    assert not by_kernels(target) and target.cached_as == torch.float64
    assert any(type(module) is KernelLinear for module in target.model.modules())
    assert apart(target) <= HEAD_ALONE


@compiles
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_methods_are_lossless_against_the_same_weights(own, weights):
    target, stock = target_of(network(), weights), StockModel(network(), weights=weights, activations="int8")
    methods = dict.fromkeys(["pld", "pld+h", "pld+a", "recycling"])
    outcomes = check_lossless(target, PROMPTS, methods, max_new_tokens=24, stock=stock)
    assert [(outcome.failed, outcome.identical, outcome.total) for outcome in outcomes] == [(0, 2, 2)] * 5
    assert all(set(outcome.engines) == {"compiled"} for outcome in outcomes[1:])


@compiles
def test_a_run_says_that_its_rows_were_rounded_otherwise(own):
    ours, torchs = target_of(network()), target_of(network(), engine="eager")
    assert ours.info["activations"] == "int8" and "activations" not in torchs.info
    assert type(torchs.head.inner) is not KernelLinear
    run = record(ours, PROMPTS[0], max_new_tokens=3).run
    assert run["model"]["activations"] == "int8" and other_model(ours, run, exact=True) is None
    assert "in int4 with int8 rows, and tiny in int4 is loaded" in str(other_model(torchs, run, exact=True))
    assert other_model(torchs, run) is None, "it may still be looked at"


@compiles
def test_draft_models_are_compiled_beside_them(own, monkeypatch):
    asked = []
    monkeypatch.setattr(WORKSHOP, "open", lambda part: None)
    monkeypatch.setattr(WORKSHOP, "make", lambda parts, busy=None: asked.extend(parts))
    monkeypatch.setattr(WORKSHOP, "wait", lambda parts, cancel=None: True)
    target = target_of(network())
    compiled = CompiledDraft.of(target, tiny_draft(target, "glide"), target_rotary(target.stack))
    assert isinstance(target.engines.static, KernelForward) and compiled is not None
    assert asked == target.engines.static.all_parts == [*compiled.parts.values()]


def linear_of(weight: torch.Tensor) -> torch.nn.Linear:
    layer = torch.nn.Linear(*weight.mT.shape, bias=False)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return layer


@compiles
@pytest.mark.parametrize("make", [lambda weight: PackedLinear(weight, None), linear_of])
def test_a_draft_models_likeliest_tokens_have_its_own_logits(own, make):
    """Ten of a row at most are drafted; of the others only their sum counts."""
    torch.manual_seed(4)
    head, states = make(torch.randn(FEWEST, 96) * 0.1), torch.randn(7, 96)
    shortlist = ShortlistHead.of(head)
    assert isinstance(shortlist, ShortlistHead)
    exact, logits = head(states), shortlist(states)
    best = exact.topk(10)
    assert torch.equal(logits.topk(10).indices, best.indices)
    torch.testing.assert_close(logits.gather(1, best.indices), best.values, atol=1e-5, rtol=0)
    torch.testing.assert_close(logits.logsumexp(1), exact.logsumexp(1), atol=2e-3, rtol=0)
    assert 0 < float((logits - exact).abs().max()) < 0.1, "the rest is of eight bits"
    small = linear_of(torch.randn(FEWEST - 1, 96))
    assert ShortlistHead.of(small) is small


# --- where they cannot be had


@pytest.fixture
def fresh(home: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """A process that has no kernels yet, on a machine that can have them."""
    made = Kernels()
    monkeypatch.setattr(kernel, "KERNELS", made)
    monkeypatch.setattr(kernel.sys, "platform", "linux")
    monkeypatch.setattr(kernel.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(kernel, "_instructions", lambda: frozenset(kernel.INSTRUCTIONS))
    return made


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(bool(_unable(4)), reason="this build of torch has no such kernels")
@pytest.mark.parametrize("case", ["system", "processor", "compiler", "error", "garbage"])
def test_where_they_cannot_be_had_torch_computes_and_one_sentence_says_why(case, fresh, home, monkeypatch, caplog):
    if case == "system":
        monkeypatch.setattr(kernel.sys, "platform", "darwin")
    elif case == "processor":
        monkeypatch.setattr(kernel, "_instructions", lambda: frozenset(kernel.INSTRUCTIONS) - {"avx512_vnni"})
    elif case == "compiler":
        monkeypatch.setenv("CXX", str(home / "none"))
    elif case == "error":
        monkeypatch.setenv("CXX", script(home / "cxx", "echo 'no room for <b>objects</b>' >&2; exit 1"))
    else:
        monkeypatch.setenv("CXX", script(home / "cxx", 'while [ "$1" != -o ]; do shift; done; echo no library > "$2"'))
    said = {
        "system": "are for Linux on x86-64", "processor": "need avx512_vnni, which this processor lacks",
        "compiler": "no C++ compiler for the kernels", "error": "cannot be used (no room for <b>objects</b>)",
        "garbage": "cannot be used (",
    }  # fmt: skip
    for _ in range(2):
        target = target_of(network())
    assert not by_kernels(target) and "activations" not in target.info
    assert {type(m) for m in target.model.modules() if isinstance(m, RoundedLinear)} == {RoundedLinear}
    messages = [r.message for r in caplog.records if "kernels for rounded weights" in r.message]
    assert len(messages) == 1 and said[case] in messages[0] and messages[0].endswith(": torch's own kernels compute")
    target.engines = Engines(target, "eager")
    assert len(generate(target, PROMPTS[0], max_new_tokens=2)) == 2


def test_auto_and_eager_compile_nothing(fresh, monkeypatch):
    monkeypatch.setattr(kernel, "_compile", lambda path: pytest.fail("nothing is asked for"))
    assert not fresh.usable("auto") and not fresh.usable("eager") and fresh.failed is None


def test_a_wrong_product_is_not_used(fresh, monkeypatch):
    monkeypatch.setattr(kernel, "compiler", lambda: "a compiler")
    monkeypatch.setattr(kernel, "_compile", lambda path: None)
    monkeypatch.setattr(kernel, "open_library", lambda path: "a library")
    monkeypatch.setattr(kernel, "linear", lambda rows, *_: torch.ones(len(rows), 48))
    assert not fresh.usable("compiled") and fresh.library is None
    assert "cannot be used (a product came out wrong)" in str(fresh.why_not())


@compiles
def test_what_is_there_is_opened_and_what_is_damaged_is_compiled_anew(own, fresh, monkeypatch):
    fresh.path.parent.mkdir(parents=True)
    fresh.path.write_bytes(b"\x7fELF and no more")
    assert fresh.usable("compiled") and fresh.path.stat().st_size > 10_000
    later = Kernels()
    monkeypatch.setattr(kernel, "_compile", lambda path: pytest.fail("it is there"))
    monkeypatch.setattr(kernel, "KERNELS", later)
    assert later.usable("auto") and later.library is not None


def test_models_of_another_build_are_left_to_stock_code():
    shape = target_of(network("gemma2"), "fp32", "eager").shape
    model = network("gemma2")
    assert "compute no attention of 'gemma2' models" in str(kernel_forward.why_not(model, shape))
    shape = target_of(network(), "fp32", "eager").shape
    assert "its layers differ from Llama's" in str(kernel_forward.why_not(network(), shape)), "its weights are in fp32"
    assert rounding.fits(16, 32, 4) and not rounding.fits(8, 32, 4)
