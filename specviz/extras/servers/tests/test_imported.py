"""An imported run read again by a model of one's own, and drafted again: against the engine's own run of its text."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from decoders import Prompt, generate, load, record
from decoders.errors import UserError
from decoders.importers import open_log
from decoders.importers.request_trace import NOT_RECORDED
from decoders.model.target_model.target import Target
from decoders.study.look.imported_run import read_again, redraft
from decoders.trace.check import check
from decoders.trace.trace import Trace
from specviz.cli import main
from tests.command import refusal
from tests.models import prompt_ids, tiny_target
from tests.stubs import app_of, gallery_desk

PROMPT = [*prompt_ids(3, 24, 6), *prompt_ids(3, 24, 6)[:12]]
COUNT = 24


@functools.cache
def target() -> Target:
    return tiny_target()


@functools.cache
def serve() -> tuple[Trace, bytes]:
    """A run of prompt lookup by the engine, and what a vLLM server would say of it."""
    first = generate(target(), Prompt(tuple(PROMPT), ()), max_new_tokens=1, stop_ids=())
    trace = record(target(), Prompt((*PROMPT, *first), ()), "pld", {"k": 4}, max_new_tokens=COUNT, stop_ids=())
    steps = trace.tables["steps"]
    document = {
        "id": "chatcmpl-1", "model": "tiny", "prompt_token_ids": PROMPT,
        "choices": [{"index": 0, "message": {"content": ""}, "token_ids": first + trace.output_ids}],
        "metrics": {"speculative_decoding": {
            "per_step_accepted": steps["accepted"], "per_step_drafted": steps["drafted"],
        }},
    }  # fmt: skip
    return trace, json.dumps(document).encode()


def import_of() -> Trace:
    (trace,) = open_log(copy.copy(serve()[1])).traces
    return trace


def test_the_text_read_again_has_the_models_own_numbers():
    original, _ = serve()
    again = read_again(target(), import_of())
    for name in ("prob", "rank"):
        mine, theirs = again.tables["tokens"][name][-COUNT:], original.tables["tokens"][name][-COUNT:]
        assert mine == pytest.approx(theirs, abs=1e-4)
    assert again.tables["steps"]["entropy"][1:] == pytest.approx(original.tables["steps"]["entropy"], abs=1e-3)
    assert "tokens.rank" not in again.run["unknown"] and "tokens.prob" in again.run["recomputed"]
    assert again.run["model"]["key"] == target().key and again.run["imported"]["served"] == "tiny"


def test_steps_drafted_again_by_the_same_method_fill_in_what_was_rejected():
    original, _ = serve()
    again = redraft(target(), read_again(target(), import_of()), "pld", {"k": 4})
    assert again.run["redrafted"]["differing"] == 0 < again.run["redrafted"]["compared"]
    assert "nodes.token" not in again.run["unknown"]
    mine, theirs = again.tables["nodes"], original.tables["nodes"]
    assert [t for t, s in zip(mine["token"], mine["step"], strict=True) if s] == theirs["token"]
    assert any(mine["redrafted"])


def test_drafts_that_are_longer_here_are_counted_and_the_end_of_the_answer_cuts_none():
    """A server drafts on behind an answer's end, where this engine's own run cut its last drafts."""
    assert not set(serve()[0].tables["steps"]["drafted"]) <= {0, 4}
    again = redraft(target(), read_again(target(), import_of()), "pld", {"k": 4})
    steps = again.tables["steps"]
    assert set(steps["local_drafted"]) == {0, 4} and again.run["redrafted"]["differing"] == 0
    pairs = zip(steps["local_drafted"], steps["drafted"], strict=True)
    assert again.run["redrafted"]["longer"] == sum(mine > theirs for mine, theirs in pairs) > 0


def test_a_step_where_engine_and_head_differ_is_flagged_and_not_filled_in():
    trace = read_again(target(), import_of())
    again = redraft(target(), trace, "pld", {"k": 1})
    steps = again.tables["steps"]
    deep = [a > 1 for a in steps["accepted"]]
    assert any(deep) and all(differs for differs, more in zip(steps["differs"], deep, strict=True) if more)
    assert again.run["redrafted"]["differing"] == sum(steps["differs"])
    assert NOT_RECORDED in again.tables["nodes"]["token"]
    check(again)


def test_where_the_servers_drafts_are_known_each_token_is_compared():
    """A run that was recorded in the server: as many tokens stand, and yet another one was drafted."""
    trace = redraft(target(), read_again(target(), import_of()), "pld", {"k": 4})  # its drafts are now all known
    assert redraft(target(), trace, "pld", {"k": 4}).run["redrafted"]["differing"] == 0
    nodes = trace.tables["nodes"]
    rejected = next(row for row, status in enumerate(nodes["status"]) if status in ("rejected", "unreached"))
    nodes["token"][rejected] = next(t for t in range(1, 99) if t not in nodes["token"])
    again = redraft(target(), trace, "pld", {"k": 4})
    assert again.run["redrafted"]["differing"] == 1 and again.tables["steps"]["differs"][nodes["step"][rejected]]


def test_a_server_of_another_model_is_told_by_its_probabilities():
    document = json.loads(serve()[1])
    ids = document["choices"][0]["token_ids"]
    content = [{"token": f"token_id:{token}", "logprob": -0.01, "top_logprobs": []} for token in ids]
    document["choices"][0]["logprobs"] = {"content": content}
    (trace,) = open_log(json.dumps(document).encode()).traces
    again = read_again(target(), trace)
    assert any("another model" in note for note in again.run["imported"]["notes"])
    assert again.tables["tokens"]["server_prob"][-1] == pytest.approx(0.99005, abs=1e-4)


def sglang_stream(steps: list[int], **more: Any) -> Trace:
    """The run of ``served`` as a stream of SGLang tells it: what was accepted, not what was drafted."""
    document = json.loads(serve()[1])
    ids, chunks, wrote = document["choices"][0]["token_ids"], [], 0
    for number, accepted in enumerate([0, *steps]):
        wrote += accepted + 1
        meta = {"id": "a", "completion_tokens": wrote, "spec_verify_ct": number, "prompt_token_ids": PROMPT}
        chunks.append({"text": "", "output_ids": ids[:wrote], "meta_info": meta})
    (trace,) = open_log("\n".join(map(json.dumps, chunks)).encode()).traces
    assert "steps.drafted" in trace.run["unknown"] and trace.tables["steps"]["accepted"] == [0, *steps]
    return trace


def test_where_drafts_are_not_told_they_are_compared_as_far_as_they_were_accepted():
    accepted = serve()[0].tables["steps"]["accepted"]
    trace = read_again(target(), sglang_stream(accepted))
    same, never = redraft(target(), trace, "pld", {"k": 4}), redraft(target(), trace, "plain")
    told = [a > 0 for a in [0, *accepted]]
    assert any(told) and same.run["redrafted"] | {"method": "", "params": {}} == {
        "method": "", "params": {}, "compared": sum(told), "differing": 0, "longer": 0,
    }  # fmt: skip
    assert never.tables["steps"]["differs"] == told and never.run["redrafted"]["differing"] == sum(told)


def test_the_servers_own_ids_stay_where_the_prompt_alone_is_text():
    document = json.loads(serve()[1])
    del document["prompt_token_ids"]
    (trace,) = open_log(json.dumps({**document, "prompt": "the old lamp"}).encode()).traces
    again = read_again(target(), trace)
    assert again.output_ids == document["choices"][0]["token_ids"]
    assert again.tables["steps"]["accepted"] == [0, *serve()[0].tables["steps"]["accepted"]]


def text_answer(**more: Any) -> Trace:
    words = {"prompt": "the old lamp at the station, the old", "choices": [{"text": " lamp at the station"}], **more}
    (trace,) = open_log(json.dumps({"id": "a", **words}).encode()).traces
    return trace


def test_a_text_without_ids_is_tokenised_and_says_so():
    again = read_again(target(), text_answer())
    assert again.text(again.output_ids) == " lamp at the station" and "tokens.id" not in again.run["unknown"]
    assert any("made from the text" in note for note in again.run["imported"]["notes"])
    with pytest.raises(UserError, match="nothing to compare"):
        redraft(target(), again, "pld")


def test_steps_of_a_text_are_kept_where_its_tokens_are_the_models():
    tokenizer = target().tokenizer
    fragments = [tokenizer.decode([i]) for i in tokenizer(" lamp at the", add_special_tokens=False)["input_ids"]]
    told = [{"text": text, "tokensCount": 1, "fromDraftModel": n % 3 < 2} for n, text in enumerate(fragments)]
    (trace,) = open_log("\n".join(map(json.dumps, told)).encode()).traces
    accepted = trace.tables["steps"]["accepted"]
    whole = copy.deepcopy(trace)
    prompt = text_answer()
    for table in ("tokens", "nodes"):  # the same with a prompt, which this source never tells
        assert whole.tables[table]
    whole.run["unknown"].remove("prompt")
    whole.tables["pieces"]["hex"][whole.tables["pieces"]["id"].index(NOT_RECORDED)] = b"the old".hex()
    whole.tables["pieces"]["special"][whole.tables["pieces"]["id"].index(NOT_RECORDED)] = False
    again = read_again(target(), whole)
    assert again.tables["steps"]["accepted"] == accepted and prompt.run["unknown"]
    assert again.text(again.prompt_ids) == "the old" and again.text(again.output_ids) == " lamp at the"
    with pytest.raises(UserError, match="does not tell the prompt"):
        read_again(target(), trace)


def test_the_steps_of_a_stream_that_ended_by_itself_are_kept(monkeypatch: pytest.MonkeyPatch):
    """The token that ended it has no text: it is the model's own."""
    monkeypatch.setattr(Target, "stop_ids", (1,))
    tokenizer, chunks = target().tokenizer, []
    for n, token in enumerate(tokenizer(" lamp at the", add_special_tokens=False)["input_ids"], 1):
        told = {"predicted_n": n, "predicted_ms": 9.0 * n, "draft_n": 0, "draft_n_accepted": 0}
        chunks.append({"content": tokenizer.decode([token]), "stop": False, "timings": told})
    told = told | {"predicted_n": n + 1, "predicted_ms": 99.0}
    chunks.append({"content": "", "stop": True, "stop_type": "eos", "prompt": "the old", "timings": told})
    (trace,) = open_log("\n".join(map(json.dumps, chunks)).encode()).traces
    assert trace.output_ids[-1] == NOT_RECORDED and "steps" not in trace.run["unknown"]
    again = read_again(target(), trace)
    assert again.output_ids[-1] == 1 and again.tables["steps"]["accepted"] == [0] * (n + 1)
    assert redraft(target(), again, "pld").run["redrafted"]["compared"] == 0


