"""The recorder in vLLM and `specviz watch`: hand-made batches and runners, since vLLM is not among the test packages
(specviz/extras/servers/tests/test_vllm_live.py has the real one).
"""

from __future__ import annotations

import errno
import json
import logging
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.errors import UserError
from decoders.top_k import top_k
from decoders.trace.files import load
from specviz.cli import main
from tests.command import refusal

from .. import recorder as recorders
from .. import requests
from .. import vllm as plugin
from ..recorder import RecordedBatch, RequestRecording, ServerRecorder, logprobs_of, ranks_of
from ..watching import Metrics, WatchedFolder, read_metrics

VOCAB, HOSTILE = 40, "../../x<script>\u202e 1"


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 1000), st.integers(0, 600))
@settings(max_examples=40, deadline=None)
def test_first_choices_are_the_largest(rows, k, seed, more):
    logits = torch.randn(rows, 200 + 13 * more, generator=torch.Generator().manual_seed(seed))
    values, ids = top_k(logits, k)
    expected, places = logits.topk(k, -1)
    assert torch.equal(values, expected) and torch.equal(ids, places)
    at, tokens = torch.arange(rows).repeat_interleave(2), torch.arange(2 * rows) * 7 % logits.shape[1]
    order = logits.argsort(-1, descending=True).tolist()
    expected = [order[row].index(token) for row, token in zip(at.tolist(), tokens.tolist(), strict=True)]
    assert ranks_of(logits, at, tokens).tolist() == expected
    tokens[: rows // 2] = ids[at[: rows // 2], 0]  # those among the first choices are counted without the row
    expected[: rows // 2] = [0] * (rows // 2)
    assert ranks_of(logits, at, tokens, values).tolist() == expected
    with patch.object(recorders, "ROWS_AT_A_TIME", 1):
        assert torch.equal(logprobs_of(logits, ids), logits.log_softmax(-1).gather(1, ids))


def test_how_many_first_choices_are_recorded_is_for_the_environment(monkeypatch):
    assert requests.choices_per_row() == recorders.TOP
    monkeypatch.setenv(requests.CHOICES, "12")
    assert requests.choices_per_row() == 12
    for text in ("0", "65", "-1", "all"):
        monkeypatch.setenv(requests.CHOICES, text)
        with pytest.raises(ValueError, match=f"SPECVIZ_RECORD_TOP is '{text}': a whole number from 1 to 64"):
            requests.choices_per_row()


def recording(key="r", prompt=(5, 6, 7), most=64, stop=(), **said):
    return RequestRecording(key, list(prompt), most, frozenset(stop), {"model": "toy", "method": "ngram", **said})


def batch(wrote, drafts, logits, recordings, at=0.0, **more):
    """A batch as the plugin makes it, by plain arithmetic: ``logits`` [rows, VOCAB], drafts per request."""
    logprobs = logits.log_softmax(-1)
    top, ids = logprobs.topk(recorders.TOP, -1)
    judges, row = [], 0
    for draft in drafts:
        judges += range(row, row + len(draft))
        row += len(draft) + 1
    flat = torch.tensor([token for draft in drafts for token in draft], dtype=torch.long)
    mine = logprobs[judges, flat] if judges else torch.zeros(0)
    ranks = (logprobs[judges] > mine[:, None]).sum(-1) if judges else torch.zeros(0, dtype=torch.long)
    width = max(map(len, wrote))
    tokens = torch.tensor([[*line, *[-1] * (width - len(line))] for line in wrote])
    return RecordedBatch(
        recordings, [len(draft) for draft in drafts], ids, top, flat, mine, ranks, tokens, at=at, **more
    )


@pytest.fixture
def recorder(tmp_path):
    new = ServerRecorder(tmp_path / "runs", "vllm-recorder", "vLLM, recorded")
    yield new
    new.close()


def files(recorder):
    return sorted(recorder.folder.glob("*.spectrace"))


def test_every_draft_and_verdict_stands_in_the_trace(recorder):
    logits = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(1))
    first, second = recording("a"), recording("b", temperature=0.7)
    assert recorder.begin(first) and recorder.begin(second)
    both = batch(
        [[8, 9, 3], [4]], [[8, 9, 10], [11]], logits, [first, second], at=1.0, batch=3,
        served=torch.tensor([0.5, 0.25, 0.1, 0.2]), q=torch.tensor([0.9, 0.8, 0.7, 0.6]),
        draft_ms=lambda: 2.0, verify_ms=lambda: 30.0,
    )  # fmt: skip
    recorder.step(both)
    recorder.step(batch([[12]], [[]], logits[:1], [first], at=1.5))
    recorder.end(["a", "b", "never heard of"])
    recorder.flush()
    traces = {trace.run["title"].split(": ")[-1]: trace for trace in map(load, files(recorder))}
    trace = traces["a"]
    assert trace.prompt_ids == [5, 6, 7] and trace.output_ids == [8, 9, 3, 12]
    steps, nodes = trace.tables["steps"], trace.tables["nodes"]
    assert (steps["drafted"], steps["accepted"], steps["emitted"]) == ([3, 0], [2, 0], [3, 1])
    assert (steps["draft_ms"], steps["verify_ms"], steps["batch"]) == ([2.0, None], [30.0, None], [3, 1])
    assert steps["reason"] == ["", "the drafter had none"] and steps["elapsed_ms"] == [0.0, 500.0]
    assert nodes["token"] == [7, 8, 9, 10, 3] and nodes["parent"] == [-1, 0, 1, 2, -1]
    assert nodes["status"] == ["root", "accepted", "accepted", "rejected", "root"]
    probs = logits.softmax(-1)
    for node, (row, token) in enumerate([(0, 8), (1, 9), (2, 10)], 1):
        assert nodes["prob"][node] == pytest.approx(float(probs[row, token]), abs=1e-5)
        assert nodes["rank"][node] == int((probs[row] > probs[row, token]).sum())
    assert nodes["draft_prob"][1:4] == [0.9, 0.8, 0.7] and nodes["served_prob"][1:4] == [0.5, 0.25, 0.1]
    targets = trace.tables["targets"]
    for row in range(4):  # every verified row, that behind the rejected token too
        places = zip(targets["step"], targets["node"], targets["token"], strict=True)
        best = [token for step, node, token in places if (step, node) == (0, row)]
        assert best == logits[row].topk(recorders.TOP).indices.tolist()
    assert "nodes.token" not in trace.run["unknown"] and "steps.drafted" not in trace.run["unknown"]
    assert trace.run["imported"]["said"]["num_accepted_tokens"] == 2
    assert traces["b"].tables["nodes"]["status"] == ["root", "rejected"]


def test_a_request_ends_where_the_server_ends_it(recorder):
    """The sampler writes on behind a stop token and the last token that was asked for: the server drops that."""
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(2))
    stops, full = recording("stops", stop=[9]), recording("full", most=2)
    for one in (stops, full):
        recorder.begin(one)
        recorder.step(batch([[8, 9, 10, 3]], [[8, 9, 10]], logits, [one]))
        recorder.step(batch([[4]], [[]], logits[:1], [one]))  # of a step that was under way
    recorder.end(["stops", "full"])
    recorder.flush()
    for trace in map(load, files(recorder)):
        assert trace.output_ids == [8, 9], trace.run["title"]
        assert trace.tables["steps"]["accepted"] == [2] and trace.tables["steps"]["drafted"] == [3]
        assert trace.run["imported"]["said"]["num_accepted_tokens"] == 3, "as the server counts"
        assert "1 more drafted tokens than it wrote" in trace.run["imported"]["warnings"][0]
    assert {load(path).run["stop"] for path in files(recorder)} == {"stop token", "length"}


