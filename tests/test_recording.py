"""A method's declared numbers and notes in the trace: per node and step, the pool, the prompt it rewrote."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from decoders import Prompt, Sampling, generate, record
from decoders.draft.draft import Candidates, Draft
from decoders.draft.needs import Needs
from decoders.draft.terms import Term
from decoders.draft.tree import DraftTree
from decoders.drafters.casd import CasdParams, prepare
from decoders.drafters.sps import open_drafter
from decoders.engine import one_row, recording
from decoders.engine.numbers import HEAD_LEAST, higher
from decoders.engine.recording import EVENT_SECONDS, Run
from decoders.engine.rows import WHOLE_POOL
from decoders.method.drafter import Drafter
from decoders.method.part import kinds
from decoders.model.target_model.target import Session
from decoders.prompt import codec
from decoders.prompt.prompt import Pool, Segment
from decoders.study.look.whatif import ReadRun
from decoders.top_k import top_k
from decoders.trace import metrics
from decoders.trace.baseline import pairing_key, unlike
from decoders.trace.check import check
from decoders.trace.files import load, save
from decoders.trace.trace import Trace
from decoders.verifiers.match import MatchVerifier, judged
from decoders.verifiers.residual import residual

from . import recordings
from .drafters_for_tests import method_of
from .drafts import methods_here, needs_kinds, save_tiny_part
from .models import prompt_ids, save_model, tiny_target

pytestmark = pytest.mark.usefixtures("home")


class PoolDrafter(Drafter):
    """Drafts pool tokens 3 and 4 as two branches, and counts how often it prepared."""

    def __init__(self) -> None:
        self.prepared = 0

    def prepare(self, context) -> None:
        self.prepared += 1

    def propose(self, context, budget: int) -> Draft:
        pool = context.pool
        assert pool is not None
        tokens = pool.tokens[[3, 4]].tolist()
        place = -1 if pool.positions is None else pool.positions[2]
        found = Candidates(np.array([place]), np.array([2.0]), np.array([2]), 0, pool=np.array([2]))
        return Draft(
            DraftTree((context.root, *tokens), (-1, 0, 0)),
            ("root", "datastore", "datastore"),
            (-1, -1, -1),
            probabilities=(1.0, float("nan"), 0.25),
            candidates=found,
            route="pool",
            pool=(-1, 3, 4),
            terms={"count": np.array([np.nan, 2.0, 1.0])},
            notes={"lookup_ms": 0.5},
        )


def pool_run(drafter, **changes):
    return replace(
        method_of(drafter, Needs(pool=True)),
        node_terms=(Term("count", "count", "hits"), Term("p_eos", "p(EOS)", "of the target")),
        step_terms=(Term("lookup_ms", "lookup", "time"), Term("missing", "missing", "never given")),
        **changes,
    )


def prompt_of(tokens: int = 6) -> Prompt:
    pool = Pool(np.arange(40, 40 + tokens) % 60 + 3, (0, 2), None, "notes")
    return replace(Prompt.from_ids(prompt_ids(3)), pool=pool)


def test_declared_numbers_and_the_pool_are_in_the_trace(target):
    drafter = PoolDrafter()
    trace = record(target, prompt_of(), pool_run(drafter), max_new_tokens=4)
    check(trace)
    assert drafter.prepared == 1
    assert trace.run["pool"] == {"label": "notes", "tokens": 6, "passages": 2, "in_prompt": False}
    assert trace.tables["pool"]["position"] == list(range(6)) and trace.tables["pool"]["passage"] == [0, 0, 1, 1, 1, 1]
    nodes, steps = trace.tables["nodes"], trace.tables["steps"]
    assert nodes["pool"][:3] == [-1, 3, 4] and nodes["term:count"][:3] == [None, 2.0, 1.0]
    assert nodes["draft_prob"][:3] == [1.0, None, 0.25] and nodes["term:p_eos"][:3] == [None] * 3
    assert steps["term:lookup_ms"][0] == 0.5 and steps["term:missing"][0] is None
    assert trace.tables["candidates"]["pool"][0] == 2 and trace.tables["candidates"]["position"][0] == -1
    assert trace.run["timings"]["prepare_ms"] >= 0 and trace.run["memory"]["kv_bytes"] > 0


def test_what_a_pool_candidate_would_have_brought(target):
    output = record(target, Prompt.from_ids(prompt_ids(3)), "plain", max_new_tokens=4).output_ids
    pool = Pool(np.array([9, 9, 9, output[0], output[0] + 1]), (0,), None, "the answer's beginning")
    trace = record(target, replace(prompt_of(), pool=pool), pool_run(PoolDrafter()), max_new_tokens=4)
    assert trace.tables["candidates"]["would_accept"][0] == 1
    assert trace.tables["steps"]["origins"][0] == "datastore"
    prompt = trace.run["prompt_length"]
    assert trace.tables["tokens"]["pool"][prompt] == 3 and trace.tables["tokens"]["rank"][prompt] == 0


def test_a_long_pool_is_recorded_around_what_was_used(target):
    trace = record(target, prompt_of(WHOLE_POOL + 1), pool_run(PoolDrafter()), max_new_tokens=2)
    check(trace)
    assert max(trace.tables["pool"]["position"]) == 4 + 32 and trace.run["pool"]["tokens"] == WHOLE_POOL + 1


def test_a_context_in_the_prompt_is_its_pool_and_not_recorded_twice(target):
    parts = (Segment("context", 0, 20, 0), Segment("context", 20, 40, 1), Segment("question", 40, 60))
    prompt = Prompt(tuple(prompt_ids(3)), parts)
    pool = prompt.context_pool()
    assert pool is not None and pool.starts == (0, 20) and len(pool.tokens) == 40
    assert pool.positions is not None and pool.positions.tolist() == list(range(40))
    trace = record(target, prompt, pool_run(PoolDrafter()), max_new_tokens=2)
    check(trace)
    assert trace.run["pool"]["in_prompt"] and not trace.tables["pool"]["position"]
    assert set(trace.tables["nodes"]["pool"]) == {-1}
    assert Prompt.from_ids([5, 6]).context_pool() is None


class Lenient(MatchVerifier):
    """Takes the first branch whatever the target says."""

    lossless = False

    def __call__(self, draft, scored):
        path = [0, 1] if draft.tree.drafted else [0]
        bonus = int(scored.logits[path[-1]].argmax())
        return replace(judged(draft, path, bonus), terms={"p_eos": np.full(len(draft.tree), 0.5)})


def test_a_method_may_bring_its_verifier_and_plain_decoding_stands_beside(target):
    method = pool_run(PoolDrafter(), verifier=lambda params, chooser, stop_ids: Lenient(chooser), lossless=False)
    run = Run(target, prompt_of(), method, max_new_tokens=5, compare=True)
    deltas = list(run)
    trace = run.trace
    check(trace)
    assert deltas[-1]["plain"]["id"] == trace.tables["plain"]["id"]
    assert trace.tables["plain"]["id"] == record(target, prompt_of(), "plain", max_new_tokens=5).output_ids
    assert not trace.run["method"]["lossless"] and trace.output_ids != trace.tables["plain"]["id"]
    assert trace.tables["nodes"]["term:p_eos"][:3] == [0.5] * 3
    assert trace.run["metrics"]["differs"] == sum(r > 0 for r in trace.tables["tokens"]["rank"]) > 0
    assert trace.run["metrics"]["speedup"] > 0


def test_a_method_may_rewrite_the_prompt(target):
    def shorter(target, params, prompt):
        return replace(prompt, tokens=prompt.tokens[:10], compression={"ratio_asked": 6.0, "kept_tokens": 10})

    trace = record(target, prompt_of(), pool_run(PoolDrafter(), prompt=shorter), max_new_tokens=2)
    assert trace.run["prompt_length"] == 10 and trace.run["compression"]["kept_tokens"] == 10


def test_text_becomes_a_pool_of_paragraphs(target):
    pool = Pool.from_text(target.tokenizer, "the lamp\n\nthe museum\n \nsold", "notes.txt")
    texts = [target.tokenizer.decode(pool.tokens[pool.passages == i]) for i in range(3)]
    assert texts == ["the lamp", "the museum", "sold"] and pool.label == "notes.txt" and pool.positions is None
    with pytest.raises(ValueError, match=r"notes.txt holds no text: give one"):
        Pool.from_text(target.tokenizer, " \n\n ", "notes.txt")


def recorded_with_steps(target, method, temperature, params=None):
    """A run's trace, and its steps by number as they were when their rows were formed."""
    sampling = Sampling(temperature, seed=1)
    run = Run(target, Prompt.from_ids(prompt_ids(3)), method, params, sampling=sampling, max_new_tokens=24)
    steps = {}
    run._record, record_rows = lambda: steps.update({s.index: s for s, _ in run._waiting}) or record_rows(), run._record
    for _ in run:
        pass
    check(run.trace)
    return run.trace, steps


