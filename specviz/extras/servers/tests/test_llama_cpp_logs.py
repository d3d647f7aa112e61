"""llama.cpp as a source: logs and answers of its real server."""

from __future__ import annotations

import json
import re

import pytest

from decoders.importers import open_log
from decoders.importers.request_trace import NOT_RECORDED
from decoders.trace.check import check
from decoders.trace.trace import Trace
from specviz.extras.servers.tests.model_server import LLAMA
from specviz.extras.servers.tests.test_importers import counts


def llama(name: str) -> list[Trace]:
    return open_log((LLAMA / name).read_bytes(), name).traces


def server_totals(name: str) -> tuple[int, int, int]:
    """Drafted, accepted and written tokens, as a real server's answer counts them."""
    documents = [
        json.loads(line.removeprefix("data: ")) for line in (LLAMA / name).read_text().split("\n") if "{" in line
    ]
    (*_, timings) = (one["timings"] for one in documents if "timings" in one)
    return timings.get("draft_n", 0), timings.get("draft_n_accepted", 0), timings["predicted_n"]


def read_totals(trace: Trace) -> tuple[int, int, int]:
    """The same of a trace; accepted tokens behind the answer's end are no tokens, and a warning says how many."""
    steps = trace.tables["steps"]
    behind = [int(n) for words in trace.run["imported"].get("warnings", ()) for n in words.split() if n.isdigit()]
    return sum(steps["drafted"]), sum(steps["accepted"]) + sum(behind), len(trace.output_ids)


COUNTS_ALONE = {"simple3_chat_stream", "draft3_comp", "draft4_chat"}  # of -lv 3 and 4
DETAILED = sorted({path.stem for path in LLAMA.glob("*.log")} - COUNTS_ALONE - {"two_slots"})
BEHIND = {"draft_tpt_stop": 3, "simple_stop_in": 3}


@pytest.mark.parametrize("name", DETAILED)
def test_a_real_llama_cpp_log_gives_every_draft_and_every_token(name: str):
    """Also the last draft, behind which no 'accepted a/n' is printed; also where chunks of a stream are in the log."""
    (trace,) = llama(f"{name}.log")
    check(trace)
    assert read_totals(trace) == server_totals(f"{name}.json")
    warnings = trace.run["imported"].get("warnings", [])
    assert len(warnings) == (name in BEHIND) and all(f"{BEHIND[name]} more" in one for one in warnings)
    assert max(trace.output_ids) < NOT_RECORDED
    written = trace.tables["steps"]["elapsed_ms"][-1]
    assert written == pytest.approx(trace.run["timings"]["decode_ms"], rel=0.05, abs=5)  # eval time
    answer = (LLAMA / f"{name}.json").read_text()
    texts = []
    for line in filter(lambda one: "{" in one, answer.split("\n")):
        value = json.loads(line.removeprefix("data: "))
        choice = (value.get("choices") or [{}])[0]
        part = choice.get("message") or choice.get("delta") or choice
        texts.append(value.get("content") or part.get("content") or part.get("text") or "")
    assert trace.text(trace.output_ids).startswith("".join(texts))


def test_twenty_two_real_requests_are_compared():
    assert len(DETAILED) >= 22


STEPS_TOLD = ["draft_chat_tpt", "draft_tpt_stop", "simple_oai_tpt", "simple_tpt_stream"]


@pytest.mark.parametrize("name", STEPS_TOLD)
def test_a_stream_with_timings_per_token_has_the_steps_of_the_log(name: str):
    (stream,), (log,) = llama(f"{name}.json"), llama(f"{name}.log")
    assert read_totals(stream) == server_totals(f"{name}.json") and counts(stream) == counts(log)
    assert stream.tables["steps"]["emitted"] == log.tables["steps"]["emitted"]
    assert stream.run["metrics"]["tokens_per_s"] == pytest.approx(log.run["metrics"]["tokens_per_s"], rel=1e-3)


def test_llama_cpps_own_stream_is_one_request_with_its_ids_and_its_text():
    """Its chunks say id_slot -1 and the last one 0."""
    (trace,), (log,) = llama("mapk_comp_stream.json"), llama("mapk_comp_stream.log")
    assert trace.output_ids == log.output_ids and trace.text(trace.output_ids) == log.text(log.output_ids)
    assert trace.run["imported"]["notes"] == [] and trace.run["stop"] == "max tokens"
    two = open_log(
        b"".join((LLAMA / f"{name}.json").read_bytes() for name in ("mapk_comp_stream", "cache_comp_stream"))
    )
    assert [len(one.output_ids) for one in two.traces] == [20, 20]


