"""Imported answers of servers: each documented form on its sample, and on samples that somebody damaged."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from decoders.importers import ImportFault, ImportResult, importers, open_log
from decoders.importers.request_trace import LOCAL, NOT_RECORDED
from decoders.trace.check import check
from decoders.trace.files import load, save
from decoders.trace.trace import Trace
from tests.tiers import matrix
from tests.work import calls

from .model_server import LLAMA

SAMPLES = sorted(path for path in (Path(__file__).parent / "samples").iterdir() if path.suffix != ".xz")
KINDS = {
    "llama_debug.log": "llama.cpp-log", "llama_timings.json": "llama.cpp", "lmstudio.jsonl": "lmstudio",
    "openai_stream.jsonl": "openai", "sglang.json": "sglang", "sglang_stream.txt": "sglang",
    "sglang_dspark.json": "sglang",
    "vllm.log": "vllm-log", "vllm_detailed.json": "vllm", "vllm_metrics.prom": "prometheus",
    "vllm_stream.jsonl": "vllm", "vllm_cat.json": "vllm", "vllm_cat.jsonl": "vllm", "vllm_numbers.jsonl": "vllm",
    "rounds.json": "rounds", "vllm_v0.log": "vllm-log", "vllm_offline.txt": "benchmark", "vllm_bench.txt": "benchmark",
    "llama_speculative.txt": "benchmark", "llama_block.log": "llama.cpp-log", "llama_dump.jsonl": "llama.cpp-dump",
    "sglang_decode.log": "sglang-log", "sglang_finish.log": "sglang-log", "lmstudio_rest.json": "lmstudio",
    "tensorrt.json": "tensorrt-llm", "tensorrt_iterations.jsonl": "tensorrt-llm", "mlc.json": "mlc", "tgi.json": "tgi",
    "spec_bench.jsonl": "spec-bench", "counts.json": "counts",
}  # fmt: skip


def sample(name: str) -> ImportResult:
    return open_log((Path(__file__).parent / "samples" / name).read_bytes(), name)


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


def test_sglangs_dspark_dump_has_every_draft_and_verdict():
    """Written by the dumper of sglang 0.5.23 on made-up steps; a request's second step lies behind a hole of one token,
    and of the cut blocks only what was verified is a draft.
    """
    first, second = sample("sglang_dspark.json").traces
    assert first.output_ids == [101, 102, 150, 151, 109, 110, 111, 112, 152] and second.output_ids == [250, 205, 251]
    assert counts(first) == ([2, 0, 4], [4, 2, 4]) and counts(second) == ([0, 1], [1, 1])
    assert first.tables["nodes"]["token"][1:5] == [101, 102, 103, 104] and "nodes.token" not in first.run["unknown"]
    assert first.tables["nodes"]["status"][:5] == ["root", "accepted", "accepted", "rejected", "unreached"]
    assert first.tables["nodes"]["confidence"][:5] == [None, 0.9, 0.8, 0.4, 0.2]
    assert first.tables["nodes"]["draft_prob"][1] is None, "a confidence is no q"
    assert first.tables["steps"]["batch"] == [2, 2, 1] and first.run["imported"]["said"]["drafted"] == 12
    assert "warnings" not in first.run["imported"]
    document = json.loads((Path(__file__).parent / "samples" / "sglang_dspark.json").read_text())
    dump = document["internal_states"][0]["dspark_info_record"]
    alone = open_log(json.dumps(dump).encode()).traces
    assert [trace.tables for trace in alone] == [first.tables, second.tables]
    lost = dump["records"].pop(1)
    first, second = open_log(json.dumps(document).encode()).traces
    assert first.run["imported"]["warnings"] == ["1 tokens before number 17 are not in the dump"]
    for one in (request := lost["reqs"][0]), dump["records"][0]["reqs"][0]:
        one.pop("rid", None)
        one["req_pool_index"] = 3
    request["prefix_len"] = 90  # the slot has another request now
    dump["records"].append(lost)
    titles = [trace.run["title"] for trace in open_log(json.dumps(dump).encode()).traces]
    assert {title.split(": ")[1] for title in titles} >= {"slot 3", "slot 3 from 90"}
    for name, value in (("correct_drafts", 4), ("verify_len", 9), ("acc_len", 0), ("draft_tokens", "x")):
        broken = json.loads(json.dumps(dump))
        broken["records"][0]["reqs"][0][name] = value
        assert "1 steps whose numbers" in " ".join(open_log(json.dumps(broken).encode()).notes), name


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
    document = json.loads((Path(__file__).parent / "samples" / "vllm_detailed.json").read_text())
    told = document["metrics"]["speculative_decoding"]
    for field in ("per_step_accepted", "per_step_drafted"):
        told[field] = told[field][:3]
    (trace,) = open_log(json.dumps(document).encode()).traces
    assert "steps" in trace.run["unknown"] and trace.run["metrics"]["tokens_per_step"] is None
    assert any("make 9 tokens" in note for note in trace.run["imported"]["notes"])


def vllm_stream(chunks: list[int], accepted: list[int], drafted: list[int]) -> Trace:
    """A request of vLLM, streamed a step a chunk, with the arrays of the steps that had a draft."""
    lines = []
    for place, count in enumerate(chunks):
        choice = {"index": 0, "delta": {"content": "a" * count}, "token_ids": [7] * count}
        lines.append(
            {"t": 10 + place / 50, "data": {"id": "a", "object": "chat.completion.chunk", "choices": [choice]}}
        )
    told = {"per_step_accepted": accepted, "per_step_drafted": drafted, "num_draft_tokens": sum(drafted)}
    usage = {"completion_tokens": sum(chunks)}
    metrics = {"speculative_decoding": {**told, "num_accepted_draft_tokens": sum(accepted)}}
    lines.append({"t": 11, "data": {"id": "a", "choices": [], "usage": usage, "metrics": metrics}})
    (trace,) = open_log("\n".join(map(json.dumps, lines)).encode()).traces
    return trace


def test_a_streams_chunks_tell_where_vllms_steps_without_a_draft_were():
    """The server's arrays leave them out: here three of eight steps."""
    trace = vllm_stream([1, 1, 3, 1, 1, 5, 1, 2], [2, 0, 0, 4, 3], [5, 4, 4, 5, 5])
    assert counts(trace) == ([0, 0, 2, 0, 0, 4, 0, 2], [0, 0, 5, 4, 4, 5, 0, 5])
    assert trace.run["imported"]["warnings"] == [
        "the server accepted 1 more drafted tokens than it wrote: the answer ended before"
    ]
    assert trace.tables["steps"]["elapsed_ms"][-1] == pytest.approx(140)
    unsure = vllm_stream([1, 1, 1, 3, 1], [0, 2], [5, 5])
    assert counts(unsure)[0] == [0, 0, 0, 2, 0] and "steps.drafted" in unsure.run["unknown"]
    assert "2 steps of one token" in unsure.run["imported"]["notes"][0] and "steps" not in unsure.run["unknown"]
    merged = vllm_stream([1, 3, 3], [1, 2], [5, 5])  # its second chunk is of two steps
    assert "steps" in merged.run["unknown"] and "is not known" in merged.run["imported"]["notes"][0]