@pytest.mark.parametrize(
    ("method", "options", "temperature", "params"),
    [
        ("glide", {}, 0.0, {}),
        ("glide", {}, 1.0, {}),
        ("glide", {}, 1.0, {"rule": "block"}),
        pytest.param("medusa", {"draft_vocab": 40}, 0.0, {}, marks=needs_kinds("medusa")),
        pytest.param("hydra", {}, 1.0, {}, marks=needs_kinds("hydra")),
        pytest.param("eagle3", {"draft_vocab": 40}, 0.0, {}, marks=needs_kinds("eagle3")),
    ],
)
def test_what_a_drafter_said(method, options, temperature, params):
    """Of one that draws its tokens, or drafts trees over fewer tokens, whose nodes may share what it said."""
    target = tiny_target("qwen3")
    save_tiny_part(target, method, **options)
    trace, steps = recorded_with_steps(target, method, temperature, params)
    guesses, drawn = trace.tables["guesses"], method == "glide" and temperature > 0
    names = ("step", "node", "token", "rank", "draft_prob", "prob", "residual")
    rows = list(zip(*(guesses[name] for name in names), strict=True))
    redrawn = 0
    for index, step in steps.items():
        draft, verdict = step.draft, step.verdict
        for node, q in (draft.distributions or {}).items():
            mine = [row for row in rows if row[:2] == (index, node)]
            p = torch.softmax(step.scored.logits[node], -1)
            assert [row[3] for row in mine] == sorted(row[3] for row in mine)
            assert {row[2] for row in mine} >= {*q.topk(8).indices.tolist(), *p.topk(5).indices.tolist()}
            assert {row[2] for row in mine} >= set(draft.tree.children()[node])
            for _, _, token, rank, draft_prob, prob, left in mine:
                assert draft_prob == pytest.approx(float(q[token]), abs=1e-5) and rank == int((q > q[token]).sum())
                assert prob == pytest.approx(float(p[token]), abs=1e-5)
                replaced = drawn and node == verdict.path[-1] and node < len(draft.tree) - 1
                assert (left is not None) == replaced
                redrawn += replaced
                if replaced:
                    share = verdict.terms["block_p"][node] if params else 1.0  # what was carried on to here
                    assert left == pytest.approx(float(residual(p * share, q)[token]), abs=1e-5)
            if node == verdict.path[-1]:
                assert verdict.bonus in {row[2] for row in mine}
    assert (redrawn > 0) == drawn and rows
    if method == "glide":  # numbers of a rule that did not judge are not recorded
        nodes = trace.tables["nodes"]
        block = [[one for one in nodes[f"term:{key}"] if one is not None] for key in ("block_p", "block_h")]
        assert all(block) == any(block) == bool(params) and all(0 <= one <= 1 for ones in block for one in ones)
        assert not params or set(nodes["term:accept_ratio"]) == {None}


