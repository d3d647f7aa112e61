"""Compiled layers: what they give is what stock code gives, and who decides that they run.

One tiny layer is really compiled, once per test run; elsewhere a compiled part is the same function, not compiled.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from decoders import Prompt, generate, record
from decoders.draft.draft import Draft, Ran
from decoders.draft.needs import Needs
from decoders.model.engines import engines
from decoders.model.engines.engines import Engines
from decoders.model.engines.linear import packable
from decoders.model.engines.static import ROWS, StaticRows, bucket_of
from decoders.model.state.attention import Masks
from decoders.model.state.cache import TreeCache
from decoders.model.target_model.target import Target
from decoders.sweep.lossless import check_lossless
from tests.models import network, tiny_tokenizer
from tests.test_static import both, score, session_of, target_of, tree_of
from tests.tiers import matrix

from .. import compiled_layers, compiled_parts, compiling, engine
from ..buffers import BufferedForward, Buffers
from ..compiled_layers import CompiledForward, why_not
from ..compiling import CompiledPart, Workshop
from ..layer_maker import RoundedLayer, RoundedShape

LLAMAS = ("llama", "mistral", "mistral-window", "qwen2", "qwen2-window", "qwen3")
PROMPT = Prompt.from_ids([5, 6, 7])


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch) -> None:
    """Layers are compiled, as on a processor without the kernels' instructions."""
    monkeypatch.setattr(engine, "packed_layers", lambda target: None)


class Interpreter:
    """A compiled part that is not compiled."""

    def __init__(self, part: CompiledPart) -> None:
        self.layer = RoundedLayer(RoundedShape.from_json(json.loads(part.shape)))

    def run(self, tensors):
        return self.layer(*tensors[:7], tensors[7:])