def test_a_character_of_several_tokens_is_one_text_and_its_tokens_are_counted():
    (stream,), (whole,), (log,) = (
        llama("draft_emoji_stream.json"),
        llama("simple_emoji.json"),
        llama("simple_emoji.log"),
    )
    assert stream.text(stream.output_ids) == "🌋" * 10 and len(stream.output_ids) == 30
    assert "steps" in stream.run["unknown"] and "hide" in stream.run["imported"]["notes"][0]
    assert whole.output_ids == log.output_ids and whole.run["imported"]["text"] == log.text(log.output_ids)


def test_speed_is_the_servers_own():
    """llama.cpp's clock starts with the first token: n − 1 tokens."""
    for name in ("mapk_comp.json", "mapk_comp.log", "simple_tpt_stream.json"):
        (trace,) = llama(name)
        told = [
            json.loads(line) for line in re.findall(r'"timings":(\{[^}]*\})', (LLAMA / "mapk_comp.json").read_text())
        ]
        if name.startswith("mapk"):
            assert trace.run["metrics"]["tokens_per_s"] == pytest.approx(told[-1]["predicted_per_second"], rel=1e-3)
        seconds = trace.run["timings"]["decode_ms"] / 1e3
        assert trace.run["metrics"]["tokens_per_s"] == pytest.approx((len(trace.output_ids) - 1) / seconds)


def test_true_probabilities_beside_drafts_and_the_verbose_prompt_are_taken():
    (trace,) = llama("mapk_comp.json")
    steps = llama("mapk_comp.log")[0].tables["steps"]
    plain = [n == 0 for n, many in zip(steps["drafted"], steps["emitted"], strict=True) for _ in range(many)]
    probs = trace.tables["tokens"]["prob"][-len(plain) :]
    assert [p is not None for p in probs] == plain and probs[0] == pytest.approx(0.1807, abs=1e-3)
    (chat,) = llama("draft_chat_tpt.json")
    assert chat.text(chat.prompt_ids).endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_a_log_of_counts_alone_says_how_much_it_lacks():
    (trace,) = llama("simple3_chat_stream.log")
    assert read_totals(trace)[0] == 18 and "-lv 5" in trace.run["imported"]["notes"][0]
    assert trace.run["imported"]["warnings"] == ["the server counts 14 tokens, and its steps as they were read 10"]
    (numbers,) = open_log((LLAMA / "draft4_chat.log").read_bytes()).numbers
    assert (numbers.values["draft_n"], numbers.values["draft_n_accepted"]) == (12, 10)


def test_two_slots_and_the_prompt_that_the_next_request_names():
    first, second = llama("two_slots.log")
    assert read_totals(first)[0] == 4 and read_totals(second)[0] == 6
    launch = json.dumps({"id_task": 0, "prompt": "one two"})
    line = f"0.03.000.000 D slot launch_slot_: id  0 | task -1 | launching slot : {launch}\n"
    (trace,) = open_log((LLAMA / "mapk_comp.log").read_bytes() + b"\n" + line.encode()).traces
    assert trace.text(trace.prompt_ids) == "one two"


def test_log_lines_within_json_are_no_lines_of_the_log():
    told = "slot x: id  7 | task 7 | accepted 1/ 2 draft tokens"
    chunk = f'0.01.000.000 D srv operator(): http: streamed chunk: data: {{"content":"{told}"}}\n'
    (trace,) = open_log(chunk.encode() + (LLAMA / "mapk_comp.log").read_bytes()).traces
    assert trace.run["title"].endswith("slot 0, task 0")


def test_llama_cpps_counters_have_rates_like_vllms():
    (numbers,) = open_log((LLAMA / "metrics.prom").read_bytes()).numbers
    assert numbers.values["accepted ÷ drafted"] == pytest.approx(28 / 94)
    assert numbers.values["acceptance by position (of all drafts)"][0] == pytest.approx(7 / 19)
    assert numbers.values["mean acceptance length (1 + accepted ÷ drafts)"] == pytest.approx(1 + 28 / 19)