def test_where_a_draft_model_looked():
    target = tiny_target("qwen3")
    save_tiny_part(target, "glide")
    trace, steps = recorded_with_steps(target, "glide", 0.0)
    looks = trace.tables["attention"]
    assert trace.run["attention"] == {"label": "the draft model's cross-attention", "layers": [2], "heads": 4}
    last = max(index for index, step in steps.items() if step.draft.looks is not None)
    weights = steps[last].draft.looks.weights()
    places = zip(*(looks[name] for name in ("step", "node", "layer", "head", "position")), strict=True)
    kept = dict(zip(places, looks["weight"], strict=True))
    for at, node in enumerate(steps[last].draft.looks.nodes):
        for head in range(4):
            best = int(weights[0, head, at].argmax())
            if weights[0, head, at, best] >= HEAD_LEAST:
                assert kept[last, node, 2, head, best] == pytest.approx(float(weights[0, head, at, best]), abs=1e-5)
        mean = weights[0, :, at].mean(0)
        assert kept[last, node, 2, -1, int(mean.argmax())] == pytest.approx(float(mean.max()), abs=1e-5)


def test_deltas_keep_their_distance_and_every_step_is_in_one(monkeypatch):
    """However fast steps come, and however large their logits are."""
    target, prompt = tiny_target(), Prompt.from_ids(prompt_ids(3))
    monkeypatch.setattr(recording, "RECORD_STEPS", 1)
    counts = []
    for seconds in (0.0, 1e6):
        monkeypatch.setattr(recording, "EVENT_SECONDS", seconds)
        monkeypatch.setattr(recording, "RECORD_SECONDS", 1e6)
        run = Run(target, prompt, "plain", max_new_tokens=12)
        counts.append(len(list(run)))
        assert run.trace.rows("steps") == 12
    assert counts == [12, 1] and 0 < 1 / 30 <= EVENT_SECONDS