def test_real_answers_of_vllm_are_read_whole_or_say_what_may_be_missing():
    """vLLM 0.32 on a CPU, n-gram drafts. The same request in one piece fits its arrays with one step too few: the
    server counts tokens that it accepted behind the answer's end.
    """
    whole, stream, numbers = one("vllm_cat.json"), one("vllm_cat.jsonl"), one("vllm_numbers.jsonl")
    assert whole.output_ids == stream.output_ids
    assert counts(stream) == ([0, 0, 5, 5, 5, 5, 0, 0, 1], [0, 0, 5, 5, 5, 5, 5, 5, 5])
    assert len(counts(whole)[0]) == 8 and "up to 1 step without a draft" in whole.run["imported"]["warnings"][0]
    assert stream.run["imported"]["warnings"] == [
        "the server accepted 1 more drafted tokens than it wrote: the answer ended before"
    ]
    assert len(counts(numbers)[0]) == 38 and sum(counts(numbers)[0]) == 2  # of 40 tokens, in 38 steps
    assert "steps" not in numbers.run["unknown"] and "steps.drafted" in numbers.run["unknown"]


def test_a_summary_without_steps_says_what_is_missing():
    document = json.loads((Path(__file__).parent / "samples" / "vllm_detailed.json").read_text())
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