def interpret(target: Target) -> Engines:
    """The target's compiled engine, with parts that are not compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "packed_layers", lambda target: None)  # as where the kernels cannot be had
        made = Engines(target, "compiled")
    assert isinstance(made.static, CompiledForward)
    made.static.layers = {one_row: Interpreter(part) for one_row, part in made.static.parts.items()}  # type: ignore
    made._is_checked = True
    return made


def interpret_unchecked(target: Target) -> Engines:
    """``interpreted`` under ``auto``, before its forwards were compared with stock ones."""
    made = interpret(target)
    made.engine, made._is_checked = "auto", False
    return made


@pytest.mark.parametrize("rows, bucket", [(1, 1), (2, 2), (9, 9), (16, 16), (17, 20), (33, 40), (65, 80), (129, None)])
def test_compiled_rows_are_padded_little(rows, bucket):
    found = bucket_of(rows, 40, 4096, 128, sizes=CompiledForward.sizes)
    assert (found and found.rows) == bucket and CompiledForward.sizes[-1] == ROWS[-1]


@pytest.mark.parametrize("family", matrix(LLAMAS, ("llama", "mistral-window"), "the other families"))
@pytest.mark.parametrize("length, rows", [(40, 1), (40, 4), (40, 5), (126, 1), (127, 1), (128, 17), (250, 16)])
def test_a_layer_of_its_own_gives_what_stock_code_gives(family, length, rows):
    """Logits, taps and keys, at the edges of buckets of rows and keys, within and beyond sliding windows."""
    target = target_of(family)
    (ran, stock, taps), (ran_static, ours, own_taps) = both(target, interpret(target), length, rows)
    assert ran == Ran() and ran_static.engine == "compiled"
    assert ran_static.rows >= rows and ran_static.keys >= length - 1 + ran_static.rows
    assert [list(kind) for kind in taps] == [list(kind) for kind in own_taps]
    for one, other in zip(stock, ours, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(other, one, atol=1e-5 * max(1.0, float(one.std())), rtol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_layer_of_its_own_computes_joint_linears_as_one(family, rows):
    """Packed weights that read the same rows lie in one, with the biases of those that have one."""
    if not packable(torch.float32, torch.device("cpu")):
        pytest.skip("this build of torch packs no weights")
    target = Target(network(family), tiny_tokenizer(), f"tiny {family}", packed=True)
    engines = interpret(target)
    assert isinstance(engines.static, CompiledForward)
    shape = RoundedShape.from_json(json.loads(engines.static.parts[rows == 1].shape))
    assert shape.joint == ("q_proj", "gate_proj") and ("q_proj" in shape.biased) == (family == "qwen2")
    (_, stock, _), (ran, ours, _) = both(target, engines, 40, rows)
    assert ran.engine == "compiled"
    for one, other in zip(stock, ours, strict=True):
        torch.testing.assert_close(other, one, atol=1e-5 * max(1.0, float(one.std())), rtol=1e-5)


@torch.inference_mode()
def with_garbage(target: Target, engine: Engines, seed: int):
    """A padded forward over a cache and buffers whose unused places hold random numbers."""
    target.engines = engine
    session = session_of(target, 40)
    generator = torch.Generator().manual_seed(seed)
    store = session.cache.store
    assert store is not None
    store[:, :, :, session.cache.length :].normal_(0, 100, generator=generator)
    buffers = engine.static.buffers(8)  # type: ignore[union-attr]
    buffers.embeddings.normal_(0, 100, generator=generator)
    buffers.positions.random_(0, 200, generator=generator)
    tree = tree_of(session, 5)
    return score(session, tree)[1]


def two_with_garbage(way):
    """Two forwards by an engine whose unused places hold other numbers, padded from the first one on."""
    target = target_of("mistral-window")
    engine = way(target)
    engine.static.bucket = lambda rows: bucket_of(rows.count, rows.cache.length, rows.cache.capacity, 128)
    return zip(*(with_garbage(target, engine, seed) for seed in (1, 2)), strict=True)


def test_masks_of_several_windows_are_filled_together_at_any_size():
    target, windows = target_of(), frozenset({5, 9})
    forward = BufferedForward(target)
    forward.windows = windows
    for length in (*range(20, 140, 8), 40):
        for count in (1, 3):
            keys, at, cache = length + 12, np.arange(length, length + count), TreeCache(target.shape, 200)
            cache.length = length
            buffers = forward.buffers(4)
            buffers.fill(StaticRows(cache, Masks(target.dtype, target.device), [7] * count, at, None), keys, windows,
                         target.embeddings)  # fmt: skip
            for window in (None, 5, 9):
                mask, back = buffers.mask(keys, window), torch.tensor(at)[:, None] - torch.arange(keys)
                assert torch.equal(mask[:count] == 0, (back >= 0) & (back < (window or keys))), (length, window)
                assert bool((mask[count:] == buffers.lowest).all())
    assert len(forward._masks.stores) == 3


def test_a_mask_that_shows_the_padding_would_be_seen(home, monkeypatch):
    """The control of the test above."""
    fill = Buffers.fill

    def careless(self, rows, *others):
        fill(self, rows, *others)
        for store in self.masks.stores.values():
            store.zero_()

    monkeypatch.setattr(Buffers, "fill", careless)
    assert not all(torch.equal(first, second) for first, second in two_with_garbage(interpret))


def test_padding_and_unused_slots_change_no_bit():
    assert all(torch.equal(first, second) for first, second in two_with_garbage(interpret))


def write_over_edges(way, method):
    """The text grows past 256 keys while it is written by an engine."""
    target = target_of()
    prompt = Prompt.from_ids(([5, 6, 7, 8, 9, 10, 11] * 40)[:235])
    expected = generate(target, prompt, method, max_new_tokens=40)
    target.engines = way(target)
    trace = record(target, prompt, method, max_new_tokens=40)
    assert trace.output_ids == expected
    steps = trace.tables["steps"]
    used = {keys for keys in steps["engine_keys"] if keys}
    assert len(used) >= 2 and "eager" not in steps["engine"]
    buckets = zip(steps["engine_rows"], steps["engine_keys"], strict=True)
    assert target.engines.static is not None
    assert all(rows in target.engines.static.sizes for rows, keys in buckets if keys)


@pytest.mark.parametrize("method", ["plain", "pld+h", "pld+a", "recycling"])
def test_methods_write_the_same_over_the_edges_of_buckets(method):
    write_over_edges(interpret, method)


def test_a_step_may_be_looked_at_again():
    target = target_of()
    target.engines = interpret(target)
    session = session_of(target, 40, Needs())
    with session.at(30, Needs()) as part:
        assert part.score(Draft(tree_of(part, 5))).ran.engine == "compiled"


def test_what_is_not_there_yet_runs_eagerly(home):
    target = target_of()
    target.engines = Engines(target, "compiled")
    trace = record(target, Prompt.from_ids([5, 6, 7]), "plain", max_new_tokens=4)
    assert set(trace.tables["steps"]["engine"]) == {"eager"} and set(trace.tables["steps"]["engine_keys"]) == {None}


def test_a_family_that_cannot_be_compiled_stays_eager_and_says_so_once(caplog, monkeypatch):
    monkeypatch.setattr(engines, "_messages", set())
    for _ in range(2):
        target = Target(network("gpt2"), None, "tiny", engine="compiled")
    assert why_not(target) and [r.message for r in caplog.records] == [why_not(target)]
    assert target.engines.static is None and not target.engines.prepare()
    assert Engines(target, "auto").static is None and len(caplog.records) == 1


def test_auto_takes_what_is_compiled_and_runs_eagerly_what_is_not(monkeypatch, home):
    monkeypatch.setattr(compiled_layers, "WORKSHOP", Workshop())
    target = target_of()
    stock = record(target, PROMPT, "plain", max_new_tokens=8)
    target.engines = made = interpret_unchecked(target)
    assert isinstance(made.static, CompiledForward)
    several = made.static.layers.pop(False)
    for name in ("eager", "compiled"):
        trace = record(target, PROMPT, "plain", max_new_tokens=8)
        assert set(trace.tables["steps"]["engine"]) == {name} and trace.output_ids == stock.output_ids
        made.static.layers[False] = several  # it was made meanwhile


def wrong(tensors):
    raise RuntimeError("illegal instruction")


@pytest.mark.parametrize("engine, said", [
    ("compiled", "differ from its own by"), ("auto", "differ from its own by"), ("auto", "fail (illegal instruction)"),
])  # fmt: skip
def test_forwards_that_differ_or_fail_are_never_used(engine, said, caplog, monkeypatch):
    monkeypatch.setattr(engines, "_messages", set())
    target = target_of()
    expected = generate(target, PROMPT, max_new_tokens=6)
    target.engines = made = interpret_unchecked(target)
    made.engine = engine
    right = made.static.layers[True].run  # type: ignore[union-attr]
    apart = wrong if "fail" in said else lambda tensors: [part + 0.1 for part in right(tensors)]
    made.static.layers[True].run = apart  # type: ignore[union-attr]
    trace = record(target, PROMPT, "plain", max_new_tokens=6)
    assert trace.output_ids == expected and set(trace.tables["steps"]["engine"]) == {"eager"}
    assert made.static is None and said in caplog.text


@pytest.mark.parametrize("parameters", [5, compiled_parts.LARGEST + 1])
def test_a_server_compiles_while_nothing_runs_or_under_compiled_at_once(parameters, monkeypatch, home):
    shop, target = [], target_of()
    target.info["parameters"] = parameters
    monkeypatch.setattr(compiled_parts.WORKSHOP, "make", lambda parts, busy: shop.append((list(parts), busy)))

    def busy() -> bool:
        return True

    made = {engine: Engines(target, engine) for engine in ("eager", "auto", "compiled")}
    for each in made.values():
        each.begin(busy)
    automatic = made["auto"].static
    assert isinstance(automatic, CompiledForward) and isinstance(made["compiled"].static, CompiledForward)
    expected = [(automatic.all_parts, busy), (made["compiled"].static.all_parts, None)]
    assert shop == expected[parameters > 5 :] and len(automatic.all_parts) == 2
    draft = CompiledPart.of(compiled_layers.MAKER, {"any": 3})
    automatic.add([draft])  # of a draft model that a run opened
    made["auto"].resume()
    assert parameters > 5 or shop[-1] == ([*expected[0][0], draft], busy)


# --- one that is really compiled


def compiled_target(weights: str | None = None) -> Target:
    """A target whose layers are compiled."""
    if compiling.compiler() is None:
        pytest.skip("there is no C++ compiler here")
    target = target_of(weights=weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "packed_layers", lambda target: None)
        target.engines = Engines(target, "compiled")
    assert target.engines.prepare(), compiling.WORKSHOP.failed
    return target


@pytest.fixture(scope="module")
def module_target():
    return compiled_target()


@pytest.mark.compile("a minute of compiling")
def test_a_compiled_target_says_what_an_eager_one_says(module_target):
    eager = target_of()
    prompt = Prompt.from_ids(([5, 6, 7, 8, 9, 10, 11] * 40)[:100])
    for method in ("plain", "pld+h", "pld+a", "recycling"):
        trace = record(module_target, prompt, method, max_new_tokens=60)
        assert trace.output_ids == generate(eager, prompt, method, max_new_tokens=60)
        assert set(trace.tables["steps"]["engine"]) == {"compiled"}
    plain, drafted = check_lossless(module_target, [prompt], {"pld": None}, max_new_tokens=20)
    assert drafted.identical == 1 and all(one.engines == {"compiled": one.runs[0].steps} for one in (plain, drafted))


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("length, rows", [(40, 1), (127, 1), (128, 17)])
def test_a_layer_on_rounded_weights_gives_the_same_bits(weights, length, rows):
    """A last digit would become a bfloat16 digit of the next product's rows."""
    target = target_of(weights=weights)
    (_, stock, _), (ran, ours, _) = both(target, interpret(target), length, rows)
    assert ran.engine == "compiled" and all(torch.equal(one, other) for one, other in zip(stock, ours, strict=True))