def test_a_comparison_reads_the_prompt_once(monkeypatch):
    target, prompt = tiny_target(), Prompt.from_ids(prompt_ids(3))
    plain, read = generate(target, prompt, max_new_tokens=12), []
    prefill = Session.prefill

    def count_read(session, text, **options):
        read.append(len(text.tokens))
        return prefill(session, text, **options)

    monkeypatch.setattr(Session, "prefill", count_read)
    trace = record(target, prompt, "pld+h", max_new_tokens=12, compare=True)
    assert read == [60] and trace.tables["plain"]["id"] == plain == trace.output_ids


def test_a_drawn_run_is_compared_with_plain_decoding_by_the_same_draws():
    target, prompt, drawn = tiny_target(), Prompt.from_ids(prompt_ids(3)), Sampling(0.9, seed=5)
    trace = record(target, prompt, "pld+h", max_new_tokens=12, compare=True, sampling=drawn)
    plain = generate(target, prompt, max_new_tokens=12, sampling=drawn)
    assert trace.tables["plain"]["id"] == plain == trace.output_ids != generate(target, prompt, max_new_tokens=12)
    assert trace.run["metrics"]["speedup"] > 0 and trace.run["plain_sampling"] == trace.run["sampling"]


def test_a_method_that_rewrites_the_prompt_is_compared_with_plain_decoding_of_the_given_one(target):
    rewriting = pool_run(PoolDrafter(), prompt=lambda target, params, prompt: replace(prompt, tokens=prompt.tokens[5:]))
    trace = record(target, prompt_of(), rewriting, max_new_tokens=5, compare=True)
    alone = record(target, prompt_of(), "plain", max_new_tokens=5)
    assert trace.tables["plain"]["id"] == alone.output_ids and trace.run["given_prompt"] == alone.prompt_key
    assert not unlike(trace, alone) and trace.prompt_ids != alone.prompt_ids
    assert pairing_key(trace) == pairing_key(alone) != ""


def test_a_pairing_key_is_the_same_for_runs_that_are_alike():
    traces = [recordings.chain(), recordings.plain(), recordings.quote()]
    other_machine = {**traces[0].run["machine"], "threads": 99}
    changes = [{"machine": {}}, {"machine": other_machine}, {"sampling": {"seed": 1}}, {"sampling": {"temperature": 1}}]
    traces += [Trace(traces[0].run | change, traces[0].tables) for change in changes]
    alike = {(a, b): not unlike(traces[a], traces[b]) for a in range(len(traces)) for b in range(len(traces))}
    keys = [*map(pairing_key, traces)]
    assert alike == {(a, b): keys[a] == keys[b] != "" for a, b in alike} and {*alike.values()} == {True, False}


