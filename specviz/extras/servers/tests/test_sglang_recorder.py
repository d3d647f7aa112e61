"""The recorder in SGLang: hand-made trees, and the real package's files where SPECVIZ_SGLANG names their folder."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import types
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.trace.files import load

from .. import sglang as plugin
from ..recorder import TOP
from ..sglang import NO_TOKEN, parents_of, reachable

VOCAB = 40
SGLANG = os.environ.get("SPECVIZ_SGLANG")
needs_package = pytest.mark.skipif(
    not SGLANG,
    reason="SPECVIZ_SGLANG names no folder with sglang: pip install --no-deps --target FOLDER sglang==0.5.23",
)


def links(parents):
    """Each node's first child and next sibling, as SGLang stores a tree (-1: none)."""
    below, beside = [NO_TOKEN] * len(parents), [NO_TOKEN] * len(parents)
    last: dict[int, int] = {}
    for node, parent in enumerate(parents):
        if parent == NO_TOKEN:
            continue
        if parent in last:
            beside[last[parent]] = node
        else:
            below[parent] = node
        last[parent] = node
    return below, beside


@given(st.lists(st.lists(st.integers(-1, 8), min_size=12, max_size=12), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_parents_come_out_of_children_and_siblings(rows):
    trees = [[NO_TOKEN, *(min(parent, node) for node, parent in enumerate(row))] for row in rows]  # -1: not in the tree
    made = [links(parents) for parents in trees]
    below, beside = (torch.tensor([one[which] for one in made]) for which in (0, 1))
    assert parents_of(below, beside).tolist() == trees
    for parents in trees:
        order = reachable(parents)
        assert order[0] == 0 and all(parents[node] in order[:place] for place, node in enumerate(order) if place)
        assert set(order) == {0, *(n for n in range(13) if _root(parents, n) == 0)}


def _root(parents, node):
    while node > 0:
        node = parents[node]
    return node


class Registry:
    """SGLang's hook registry as far as the plugin uses it."""

    HookType = SimpleNamespace(AROUND="around")

    def __init__(self):
        self.hooks, self.HookRegistry = {}, self

    def register(self, target, hook, kind):
        assert kind == "around"
        self.hooks[target.rsplit(".", 1)[1]] = hook


def eagle_sample(verify_input, batch, logits_output, grammar_mask=None, *, watermark_state=None):
    """Greedy verification of trees in plain loops; the logits are spent, as penalties spend them."""
    nodes, index = verify_input.draft_token_num, []
    best = logits_output.next_token_logits.argmax(-1).tolist()
    for place in range(len(batch.reqs)):
        tokens, below, beside = (
            t.reshape(-1, nodes)[place].tolist()
            for t in (verify_input.draft_token, verify_input.retrieve_next_token, verify_input.retrieve_next_sibling)
        )
        path, at = [0], below[0]
        while at != NO_TOKEN:
            if tokens[at] == best[place * nodes + path[-1]]:
                path.append(at)
                at = below[at]
            else:
                at = beside[at]
        index.append([place * nodes + node for node in path] + [NO_TOKEN] * (4 - len(path)))
    lens = torch.tensor([sum(one != NO_TOKEN for one in line) for line in index], dtype=torch.int32)
    logits_output.next_token_logits.zero_()
    return torch.tensor(best, dtype=torch.int32), lens, torch.tensor(index, dtype=torch.int32)


def process_batch_result_decode(self, batch, result):
    return "processed"


def request(rid, prompt, asks=True, most=64, stop=()):
    params = SimpleNamespace(
        custom_params={"specviz": 1} if asks else None, max_new_tokens=most, stop_token_ids=list(stop),
        ignore_eos=False, temperature=0.0, top_p=1.0, top_k=1,
    )  # fmt: skip
    made = SimpleNamespace(rid=rid, origin_input_ids=prompt, sampling_params=params, eos_token_ids={2}, over=False)
    made.finished = lambda: made.over
    return made


def batch_of(*requests, idle=False):
    return SimpleNamespace(
        reqs=list(requests), forward_mode=SimpleNamespace(is_idle=lambda: idle),
        model_config=SimpleNamespace(model_path="org/toy"), spec_algorithm=SimpleNamespace(name="EAGLE3"),
    )  # fmt: skip


def verify_of(trees, root_places, q=None):
    """Trees, each its tokens and parents, as EagleVerifyInput holds them."""
    made = [links(parents) for _, parents in trees]
    depth = lambda parents, n: 0 if n <= 0 else 1 + depth(parents, parents[n])  # noqa: E731
    return SimpleNamespace(
        draft_token=torch.tensor([tokens for tokens, _ in trees]).flatten(), draft_token_num=len(trees[0][0]),
        retrieve_next_token=torch.tensor([one[0] for one in made]),
        retrieve_next_sibling=torch.tensor([one[1] for one in made]), draft_probs=q, topk=1 if q is not None else 2,
        positions=torch.tensor(
            [place + depth(parents, n) for (_, parents), place in zip(trees, root_places, strict=True)
             for n in range(len(parents))]
        ),
    )  # fmt: skip


def logits_for(*best, seed=1):
    """Rows whose first choices are these."""
    rows = torch.randn(len(best), VOCAB, generator=torch.Generator().manual_seed(seed))
    rows[torch.arange(len(best)), torch.tensor(best)] = 9.0
    return rows


@contextmanager
def install(folder, everything=False):
    registry = Registry()
    taps = plugin.install(registry, eagle_sample, process_batch_result_decode, folder, everything)
    try:
        yield SimpleNamespace(taps=taps, **registry.hooks)
    finally:
        if taps.recorder is not None:
            taps.recorder.close()


@pytest.fixture
def hooks(tmp_path):
    with install(tmp_path / "runs") as made:
        yield made


def verify(hooks, inputs, batch, rows):
    output = SimpleNamespace(next_token_logits=rows.clone())
    expected = eagle_sample(inputs, batch, SimpleNamespace(next_token_logits=rows.clone()))
    found = hooks.eagle_sample(eagle_sample, inputs, batch, output, None, watermark_state=None)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), "what SGLang decides stays"
    return output


def traces_of(hooks):
    hooks.taps.recorder.flush()
    return [load(path) for path in sorted(hooks.taps.folder.glob("*.spectrace"))]


TREE = ([3, 8, 9, 10, 11, 12], [-1, 0, 0, 1, 2, 2])  # below the root 8 and 9; 10 below 8, 11 and 12 below 9


def test_the_whole_tree_and_its_verdict_stand_in_the_trace(hooks):
    mine, other = request("a", [5, 6, 7]), request("b", [7], asks=False)
    both = batch_of(other, mine)
    rows = logits_for(1, 1, 1, 1, 1, 1, 9, 4, 12, 4, 4, 13)
    verify(hooks, verify_of([([7] * 6, TREE[1]), TREE], [1, 3]), both, rows)
    verify(
        hooks, verify_of([([7] * 6, TREE[1]), ([13, 8, 9, 10, 11, 12], TREE[1])], [1, 6]), both, logits_for(*[2] * 12)
    )
    mine.over = True
    assert hooks.process_batch_result_decode(process_batch_result_decode, None, both, "result") == "processed"
    verify(hooks, verify_of([([7] * 6, TREE[1]), TREE], [1, 9]), both, rows)  # a forward that was under way
    (trace,) = traces_of(hooks)
    assert trace.prompt_ids == [5, 6, 7] and trace.output_ids == [3, 9, 12, 13, 2]
    steps, nodes = trace.tables["steps"], trace.tables["nodes"]
    assert (steps["drafted"], steps["accepted"], steps["depth"]) == ([0, 5, 5], [0, 2, 0], [0, 2, 2])
    assert steps["reason"][0] == "the forward that read the prompt wrote this token" and steps["batch"] == [2, 2, 2]
    first = [row for row, step in enumerate(nodes["step"]) if step == 1]
    assert [nodes["token"][row] for row in first] == [3, 8, 9, 10, 11, 12]
    assert [nodes["parent"][row] for row in first] == TREE[1] and [nodes["depth"][row] for row in first] == [
        0,
        1,
        1,
        2,
        2,
        2,
    ]
    assert [nodes["status"][row] for row in first] == [
        "root", "rejected", "accepted", "unreached", "rejected", "accepted"
    ]  # fmt: skip
    probs = rows[6:].softmax(-1)
    for node, (parent, token) in enumerate(zip(TREE[1], TREE[0], strict=True)):
        if node:
            assert nodes["prob"][first[node]] == pytest.approx(float(probs[parent, token]), abs=1e-5)
            assert nodes["rank"][first[node]] == int((probs[parent] > probs[parent, token]).sum())
    targets = trace.tables["targets"]
    for node in range(6):
        places = zip(targets["step"], targets["node"], targets["token"], strict=True)
        best = [token for step, at, token in places if (step, at) == (1, node)]
        assert best == rows[6 + node].topk(TOP).indices.tolist()
    said = trace.run["imported"]["said"]
    assert (said["num_draft_tokens"], said["num_accepted_tokens"], said["method"]) == (10, 2, "eagle3")
    assert trace.run["imported"]["source"] == "sglang-recorder" and trace.run["model"]["name"] == "org/toy"


def test_as_many_first_choices_are_recorded_as_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECVIZ_RECORD_TOP", "3")
    rows = logits_for(9, 4, 12, 4, 4, 13)
    with install(tmp_path / "runs", everything=True) as hooks:
        verify(hooks, verify_of([TREE], [3]), batch_of(request("a", [5, 6, 7])), rows)
        hooks.taps.end(["a"])
        (trace,) = traces_of(hooks)
    targets = trace.tables["targets"]
    places = zip(targets["step"], targets["node"], targets["token"], strict=True)
    assert [token for step, node, token in places if (step, node) == (1, 2)] == rows[2].topk(3).indices.tolist()


def test_a_chain_has_its_q_and_a_tree_may_have_places_to_spare(hooks):
    one = request("../../x<script>\u202e 1", [5])
    chain = ([3, 8, 9], [-1, 0, 1])
    q = torch.softmax(torch.randn(1, 2, VOCAB, generator=torch.Generator().manual_seed(2)), -1)
    verify(hooks, verify_of([chain], [1], q), batch_of(one), logits_for(8, 4, 4))
    verify(hooks, verify_of([([4, 8, 0], [-1, 0, -1])], [3]), batch_of(one), logits_for(8, 5, 5))  # NGRAM's padding
    one.over = True
    hooks.process_batch_result_decode(process_batch_result_decode, None, batch=batch_of(one), result=None)
    (trace,) = traces_of(hooks)
    nodes = trace.tables["nodes"]
    assert nodes["token"] == [5, 3, 8, 9, 4, 8] and trace.tables["steps"]["drafted"] == [0, 2, 1]
    assert nodes["draft_prob"][2] == pytest.approx(float(q[0, 0, 8]), abs=1e-5) and nodes["status"][5] == "accepted"
    assert trace.output_ids == [3, 8, 4, 8, 5]
    assert [path.parent for path in hooks.taps.folder.rglob("*.spectrace")] == [hooks.taps.folder]


def test_a_request_taken_back_goes_on_and_one_with_a_gap_ends_there(hooks):
    """SGLang takes requests back where memory is short: the prompt is read again, and writes a token."""
    first, second = request("back", [5]), request("gap", [6])
    for one, place in ((first, 3), (second, 7)):
        alone = batch_of(one)
        verify(hooks, verify_of([([3, 8], [-1, 0])], [1]), alone, logits_for(4, 4))
        verify(hooks, verify_of([([9, 8], [-1, 0])], [place]), alone, logits_for(4, 4))
        one.over = True
        hooks.process_batch_result_decode(process_batch_result_decode, None, alone, None)
    back, gap = sorted(traces_of(hooks), key=lambda trace: -len(trace.output_ids))
    assert back.output_ids == [3, 4, 9, 4] and "warnings" not in back.run["imported"]
    assert gap.output_ids == [3, 4] and "at token 7 of the answer, after 2" in gap.run["imported"]["notes"][0]


def test_another_signature_is_refused_and_faults_are_not_the_servers(tmp_path, caplog, hooks, monkeypatch):
    registry = Registry()

    def eagle_sample(batch, tree, logits_output):
        raise AssertionError

    found = plugin.install(registry, eagle_sample, process_batch_result_decode, tmp_path, True)
    assert found is None and not registry.hooks
    assert "eagle_sample begins with (batch, tree, logits_output) in this SGLang" in caplog.text
    one = request("a", [5])
    for _ in range(2):
        broken = batch_of(one)
        broken.reqs = [SimpleNamespace()]
        rows = SimpleNamespace(next_token_logits=logits_for(4, 4))
        inputs = verify_of([([3, 8], [-1, 0])], [1])
        assert len(hooks.eagle_sample(globals()["eagle_sample"], inputs, broken, rows)) == 3
    assert caplog.text.count("specviz stops recording") == 1
    caplog.clear()
    monkeypatch.delenv("SPECVIZ_RECORD", raising=False)
    plugin.register()
    assert not caplog.records, "silent without a folder"
    monkeypatch.setenv("SPECVIZ_RECORD", str(tmp_path / "runs"))
    plugin.register()
    assert "specviz records nothing: " in caplog.text, "there is no SGLang here"


def test_an_idle_batch_and_requests_without_ids_are_served_alone(hooks):
    bare = request("bare", [])
    alone = batch_of(bare)
    verify(hooks, verify_of([([3, 8], [-1, 0])], [1]), alone, logits_for(4, 4))
    assert hooks.taps.skipped_ids == {"bare"} and not hooks.taps.recorder.running
    hooks.eagle_sample(lambda *_: (1, 2, 3), SimpleNamespace(), batch_of(bare, idle=True), None)
    bare.over = True
    hooks.process_batch_result_decode(process_batch_result_decode, None, alone, None)
    assert not hooks.taps.skipped_ids and not traces_of(hooks) and not hooks.taps.failed


# --- the real package, as far as it is read without a GPU: its hook registry, its signatures and fields


def definition(path, name):
    """The node that defines a function or class of a file of SGLang."""
    tree = ast.parse((Path(str(SGLANG)) / "sglang" / "srt" / path).read_text("utf-8"))
    return next(node for node in ast.walk(tree) if getattr(node, "name", None) == name)


def arguments(node):
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args)]


