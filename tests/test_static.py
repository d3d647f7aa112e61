"""Static forwards: padded rows, buckets, taps, the engines that run them, and how compiled parts come to be.

One tiny layer is really compiled, once per test run; elsewhere a compiled part is the same function, not compiled, and
a graph is one that calls the forward again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from decoders import Prompt, generate, record
from decoders.draft.draft import Draft, Ran
from decoders.draft.needs import Needs
from decoders.draft.tree import DraftTree
from decoders.errors import UserError
from decoders.model.engines import compiled_parts, compiling, engines
from decoders.model.engines.compiled_layers import CompiledForward, why_not
from decoders.model.engines.compiling import CompiledPart, Workshop
from decoders.model.engines.engines import Engines
from decoders.model.engines.layer import LayerShape, LlamaLayer
from decoders.model.engines.linear import packable
from decoders.model.engines.static import ROWS, StaticRows, bucket_of
from decoders.model.state.attention import Masks
from decoders.model.state.cache import TreeCache
from decoders.model.target_model.target import Target
from decoders.sweep.lossless import check_lossless

from .models import network, session_behind, tiny_tokenizer
from .tiers import matrix
from .waiting import WAIT_S, alive, until

LLAMAS = ("llama", "mistral", "mistral-window", "qwen2", "qwen2-window", "qwen3")
NEEDS = Needs(layers=(0, 2, 3), heads=((0, 1), (2, 0), (2, 3)))


class Interpreter:
    """A compiled part that is not compiled."""

    def __init__(self, part: CompiledPart) -> None:
        self.layer = LlamaLayer(LayerShape.from_json(json.loads(part.shape)))

    def run(self, tensors):
        return self.layer(*tensors[:7], tensors[7:])


def target_of(family: str = "llama", weights: str | None = None) -> Target:
    return Target(network(family), tiny_tokenizer(), f"tiny {family}", weights=weights)


def interpret(target: Target) -> Engines:
    """The target's compiled engine, with parts that are not compiled."""
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


def session_of(target: Target, length: int = 40, needs: Needs = NEEDS, room: int = 260):
    return session_behind(target, np.random.default_rng(length).integers(3, 300, length).tolist(), room, needs)


def tree_of(session, rows: int) -> DraftTree:
    """A root and others below it, in branches of three."""
    tokens = [session.context.root, *((7 * n) % 300 + 3 for n in range(1, rows))]
    return DraftTree(tuple(tokens), tuple(-1 if n == 0 else 0 if n % 3 == 1 else n - 1 for n in range(rows)))


def score(session, tree: DraftTree):
    """A forward's results: logits, hidden states, queries, the run's keys behind it, and how it ran."""
    out = session.score(Draft(tree))
    taps = session._captured
    store, length = session.cache.store, session.cache.length
    keys = store[:, :, :, length : length + len(tree)].clone()
    return out.ran, [out.logits, *taps.hidden.values(), *taps.queries.values(), keys], (taps.hidden, taps.queries)


def both(target: Target, made: Engines, length: int, rows: int):
    """The same forward through the stock code and through an engine."""
    eager, results = Engines(target), []
    for one in (eager, made):
        target.engines = one
        results.append(score(session := session_of(target, length), tree_of(session, rows)))
    target.engines = eager
    return results[0], results[-1]


@pytest.mark.parametrize("rows, bucket", [(1, 1), (2, 4), (4, 4), (5, 8), (16, 16), (17, 32), (128, 128), (129, None)])
def test_rows_go_to_the_next_bucket(rows, bucket):
    found = bucket_of(rows, 40, 4096, 128)
    assert (found and found.rows) == bucket


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
    shape = LayerShape.from_json(json.loads(engines.static.parts[rows == 1].shape))
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