def test_aborted_hostile_and_crowded_requests(recorder, monkeypatch, caplog):
    monkeypatch.setattr(recorders, "MOST_REQUESTS", 2)
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(3))
    hostile, silent = recording(HOSTILE), recording("aborted before a token")
    assert recorder.begin(hostile) and recorder.begin(silent)
    assert not recorder.begin(recording("one too many")) and "are not recorded" in caplog.text
    recorder.step(batch([[8, 3]], [[8]], logits, [hostile]))
    recorder.end([HOSTILE, "aborted before a token"])
    recorder.flush()
    (path,) = files(recorder)
    assert path.parent == recorder.folder and not set(path.name) & set("/<>\u202e ")
    assert "aborted" in load(path).run["stop"] and not recorder.running
    assert not [p for p in recorder.folder.iterdir() if p.suffix not in (".spectrace", ".jsonl")], "no half of a file"


def test_a_long_request_and_a_slow_disk_are_bounded(recorder, monkeypatch):
    monkeypatch.setattr(recorders, "MOST_TOKENS", 5)
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(4))
    long = recording("long")
    recorder.begin(long)
    for number in range(6):
        recorder.step(batch([[8, 3]], [[8]], logits, [long], at=number))
    recorder.end(["long"])
    recorder.flush()
    trace = load(files(recorder)[0])
    assert len(trace.output_ids) == 2 and "full at 5 tokens" in trace.run["imported"]["notes"][0]