@needs_package
def test_the_signatures_and_fields_are_those_of_the_package():
    sample = arguments(definition("speculative/eagle_utils.py", "eagle_sample"))
    assert sample[:3] == list(plugin.VERSIONS["eagle_sample"])
    decoded = definition("managers/scheduler_components/batch_result_processor.py", plugin.DECODING)
    assert arguments(decoded)[:3] == list(plugin.VERSIONS[plugin.DECODING])
    read = {"draft_token", "draft_token_num", "retrieve_next_token", "retrieve_next_sibling", "positions"}
    eagle = definition("speculative/eagle_info.py", "EagleVerifyInput")
    fields = {one.target.id for one in eagle.body if isinstance(one, ast.AnnAssign)}
    assert read | {"draft_probs", "topk"} <= fields
    (begin,) = (one for one in definition("speculative/ngram_info.py", "NgramVerifyInput").body
                if getattr(one, "name", "") == "__init__")  # fmt: skip
    assert read <= set(arguments(begin))
    request = ast.unparse(definition("managers/schedule_batch.py", "Req"))
    for name in ("rid", "origin_input_ids", "sampling_params", "eos_token_ids"):
        assert f"self.{name}" in request, name
    assert "def finished(self)" in request
    params = ast.unparse(definition("sampling/sampling_params.py", "SamplingParams"))
    for name in ("custom_params", "max_new_tokens", "stop_token_ids", "ignore_eos", "temperature", "top_p", "top_k"):
        assert name in params, name