def test_llama_cpps_probabilities_of_verified_drafts_alone_are_left_out():
    """It writes 1.0, without first choices, for each token of a verified draft; the others' are the target's."""
    trace = one("llama_timings.json")
    assert trace.tables["tokens"]["prob"][-6:] == [pytest.approx(0.67032), None] * 3
    assert trace.run["imported"]["said"]["draft_n_accepted"] == 3
    assert trace.run["timings"] == {"prefill_ms": 30.1, "decode_ms": 95.0, "untimed_tokens": 1}


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


def test_a_runs_rounds_are_enough_and_what_is_missing_is_said():
    trace = one("rounds.json")
    steps, nodes = trace.tables["steps"], trace.tables["nodes"]
    assert (steps["drafted"], steps["accepted"], steps["emitted"]) == ([3, 2, 0], [2, 0, 0], [3, 1, 1])
    assert trace.output_ids[:3] == [5, 6, 7] and nodes["token"][1:4] == [5, 6, 9] and steps["verify_ms"][0] == 4.5
    least = open_log(b'{"rounds": [{"drafted": 4, "accepted": 1}]}', "run.json").traces[0]
    assert least.run["metrics"]["accepted"] == 1 and {"nodes.token", "text"} <= set(least.run["unknown"])
    for data, sentence in {
        b'{"rounds": [{"drafted": 1, "accepted": 3}]}': "round 1 accepted 3 of 1 drafted tokens",
        b'{"rounds": [{"drafted": 1, "accepted": 1}, {"drafted": 3, "draft": [1]}]}': "round 2 drafted 3 tokens and",
    }.items():
        with pytest.raises(ImportFault, match=sentence):
            open_log(data, "run.json")


def test_commands_take_a_runs_rounds_as_they_are(tmp_path: Path, capsys):
    from specviz.cli import main

    one, two = (tmp_path / f"{name}.json" for name in ("one", "two"))
    for path, accepted in ((one, 3), (two, 1)):
        path.write_text(json.dumps({"rounds": [{"drafted": 4, "accepted": accepted}] * 2}), encoding="utf-8")
    assert main(["export", str(one), "--html", str(tmp_path / "one.html")]) == 0
    assert main(["figure", str(one), str(two), "-o", str(tmp_path / "both.svg")]) == 0
    assert main(["compare", str(one), str(two)]) == 0
    printed = capsys.readouterr().out
    assert "the most tokens per step, 4.00;" in printed and (tmp_path / "both.svg").read_bytes().startswith(b"<svg")


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


REAL = [LLAMA / name for name in ("draft_comp_sampled.log", "simple_tpt_stream.json", "draft_emoji_stream.log")]


@pytest.mark.parametrize("path", matrix([*SAMPLES, *REAL], 5, "the other samples"), ids=lambda path: path.name)
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
    document = json.loads((Path(__file__).parent / "samples" / "vllm_detailed.json").read_text())
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


def llama_line(words: str) -> bytes:
    return f"draft\nslot update_slots: id  0 | task 1 | {words}".encode()