@pytest.mark.parametrize(("change", "word"), [("ids", "beyond"), ("long", "at most")])
def test_a_run_that_the_model_cannot_read_is_refused(change: str, word: str):
    document = json.loads(serve()[1])
    document["prompt_token_ids"] = [319_000] if change == "ids" else PROMPT * 15
    (trace,) = open_log(json.dumps(document).encode()).traces
    with pytest.raises(UserError, match=word):
        read_again(target(), trace)


def test_the_command_writes_a_trace_and_says_what_is_not_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = tmp_path / "answer.json"
    log.write_bytes((Path(__file__).parent / "samples" / "vllm_detailed.json").read_bytes())
    assert main(["import", str(log), "--out", str(tmp_path / "run.spectrace")]) == 0
    said = capsys.readouterr().out
    assert "18 tokens in 7 steps" in said and "not recorded: nodes.token" in said
    assert load(tmp_path / "run.spectrace").run["imported"]["source"] == "vllm"
    prom = Path(__file__).parent / "samples" / "vllm_metrics.prom"
    assert main(["import", str(prom)]) == 0 and "accepted ÷ drafted" in capsys.readouterr().out
    assert "--methods drafts with a model: name it with --target" in refusal(capsys, "import", log, "--method", "pld")
    (tmp_path / "odd.txt").write_text("hello")
    assert "holds nothing" in refusal(capsys, "import", tmp_path / "odd.txt")