@needs_package
def test_the_packages_own_registry_puts_the_hooks_in_place(tmp_path, monkeypatch):
    """Its file imports the standard library alone; the functions behind the names are made by hand."""
    file = Path(str(SGLANG)) / "sglang/srt/plugins/hook_registry.py"
    spec = importlib.util.spec_from_file_location("hook_registry", file)
    registry = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(registry)
    owner = type("SchedulerBatchResultProcessor", (), {plugin.DECODING: process_batch_result_decode})
    for name, more in ((plugin.SAMPLE[0], {"eagle_sample": eagle_sample}), (plugin.RESULT[0], {owner.__name__: owner})):
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            there = ".".join(parts[:end])
            module = sys.modules.get(there) or types.ModuleType(there)
            module.__path__ = []
            monkeypatch.setitem(sys.modules, module.__name__, module)
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
        module.__dict__.update(more)
    monkeypatch.setitem(sys.modules, "sglang.srt.plugins", types.ModuleType("sglang.srt.plugins"))
    monkeypatch.setitem(sys.modules, "sglang.srt.plugins.hook_registry", registry)
    worker = types.ModuleType("a_worker_of_sglang")
    worker.eagle_sample = eagle_sample  # imported by name before the hooks are applied
    monkeypatch.setitem(sys.modules, worker.__name__, worker)
    plain = eagle_sample
    monkeypatch.setitem(globals(), "eagle_sample", plain)  # the registry replaces it in every module, in this one too
    monkeypatch.setenv("SPECVIZ_RECORD", str(tmp_path / "runs"))
    monkeypatch.setenv("SPECVIZ_RECORD_ALL", "1")
    plugin.register()
    registry.HookRegistry.apply_hooks()
    one = request("a", [5], asks=False)
    rows = SimpleNamespace(next_token_logits=logits_for(8, 4))
    assert worker.eagle_sample is not plain
    assert worker.eagle_sample(verify_of([([3, 8], [-1, 0])], [1]), batch_of(one), rows)[1].tolist() == [2]
    one.over = True
    assert owner().process_batch_result_decode(batch_of(one), None) == "processed"
    taps = worker.eagle_sample.__closure__  # the registry's wrapper holds the hook
    (hook,) = (cell.cell_contents for cell in taps if hasattr(cell.cell_contents, "__self__"))
    hook.__self__.recorder.close()
    (path,) = (tmp_path / "runs").glob("*.spectrace")
    assert load(path).output_ids == [3, 8, 4]