BIG = 10**400
ODD = {  # each of these once ended in another error than a sentence
    "a time": f'{{"t": {BIG}, "data": {{"choices": [{{"text": "a"}}]}}}}',
    "endless time": '{"t": 0, "data": {"choices": [{"delta": {"content": "a"}}]}}\n'
    '{"t": 1e999, "data": {"choices": [{"delta": {"content": "a"}}]}}',
    "usage": f'{{"choices": [{{"text": "a"}}], "usage": {{"x": {BIG}}}}}',
    "log-probability": f'{{"choices": [{{"text": "a", "logprobs": {{"tokens": ["a"], "token_logprobs": [-{BIG}]}}}}]}}',
    "said": f'{{"choices": [{{"text": "a"}}], "metrics": {{"speculative_decoding": {{"x": [{BIG}, {10**30}]}}}}}}',
    "slot": '{"content": "a", "id_slot": [], "stop": true, "timings": {}}',
    "no list": '{"content": "a", "stop": true, "completion_probabilities": [{"token": "a", "top_logprobs": 3}]}',
    "an id that is true": '{"content": "a", "stop": true, "completion_probabilities": [{"token": "a", "id": true}]}',
    "a place": 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="²"} 5',
    "interval": f"SpecDecoding metrics: Accepted: {BIG} tokens, Drafted: 5 tokens",
    "interval of nothing": "SpecDecoding metrics: Mean acceptance length: 2.00, Accepted: 0 tokens, Drafted: 5 tokens",
}  # fmt: skip
ODD_LINES = [f"accepted  1/ {BIG}{BIG} draft tokens", "draft acceptance = 1.2.3 ( 1 accepted / 2 generated)"]


@pytest.mark.parametrize("data", [*(text.encode() for text in ODD.values()), *map(llama_line, ODD_LINES)])
def test_odd_numbers_give_a_sentence_or_a_trace(data: bytes):
    try:
        opened = open_log(data)
    except ImportFault as fault:
        assert "\n" not in str(fault)
    else:
        assert opened.traces or opened.numbers


HUGE = {  # each of these once took minutes, or all memory
    "drafted": b'{"choices": [{"text": "a b"}], "metrics": {"speculative_decoding": '
    b'{"per_step_accepted": [0], "per_step_drafted": [1000000000]}}}',
    "accepted": llama_line("accepted  1000000000/ 1000000000 draft tokens"),
    "fragments": b'{"text": "a", "tokensCount": 4096, "fromDraftModel": true}\n' * 20_000,
    "one line": llama_line("id  0 | task 1 | new prompt, " * 20_000),
    "one word": b"SpecDecoding metrics: " + b"A" * 40_000,
    "words": json.dumps({"choices": [{"text": "a " * 1_100_000}]}).encode(),
    "requests": b'{"choices": [{"text": "a"}]}\n' * 5_000,
    "chunks": json.dumps({"id": "a", "choices": [{"token_ids": [1], "delta": {"content": "x" * 400}}]}).encode()
    + b"\n",
}


@pytest.mark.parametrize("name", matrix(HUGE, {*HUGE} - {"fragments", "chunks"}, "the largest of these files"))
def test_a_file_that_tells_of_very_much_is_cut_or_refused(name: str):
    started = time.process_time()  # two seconds: a search that comes back again and again is no call that is counted
    try:
        opened = open_log(HUGE[name] * (20_000 if name == "chunks" else 1))
        assert len(opened.traces) <= 200
    except ImportFault as fault:
        assert len(str(fault)) < 400
    assert time.process_time() - started < 45


def test_a_request_too_long_to_be_shown_is_named_and_the_others_stay():
    long = {"id": "long", "choices": [{"text": "a"}], "prompt_token_ids": [1] * 400_000}
    short = {"id": "short", "choices": [{"text": "a"}]}
    opened = open_log("\n".join(map(json.dumps, (long, short))).encode())
    assert len(opened.traces) == 1 and opened.notes == [
        "long was left out: its tokens, their first choices and drafted tokens are 400,001, and 300,000 are allowed"
    ]
    with pytest.raises(ImportFault, match="long was left out"):
        open_log(json.dumps(long).encode())


