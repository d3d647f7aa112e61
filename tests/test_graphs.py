"""Graphs of forwards and of drafts, through one that is emulated (``tape``): what is captured once serves every step
and every run, gives what stock code gives, and what cannot be captured runs eagerly.
"""

from __future__ import annotations

import copy
import gc
import inspect
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle

import pytest
import torch
import transformers as hf

from decoders import Prompt, Sampling, generate, methods, record
from decoders.draft.draft import Draft
from decoders.draft.needs import Needs
from decoders.engine.decoding import Decoding
from decoders.method.part import kinds
from decoders.model.engines import engines, graphs, split_from
from decoders.model.engines.captured_inputs import Inputs
from decoders.model.engines.engines import Engines
from decoders.model.engines.graphs import CaptureError, GraphForward
from decoders.model.state.stores import IDLE, Stores, capacity_for
from decoders.model.state.two_parts import StoredRows, TwoParts, _over_text, attend, flash_over_text
from decoders.model.target_model.target import Target
from decoders.prompt.prompt import Segment

from .drafts import target_with_parts
from .models import GROUPED, network, prompt_ids, tiny_target, tiny_tokenizer
from .tape import Tape, TapeForward
from .test_static import score, session_of, tree_of
from .tiers import matrix

LLAMA_LIKE = ("llama", "mistral-window", "qwen2", "qwen3")
FAMILIES = (*LLAMA_LIKE, "gemma2", "gemma3", "gpt2", "phi", "olmo2", "opt", "gpt_oss")
NEW = 24
IDS = prompt_ids(4, 40)
PROMPT = Prompt(tuple(IDS), (Segment("instruction", 0, 4), Segment("context", 4, 30, 0), Segment("question", 30, 40)))
REPEATS = Prompt.from_ids(([5, 6, 7, 8, 9, 10, 11] * 40)[:235])
DRAWN = Sampling(temperature=0.9, top_p=0.95, seed=4)


def use_graphs(target: Target, *, split: bool = False, compiled: bool = False) -> GraphForward:
    """Has a target's forwards captured, with attention in two parts or behind masks; of Llama's build also compiled."""
    target.engines = Engines(target)
    target.engines.engine, target.engines.static = "graph", TapeForward(target)
    static = target.engines.static
    static.split_from = 0 if split else 1 << 40
    if compiled and static.layers is not None:
        static.compiled_layers, static.takes_compiled = static.layers.compile_with(static.compile), True
    return static


def network_of(family: str):
    """A random model; gpt-oss has sinks, and a window in every other layer."""
    if family != "gpt_oss":
        return network(family)
    torch.manual_seed(0)
    config = hf.GptOssConfig(**GROUPED, head_dim=16, sliding_window=24, num_local_experts=2, num_experts_per_tok=1)
    return hf.GptOssForCausalLM(config).eval()


@contextmanager
def eagerly(target: Target):
    engine, target.engines = target.engines, Engines(target)
    try:
        yield
    finally:
        target.engines = engine


# --- forwards