@pytest.mark.parametrize("method", ["rest", "llma", "casd"])
def test_a_recorded_run_has_its_whole_prompt_everywhere(target, tmp_path, method):
    """Comparing, the Lab, redrafting and a run again read it as the run did: pool, passages, reference, compression."""
    from specviz.server.forms import PromptForm
    from specviz.views.prompts import of_trace as case_of

    prompt = replace(prompt_of(12), reference="the old lamp", reference_of="yours", compression={"kept_tokens": 3})
    save(record(target, prompt, method, max_new_tokens=12, title="one"), tmp_path / "a.spectrace")
    trace = load(tmp_path / "a.spectrace")
    wanted = codec.to_json(prompt)
    every = [codec.of_trace(trace), case_of(trace).prompt, PromptForm.of_trace(trace).whole(None, pooled=True)]
    every += [ReadRun(target, trace).prompt, codec.from_json(json.loads(json.dumps(wanted)))]
    assert [codec.to_json(one) for one in every] == [wanted] * 5
    again = record(target, every[0], method, max_new_tokens=12)
    for table in ("nodes", "candidates", "pool"):
        assert again.tables[table] == trace.tables[table], table
    assert {name: again.run[name] for name in ("pool", "reference", "reference_of", "compression")} == {
        name: trace.run[name] for name in ("pool", "reference", "reference_of", "compression")
    }


def test_a_prompt_that_was_compressed_before_is_not_compressed_again(target):
    prompt = replace(prompt_of(), compression={"kept_tokens": 3})
    params = CasdParams(compression="3x")
    assert prepare(target, params, prompt) is prompt


def test_verifying_is_timed_with_its_decision_apart():
    steps = record(tiny_target(), Prompt.from_ids(prompt_ids(3)), "pld", max_new_tokens=12).tables["steps"]
    pairs = list(zip(steps["decide_ms"], steps["verify_ms"], strict=True))
    assert pairs and all(0 < decide < verify for decide, verify in pairs)


def test_a_run_says_whose_one_row_time_its_cost_divides_by():
    target = tiny_target("qwen3")
    save_tiny_part(target, "glide")
    first, second = (
        record(target, Prompt.from_ids(prompt_ids(3)), "glide", max_new_tokens=n) for n in (24, 20)
    )  # fmt: skip
    assert second.run["one_row"] == first.run["one_row"] and first.run["one_row"]["run"] == first.run["id"]
    assert first.run["one_row"]["context"] == [65, 128] and first.run["one_row"]["engine"] == "eager"
    assert metrics.notes(first)["draft_cost"].startswith("one-row time of this run (20")
    assert metrics.notes(second)["draft_cost"].startswith("one-row time of an earlier run (20")


def test_overlaps_formed_together_are_those_of_each_step(monkeypatch):
    target = tiny_target("qwen3")
    save_tiny_part(target, "glide")
    run, told = Run(target, Prompt.from_ids(prompt_ids(3)), "glide", max_new_tokens=24), []
    record_rows = run._record
    run._record = lambda: told.extend(step.verdict.terms.get("overlap") for step, _ in run._waiting) or record_rows()
    trace = run.finish()
    flat = [beta for betas in told for beta in ([np.nan] if betas is None else betas)]
    np.testing.assert_allclose(np.asarray(trace.tables["nodes"]["term:overlap"], dtype=float), flat, atol=1e-6)
    assert np.isfinite(flat).any()


@pytest.mark.parametrize("vocab", [3, 300, 4096, 9000, 49152])
def test_choices_and_ranks_of_a_large_vocabulary_are_those_of_a_plain_search(vocab):
    logits = torch.randn(7, vocab, generator=torch.Generator().manual_seed(vocab))
    logits[3, 1] = float("-inf")
    for rows in (logits, logits[:1], logits[:0]):
        for one, other in zip(top_k(rows, 5), rows.topk(min(5, vocab)), strict=True):
            assert torch.equal(one, other)
    rows = torch.tensor([0, 0, 6, 3, 1])
    mine = logits[rows, 1]
    assert higher(logits, rows, mine).tolist() == (logits[rows] > mine[:, None]).sum(-1).tolist()


