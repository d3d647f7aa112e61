"""Texts that users paste: printed totals, statistics of servers, other names, and texts in other clothes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from decoders.importers import ImportFault, ImportResult, open_log
from decoders.trace.acceptance import Acceptance, AcceptanceSums
from decoders.trace.trace import Trace
from specviz.cli import main

SERVERS = Path(__file__).parent / "samples"


def import_sample(name: str) -> ImportResult:
    return open_log((SERVERS / name).read_bytes(), name)


def only(value: Any) -> Trace:
    """The run of one answer."""
    (trace,) = open_log(json.dumps(value).encode()).traces
    return trace


def totals(trace: Trace) -> dict[str, Any]:
    return trace.run["imported"].get("totals", {})


def rates(trace: Trace) -> dict[str, float]:
    return {key: value for key, value in Acceptance.of(trace).pooled.values().items() if value is not None}


# --- totals ---


COUNTED = {  # file: tokens, drafts, drafted and accepted tokens of its first numbers
    "vllm_v0.log": (None, None, 400, 240), "vllm.log": (None, 80, 240, 130),
    "vllm_offline.txt": (16900, 4800, 33600, 12000), "vllm_bench.txt": (6400, 2000, 6000, 3600),
    "vllm_metrics.prom": (None, 200, 600, 300), "llama_speculative.txt": (130, None, 200, 90),
    "llama_block.log": (221, None, 200, 140), "tensorrt_iterations.jsonl": (None, 4, 10, 4),
    "mlc.json": (17, 10, 28, 7), "counts.json": (20, None, 12, 7),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_totals_of_many_requests_are_pooled(name: str):
    numbers = import_sample(name).numbers
    counts = tuple(numbers[0].totals.get(count) for count in ("tokens", "drafts", "drafted", "accepted"))
    assert counts == COUNTED[name]
    assert sum(bool(one.totals) for one in numbers) == 1, "no token is counted twice"


def test_vllms_first_lines_count_emitted_tokens_since_the_start():
    first = import_sample("vllm_v0.log")
    values = first.numbers[0].values
    assert values["Mean acceptance length"] == 250 / 100 and values["accepted ÷ drafted"] == 0.6
    assert "counts every position by itself" in first.notes[0]
    line = "Speculative metrics: Number of speculative tokens: 2, Number of accepted tokens: {0}, "
    line += "Number of draft tokens tokens: {1}, Number of emitted tokens tokens: {2}."
    log = "\n".join(line.format(*n) for n in ((1, 4, 3), (5, 10, 9), (2, 6, 4)))  # started again before the last
    again = open_log(log.encode()).numbers[0]
    assert again.totals == {"accepted": 7, "drafted": 16} and again.values["Mean acceptance length"] == 13 / 8


def test_percentages_keep_their_unit():
    line = b"SpecDecoding metrics: Draft acceptance rate: 30.0%, Accepted: 3 tokens, Drafted: 20 tokens"
    pooled, interval = open_log(line).numbers
    assert pooled.values["Accepted \u00f7 drafted"] == 0.15 and interval.values["Draft acceptance rate"] == "30.0%"
    assert import_sample("vllm_bench.txt").numbers[0].values["Acceptance rate (%)"] == "60%"


def test_rates_by_position_are_shares():
    for name in ("vllm_bench.txt", "vllm_metrics.prom"):
        assert import_sample(name).numbers[0].values["acceptance by position (of all drafts)"][0] == pytest.approx(0.8)


def test_sglangs_decode_lines_are_weighted_by_the_requests_that_ran():
    values = import_sample("sglang_decode.log").numbers[0].values
    assert values["Mean acceptance length"] == pytest.approx((32 * 2.54 + 48 * 1.0) / 80)
    assert (
        values["mean accept rate"] == 0.11
        and import_sample("sglang_decode.log").numbers[1].values["accept len"] == 2.54
    )


def test_sglangs_finish_lines_are_runs_with_totals():
    first, second = import_sample("sglang_finish.log").traces
    assert totals(first) == {"tokens": 15, "steps": 6, "drafted": 18, "accepted": 9, "cached": 4}
    assert first.text(first.output_ids) == " the old lamp" and rates(first)["tokens_per_step"] == 2.5
    assert totals(second)["drafted"] == 12 and totals(second)["cached"] == 0
    assert import_sample("sglang_finish.log").numbers[1].values["accept len"] == 2.5


def test_llama_cpps_old_block_and_its_new_line_are_read_whole():
    block, statistics = import_sample("llama_block.log").numbers
    assert (block.values["decode ms"], block.values["prompt ms"]) == (32000, 4000)
    assert statistics.values["calls(b,g,a)"] == [8, 877, 877] and statistics.values["acc drafts"] == 700
    line = "slot print_timing: id  0 | task 1 | draft acceptance = 0.38889 (    7 accepted /    18 generated){}"
    for more, rates in ((", mean len =  3.33\n0.1 I slot print_timing: id  0 | task 1 |      acc per pos = (0.9, 0.5)",
                         "acc per pos"),
                        (", mean acceptance length = 3.33, acceptance rate per position = (0.9, 0.5)",
                         "acceptance rate per position")):  # fmt: skip
        (numbers,) = open_log(line.format(more).encode()).numbers
        assert numbers.values[rates] == [0.9, 0.5] and numbers.totals == {"drafted": 18, "accepted": 7, "drafts": 3}


def test_a_drafters_statistics_alone_are_counted():
    line = (
        b"statistics ngram_simple: #calls = 15, #gen drafts = 5, #acc drafts = 5, #gen tokens = 187, #acc tokens = 73"
    )
    (numbers,) = open_log(line).numbers
    assert numbers.totals == {"drafts": 5, "drafted": 187, "accepted": 73} and "ngram_simple" in numbers.title


def test_llama_speculatives_table_stands_beside_its_statistics():
    line = "\nstatistics draft: #calls = 2, #gen drafts = 20, #acc drafts = 18, #gen tokens = 200, #acc tokens = 90"
    table, statistics = open_log((SERVERS / "llama_speculative.txt").read_bytes() + line.encode()).numbers
    assert (table.totals["tokens"], table.totals["accepted"]) == (130, 90) and not statistics.totals


def test_an_old_traces_totals_stand_beside_its_steps():
    steps = "slot update_slots: id  0 | task 5 | accepted {}/4 draft tokens, new n_past = 15\n"
    block = (
        "slot print_timing: id  0 | task 5 | \n\rprompt eval time =      40.00 ms /    12 tokens\n"
        "\r       eval time =     100.00 ms /     5 tokens\n\n"
        "draft acceptance rate = 0.25000 (    2 accepted /     8 generated)"
    )
    (trace,) = open_log((steps.format(2) + steps.format(0) + block).encode()).traces
    assert totals(trace) == {"drafted": 8, "accepted": 2, "tokens": 5}
    assert (trace.run["timings"]["prefill_ms"], trace.run["timings"]["decode_ms"]) == (40, 100)
    assert trace.tables["steps"]["accepted"] == [2, 0]


def test_totals_of_an_answer_reach_every_definition_that_they_suffice_for():
    (trace,) = import_sample("llama_timings.json").traces
    assert rates(trace) == {"draft_acceptance": 3 / 8}
    (trace,) = import_sample("tensorrt.json").traces
    assert rates(trace) == {"tokens_per_step": 8 / 3, "emitted_per_step": 8 / 3}
    (trace,) = import_sample("lmstudio_rest.json").traces
    assert rates(trace) == {"draft_acceptance": 6 / 9} and "LM Studio" in trace.run["title"]
    assert AcceptanceSums.of_totals({"drafts": 2, "drafted": 8, "accepted": 3}).values()["acceptance_length"] == 2.5


def test_bare_timings_and_a_tool_call_keep_their_totals():
    timings = {"prompt_ms": 9.0, "predicted_n": 20, "predicted_ms": 100.0, "draft_n": 30, "draft_n_accepted": 15}
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    answer = {"id": "x", "choices": [{"index": 0, "message": call}], "usage": {"completion_tokens": 20}}
    for value in (timings, {**answer, "timings": timings}):
        trace = only(value)
        assert totals(trace) == {"drafted": 30, "accepted": 15, "tokens": 20} and len(trace.output_ids) == 20
        assert trace.run["timings"]["decode_ms"] == 100 and "text" in trace.run["unknown"]
        assert any("no text" in note for note in trace.run["imported"]["notes"])


def test_answers_of_eagle_and_spec_bench_give_their_steps():
    first, second = import_sample("spec_bench.jsonl").traces
    assert first.tables["steps"]["emitted"] == [3, 2, 4] and second.tables["steps"]["emitted"] == [1, 4]
    total = Acceptance.of(first)
    total += Acceptance.of(second)
    assert total.pooled.values()["tokens_per_step"] == 14 / 5
    choice = {"index": 0, "turns": ["a", "b"], "idxs": [2, 1], "new_tokens": [9, 5], "wall_time": [0.3, 0.2]}
    first, second = open_log(json.dumps({"question_id": 1, "choices": [choice]}).encode()).traces
    assert totals(first) == {"tokens": 9, "steps": 3} and rates(second)["tokens_per_step"] == 5 / 2
    assert "count from 0" in first.run["imported"]["notes"][-1]
    nested = {"index": 0, "idxs": [1], "new_tokens": [5], "acceptance_length": [[2, 3]]}
    assert only({"question_id": 1, "choices": [nested]}).tables["steps"]["accepted"] == [1, 2]


def test_a_step_dump_has_every_draft_and_the_drafters_choices():
    (trace,) = import_sample("llama_dump.jsonl").traces
    assert trace.tables["steps"]["accepted"] == [2, 0] and trace.tables["steps"]["drafted"] == [3, 2]
    assert trace.tables["nodes"]["token"][1:4] == [292, 17, 44] and trace.output_ids[:2] == [292, 17]
    assert trace.tables["guesses"]["draft_prob"][:2] == [0.9, 0.05]
    other = {"n_draft": 2, "n_accept": 1, "draft_tok": [7, 8], "tgt_tok": [7, 9, 4],
             "draft": [{"top": [[7, 0.8, 3.0]]}, {"top": [[8, 0.6, 2.0]]}],
             "target": [{"top": [[7, 0.9, 3.0]]}, {"top": [[9, 0.5, 2.0]]}, {"top": [[4, 0.4, 1.0]]}]}  # fmt: skip
    trace = only(other)
    assert trace.output_ids == [7, 9] and trace.tables["targets"]["prob"] == [0.9, 0.5, 0.4]
    broken = "\n".join(map(json.dumps, (other, {"n_draft": 1, "n_accept": 3}, {"n_draft": "x", "n_accept": 1})))
    assert "2 lines like step lines were not read" in open_log(broken.encode()).notes


# --- names ---


ALIASES = [
    {"timings": {"draft_n": 8, "draft_n_accepted": 3}},
    {"stats": {"totalDraftTokensCount": 8, "acceptedDraftTokensCount": 3}},
    {"usage": {"completion_tokens_details": {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 5}}},
    {"metrics": {"num_draft_tokens": 8, "num_accepted_tokens": 3}}, {"x": {"y": {"n_drafted": 8, "n_accept": 3}}},
    {"usage": {"draft_tokens": 8, "accepted_draft_tokens": 3}, "timings": {"draft_n": 8, "draft_n_accepted": 3}},
]  # fmt: skip


@pytest.mark.parametrize("more", ALIASES, ids=str)
def test_a_count_is_found_by_each_of_its_names_and_taken_once(more: dict[str, Any]):
    trace = only({"id": "a", "choices": [{"message": {"content": "old lamp"}}], **more})
    assert (totals(trace)["drafted"], totals(trace)["accepted"]) == (8, 3)
    assert rates(trace)["draft_acceptance"] == 3 / 8


NAMED = {
    "an answer": {"choices": [{"text": "a b", "tree_draft_width": 7}], "x": {"spec_mode": "tree"}},
    "a run's rounds": {"rounds": [{"drafted": 4, "accepted": 1}], "tree_draft_width": 7, "spec_mode": "tree"},
    "TGI": {"generated_text": "a", "details": {"tokens": [{"id": 1, "text": "a"}], "tree_draft_width": 7,
                                               "spec_mode": "tree"}},
    "Spec-Bench": {"choices": [{"new_tokens": [4], "idxs": [1], "tree_draft_width": 7, "spec_mode": "tree"}]},
    "TensorRT-LLM": {"specDecodingStats": {"numDraftTokens": 4, "numAcceptedTokens": 1, "treeDraftWidth": 7,
                                           "spec_mode": "tree"}},
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_a_field_about_drafts_that_is_not_used_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Whatever the format, in the answer of ``specviz import``."""
    monkeypatch.chdir(tmp_path)
    Path("file.json").write_text(json.dumps(NAMED[name]), encoding="utf-8")
    assert main(["import", "file.json"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "spec_mode = tree" in printed
    assert "tree_draft_width = 7" in printed or "treeDraftWidth = 7" in printed


def test_lines_like_steps_that_are_not_understood_are_counted():
    good = "slot update_slots: id  0 | task 5 | accepted 2/4 draft tokens"
    for line, rest in {
        good: "slot update_slots: id  0 | task 5 | accepted two/4 draft tokens",
        "SpecDecoding metrics: Accepted: 3 tokens, Drafted: 20 tokens": "SpecDecoding metrics: nothing yet",
        "Decode batch. #running-req: 1, accept len: 2.0": "Decode batch. #running-req: 1, accept len: none",
        'vllm:spec_decode_num_drafts_total{engine="0"} 2': 'vllm:spec_decode_num_drafts_total{engine="0"} two',
    }.items():
        assert not any("like" in note for note in open_log(line.encode()).notes), line
        assert "1 line like a step line was not read" in open_log(f"{line}\n{rest}".encode()).notes, rest
        assert "2 lines like step lines were not read" in open_log(f"{line}\n{rest}\n{rest}".encode()).notes, rest


def test_one_text_under_two_names_is_one_text():
    for names in (("reasoning", "reasoning_content"), ("reasoning_content", "thinking")):
        message = {**dict.fromkeys(names, "Let me see. "), "content": "Four."}
        assert only({"choices": [{"message": message}]}).run["imported"]["said"] == {}
        trace = only({"choices": [{"message": message}]})
        assert trace.text(trace.output_ids) == "Let me see. Four."
    parts = only(
        {"choices": [{"message": {"content": [{"type": "text", "text": "Four"}, {"type": "text", "text": "."}]}}]}
    )
    assert parts.text(parts.output_ids) == "Four."


def test_an_echoed_prompt_is_no_output():
    told = {"tokens": ["Hello", " world", " again"], "token_logprobs": [None, -1.0, -0.5], "top_logprobs": [None] * 3}
    usage = {"prompt_tokens": 2, "completion_tokens": 1}
    echoed = only({"choices": [{"text": "Hello world again", "logprobs": told}], "usage": usage})
    assert echoed.text(echoed.output_ids) == " again" and echoed.text(echoed.prompt_ids) == "Hello world"
    assert "echo" in echoed.run["imported"]["notes"][0]
    by_ids = only({"choices": [{"text": "abc", "token_ids": [5, 6, 7]}], "usage": usage})
    assert by_ids.output_ids == [7] and by_ids.prompt_ids == [5, 6]
    by_text = only({"prompt": "Hello world", "choices": [{"text": "Hello world again"}]})
    assert by_text.text(by_text.output_ids) == " again"
    plain = only({"choices": [{"text": "one two three"}], "usage": usage})
    assert plain.text(plain.output_ids) == "one two three", "three words are no three tokens"


# --- clothes ---


LOG = (
    "INFO 10-04 20:51:08 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 2.50, Accepted: 90 tokens, "
    "Drafted: 180 tokens, Per-position acceptance rate: 0.800, 0.500, 0.200, Avg Draft acceptance rate: 50.0%"
)
ANSWER = json.dumps({"id": "a", "choices": [{"message": {"content": "ölamp"}}], "timings": {
    "draft_n": 180, "draft_n_accepted": 90, "predicted_n": 9, "predicted_ms": 3.0}}, ensure_ascii=False)  # fmt: skip
CLOTHES = {
    "UTF-16": lambda text: text.encode("utf-16"), "UTF-16 big end": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "UTF-16 big end without a mark": lambda text: text.encode("utf-16-be"),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"), "CRLF": lambda text: f"\r\n{text}\r\n".encode(),
    "a fence": lambda text: f"my log:\n\n```text\n{text}\n```\nthank you".encode(),
    "tildes": lambda text: f"~~~\n{text}\n~~~".encode(),
    "docker compose": lambda text: f"vllm-1  | {text}\nvllm-1  | bye".encode(),
    "Kubernetes": lambda text: f"2025-11-01T00:00:00.123456789Z stdout F {text}".encode(),
    "kubectl --timestamps": lambda text: f"2025-11-01T00:00:00.123456789Z {text}".encode(),
    "journald": lambda text: f"Nov 28 04:25:01 host vllm[123]: {text}".encode(),
    "docker's file": lambda text: json.dumps({"log": text + "\n", "stream": "stderr", "time": "2025"}).encode(),
    "colours": lambda text: f"\x1b[32m{text}\x1b[0m".encode(),
    "a command before": lambda text: f"$ curl -s http://127.0.0.1\n{text}".encode(),
    "a stamp": lambda text: f"[2025-11-01 10:00:00,123] {text}".encode(),
}  # fmt: skip


@pytest.mark.parametrize("clothes", CLOTHES)
def test_a_log_in_other_clothes_is_the_same_log(clothes: str):
    numbers = open_log(CLOTHES[clothes](LOG)).numbers
    assert numbers[0].totals == {"accepted": 90, "drafted": 180, "drafts": 60}


@pytest.mark.parametrize("clothes", CLOTHES)
def test_an_answer_in_other_clothes_is_the_same_answer(clothes: str):
    (trace,) = open_log(CLOTHES[clothes](ANSWER)).traces
    assert totals(trace) == {"drafted": 180, "accepted": 90, "tokens": 9}
    assert trace.text(trace.output_ids) == "ölamp"


@pytest.mark.parametrize("clothes", CLOTHES)
def test_a_block_of_llama_cpp_in_other_clothes_is_the_same_block(clothes: str):
    block = (
        "slot print_timing: id  0 | task 854 | ", "prompt eval time =    4000.00 ms /    96 tokens",
        "       eval time =   32000.00 ms /   221 tokens",
        "draft acceptance rate = 0.70000 (  140 accepted /   200 generated)",
    )  # fmt: skip
    single = {"docker compose", "Kubernetes", "kubectl --timestamps", "journald", "docker's file", "a stamp"}
    wear = CLOTHES[clothes]
    data = b"\n".join(map(wear, block)) if clothes in single else wear("\n".join(block))
    numbers = open_log(data).numbers[0]
    assert numbers.totals == {"drafted": 200, "accepted": 140, "tokens": 221} and numbers.values["decode ms"] == 32000


def test_times_and_other_ends_of_prometheus_samples_are_read():
    sample = 'vllm:spec_decode_num_{}_total{{model_name="a}} b"}} {}'
    for end in ("", " 1712345678901", "\t1712345678.5", ' # {trace_id="x"} 1 2'):
        rows = [sample.format(name, n) + end for name, n in
                (("drafts", "1.2e+01"), ("draft_tokens", "30"), ("accepted_tokens", "15.0"))]  # fmt: skip
        assert open_log("\n".join(rows).encode()).numbers[0].totals == {"drafts": 12, "drafted": 30, "accepted": 15}
    tgi = "tgi_request_skipped_tokens_sum 30\ntgi_request_skipped_tokens_count 20"
    assert open_log(tgi.encode()).numbers[0].totals == {"steps": 20, "tokens": 50}
    trt = "trtllm_spec_decode_num_draft_tokens_total 10\ntrtllm_spec_decode_num_accepted_tokens_total 4"
    assert open_log(trt.encode()).numbers[0].totals == {"drafted": 10, "accepted": 4}


def test_objects_behind_one_another_and_as_python_prints_them_are_read():
    pretty = json.dumps(json.loads(ANSWER), indent=2)
    assert len(open_log(f"{pretty}\n{pretty}\n".encode()).traces) >= 1
    assert totals(open_log(str(json.loads(ANSWER)).encode()).traces[0])["drafted"] == 180
    with pytest.raises(ImportFault, match="holds nothing"):
        open_log(b"{'a': __import__('os')}")


# --- commands ---


def test_totals_without_steps_reach_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    main(["acceptance", "--json", str(SERVERS / "llama_timings.json"), str(SERVERS / "vllm_bench.txt")])
    answer, bench = json.loads(capsys.readouterr().out)
    assert answer["pooled"]["draft_acceptance"] == 0.375 and answer["worked"]["draft_acceptance"] == "3 \u00f7 8"
    assert bench["pooled"]["draft_acceptance"] == 0.6 and bench["pooled"]["acceptance_length"] == 2.8
    assert main(["import", str(SERVERS / "lmstudio_rest.json"), "--out", str(tmp_path / "run.spectrace")]) == 0
    assert "6 of 9 drafted tokens accepted (66.7%)" in capsys.readouterr().out
    assert main(["acceptance", str(tmp_path / "run.spectrace")]) == 0 and "66.7%" in capsys.readouterr().out
    assert main(["acceptance", str(SERVERS / "sglang_decode.log")]) == 0
    assert "rates and no counts" in (said := capsys.readouterr().out) and "1.616" in said
    table = "Backend:                 sglang\nTotal generated tokens:  19000\nAccept length:           2.31\n"
    (tmp_path / "bench.txt").write_text(table)
    assert main(["acceptance", str(tmp_path / "bench.txt")]) == 0
    assert "rates and no counts" in (said := capsys.readouterr().out) and "2.31" in said


def test_acceptance_is_split_by_cached_tokens(capsys: pytest.CaptureFixture[str]):
    main(["acceptance", "--json", "--by", "cached", str(SERVERS / "sglang_finish.log")])
    some, none = json.loads(capsys.readouterr().out)
    assert some["title"].endswith("some of the prompt cached") and some["pooled"]["draft_acceptance"] == 0.5
    assert none["title"].endswith("none cached") and none["pooled"]["draft_acceptance"] == 4 / 12
    usage = {"completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 12}}
    assert totals(only({"choices": [{"text": "a b"}], "usage": usage}))["cached"] == 12