@pytest.mark.compile("a minute of compiling")
def test_a_compiled_layer_on_rounded_weights_gives_the_same_bits():
    target = compiled_target("int4")
    made = target.engines
    for length, rows in ((40, 1), (127, 1), (40, 5), (128, 17)):
        (_, stock, _), (ran, ours, _) = both(target, made, length, rows)
        assert ran.engine == "compiled" and all(torch.equal(one, other) for one, other in zip(stock, ours, strict=True))


@pytest.mark.compile("a minute of compiling")
@pytest.mark.parametrize("length, rows", [(40, 1), (127, 1), (40, 5), (128, 17)])
def test_compiled_taps_and_padding(module_target, length, rows):
    made = module_target.engines
    try:
        (_, stock, _), (ran, ours, _) = both(module_target, made, length, rows)
        assert ran.engine == "compiled"
        for one, other in zip(stock, ours, strict=True):
            torch.testing.assert_close(other, one, atol=1e-5 * max(1.0, float(one.std())), rtol=1e-5)
        first, second = (with_garbage(module_target, made, seed) for seed in (1, 2))
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    finally:
        module_target.engines = made


@pytest.mark.compile("a minute of compiling")
def test_a_later_start_opens_what_was_compiled(module_target, monkeypatch):
    monkeypatch.setattr(compiling, "_child", lambda *_: pytest.fail("nothing is missing"))
    target, shop = target_of(), Workshop()
    monkeypatch.setattr(compiled_parts, "WORKSHOP", shop)
    monkeypatch.setattr(compiled_layers, "WORKSHOP", shop)
    target.engines = Engines(target, "compiled")
    assert target.engines.ready() and len(shop.open_parts) == 2