def test_the_command_keeps_the_runs_that_the_model_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("decoders.load_target", lambda *_, **__: target())
    told = [serve()[1].decode(), json.dumps({"id": "b", "choices": [{"text": "no prompt"}]})]
    (tmp_path / "two.jsonl").write_text("\n".join(told))
    out = tmp_path / "run.spectrace"
    words = ["import", str(tmp_path / "two.jsonl"), "--kind", "openai", "--target", "tiny", "--out", str(out)]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "it was not read again: this source does not tell the prompt" in said
    read, left = (load(tmp_path / f"run-{n}.spectrace") for n in (1, 2))
    assert "recomputed" in read.run and "recomputed" not in left.run
    (tmp_path / "two.jsonl").write_text(told[1])
    assert "does not tell the prompt" in refusal(capsys, *words)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(3 << 30)
    monkeypatch.setattr(Path, "read_bytes", None)
    assert "has 3,072.0 MiB, and 64 are read" in refusal(capsys, "import", tmp_path / "big.json")


def test_an_import_is_read_and_drafted_again_on_a_server(home):
    desk = gallery_desk(target(), {"mine": serve()[0]})
    key = desk.open_file(serve()[1])
    with TestClient(app_of(desk)) as client:
        again = client.post(f"/api/whatif/{key}/read", json={"method": "pld", "params": {"k": 4}})
        assert again.status_code == 200
        made = desk.store.get(again.json()["id"])
        expected = redraft(target(), read_again(target(), import_of()), "pld", {"k": 4})
        assert made.run["redrafted"] == expected.run["redrafted"] and made.tables["nodes"] == expected.tables["nodes"]
        assert desk.store.get(key).run.get("recomputed") is None  # what was opened stays as it is
        assert client.get(f"/api/whatif/{again.json()['id']}").json()["reason"] == ""
        assert client.post("/api/whatif/mine/read", json={}).json()["error"].startswith("This run was recorded here")
        wrong = client.post(f"/api/whatif/{key}/read", json={"method": "pldd"})
        assert wrong.status_code == 422 and "There is no method 'pldd'" in wrong.json()["error"]


def test_an_upload_that_is_refused_or_cut_says_why(home):
    desk = gallery_desk(target(), {"mine": serve()[0]})
    long = {"id": "long", "choices": [{"text": "a"}], "prompt_token_ids": [1] * 400_000}
    with pytest.raises(UserError, match="long was left out: its tokens"):
        desk.open_file(json.dumps(long).encode())
    with pytest.raises(UserError, match="trace"):
        desk.open_file(b"hello")
    many = "\n".join(json.dumps({"id": str(n), "choices": [{"text": "a"}]}) for n in range(30))
    notes = desk.store.get(desk.open_file(many.encode())).run["imported"]["notes"]
    assert notes == ["the first 20 of 30 requests in this file were opened"]