def test_answers_without_ids_are_told_apart_whatever_they_say():
    texts = ["a", "the delta of the Nile"]
    opened = open_log("\n".join(json.dumps({"choices": [{"text": text}]}) for text in texts).encode())
    assert [trace.text(trace.output_ids) for trace in opened.traces] == texts
    own = open_log(b"\n".join(json.dumps({"content": text, "stop": True}).encode() for text in texts))
    assert len({trace.run["title"] for trace in own.traces}) == 2


def test_a_text_with_other_ends_of_lines_is_one_text():
    text = "one\u2028two\x85three"
    lines = [{"choices": [{"delta": {"content": text}}]}, {"choices": [{"delta": {"content": "."}}]}]
    (trace,) = open_log("\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode()).traces
    assert trace.text(trace.output_ids) == text + "."


def test_a_stream_of_llama_cpp_that_was_cut_is_shown():
    lines = [{"content": text, "stop": False, "id_slot": 0, "index": 0} for text in (" the", " old")]
    (trace,) = open_log("\n".join(map(json.dumps, lines)).encode()).traces
    assert trace.text(trace.output_ids) == " the old" and "ends before" in trace.run["imported"]["notes"][0]


@pytest.mark.parametrize(("told", "drafted"), [({"totalDraftTokensCount": 9}, None), ({}, 0)])
def test_a_drafter_of_which_nothing_was_accepted_is_not_said_to_have_drafted_nothing(told: dict, drafted: int | None):
    lines = [*({"text": "a", "tokensCount": 1, "fromDraftModel": False} for _ in range(3)), {"stats": told}]
    (trace,) = open_log("\n".join(map(json.dumps, lines)).encode()).traces
    assert trace.run["metrics"]["drafted"] == drafted
    assert ("steps.drafted" in trace.run["unknown"]) == (drafted is None)


def test_intervals_in_which_nothing_was_accepted_count_as_drafts():
    """vLLM: 1 + accepted ÷ drafts; the second interval has 60 ÷ 3 drafts."""
    interval = "SpecDecoding metrics: Mean acceptance length: {}, Accepted: {} tokens, Drafted: 60 tokens, {}"
    rates = "Per-position acceptance rate: {0}, {0}, {0}, Avg Draft acceptance rate: 0.0%"
    lines = [interval.format("3.00", 40, rates.format("0.667")), interval.format("1.00", 0, rates.format("0.000"))]
    pooled = open_log("\n".join(lines).encode()).numbers[0].values
    assert pooled["Mean acceptance length, about"] == pytest.approx(1 + 40 / 40)
    unknown = open_log("\n".join([lines[0], interval.format("1.00", 0, "")]).encode()).numbers[0].values
    assert "Mean acceptance length, about" not in unknown


def test_a_histograms_last_bucket_is_no_number_of_the_server():
    told = 'vllm:request_generation_tokens_bucket{le="+Inf"} 9\nvllm:request_generation_tokens_sum 70'
    assert open_log(told.encode()).numbers[0].values == {"vllm:request_generation_tokens_sum": 70.0}


def test_the_work_of_an_import_grows_with_its_steps():
    def log(steps: int) -> bytes:
        lines = ["slot update_slots: id  0 | task 1 | new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 17"]
        slot = "slot update_slots: id  0 | task 1 |"
        for step in range(steps):
            for place in range(3):
                told = f" - seq_id 0, draft candidate   {{0}}, pos   {place}:    10{{0}} (   0.{{1}}00) ' w{{0}}'"
                lines += [told.format(k, 9 - k) for k in range(3)]
            lines.append(f"{slot} add accepted tokens: sampled={step}, ids.size=3, n_draft=3")
            lines.append(f"{slot} accepted 2/3 draft tokens, new n_tokens = 9")
        return "\n".join(lines).encode()

    (trace,) = open_log(log(3_000)).traces
    assert trace.rows("steps") == 3_000 and trace.run["metrics"]["tokens_per_step"] == 3
    for steps in (100, 1_000):
        data = log(steps)
        assert calls(lambda data=data: open_log(data)) < 480 * steps