@pytest.mark.parametrize("split", matrix([False, True], 1, "the other way"))
@pytest.mark.parametrize("packed, compiled", [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("family", matrix(FAMILIES, ("llama", "gpt_oss"), "the other families"))
def test_a_graph_gives_what_stock_code_gives(family, packed, compiled, split):
    """Logits, taps and keys of one row, a tree and a larger one, within and beyond sliding windows, by few captures. A
    model of Llama's build whose weights lie as they are on a GPU runs through its layers as one function, and as they
    are traced to be compiled.
    """
    target = Target(network_of(family), tiny_tokenizer(), f"tiny {family}", packed=packed)
    static = use_graphs(target, split=split, compiled=compiled)
    assert (static.layers is not None) == (not target.info["packed"] and family in LLAMA_LIKE)
    for length, rows in ((40, 1), (40, 5), (250, 17), (254, 1), (251, 6)):
        with eagerly(target):
            session = session_of(target, length)
            ran, stock, taps = score(session, tree_of(session, rows))
        assert ran.engine == "eager"
        session = session_of(target, length)
        ran, ours, own_taps = score(session, tree_of(session, rows))
        assert ran.engine == "graph" and ran.rows >= rows and ran.keys >= length
        assert [sorted(kind) for kind in taps] == [sorted(kind) for kind in own_taps]
        for one, other in zip(stock[:1] + stock[-1:], ours[:1] + ours[-1:], strict=True):
            torch.testing.assert_close(other, one, atol=1e-5 * max(1.0, float(one.std())), rtol=1e-5)
        for kind, own in zip(taps, own_taps, strict=True):
            for layer in kind:
                torch.testing.assert_close(own[layer], kind[layer], atol=1e-5 * float(kind[layer].std()), rtol=1e-5)
    has_masks = not split or bool(static.windows) or static.no_split is not None
    kinds_here = [kind for kind in session.cache.lease.companions if isinstance(kind, graphs.Kind)]
    assert all(kind.split is (split and static.no_split is None) for kind in kinds_here)
    assert static.captures == (4 + 2 if has_masks else 3 + 2)  # two of them by the check


@pytest.mark.parametrize("split", [False, True])
@torch.inference_mode()
def test_what_lies_behind_the_text_changes_no_bit(split):
    target = tiny_target("llama")
    static, outputs = use_graphs(target, split=split), []
    for seed in (1, 2):
        session, generator = session_of(target, 40), torch.Generator().manual_seed(seed)
        session.cache.store[:, :, :, session.cache.length :].normal_(0, 100, generator=generator)
        static.inputs(8).embeddings.normal_(0, 100, generator=generator)
        outputs.append(score(session, tree_of(session, 5))[1])
    assert all(torch.equal(one, other) for one, other in zip(*outputs, strict=True))


@pytest.mark.parametrize("heads, kv_heads, dtype, near", [
    (9, 3, torch.float64, 1e-14), (9, 3, torch.float32, 4e-6), (32, 8, torch.bfloat16, 6e-3),
    (4, 4, torch.float32, 4e-6),
])  # fmt: skip
@pytest.mark.parametrize("rows, length", [(1, 1), (1, 300), (8, 300), (32, 40)])
def test_two_parts_merge_to_attention_over_all_keys(heads, kv_heads, dtype, near, rows, length):
    """Against scores formed at once in double; with sinks, too."""
    generator, size, capacity = torch.Generator().manual_seed(0), 64, 400
    query = torch.randn(1, heads, rows, size, generator=generator, dtype=torch.float64).to(dtype)
    store = torch.randn(2, 1, kv_heads, capacity, size, generator=generator, dtype=torch.float64).to(dtype)
    sinks = torch.randn(heads, generator=generator)
    sees = torch.eye(rows, dtype=torch.bool)
    for row in range(1, rows):
        sees[row] |= sees[(row - 1) // 2]
    keys, values = (StoredRows(part, part[:, :, length : length + rows]) for part in store)
    mask = TwoParts(torch.tensor([length]), sees)
    visible = torch.cat([torch.ones(rows, length, dtype=torch.bool), sees], 1)
    seen = store[:, :, :, : length + rows].double().repeat_interleave(heads // kv_heads, 2)
    scores = (query.double() @ seen[0].mT * size**-0.5).masked_fill(~visible, -torch.inf)
    for sink in (None, sinks):
        all_scores = scores
        if sink is not None:
            all_scores = torch.cat([scores, sink.double()[None, :, None, None].expand(1, -1, rows, 1)], -1)
        exact = all_scores.softmax(-1)[..., : length + rows] @ seen[1]
        ours = attend(query, keys, values, mask, size**-0.5, sink).double()
        assert float((ours - exact).norm() / exact.norm()) < near


@pytest.mark.parametrize("heads, kv_heads, rows", [(9, 3, 8), (4, 4, 1)])
def test_flash_attention_is_asked_for_the_committed_keys(heads, kv_heads, rows, monkeypatch):
    """By the signature that this torch's has; what it returns is formed here from its documentation."""

    def varlen_attn(query, key, value, query_bounds, key_bounds, max_q, max_k, **options):
        signature.bind(query, key, value, query_bounds, key_bounds, max_q, max_k, **options)
        (used,) = options["seqused_k"].tolist()
        assert query_bounds.tolist() == [0, len(query)] == [0, max_q]
        assert key_bounds.tolist() == [0, max_k] == [0, len(key)]
        group = query.shape[1] // key.shape[1]
        keys, values = (part[:used].repeat_interleave(group, 1).transpose(0, 1) for part in (key, value))
        scores = (query.transpose(0, 1) @ keys.mT) * options["scale"]
        return (scores.softmax(-1) @ values).transpose(0, 1), scores.logsumexp(-1).T

    from torch.nn.attention import varlen

    signature = inspect.signature(varlen.varlen_attn)
    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    query, stores = torch.randn(1, kv_heads, heads // kv_heads * rows, 16), torch.randn(2, 1, kv_heads, 50, 16)
    mask = TwoParts(torch.tensor([33]), torch.eye(rows, dtype=torch.bool))
    ours = flash_over_text(query, *stores, mask, 0.25)
    others = _over_text(query, *stores, mask, 0.25)
    for one, other in zip(ours, others, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


# --- methods


@pytest.fixture(scope="module")
def target_with_all(module_home) -> Target:
    """A target with a random part of every kind, whose weights lie as they do on a GPU."""
    return target_with_parts(kinds(), "qwen3", packed=False)


def usable(target: Target) -> list[str]:
    return [name for name, method in methods().items() if method.missing(target) is None]


def outcome(target: Target, method: str, **options):
    trace = record(target, PROMPT, method, max_new_tokens=NEW, stop_ids=(), **options)
    steps = trace.tables["steps"]
    return trace.output_ids, steps["accepted"], trace.tables["nodes"]["token"], set(steps["engine"])


def nearly(drafted: list[int], expected: list[int]) -> bool:
    """True where the same tokens were drafted but for a few nodes that are as likely as others, to the last digit."""
    return sum((Counter(drafted) - Counter(expected)).values()) <= len(expected) // 200


WAYS = [(False, None, False), (True, DRAWN, True), (True, None, False), (False, DRAWN, False)]


@pytest.mark.parametrize("split, sampling, compiled", matrix(WAYS, 0, "every method three times"))
def test_every_method_writes_and_accepts_the_same(target_with_all, split, sampling, compiled, monkeypatch):
    """Twice in one process: drafts, what is accepted and the output are those of stock code, and the second run
    captures nothing. A value that was baked into a graph shows in what is accepted.
    """
    monkeypatch.setattr(Tape, "spoils", True)
    wrong, static = dict[str, str](), use_graphs(target_with_all, split=split, compiled=compiled)
    for method in usable(target_with_all):
        with eagerly(target_with_all):
            expected = outcome(target_with_all, method, sampling=sampling)
        for run in ("first", "second"):
            gc.collect()
            before = static.captures
            found = outcome(target_with_all, method, sampling=sampling)
            count = static.captures - before
            if found[:2] != expected[:2]:
                wrong[f"{method}, {run} run"] = "accepts otherwise" if found[0] == expected[0] else "writes otherwise"
            if not nearly(found[2], expected[2]):
                wrong[f"{method}, {run} run"] = "drafts otherwise"
            if run == "second" and count:
                wrong[f"{method}, {run} run"] = f"captures {count} graphs"
            if "graph" not in found[3]:
                wrong[f"{method}, {run} run"] = f"runs by {found[3]}"
    assert not wrong and not static.failed


GRAPHED = ("glide", "sps", "eagle", "eagle2", "eagle3", "medusa", "hydra")


@pytest.mark.parametrize("method", [name for name in GRAPHED if name in methods()])
def test_a_whole_draft_is_one_graph(target_with_all, method, monkeypatch):
    """From the second run on, a draft calls no network."""
    use_graphs(target_with_all)
    outcome(target_with_all, method)
    calls, forward = list[str](), torch.nn.Module.__call__
    monkeypatch.setattr(torch.nn.Module, "__call__", lambda self, *args, **more: calls.append(type(self).__name__)
                        or forward(self, *args, **more))  # fmt: skip
    run = Decoding.of(target_with_all, PROMPT, method, max_new_tokens=NEW, stop_ids=())
    run.prefill()
    calls.clear()
    assert sum(1 for _ in run) > 2 and not calls


def test_methods_write_the_same_beyond_the_first_keys():
    """The text grows past 256 keys while it is written."""
    target = tiny_target()
    for method in ("plain", "pld+h", "pld+a", "recycling"):
        with eagerly(target):
            expected = generate(target, REPEATS, method, max_new_tokens=40)
        use_graphs(target)
        trace = record(target, REPEATS, method, max_new_tokens=40)
        steps = trace.tables["steps"]
        assert trace.output_ids == expected and set(steps["engine_keys"]) == {256, 512}
        assert set(steps["engine"]) == {"graph"}


# --- controls: what the emulated graph would see


def test_a_number_that_is_baked_in_is_seen(monkeypatch):
    """The length of the text, which another step does not share."""
    fill = Inputs.fill

    def baking(self, rows):
        fill(self, rows)
        self.length = self.length.clone()  # the first graph reads this one for ever

    target = tiny_target()
    with eagerly(target):
        expected = generate(target, REPEATS, "pld", max_new_tokens=20)
    monkeypatch.setattr(Inputs, "fill", baking)
    use_graphs(target)
    assert generate(target, REPEATS, "pld", max_new_tokens=20) != expected


@pytest.mark.parametrize("method", ["pld", "pld+h"])
def test_a_value_that_is_read_cannot_be_captured(method, caplog, monkeypatch):
    """The forward runs eagerly then, and that is said once; also where only forwards of which states are read fail."""
    monkeypatch.setattr(engines, "_messages", set())
    target = tiny_target()
    expected = generate(target, PROMPT, method, max_new_tokens=12)
    static = use_graphs(target)
    target.engines._is_checked = True
    stock = static._forward
    monkeypatch.setattr(static, "_forward", lambda *args: stock(*args) * float(args[0].length[0] > 0))
    for _ in range(2):
        trace = record(target, PROMPT, method, max_new_tokens=12)
        assert trace.output_ids == expected and set(trace.tables["steps"]["engine"]) == {"eager"}
    said = [line.message for line in caplog.records]
    assert said and all("run eagerly, as capturing" in line and "cannot be captured" in line for line in said)
    assert len(said) == len(set(said))


def test_a_draft_that_cannot_be_captured_is_made_eagerly(target_with_all, caplog, monkeypatch):
    monkeypatch.setattr(engines, "_messages", set())
    use_graphs(target_with_all)

    def full(self, *args):
        raise CaptureError("CUDA out of memory")

    monkeypatch.setattr(GraphForward, "function", full)
    for method in (name for name in GRAPHED if name in methods()):
        with eagerly(target_with_all):
            expected = outcome(target_with_all, method)
        found = outcome(target_with_all, method)
        assert found[:2] == expected[:2] and nearly(found[2], expected[2])
    assert {line.message.rpartition(": ")[2] for line in caplog.records} == {"CUDA out of memory"}


def test_a_check_that_fails_keeps_stock_code(caplog, monkeypatch):
    monkeypatch.setattr(engines, "_messages", set())
    target = tiny_target()
    expected = generate(target, PROMPT, max_new_tokens=6)
    static = use_graphs(target)
    monkeypatch.setattr(static, "_forward", lambda *args, stock=static._forward: stock(*args) + 0.1)
    trace = record(target, PROMPT, "plain", max_new_tokens=6)
    assert trace.output_ids == expected and set(trace.tables["steps"]["engine"]) == {"eager"}
    assert target.engines.static is None and "differ from its own by 0.1" in caplog.text


# --- stores


def test_stores_are_lent_and_come_back():
    stores, sizes = Stores(), (4, 1, 2, 700, 8)
    first = stores.take(sizes, torch.float32, torch.device("cpu"))
    first.companions["graph"] = "captured"
    second = stores.take(sizes, torch.float32, torch.device("cpu"))
    assert first.capacity == capacity_for(700) == 2048 and second.tensor is not first.tensor
    memory = first.tensor
    memory.fill_(float("nan"))
    del first
    third = stores.take((4, 1, 2, 900, 8), torch.float32, torch.device("cpu"))
    assert third.tensor is memory and third.companions == {"graph": "captured"} and not memory.any()
    assert stores.take((4, 1, 2, 900, 4), torch.float32, torch.device("cpu")).tensor.shape[-1] == 4
    del second, third
    larger = stores.take((4, 1, 2, 3000, 8), torch.float32, torch.device("cpu"))
    assert larger.capacity == 4096 and len(stores._idle) <= IDLE
    del larger
    assert stores.has(4096) and not stores.has(5000)
    Stores.drop_all()
    assert not stores.has(1)


def test_two_runs_at_once_have_a_store_each():
    target = tiny_target()
    prompts = [Prompt.from_ids(prompt_ids(seed, 40)) for seed in (4, 5)]
    expected = [generate(target, prompt, "pld", max_new_tokens=NEW) for prompt in prompts]
    static = use_graphs(target)
    begun = threading.Barrier(2)

    def run(prompt: Prompt) -> list[int]:
        decoding = Decoding.of(target, prompt, "pld", max_new_tokens=NEW)
        decoding.prefill()
        begun.wait(60)
        return [token for step in decoding for token in step.emitted]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, prompts)) == expected
    before = static.captures
    assert generate(target, prompts[0], "pld", max_new_tokens=NEW) == expected[0] and static.captures == before


def test_a_step_that_is_looked_at_again_runs_over_the_runs_own_store():
    target = tiny_target()
    static = use_graphs(target)
    session = session_of(target, 60, Needs())
    with eagerly(target):
        other = session_of(target, 60, Needs())
        with other.at(30, Needs()) as part:
            expected = part.score(Draft(tree_of(part, 5))).logits
    with session.at(30, Needs()) as part:
        scored = part.score(Draft(tree_of(part, 5)))
        assert scored.ran.engine == "graph" and part.cache.lease is session.cache.lease
    torch.testing.assert_close(scored.logits, expected, atol=1e-5, rtol=1e-5)
    assert static.stores._idle or session.cache.lease is not None


def test_memory_that_waits_for_a_run_is_given_up_where_one_needs_it(monkeypatch):
    target = tiny_target()
    static = use_graphs(target)
    generate(target, PROMPT, max_new_tokens=4)
    assert static.stores.has(1)
    asked = list[bool]()

    def free(device: str) -> int:
        asked.append(static.stores.has(1))
        return 0 if asked[-1] else 1 << 50

    monkeypatch.setattr("decoders.model.state.room.free_memory", free)
    monkeypatch.setattr("decoders.model.state.room.SMALL", 0)
    target.session(Needs(), 5000)
    assert asked == [True, False]


# --- before a run asks


def test_the_usual_sizes_are_captured_before_a_run(monkeypatch):
    monkeypatch.setattr(Engines, "_slower", lambda *_: None)  # as on a GPU
    target = tiny_target()
    static = use_graphs(target)
    rest = threading.Event()
    target.engines.engine = "auto"
    target.engines.begin(lambda: not rest.is_set())
    assert not target.engines.complete() and static.captures == 0
    first = record(target, PROMPT, "plain", max_new_tokens=4)  # meanwhile
    rest.set()
    assert target.engines.prepare() and target.engines.complete()
    assert set(first.tables["steps"]["engine"]) == {"graph"}
    before = static.captures
    assert before >= len(graphs.FIRST_ROWS)
    record(target, PROMPT, "pld", max_new_tokens=NEW)
    assert static.captures == before


REASONS = {
    "compile": "are captured as they are, as compiling them fails: no compiler",
    "stray": "differ from its own by",
}


@pytest.mark.parametrize("fault, times", [("", (2.0, 1.0)), ("", (1.0, 2.0)), ("compile", ()), ("stray", (2.0, 1.0))])
def test_compiled_layers_are_taken_where_they_give_the_same_in_less_time(fault, times, monkeypatch):
    """Forwards as they are stay where compiled ones cannot be had, give something else or take longer."""
    target = Target(network("qwen3"), tiny_tokenizer(), "tiny qwen3", packed=False)
    static, clock = use_graphs(target), cycle(times)
    monkeypatch.setattr(graphs, "median_ms", lambda *_: next(clock))

    def compile(traced):
        if fault == "compile":
            raise RuntimeError("no compiler\nbut lines of a trace")
        return (lambda *tensors: traced(*tensors)) if not fault else (lambda *tensors: stray(traced(*tensors)))

    def stray(result):
        return result + 0.1 if isinstance(result, torch.Tensor) else result

    monkeypatch.setattr(static, "compile", compile)
    expected = generate(target, PROMPT, "pld", max_new_tokens=NEW)
    assert target.engines.prepare()
    taken = not fault and times[1] < times[0]
    assert static.takes_compiled is taken is (static.compiled_layers is not None)
    reason = static.wait()
    assert reason is None if not fault else REASONS[fault] in reason
    assert not any(kind.compiled is not taken for kind in kinds_of(static))
    assert generate(target, PROMPT, "pld", max_new_tokens=NEW) == expected


def kinds_of(static: GraphForward) -> list[graphs.Kind]:
    """The forwards that were captured over stores that wait."""
    return [kind for _, companions in static.stores._idle for kind in companions if isinstance(kind, graphs.Kind)]


@pytest.mark.compile("torch compiles layers for a CPU")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@torch.inference_mode()
def test_layers_compiled_by_torch_give_what_they_gave(family):
    """The same rows by torch.compile's own kernels, here those of the CPU; of each size once."""
    target = Target(network(family), tiny_tokenizer(), f"tiny {family}", packed=False)
    static = use_graphs(target)
    stack = static.layers.compile_with(graphs.compile_trace)
    for rows in (1, 8, 8):
        x, turns = torch.randn(rows, stack.layer.shape.hidden), torch.randn(2, rows, stack.layer.shape.head_dim)
        for weights in stack.weights:
            ours, stock = (layer.project(x, *turns, *weights) for layer in (stack.layer, static.layers.layer))
            torch.testing.assert_close(ours, stock, atol=1e-5, rtol=1e-5)
            out = ours[0][None].contiguous()
            ours, stock = (layer.transform(x, out, *weights) for layer in (stack.layer, static.layers.layer))
            torch.testing.assert_close(ours, stock, atol=1e-5, rtol=1e-5)
    assert len(stack.layer.project.by_size) == len(stack.layer.transform.by_size) == 2


def test_waiting_for_captures_ends_when_it_is_cancelled():
    target = tiny_target()
    static, cancel = use_graphs(target), threading.Event()
    static.make(lambda: not cancel.is_set())
    waiter = threading.Thread(target=static.wait, args=(cancel,))
    waiter.start()
    assert not static.complete()
    cancel.set()
    waiter.join(60)
    assert not waiter.is_alive() and static.wait() is None and static.complete()


def test_auto_takes_the_faster_engine(monkeypatch, caplog):
    monkeypatch.setattr(engines, "_messages", set())
    target = tiny_target()
    for ratio, is_taken in ((0.5, True), (2.0, False)):
        static, times = use_graphs(target), iter((1.0, ratio))
        target.engines.engine = "auto"
        monkeypatch.setattr(engines, "median_ms", lambda call, device, times=times: call() is None or next(times))
        assert target.engines._usable() is is_taken and (target.engines.static is static) is is_taken
    assert "graph forwards of tiny-llama take 2.0 ms, its own 1.0: not used" in caplog.text


@pytest.mark.parametrize("faster, found", [
    ((), split_from.NEVER), ((32_768,), 32_768), ((2_048, 16_384, 32_768), 16_384), (split_from.SIZES, 2_048),
])  # fmt: skip
def test_attention_goes_in_two_parts_where_that_is_faster(faster, found, monkeypatch, home):
    """At this size and all larger ones; measured once."""
    target, tried = tiny_target(), list[int]()

    def measure_both(target, rows, graph):
        tried.append(rows)
        return 1.0, 0.5 if rows in faster else 1.5

    monkeypatch.setattr(split_from, "measure_both", measure_both)
    assert [split_from.split_from(target, Tape) for _ in range(2)] == [found] * 2
    assert tried == list(split_from.SIZES)


def test_both_attentions_can_be_measured():
    assert min(split_from.measure_both(tiny_target(), 2_048, Tape)) > 0


def test_a_model_whose_memory_moves_is_not_captured(monkeypatch):
    """Recurrent states, rotary positions that depend on the length, and attention of a model's own."""
    target = tiny_target()
    assert TapeForward(target).why_not() is None
    for change in ({"recurrent_layers": (1,)}, {"rotary": "longrope"}):
        other = copy.copy(target)
        other.shape = replace(target.shape, **change)
        assert TapeForward(other).why_not()
    target.observed = replace(target.observed, unread="it is its own")
    assert TapeForward(target).why_not() == "it is its own"