def test_a_folder_that_cannot_be_written_is_said_once(recorder, caplog):
    recorder.folder.parent.joinpath("runs").write_text("a file where the folder would be")
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(5))
    for name in "abc":
        one = recording(name)
        recorder.begin(one)
        recorder.step(batch([[8, 3]], [[8]], logits, [one]))
        recorder.end([name])
    recorder.flush()
    assert caplog.text.count("not recorded") in (1, 2), "said, and not once a request"


def test_a_disk_that_was_full_loses_one_request_and_records_the_next(recorder, monkeypatch, caplog):
    """The steps go on meanwhile, and the memory of the lost one is given back."""
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(5))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("lost", "saved"):
        with monkeypatch.context() as patch:
            if name == "lost":
                patch.setattr("decoders.trace.files.write_bytes", full)
                patch.setattr(recorders.os, "open", full)
            one = recording(name)
            recorder.begin(one)
            recorder.step(batch([[8, 3]], [[8]], logits, [one]))
            recorder.end([name])
            recorder.flush()
        assert not recorder.running
    (path,) = files(recorder)
    assert "saved" in path.name and load(path).output_ids == [8, 3]
    assert "no space left on device" in caplog.text.lower()


def test_two_servers_share_a_folder(recorder):
    """The same request id in both: each has its file, and the folder's numbers are of both."""
    other = ServerRecorder(recorder.folder, "vllm-recorder", "vLLM, recorded")
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(5))
    for one, token in ((recorder, 8), (other, 9)):
        new = recording("same")
        one.begin(new)
        one.step(batch([[token, 3]], [[token]], logits, [new]))
    for one in (recorder, other):
        one.end(["same"])
        one.flush()
    other.close()
    assert sorted(load(path).output_ids for path in files(recorder)) == [[8, 3], [9, 3]]


class Runner:
    """The V1 runner as far as the plugin reads it; ``lets`` says what its sampler lets stand."""

    device, max_model_len = torch.device("cpu"), 100

    def __init__(self, lets):
        self.lets = lets
        self.input_batch = SimpleNamespace(req_ids=["a", "b"])
        params = SimpleNamespace(
            extra_args={"specviz": 1}, max_tokens=50, stop_token_ids=[], eos_token_id=2, temperature=0.0, top_p=1.0,
            top_k=0, seed=None,
        )  # fmt: skip
        other = SimpleNamespace(**{**vars(params), "extra_args": None})
        self.requests = {
            "a": SimpleNamespace(prompt_token_ids=[5, 6], sampling_params=params),
            "b": SimpleNamespace(prompt_token_ids=[7], sampling_params=other),
        }
        self.discard_request_mask = SimpleNamespace(np=[False, False])
        self.model_config = SimpleNamespace(model="toy", served_model_name=None, tokenizer="toy", dtype="torch.float32",
                                            trust_remote_code=False)  # fmt: skip
        self.vllm_config = SimpleNamespace(speculative_config=None)

    def _sample(self, logits, spec_decode_metadata):
        logits.zero_()  # the sampler may write in place: numbers are read before
        return SimpleNamespace(sampled_token_ids=self.lets)

    def _update_states(self, scheduler_output):
        return "updated"


def install(monkeypatch, tmp_path, everything=False):
    owner = type("GPUModelRunner", (Runner,), dict(Runner.__dict__))
    monkeypatch.setattr(plugin, "_class", lambda module, name: owner if "gpu_model_runner" in module else None)
    monkeypatch.setattr(plugin, "_tap_rejection", lambda taps: None)
    return owner, plugin.install_v1(tmp_path / "runs", everything)