def test_one_row_is_measured_anew_when_runs_took_long_enough(monkeypatch):
    """So it costs a run 2 % at most in the long run; other lengths and engines are measured apart."""
    clock, measured = [0.0], []

    def measure(session):
        clock[0] += 0.1
        measured.append(session.length)
        return float(len(measured))

    monkeypatch.setattr(one_row, "one_row_ms", measure)
    monkeypatch.setattr(one_row.time, "perf_counter", lambda: clock[0])

    def ask(decode_ms: float, length: int = 100, engine: str = "eager") -> float:
        state = SimpleNamespace(engines=SimpleNamespace(state=(engine, True)))
        return kept.time(SimpleNamespace(length=length, target=state), decode_ms).ms  # type: ignore[arg-type]

    kept = one_row.OneRow()
    assert [ask(1000), ask(4000), ask(900), ask(200), ask(10)] == [1, 1, 1, 2, 2]
    assert [ask(10, length=120), ask(10, length=300), ask(10, engine="compiled")] == [2, 3, 4]
    assert measured == [100, 100, 300, 100]


@pytest.mark.parametrize(
    "method", methods_here("plain", "pld", "pld+h", "glide", "ppd", "medusa", "eagle3", "recycling", "dflash")
)
def test_a_run_is_stopped_while_a_long_prompt_is_read(monkeypatch, tmp_path, method):
    """Between two pieces: what is read is told, and the run that is left is whole and empty."""
    monkeypatch.setattr("decoders.model.target_model.target.READ_ROWS_CPU", 16)
    target, told, cancel = tiny_target(), [], threading.Event()
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    if method in kinds():
        save_tiny_part(target, method)
    run = Run(target, Prompt.from_ids([k % 50 + 3 for k in range(81)]), method, max_new_tokens=8, cancel=cancel)

    def hear(rows, of):
        told.append((rows, of))
        if rows >= 48:
            cancel.set()

    run.decoding.on_read = hear
    trace = run.finish()
    assert told == [(16, 80), (32, 80), (48, 80)]
    assert trace.run["stop"] == "cancelled" and trace.run["complete"] and not trace.rows("steps")
    save(trace, tmp_path / "a.spectrace")
    assert load(tmp_path / "a.spectrace").output_ids == []


@pytest.mark.parametrize(
    "method", methods_here("glide", "eagle", "eagle3", "mtp", "dflash", "hydra", "sps", "sps+ppd")
)
def test_a_run_is_stopped_while_a_drafters_network_reads_a_long_prompt(monkeypatch, tmp_path, method):
    """Between two pieces; with nobody who stops it the pieces change no draft."""
    monkeypatch.setenv("SPECVIZ_HOME", str(tmp_path / "home"))
    target, params = tiny_target(), {}
    if method.startswith("sps"):
        folder = save_model(tmp_path / "drafter", "llama", 3)
        params = {"drafter": folder}
        if method == "sps+ppd":
            save_tiny_part(open_drafter(target, folder), "ppd")
    else:
        save_tiny_part(target, method, **({"prefix": True} if method == "hydra" else {}))
    prompt = Prompt.from_ids([k % 50 + 3 for k in range(81)])
    whole = record(target, prompt, method, params, max_new_tokens=6)
    monkeypatch.setattr("decoders.model.target_model.target.READ_ROWS_CPU", 16)
    monkeypatch.setattr("decoders.draft_models.draft_run.READ_ROWS_CPU", 16)
    pieces = record(target, prompt, method, params, max_new_tokens=6)
    assert pieces.output_ids == whole.output_ids and pieces.tables["nodes"]["token"] == whole.tables["nodes"]["token"]
    cancel = threading.Event()
    run = Run(target, prompt, method, params, max_new_tokens=6, cancel=cancel)
    prepare = run.decoding.drafter.prepare

    def leave(context):
        cancel.set()
        prepare(context)
        raise AssertionError("the whole prompt was read")

    monkeypatch.setattr(run.decoding.drafter, "prepare", leave)
    trace = run.finish()
    assert trace.run["stop"] == "cancelled" and trace.run["complete"] and not trace.rows("steps")