def test_padding_and_unused_slots_change_no_bit():
    target = target_of("mistral-window")
    engine = interpret(target)
    engine.static.bucket = lambda rows: bucket_of(rows.count, rows.cache.length, rows.cache.capacity, 128)
    first, second = (with_garbage(target, engine, seed) for seed in (1, 2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_masks_of_several_windows_are_filled_together_at_any_size():
    target, windows = target_of(), frozenset({5, 9})
    forward = CompiledForward(target)
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
    from decoders.model.engines.static import Buffers

    fill = Buffers.fill

    def careless(self, rows, *others):
        fill(self, rows, *others)
        for store in self.masks.stores.values():
            store.zero_()

    monkeypatch.setattr(Buffers, "fill", careless)
    target = target_of()
    engine = interpret(target)
    first, second = (with_garbage(target, engine, seed) for seed in (1, 2))
    assert not torch.equal(first[0], second[0])


@pytest.mark.parametrize("method", ["plain", "pld+h", "pld+a", "recycling"])
def test_methods_write_the_same_over_the_edges_of_buckets(method):
    """The text grows past 256 keys while it is written."""
    target = target_of()
    prompt = Prompt.from_ids(([5, 6, 7, 8, 9, 10, 11] * 40)[:235])
    expected = generate(target, prompt, method, max_new_tokens=40)
    target.engines = interpret(target)
    trace = record(target, prompt, method, max_new_tokens=40)
    assert trace.output_ids == expected
    steps = trace.tables["steps"]
    used = {keys for keys in steps["engine_keys"] if keys}
    assert len(used) >= 2 and steps["engine"].count("eager") == 0
    buckets = zip(steps["engine_rows"], steps["engine_keys"], strict=True)
    assert target.engines.static is not None
    assert all(rows in target.engines.static.sizes for rows, keys in buckets if keys)


def test_a_step_may_be_looked_at_again():
    target = target_of()
    target.engines = interpret(target)
    session = session_of(target, 40, Needs())
    with session.at(30, Needs()) as part:
        assert part.score(Draft(tree_of(part, 5))).ran.engine == "compiled"


# --- which engine runs


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


def test_unknown_engines_and_graphs_without_cuda_are_refused():
    target = target_of()
    with pytest.raises(UserError, match="engine 'fast' is unknown: use one of auto, eager, compiled, graph"):
        Engines(target, "fast")
    with pytest.raises(UserError, match=r"captures CUDA graphs, and tiny llama is on the cpu"):
        Target(network(), None, "tiny llama", engine="graph")


PROMPT = Prompt.from_ids([5, 6, 7])


def test_auto_takes_what_is_compiled_and_runs_eagerly_what_is_not(monkeypatch, home):
    monkeypatch.setattr("decoders.model.engines.compiled_layers.WORKSHOP", Workshop())
    target = target_of()
    stock = record(target, PROMPT, "plain", max_new_tokens=8)
    target.engines = made = interpret_unchecked(target)
    assert isinstance(made.static, CompiledForward)
    several = made.static.layers.pop(False)
    for engine in ("eager", "compiled"):
        trace = record(target, PROMPT, "plain", max_new_tokens=8)
        assert set(trace.tables["steps"]["engine"]) == {engine} and trace.output_ids == stock.output_ids
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
    draft = CompiledPart.of("decoders.model.engines.layer", {"any": 3})
    automatic.add([draft])  # of a draft model that a run opened
    made["auto"].resume()
    assert parameters > 5 or shop[-1] == ([*expected[0][0], draft], busy)


# --- how compiled parts come to be


def fake(monkeypatch, code: str) -> None:
    """Let a child be this code instead."""
    monkeypatch.setattr(compiling, "_command", lambda job: [sys.executable, "-c", code, job])
    monkeypatch.setattr(compiling, "compiler", lambda: "g++")


WAITS = "import time; time.sleep(100)"
MAKES = "import json, sys; open(json.loads(sys.argv[1])['package'], 'w').write('x'); print('made')"
STARTS = """
import os, subprocess, sys, time
compiler = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
print(os.getpid(), compiler.pid, file=open(PIDS, "w"))
time.sleep(100)
"""


@pytest.fixture
def part(workshop, monkeypatch) -> CompiledPart:
    """Any part; what is made of it need not be one that can be opened."""
    monkeypatch.setattr(compiling, "OpenPart", lambda package: package.read_text())
    return CompiledPart.of("decoders.model.engines.layer", {"any": 1})


@pytest.fixture
def workshop(home):
    made = Workshop()
    yield made
    made.cancel()


def test_a_part_is_made_once_and_kept(workshop, part, monkeypatch):
    fake(monkeypatch, MAKES)
    workshop.make([part, part])
    workshop.wait([part])
    assert part.package.read_text() == "x" and not workshop.failed
    assert json.loads(part.package.with_suffix(".json").read_text())["torch"] == torch.__version__
    monkeypatch.setattr(compiling, "_child", lambda *_: pytest.fail("it is there"))
    again = Workshop()
    again.make([part])
    assert not again._waiting and again.open(part) == "x"


def test_a_package_is_looked_for_once(workshop, part):
    """A package that another process makes meanwhile is taken by the next command: all runs of one run alike."""
    assert workshop.open(part) is None
    part.package.parent.mkdir(parents=True)
    part.package.write_text("x")
    assert workshop.open(part) is None and Workshop().open(part) == "x"
    workshop.make([part])
    assert workshop.open(part) == "x", "a server that has it made looks again"


PROBES = """
import json, os, pathlib, sys
begun = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
package = pathlib.Path(json.loads(sys.argv[1])["package"])
package.write_text(" ".join(sorted(path.name for path in begun.glob("*/*"))))
for name in ("3g/probe.so", "3g/probe.cpp", "longer/part.so"):
    (begun / name).parent.mkdir(exist_ok=True)
    (begun / name).write_text(name)
print("made")
"""


def test_what_a_child_learns_of_the_machine_the_next_one_begins_with(workshop, part, monkeypatch):
    fake(monkeypatch, PROBES)
    other = CompiledPart.of(part.maker, {"any": 2})
    workshop.make([part, other])
    assert workshop.wait([part, other]), workshop.failed
    assert part.package.read_text() == "" and other.package.read_text() == "probe.so"


def test_a_package_that_cannot_be_opened_is_made_anew(workshop, part, monkeypatch):
    monkeypatch.undo()
    part.package.parent.mkdir(parents=True, exist_ok=True)
    part.package.write_text("cut off")
    assert workshop.open(part) is None and not part.package.exists() and not workshop.failed


def test_cancelled_while_compiling(workshop, part, monkeypatch):
    fake(monkeypatch, WAITS)
    workshop.make([part])
    child = until(lambda: workshop._child, "the child has begun")
    cancel = threading.Event()
    cancel.set()
    assert not workshop.wait([part], cancel) and child.poll() is None
    workshop.cancel()
    assert child.wait(WAIT_S) is not None and not workshop.wait([part]) and not workshop.failed
    assert not list(part.package.parent.glob("*.pt2"))
    fake(monkeypatch, MAKES)
    workshop.make([part])
    workshop.wait([part])
    assert part.package.is_file()


@pytest.fixture
def pids(tmp_path, monkeypatch):
    """Has a child wait that starts a compiler; gives the processes of both, once they are there."""
    told = tmp_path / "pids"
    fake(monkeypatch, STARTS.replace("PIDS", repr(str(told))))

    def read() -> list[int]:
        return [int(pid) for pid in told.read_text().split()] if told.exists() else []

    return lambda: until(read, "the child has begun")


def all_gone(pids: list[int]) -> bool:
    return not any(map(alive, pids))


@pytest.mark.skipif(not compiling.POSIX, reason="there are no process groups here")
def test_a_child_ends_with_all_that_it_started(workshop, part, pids):
    workshop.make([part])
    child = pids()
    assert not all_gone(child)
    workshop.cancel()
    until(lambda: all_gone(child), "all of it was ended")
    assert not workshop.failed


@pytest.mark.skipif(not compiling.POSIX, reason="there are no process groups here")
def test_a_child_ends_with_whoever_started_it(monkeypatch, tmp_path):
    """Also where that is killed: the child's stdin ends."""
    told = tmp_path / "pids"
    begins = "import threading; from decoders.model.engines import compiling; "
    begins += "threading.Thread(target=compiling._end_with_stdin, daemon=True).start()\n"
    starts = begins + STARTS.replace("PIDS", repr(str(told)))
    asks = f"compiling._child([sys.executable, '-c', {starts!r}], {str(tmp_path)!r}); time.sleep(100)"
    begin = "from decoders.model.engines import compiling; import sys, time; "
    asking = subprocess.Popen([sys.executable, "-c", begin + asks])
    try:
        child = until(lambda: told.exists() and [int(pid) for pid in told.read_text().split()], "the child has begun")
    finally:
        asking.kill()
        asking.communicate()
    until(lambda: all_gone(child), "all of it was ended")


def test_a_child_makes_way_for_a_run_and_its_part_is_begun_anew(workshop, part, pids, monkeypatch):
    monkeypatch.setattr(compiling, "REST_S", 0.0)
    busy = threading.Event()
    workshop.make([part], busy.is_set)
    child = pids()
    busy.set()
    until(lambda: all_gone(child), "it ended with all that it started")
    fake(monkeypatch, MAKES)
    assert not workshop.failed and not part.package.exists()
    busy.clear()
    assert workshop.wait([part]) and part.package.read_text() == "x"


@pytest.mark.parametrize("waits", [True, False])
def test_a_child_begins_while_nothing_runs_unless_somebody_waits(workshop, part, monkeypatch, waits):
    """At the lowest priority."""
    monkeypatch.setattr(compiling, "REST_S", 0.1)
    fake(monkeypatch, MAKES.replace("'x'", "str(json.loads(sys.argv[1])['nice'])"))
    looks, busy = [], threading.Event()
    busy.set()
    workshop.make([part], None if waits else lambda: looks.append(0) or busy.is_set())
    if not waits:
        until(lambda: len(looks) > 2, "it looks whether anything runs")
        assert workshop._child is None and not part.package.exists()
        busy.clear()
    assert workshop.wait([part]) and part.package.read_text() == ("0" if waits else str(compiling.LOW))


def test_two_runs_while_compiling(workshop, monkeypatch):
    fake(monkeypatch, WAITS)
    monkeypatch.setattr(compiled_parts, "WORKSHOP", workshop)
    target = target_of()
    prompts = [Prompt.from_ids([n, 6, 7, n, 6]) for n in (5, 9)]
    expected = [generate(target, prompt, "pld", max_new_tokens=20) for prompt in prompts]
    target.engines = Engines(target, "auto")
    target.engines.begin(lambda: False)
    with ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(lambda prompt: generate(target, prompt, "pld", max_new_tokens=20), prompts))
    assert outputs == expected and len(workshop._waiting) == 2


@pytest.fixture
def no_compiler(workshop, monkeypatch):
    """A machine on which nothing can be compiled, and on which nothing was said of it yet."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(compiled_parts, "WORKSHOP", workshop)
    monkeypatch.setattr(engines, "_messages", set())


def test_without_a_compiler_it_stays_eager_and_says_why(no_compiler, caplog):
    target = target_of()
    for _ in range(2):
        target.engines = Engines(target, "compiled")
        assert not target.engines.prepare()
    assert [r.message for r in caplog.records] == [compiling.NO_COMPILER]
    assert generate(target, Prompt.from_ids([5, 6]), max_new_tokens=2)


def test_without_a_compiler_auto_stays_eager_and_says_so_once(no_compiler, caplog):
    target = target_of()
    target.engines = Engines(target, "auto")
    for _ in range(2):
        target.engines.begin(lambda: False)
        trace = record(target, PROMPT, "plain", max_new_tokens=3)
        assert set(trace.tables["steps"]["engine"]) == {"eager"}
    assert [r.message for r in caplog.records] == [compiling.NO_COMPILER]


@pytest.mark.parametrize("code", ["import sys; sys.exit(1)", "print('CppCompileError: no space')"])
def test_a_compiler_that_fails_is_not_asked_again(workshop, part, monkeypatch, caplog, code):
    fake(monkeypatch, code)
    workshop.make([part])
    assert not workshop.wait([part])
    assert workshop.failed[part.package].startswith("compiling failed (")
    workshop.make([part])
    assert not workshop._waiting and len(caplog.records) == 1


def test_packages_of_another_torch_are_neither_opened_nor_kept(workshop, part, monkeypatch):
    fake(monkeypatch, MAKES)
    now, before = part.package, torch.__version__
    monkeypatch.setattr(torch, "__version__", "1.0")
    stale = CompiledPart(part.maker, part.shape)
    assert stale.package != now
    workshop.make([stale])
    workshop.wait([stale])
    monkeypatch.setattr(torch, "__version__", before)
    workshop.make([part])
    workshop.wait([part])
    assert {path.stem for path in now.parent.iterdir()} == {now.stem} and now.is_file()


def test_a_package_is_named_by_all_files_that_its_content_depends_on(tmp_path):
    files = {
        "own/maker.py": "import torch\nfrom .near import one\nfrom own.far import deep\nfrom . import plain",
        "own/near.py": "from .behind import x", "own/behind.py": "", "own/far/deep.py": "", "own/plain.py": "",
        "own/other.py": "from .maker import y",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")

    def texts() -> tuple[str, ...]:
        compiling._texts.cache_clear()
        return compiling._texts("own.maker", tmp_path)

    before, changes = texts(), set[str]()
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n# changed", "utf-8")
        if texts() != before:
            changes.add(name)
        (tmp_path / name).write_text(text, "utf-8")
    assert changes == {*files} - {"own/other.py"} and texts() == before
    makers = ("decoders.model.engines.layer", "decoders.draft_models.functional")
    names = {CompiledPart.of(maker, {}).package for maker in makers}
    assert len(names) == 2 and len(compiling._texts("decoders.draft_models.functional")) > 5


# --- one that is really compiled


def compiled_target(weights: str | None = None) -> Target:
    """A target whose layers are compiled."""
    if compiling.compiler() is None:
        pytest.skip("there is no C++ compiler here")
    target = target_of(weights=weights)
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
    monkeypatch.setattr("decoders.model.engines.compiled_layers.WORKSHOP", shop)
    target.engines = Engines(target, "compiled")
    assert target.engines.ready() and len(shop.open_parts) == 2
