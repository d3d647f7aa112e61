"""What servers say, imported: each documented form on its sample, and on samples that somebody damaged."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from decoders.importers import ImportFault, Opened, importers, open_log
from decoders.importers.request import LOCAL, NOT_RECORDED
from decoders.trace.check import check
from decoders.trace.files import load, save
from decoders.trace.trace import Trace

SAMPLES = sorted((Path(__file__).parent / "servers").iterdir())
KINDS = {
    "llama_debug.log": "llama.cpp-log", "llama_timings.json": "llama.cpp", "lmstudio.jsonl": "lmstudio",
    "openai_stream.jsonl": "openai", "sglang.json": "sglang", "sglang_stream.txt": "sglang",
    "vllm.log": "vllm-log", "vllm_detailed.json": "vllm", "vllm_metrics.prom": "prometheus",
    "vllm_stream.jsonl": "vllm",
}  # fmt: skip


def sample(name: str) -> Opened:
    return open_log((Path(__file__).parent / "servers" / name).read_bytes(), name)


def one(name: str) -> Trace:
    (trace,) = sample(name).traces
    return trace


def counts(trace: Trace) -> tuple[list[int], list[int]]:
    return trace.tables["steps"]["accepted"], trace.tables["steps"]["drafted"]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_sample_is_read_by_its_importer(path: Path):
    opened = open_log(path.read_bytes(), path.name)
    assert opened.importer == KINDS[path.name]
    for trace in opened.traces:
        check(trace)
        again = load(save(trace, None) or b"")
        assert again.run["unknown"] == trace.run["unknown"] and again.tables == trace.tables
    assert {one.name for one in importers()} == set(KINDS.values())


def test_vllm_tells_every_step_but_the_rejected_ids():
    trace = one("vllm_detailed.json")
    assert counts(trace) == ([0, 2, 0, 3, 4, 1, 2], [0, 5, 5, 5, 4, 5, 3])
    assert trace.text(trace.output_ids).startswith(" the old lamp") and len(trace.output_ids) == 18
    assert trace.output_ids[0] == 1000 and trace.prompt_ids == [151644, 872, 198, 5501, 5766]
    nodes = trace.tables["nodes"]
    rejected = [t for t, status in zip(nodes["token"], nodes["status"], strict=True) if status == "rejected"]
    assert set(rejected) == {NOT_RECORDED} and "nodes.token" in trace.run["unknown"]
    tokens = trace.tables["tokens"]
    assert tokens["prob"][5:8] == [pytest.approx(p, abs=1e-4) for p in (0.9, 0.55, 0.3)]
    assert tokens["rank"][5:8] == [0, 0, 1]
    numbers = trace.run["metrics"]
    assert numbers["accepted"] == 12 and numbers["draft_efficiency"] == pytest.approx(12 / 27)
    assert numbers["copied_share"] is None and trace.run["imported"]["said"]["num_spec_tokens"] == 5


def test_interleaved_requests_are_told_apart():
    first, second = sample("vllm_stream.jsonl").traces
    assert counts(first) == ([0, 2, 0, 3, 4], [0, 5, 5, 5, 5]) and counts(second) == ([0, 1, 1, 1], [0, 3, 3, 3])
    assert first.tables["steps"]["elapsed_ms"][1] == pytest.approx(23, abs=1)
    assert first.tables["steps"]["verify_ms"] == [None] * 5


def test_arrays_that_do_not_account_for_the_answer_are_not_laid_over_it():
    document = json.loads((Path(__file__).parent / "servers" / "vllm_detailed.json").read_text())
    told = document["metrics"]["speculative_decoding"]
    for field in ("per_step_accepted", "per_step_drafted"):
        told[field] = told[field][:3]
    (trace,) = open_log(json.dumps(document).encode()).traces
    assert "steps" in trace.run["unknown"] and trace.run["metrics"]["tokens_per_step"] is None
    assert any("make 9 tokens" in note for note in trace.run["imported"]["notes"])


def test_a_summary_without_steps_says_what_is_missing():
    document = json.loads((Path(__file__).parent / "servers" / "vllm_detailed.json").read_text())
    for field in ("per_step_accepted", "per_step_drafted"):
        del document["metrics"]["speculative_decoding"][field]
    (trace,) = open_log(json.dumps(document).encode()).traces
    assert any("detailed" in note for note in trace.run["imported"]["notes"])
    assert trace.run["imported"]["said"]["num_accepted_draft_tokens"] == 12
    assert trace.run["metrics"]["accepted"] is None


def test_llama_cpps_log_has_the_drafters_choices():
    trace = one("llama_debug.log")
    assert counts(trace) == ([1, 2], [2, 2])
    guesses = trace.tables["guesses"]
    assert guesses["token"][:3] == [8068, 16, 248068] and guesses["node"][:3] == [0, 0, 0]
    assert guesses["draft_prob"][:3] == [0.876, 0.068, 0.006]
    assert trace.output_ids == [8068, 279, 264, 2310, 18] and trace.text([271]) == "\n\n"
    assert trace.run["imported"]["said"]["draft_n"] == 4


def test_llama_cpps_probabilities_under_drafting_are_left_out():
    trace = one("llama_timings.json")
    assert set(trace.tables["tokens"]["prob"]) == {None}
    assert trace.run["imported"]["said"]["draft_n_accepted"] == 3
    assert trace.run["timings"] == {"prefill_ms": 30.1, "decode_ms": 95.0}


def test_sglangs_stream_gives_its_steps():
    trace = one("sglang_stream.txt")
    assert counts(trace)[0] == [0, 2, 0, 3, 1] and "steps.drafted" in trace.run["unknown"]
    assert trace.run["imported"]["text"].startswith(" the old lamp")
    assert one("sglang.json").tables["tokens"]["prob"][1:] == [pytest.approx(0.904837)] * 4


def test_lm_studios_fragments_say_who_wrote_them():
    trace = one("lmstudio.jsonl")
    assert trace.tables["tokens"]["kind"][1:] == [
        "plain",
        "accepted",
        "accepted",
        "bonus",
        "plain",
        "accepted",
        "bonus",
    ]
    assert trace.run["imported"]["said"]["ignoredDraftTokensCount"] == 2
    assert trace.run["metrics"]["draft_efficiency"] is None and min(trace.output_ids) >= LOCAL


def test_a_stream_of_anybody_keeps_its_chunks_and_their_times():
    trace = one("openai_stream.jsonl")
    assert trace.tables["steps"]["elapsed_ms"] == [pytest.approx(30.0 * i) for i in range(4)]
    assert "steps.accepted" in trace.run["unknown"] and trace.run["metrics"]["accepted"] is None
    assert "tokens" in trace.run["unknown"] and trace.run["metrics"]["tokens_per_s"] is None


def test_numbers_of_many_requests_are_no_run():
    log, metrics = sample("vllm.log"), sample("vllm_metrics.prom")
    assert not log.traces and log.numbers[0].values["Accepted ÷ drafted"] == pytest.approx(130 / 240)
    assert metrics.numbers[0].values["acceptance by position (of all drafts)"] == [0.8, 0.5, 0.2]


def test_ids_without_a_tokenizer_are_shown_as_ids():
    document = {"id": "a", "choices": [{"text": "", "token_ids": [5, 6]}], "metrics": {"speculative_decoding": {}}}
    (trace,) = open_log(json.dumps(document).encode()).traces
    pieces = trace.tables["pieces"]
    assert bytes.fromhex(pieces["hex"][pieces["id"].index(5)]) == b"<5>" and trace.output_ids == [5, 6]


HOSTILE = ["<img src=x onerror=alert(1)>", "\u202e\x00\x1b[31m", "\ud83d", "{{7*7}}", "a" * 5000, "𓂀\u0301" * 40]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_text(text: str):
    document: dict[str, Any] = {
        "id": text, "model": text, "choices": [{"index": 0, "finish_reason": text, "delta": {"content": text}}],
        "usage": {text: 1}, "metrics": {"speculative_decoding": {"per_step_accepted": [0], text: text}},
    }  # fmt: skip
    (trace,) = open_log(json.dumps(document).encode()).traces
    check(trace)
    assert trace.text(trace.output_ids)[:20] == text.encode("utf-8", "replace").decode()[:20]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_damaged_samples_give_a_sentence_or_a_trace_and_never_another_error(path: Path):
    """Cut, mixed up, repeated, with bytes exchanged and values of other kinds."""
    data, chance = path.read_bytes(), random.Random(path.name)
    for _ in range(60):
        damaged = bytearray(data)
        match chance.randrange(5):
            case 0:
                del damaged[chance.randrange(len(damaged)) :]
            case 1:
                for _ in range(20):
                    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            case 2:
                lines = data.split(b"\n")
                chance.shuffle(lines)
                damaged = bytearray(b"\n".join(lines))
            case 3:
                at = chance.randrange(len(damaged))
                damaged[at:at] = data[chance.randrange(len(data)) :]
            case _:
                for word in (b"1", b"[", b"true", b'"'):
                    other = chance.choice([b"null", b"-1", b"1e999", b"{}"])
                    damaged = bytearray(bytes(damaged).replace(word, other, 3))
        try:
            opened = open_log(bytes(damaged), path.name)
        except ImportFault as fault:
            assert "\n" not in str(fault)
            continue
        for trace in opened.traces:
            check(trace)
            save(trace, None)


def test_other_versions_fields_are_left_alone():
    document = json.loads((Path(__file__).parent / "servers" / "vllm_detailed.json").read_text())
    document["metrics"]["speculative_decoding"] |= {
        "per_step_tree": [[1]],
        "num_spec_tokens": "five",
        "more": {"a": []},
    }
    document["choices"][0]["logprobs"]["content"][0]["top_logprobs"] = "none"
    (trace,) = open_log(json.dumps(document).encode()).traces
    assert counts(trace)[0] == [0, 2, 0, 3, 4, 1, 2]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"hello", b"\xff\xfe", b"[" * 5000, b'{"choices": [null, 3]}'])
def test_what_is_no_log_is_refused_in_a_sentence(data: bytes):
    with pytest.raises(ImportFault, match="holds nothing"):
        open_log(data, "file.txt")


def test_ten_thousand_steps_are_imported_in_two_seconds():
    """Processor time: the machine may be busy."""
    lines = ["slot update_slots: id  0 | task 1 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 17"]
    for step in range(10_000):
        for place in range(3):
            told = f" - seq_id 0, draft candidate   {{0}}, pos   {place}:    10{{0}} (   0.{{1}}00) ' w{{0}}'"
            lines += [told.format(k, 9 - k) for k in range(3)]
        lines.append(f"slot update_slots: id  0 | task 1 | add accepted tokens: sampled={step}, ids.size=3, n_draft=3")
        lines.append("slot update_slots: id  0 | task 1 | accepted 2/3 draft tokens, new n_tokens = 9")
    data = "\n".join(lines).encode()
    started = time.process_time()
    (trace,) = open_log(data).traces
    spent = time.process_time() - started
    assert trace.rows("steps") == 10_000 and trace.run["metrics"]["tokens_per_step"] == 3
    assert spent < 2