def test_requests_that_ask_are_recorded_beside_others(monkeypatch, tmp_path):
    owner, taps = install(monkeypatch, tmp_path)
    assert plugin.install_v1(tmp_path, False) is None, "wrapped once"
    runner = owner(torch.tensor([[8, 3, -1], [9, 9, 9]]))
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(6))
    before = logits.clone()
    metadata = SimpleNamespace(num_draft_tokens=[1, 2], draft_token_ids=torch.tensor([8, 9, 9], dtype=torch.int32))
    output = runner._sample(logits, metadata)
    assert output.sampled_token_ids is runner.lets
    runner.discard_request_mask.np[0] = True  # a part of a prompt: its token is thrown away
    runner._sample(torch.randn(2, VOCAB), None)
    assert runner._update_states(SimpleNamespace(finished_req_ids={"a", "b"})) == "updated"
    taps.recorder.flush()
    (path,) = files(taps.recorder)
    trace = load(path)
    assert trace.output_ids == [8, 3] and trace.run["imported"]["said"]["temperature"] == 0.0
    assert trace.tables["nodes"]["prob"][1] == pytest.approx(float(before[0].softmax(-1)[8]), abs=1e-5)
    taps.recorder.close()


def test_requests_without_ids_are_served_and_not_recorded(monkeypatch, tmp_path):
    """A prompt of embeddings has none, and a pooling request no sampling parameters."""
    owner, taps = install(monkeypatch, tmp_path, everything=True)
    runner = owner(torch.tensor([[8], [9]]))
    runner.requests["a"].prompt_token_ids = None
    runner.requests["b"].sampling_params = None
    assert runner._sample(torch.randn(2, VOCAB), None).sampled_token_ids is runner.lets
    assert taps.skipped_ids == {"a", "b"} and not taps.recorder.running and not taps.failed
    taps.end(["a", "b"])
    assert not taps.skipped_ids
    taps.recorder.close()
    assert not files(taps.recorder)


def test_a_server_without_a_known_runner_is_said_to_be_unknown(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(plugin, "_class", lambda module, name: None)
    monkeypatch.setenv("SPECVIZ_RECORD", str(tmp_path / "runs"))
    plugin.register()
    assert "no runner that is known here" in caplog.text


def test_another_signature_is_refused_and_nothing_is_wrapped(monkeypatch, tmp_path, caplog):
    class GPUModelRunner(Runner):
        def _sample(self, logits, metadata, more):
            raise AssertionError

    monkeypatch.setattr(plugin, "_class", lambda module, name: GPUModelRunner)
    sample = GPUModelRunner._sample
    assert plugin.install_v1(tmp_path, True) is None and GPUModelRunner._sample is sample
    assert "takes (self, logits, metadata, more)" in caplog.text and "is known" in caplog.text


def test_the_plugin_is_silent_without_a_folder_and_never_stops_a_server(monkeypatch, tmp_path, caplog):
    monkeypatch.delenv("SPECVIZ_RECORD", raising=False)
    plugin.register()
    assert not caplog.records
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECVIZ_RECORD", str(tmp_path / "file"))
    with caplog.at_level(logging.ERROR):
        plugin.register()
    assert "records nothing" in caplog.text


def test_a_fault_of_the_recorder_is_not_the_servers(monkeypatch, tmp_path, caplog):
    """It is said once, what was recorded before is written, and no half step comes after it."""
    owner, taps = install(monkeypatch, tmp_path, everything=True)
    runner = owner(torch.tensor([[8], [9]]))
    known = runner.requests
    for there in (known, {}, known, {}):
        runner.requests = there
        assert runner._sample(torch.randn(2, VOCAB), None).sampled_token_ids is runner.lets
    assert caplog.text.count("specviz stops recording") == 1 and not taps.recorder.running
    taps.recorder.close()
    assert sorted(load(path).output_ids for path in files(taps.recorder)) == [[8], [9]]


def test_drafts_of_the_v2_runner_are_its_later_inputs(tmp_path):
    taps = plugin.VllmTaps(tmp_path, True)
    runner = Runner(None)
    prompts = {key: (runner, one.prompt_token_ids, one.sampling_params) for key, one in runner.requests.items()}
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(7))
    own = torch.randn(4, 3, VOCAB, generator=torch.Generator().manual_seed(8))
    v2 = SimpleNamespace(
        req_ids=["a", "b"], num_reqs=2, cu_num_logits_np=[0, 2, 5], logits_indices=torch.arange(5),
        input_ids=torch.tensor([6, 8, 7, 9, 10]), expanded_idx_mapping=torch.tensor([3, 3, 1, 1, 1]),
        expanded_local_pos=torch.tensor([0, 1, 0, 1, 2]),
    )  # fmt: skip
    finish = plugin.before_v2(taps, prompts, logits, v2, own)
    output = SimpleNamespace(sampled_token_ids=torch.tensor([[8, 3, 0], [9, 4, 0]]), num_sampled=torch.tensor([2, 2]))
    finish(plugin.accepted_ids(output))
    taps.end(["a", "b"])
    taps.recorder.flush()
    by_prompt = {tuple(t.prompt_ids): t for t in map(load, files(taps.recorder))}
    nodes = by_prompt[7,].tables["nodes"]
    assert nodes["token"] == [7, 9, 10] and nodes["status"] == ["root", "accepted", "rejected"]
    assert nodes["draft_prob"][2] == pytest.approx(float(own[1, 1].softmax(-1)[10]), abs=1e-5)
    assert by_prompt[5, 6].output_ids == [8, 3]
    assert plugin.before_v2(taps, {}, logits, v2, own) is None, "a rehearsal of the server's"
    v2.cu_num_logits_np = [0, 2, 4]
    with pytest.raises(ValueError, match="adaptive"):
        plugin.before_v2(taps, prompts, logits, v2, own)
    taps.recorder.close()


def test_watching_a_folder_counts_as_the_recorder_wrote(recorder, capsys):
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(9))
    one = recording("a")
    recorder.begin(one)
    recorder.step(batch([[8, 9, 3]], [[8, 9, 10]], logits, [one]))
    recorder.step(batch([[4]], [[8]], logits[:2], [one]))
    recorder.step(batch([[4]], [[]], logits[:1], [one]))
    recorder.flush()
    folder = WatchedFolder(recorder.folder)
    live = next(recorder.folder.glob("live-*.jsonl"))
    with open(live, "a") as file:
        file.write('{"half of a li')
    seen = folder.look()
    assert (seen.requests, seen.drafts, seen.drafted, seen.accepted, seen.tokens) == (1, 2, 4, 2, 5)
    assert seen.by_position == [0.5, 0.5, 0.0] and seen.mean_length == 2.0
    assert folder.look().drafts == 2, "each line once"
    live.write_text(json.dumps({"t": 1, "request": "b", "drafted": 1, "accepted": 1, "emitted": 2}) + "\n")
    assert folder.look().drafts == 3, "the file began anew"
    bad = [{"drafted": 1e999}, {"drafted": -1}, {"accepted": 9}, {"emitted": -5}, {"t": "now"}, {"drafted": None}]
    line = {"t": 1, "request": "\x1b[2J" + HOSTILE, "drafted": 1, "accepted": 0, "emitted": 1}
    with open(live, "a") as file:
        file.write("".join(json.dumps({**line, **one}) + "\n" for one in bad) + "[" * 100_000 + "\n")
        file.write(json.dumps(line) + "\n")
    assert (folder.look().drafts, folder.look().tokens) == (4, 8), "lines of nobody are passed over"
    assert main(["watch", str(recorder.folder), "--once"]) == 0
    shown = capsys.readouterr().out
    assert "mean acceptance length" in shown and "\x1b[2J" not in shown and "script" not in shown


def test_watching_metrics(capsys):
    text = """# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 50.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 12.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 8.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 4.0
vllm:generation_tokens_total{engine="0"} 22.0
"""
    seen = read_metrics(text)
    assert (seen.drafts, seen.drafted, seen.accepted, seen.tokens) == (10, 50, 12, 22)
    assert seen.by_position == [0.8, 0.4] and seen.mean_length == 2.2
    with pytest.raises(UserError, match="speculative decoding"):
        read_metrics("nothing 1\n")
    with pytest.raises(UserError, match="does not answer"):
        Metrics("http://127.0.0.1:9").look()
    with pytest.raises(UserError, match="no address"):
        Metrics("file://127.0.0.1/etc/passwd")
    assert "no folder" in refusal(capsys, "watch", "nowhere at all", "--once")
