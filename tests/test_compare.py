"""The page Compare on the server: lanes on one prompt, numbers by their definitions, the check of losslessness."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from decoders import Prompt, Trace, drafters, generate, record
from decoders.study.judge.divergences import BUG, LOSSY
from decoders.sweep.plan import PLAIN, Contender
from decoders.trace import metrics
from decoders.trace.metrics import doubts
from specviz.pages import pages
from specviz.pages.compare.claim import NO_METHOD, Lane, claim, claim_of, places_of
from specviz.pages.compare.compare_page import MAX_LANES, Compare, ComparisonRequest
from specviz.pages.compare.difference import difference
from specviz.pages.compare.outcome import TABLE, check_output, numbers_of
from specviz.pages.compare.repeats import Rounds
from specviz.server.desk import Desk
from specviz.server.forms import Refusal
from specviz.server.loader import Loader
from specviz.server.runner import Runner
from specviz.server.store import TraceStore, UnknownTrace
from specviz.views.step_words import rows_of
from specviz.words import plural

from . import recordings
from .drafters_for_tests import WildTrees, credulous, method_of
from .models import prompt_ids
from .stubs import StubDesk, client_of, start_desk
from .waiting import WAIT_S, until

PROMPT = {"mode": "text", "text": "the old lamp at the station was sold to the city museum and the old lamp at the"}
SETTINGS = {"max_new_tokens": 12}


class Tiny(Desk):
    """A desk with a tiny target and the registered methods."""

    def __init__(self, target: Any) -> None:
        store = TraceStore()
        super().__init__(store, Runner(store), Loader(lambda: target), pages=pages())
        start_desk(self)


@pytest.fixture(scope="module")
def desk(target: Any) -> Iterator[Tiny]:
    made = Tiny(target)
    yield made
    made.end()


def over(desk: Desk, answer: dict[str, Any]) -> list[str]:
    """Ids of the lanes that ran, when all are over."""
    ids = [lane["id"] for lane in answer["lanes"] if "id" in lane]
    for key in ids:
        if job := desk.runner.job(key):
            assert job.finished.wait(WAIT_S)
    return ids


def judge(compare: Compare, keys: list[str]) -> dict[str, Any]:
    for _ in range(200):
        found = compare.lens(keys)
        if all(one["state"] != "checking" for one in found.values()):
            return found
    raise AssertionError("never checked")


def put(desk: Desk, trace: Trace, name: str) -> str:
    trace.run["id"] = name
    return desk.store.put(trace)


def test_lanes_run_on_one_prompt_with_plain_decoding_as_the_baseline(desk: Tiny) -> None:
    asked = {
        "prompt": PROMPT, "settings": SETTINGS, "session": "page-1",
        "lanes": [{"method": "pld", "params": {"k": 3}}, {"method": "glide"}, {"method": "pld", "params": {"k": 0}},
                  {"method": "pld+h"}],
    }  # fmt: skip
    answer = desk.services["compare"].start(ComparisonRequest(**asked), "me")
    assert [lane["method"] for lane in answer["lanes"]] == ["plain", "pld", "glide", "pld", "pld+h"]
    assert ["id" in lane for lane in answer["lanes"]] == [True, True, False, False, True]  # the others go on
    assert "no GLIDE draft model" in answer["lanes"][2]["error"] and "Draft length" in answer["lanes"][3]["error"]
    plain, pld, hidden = over(desk, answer)
    traces = {key: desk.store.get(key) for key in (plain, pld, hidden)}
    assert len({trace.prompt_key for trace in traces.values()}) == 1
    assert traces[pld].run["method"]["params"]["k"] == 3 and traces[pld].run["max_new_tokens"] == 12

    numbers = desk.services["compare"].numbers([plain, pld, hidden])
    for key, trace in traces.items():
        speed = metrics.compute(traces[plain])["tokens_per_s"]
        assert numbers[key]["metrics"] == metrics.compute(trace, speed) and set(TABLE) <= set(numbers[key]["metrics"])
        assert numbers[key]["depths"] == metrics.acceptance_by_depth(trace)
        lengths = sorted(metrics.accepted_lengths(trace))
        assert [n for n, steps, _ in numbers[key]["lengths"] for _ in range(steps)] == lengths
        assert [share for *_, share in numbers[key]["lengths"]] == [
            lengths.count(n) / len(lengths) for n in dict.fromkeys(lengths)
        ]
        assert numbers[key]["times"]["verify"] == pytest.approx(sum(trace.tables["steps"]["verify_ms"]))
    assert numbers[plain]["metrics"]["speedup"] == 1
    lens = judge(desk.services["compare"], [plain, pld, hidden])
    assert {one["state"] for one in lens.values()} == {"identical"} and lens[pld]["tokens"] == 12


def test_no_speedup_is_formed_with_a_plain_run_of_another_prompt(desk: Tiny, target: Any) -> None:
    prompts = [Prompt.from_ids(prompt_ids(seed, 30)) for seed in (4, 5)]
    runs = [("plain", prompts[0]), ("pld", prompts[0]), ("pld", prompts[1])]
    keys = [put(desk, record(target, p, m, max_new_tokens=8), f"apart-{n}") for n, (m, p) in enumerate(runs)]
    plain, same, other = desk.services["compare"].numbers(keys).values()
    assert plain["metrics"]["speedup"] == 1 and same["metrics"]["speedup"] > 0 and not same["notes"]
    assert other["metrics"]["speedup"] is None
    assert other["notes"]["speedup"] == "no speedup: plain decoding was run on another prompt"


def test_a_recorded_prompt_runs_again_token_by_token(desk: Tiny, target: Any) -> None:
    ids = prompt_ids(4, 30)
    key = put(desk, record(target, Prompt.from_ids(ids), "pld", max_new_tokens=8, title="Odd tokens"), "recorded")
    asked = {"prompt": {"trace": key}, "lanes": [{"method": "pld"}], "settings": SETTINGS}
    answer = desk.services["compare"].start(ComparisonRequest(**asked), "me")
    traces = [desk.store.get(one) for one in over(desk, answer)]
    assert [trace.prompt_ids for trace in traces] == [ids, ids] and traces[0].run["title"] == "Odd tokens"


def test_what_cannot_be_run_is_refused_with_a_sentence(desk: Tiny) -> None:
    def refusal(**asked: Any) -> str:
        with pytest.raises((Refusal, ValidationError)) as problem:
            sent = {"prompt": PROMPT, "lanes": [{"method": "pld"}], **asked}
            desk.services["compare"].start(ComparisonRequest(**sent), "me")
        return str(problem.value)

    assert "choose 1 to 4" in refusal(lanes=[]) and "choose 1 to 4" in refusal(lanes=[{"method": "plain"}])
    assert "5 methods were asked for" in refusal(lanes=[{"method": "pld"}] * (MAX_LANES + 1))
    assert "The prompt is empty" in refusal(prompt={"mode": "chat", "text": " "})
    assert "form 'x'" in refusal(prompt={"mode": "x", "text": "a"}) and "list of" in refusal(lanes="pld")
    assert "names and values" in refusal(prompt="text") and "no run called 'gone'" in refusal(prompt={"trace": "gone"})
    assert "not over yet" in refusal(prompt={"trace": "../etc"}) and "New tokens" in refusal(
        settings={"max_new_tokens": -1}
    )


def test_the_lens_computes_plain_decoding_once(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from decoders.study.judge import divergences

    desk, asked = Tiny(target), []
    plain_of_run = divergences.plain_of_run

    def count(*given: Any, **more: Any) -> list[int]:
        asked.append(1)
        return plain_of_run(*given, **more)

    monkeypatch.setattr(divergences, "plain_of_run", count)
    prompt = Prompt.from_ids(prompt_ids(3, 40))
    plain = generate(target, prompt, max_new_tokens=16)
    wrong = credulous(WildTrees([t + 1 for t in plain], 300, seed=2))
    drafters.methods()
    honest = put(desk, record(target, prompt, "pld", max_new_tokens=16), "honest")
    bug = put(desk, record(target, prompt, wrong, max_new_tokens=16), "bug")
    lossy = put(desk, record(target, prompt, replace(wrong, lossless=False), max_new_tokens=16), "lossy")
    found = judge(desk.services["compare"], [honest, bug, lossy])
    assert len(asked) == 1  # one prompt, one model, one setting
    assert found[honest] == {"state": "identical", "tokens": 16}
    assert found[bug]["state"] == "differs" and found[bug]["verdict"] == BUG and found[bug]["plain"] == plain
    assert found[bug]["source"] == "teacher-forced" and found[bug]["shortfall"] > found[bug]["tolerance"]
    assert found[lossy]["verdict"] == LOSSY
    longer = put(desk, record(target, prompt, "pld", max_new_tokens=17), "longer")
    assert judge(desk.services["compare"], [longer])[longer]["state"] == "identical" and len(asked) == 2
    sampled = copy.deepcopy(desk.store.get(honest))
    sampled.run["model"]["name"] = "another"
    assert "was not recorded" in judge(desk.services["compare"], [put(desk, sampled, "foreign")])["foreign"]["text"]
    desk.end()


CALL = '{"name": "f", "arguments": {"x": 1}}'


@pytest.mark.parametrize(
    ("piece", "verdict"), [(f" {CALL}", "same call"), (f"{CALL},", "broken call"), (CALL, "identical")],
)  # fmt: skip
def test_a_difference_is_judged_as_a_program_reads_it(piece: str, verdict: str) -> None:
    trace = recordings.chain()
    output, pieces = trace.output_ids, trace.tables["pieces"]
    other = next(token for token in pieces["id"] if token not in output)
    assert output.count(output[-1]) == 1
    spelt = {output[-1]: CALL, other: piece}
    pieces["hex"] = [spelt.get(token, "").encode().hex() for token in pieces["id"]]
    check = check_output(trace, [*output[:-1], other])
    assert check["state"] == "differs" and check["calls"] == verdict
    for column in pieces.values():
        del column[1:]
    assert check_output(trace, [*output[:-1], other])["calls"] == ""  # a text that was not recorded


def test_recorded_runs_are_judged_without_a_model() -> None:
    desk = StubDesk(load=None, gallery=(recordings.plain(), recordings.casd()))
    whole = desk.store.get("gallery-0")
    chain = recordings.chain()
    put(desk, chain, "chain")
    found = judge(desk.services["compare"], ["gallery-0", "gallery-1"])
    assert found["gallery-0"] == {"state": "identical", "tokens": len(whole.output_ids)}
    lossy = found["gallery-1"]
    assert (lossy["state"], lossy["verdict"], lossy["source"]) == ("differs", LOSSY, "recorded")
    tokens, targets = desk.store.get("gallery-1").tables["tokens"], desk.store.get("gallery-1").tables["targets"]
    first = next(position for position, rank in enumerate(tokens["rank"]) if rank > 0)  # where the two outputs part
    assert lossy["got_prob"] == tokens["prob"][first] and lossy["expected_prob"] in targets["prob"]
    assert lossy["expected_prob"] > lossy["got_prob"]
    alone = judge(desk.services["compare"], ["chain"])["chain"]
    assert alone["state"] == "unknown" and "Opened for viewing only" in alone["text"]
    with pytest.raises(UnknownTrace):
        desk.services["compare"].numbers(["nowhere"])
    both = ["chain", "gallery-0"]
    desk.store.remove("chain")  # under an open page: the others have their numbers, the verdict says what became of it
    assert list(desk.services["compare"].numbers(both)) == ["gallery-0"]
    found = judge(desk.services["compare"], both)
    assert found["gallery-0"]["state"] == "identical"
    assert found["chain"]["state"] == "unknown" and "it was deleted" in found["chain"]["text"]
    desk.end()


@pytest.fixture(scope="module")
def slow() -> Iterator[tuple[TestClient, StubDesk]]:
    desk = StubDesk(gallery=(recordings.chain(),))
    desk.gate.clear()
    with client_of(desk) as client:
        client.get("/")  # a cookie
        yield client, desk
        desk.gate.set()


def test_routes_start_stop_adopt_and_leave(slow: tuple[TestClient, StubDesk]) -> None:
    client, desk = slow
    shown = client.get("/api/compare").json()
    assert shown["most"] == MAX_LANES and [row["key"] for row in shown["metrics"]] == list(TABLE)
    asked = {"prompt": PROMPT, "lanes": [{"method": "pld"}, {"method": "ppd"}], "session": "one"}
    assert client.post("/api/compare/start", data={"a": "b"}).status_code == 422  # another site's form
    answer = client.post("/api/compare/start", json=asked).json()["lanes"]
    assert "specviz train ppd" in answer[2]["error"]
    ids = [lane["id"] for lane in answer[:2]]
    assert client.get(f"/api/compare/numbers?runs={','.join(ids)}").json() == {}  # none is over
    stranger = TestClient(client.app)
    stranger.get("/")
    assert stranger.post("/api/compare/stop", json={"ids": ids}).json() == {"done": 0}
    assert client.post("/api/compare/adopt", json={"ids": ids, "session": "two"}).json() == {"done": 2}
    desk.runner.leave("one", after_s=0)  # the page before the reload
    time.sleep(0.1)
    jobs = [desk.runner.job(key) for key in ids]
    assert all(job is not None and not job.cancel.is_set() for job in jobs)
    desk.runner.leave("two", after_s=0)  # closing the tab stops the work
    assert all(job is not None and job.finished.wait(WAIT_S) for job in jobs)
    again = [lane["id"] for lane in client.post("/api/compare/start", json=asked).json()["lanes"][:2]]
    jobs = [desk.runner.job(key) for key in again]
    assert client.post("/api/compare/stop", json={"ids": again}).json() == {"done": 2}
    assert all(job is not None and job.finished.wait(WAIT_S) for job in jobs)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("numbers?runs=", 422, "5 at most"),
        ("numbers?runs=../x", 422, "by their ids"),
        ("lens?runs=" + ",".join("abcdef"), 422, "5 at most"),
        ("lens?runs=nowhere", 404, "no run called"),
    ],
)
def test_bad_questions(slow: tuple[TestClient, StubDesk], path: str, status: int, words: str) -> None:
    answer = slow[0].get(f"/api/compare/{path}")
    assert answer.status_code == status and words in answer.json()["error"]
    assert slow[0].post("/api/compare/explode", json={"ids": []}).status_code == 404
    assert slow[0].post("/api/compare/stop", json={"ids": "x"}).status_code == 422


def test_the_difference_of_two_runs_names_every_step_that_only_one_accepted_in(desk: Tiny) -> None:
    """Against a count of its own over the tokens' kinds, in both directions; steps are those that wrote the tokens."""
    target, prompt = desk.target(), Prompt.from_ids(prompt_ids(3, 30))
    output = generate(target, prompt, max_new_tokens=24)
    wild = [method_of(WildTrees(output, len(target.tokenizer), seed=seed)) for seed in (1, 2)]
    long, short = (record(target, prompt, method, max_new_tokens=24) for method in wild)
    found = difference(long, short)
    agreed, first = found["agreed"], len(prompt.tokens)
    assert agreed == 24 and found["tokens"] == [24, 24]
    for gains, one, other in zip(found["gains"], (long, short), (short, long), strict=True):
        kinds, theirs = (trace.tables["tokens"]["kind"][first:] for trace in (one, other))
        steps, their_steps = (trace.tables["tokens"]["step"][first:] for trace in (one, other))
        lost = [i for i in range(agreed) if kinds[i] == "accepted" and theirs[i] != "accepted"]
        assert sum(gain["missed"] for gain in gains) == len(lost)
        assert [gain["step"] for gain in gains] == sorted({steps[i] for i in lost})
        for gain in gains:
            mine = [i for i in lost if steps[i] == gain["step"]]
            assert gain["start"] <= mine[0] and mine[-1] < gain["stop"]
            assert [step["step"] for step in gain["other_steps"]] == sorted({their_steps[i] for i in mine})
            assert "".join(text for text, _ in gain["pieces"]) == one.text(one.output_ids[gain["start"] : gain["stop"]])
            missed_text = "".join(text for text, missed in gain["pieces"] if missed)
            assert missed_text == "".join(one.text([one.output_ids[i]]) for i in mine)
            assert sum(gain["causes"].values()) == gain["missed"]
            for step in gain["other_steps"]:
                place = next(i for i in mine if their_steps[i] == step["step"])
                tokens = _left_tokens(other, step["step"])
                assert list(step["rejected"]) == [other.text([token]) for token in tokens[:3]]
                assert other.output_ids[place] not in tokens and (not tokens or gain["causes"]["refused"])
                assert step["drafted"] == other.tables["steps"]["drafted"][step["step"]]
    assert all(found["gains"]), "drafts that go wrong at other places"
    missed = [sum(gain["missed"] for gain in gains) for gains in found["gains"]]
    causes = [int(count) for count in re.findall(r" at (\d+) it had", found["sentence"])]
    assert sum(causes) in (0, max(missed)), found["sentence"]  # of one cause the number is said before it
    assert f"has {plural(max(missed), 'token')} accepted that" in found["sentence"]
    assert difference(long, long)["gains"] == [[], []]


def _left_tokens(other: Trace, step: int) -> list[int]:
    """Children of the node at which the other run left its draft: what that run offered."""
    nodes = rows_of(other, "nodes", step)
    end = 0
    while (children := [i for i, node in enumerate(nodes) if node["parent"] == end]) and any(
        nodes[i]["status"] == "accepted" for i in children
    ):
        end = next(i for i in children if nodes[i]["status"] == "accepted")
    return [nodes[i]["token"] for i in children]


def test_runs_of_two_prompts_have_no_difference(desk: Tiny) -> None:
    prompts = Prompt.from_ids([3, 4, 5]), Prompt.from_ids([1, 2, 3])
    runs = [record(desk.target(), prompt, "pld", max_new_tokens=4) for prompt in prompts]
    with pytest.raises(ValueError, match="different prompts: choose two runs of one prompt"):
        difference(*runs)
    with pytest.raises(Refusal, match="1 runs are given"):
        desk.services["compare"].difference(["a"])


def _lane(name: str, speedup: float | None, per_step: float = 2.0, steps: int = 9, **numbers: Any) -> Lane:
    values = {
        "speedup": speedup, "tokens_per_step": per_step, "tokens_per_s": speedup and 10 * speedup, "steps": steps,
        "verify_ms": 50.0, "tokens": 20,
    }  # fmt: skip
    return Lane(name, name, {"metrics": values, "doubts": doubts(values), "notes": {}, **numbers}, name == "plain")


def test_the_headline_names_the_lanes_that_take_no_place() -> None:
    """A speedup above the tokens per step cannot be: it has no place in the order, and the sentence says so."""
    lanes = [_lane("PLD", 7.0), _lane("PLD+", 1.5), _lane("AdaPLD", 1.9)]
    assert [(n, lane.name) for n, lane in places_of(lanes)] == [(1, "AdaPLD"), (2, "PLD+")]
    sentence = claim(lanes)["time"]["sentence"]
    assert sentence.startswith("AdaPLD comes first in one run of each: 1.90× plain decoding, 1.27× PLD+")
    assert sentence.endswith(". PLD takes no place (‡): 7.00× at 2.00 tokens per step cannot be.")
    several = claim([*lanes, _lane("PPD", 5.0, 3.0)])["time"]["sentence"]
    assert several.endswith(
        ". PLD and PPD take no place (‡): 7.00× and 5.00× at 2.00 and 3.00 tokens per step cannot be."
    )
    assert "takes no place" not in claim(lanes[1:])["time"]["sentence"]


def test_sentence_order_places_and_stars_are_of_one_claim() -> None:
    """The winner of the sentence is the first in the order, has place 1, the shortest bar and the star."""
    lanes = [_lane("plain", 1.0, 1.0, 20), _lane("PLD", 7.0), _lane("PLD+", 1.5, 1.6, 12), _lane("AdaPLD", 1.9)]
    said = claim(lanes)
    rows = said["time"]["lanes"]
    assert [(row["id"], row["place"]) for row in rows] == [("AdaPLD", 1), ("PLD+", 2), ("plain", 3), ("PLD", None)]
    assert [row["bar"] for row in rows[:3]] == sorted(row["bar"] for row in rows[:3])
    assert "cannot be" in rows[3]["reason"]
    assert said["time"]["number"] == "1.90×" and said["stars"]["speedup"] == ["AdaPLD"]
    assert said["stars"]["steps"] == ["PLD", "AdaPLD"]  # forwards are counted, whatever the clock did
    assert claim([*lanes, _lane("stopped", 1.95, 3.0, 2, whole=False)])["stars"] == said["stars"]
    stopped = claim([_lane("plain", 1.0, 1.0, 20), _lane("PLD", None, whole=False)])
    assert stopped["time"]["sentence"] == stopped["step"]["sentence"] == NO_METHOD
    by_forwards = said["step"]["lanes"]
    assert [(row["id"], row["place"]) for row in by_forwards] == [("PLD", 1), ("AdaPLD", 1), ("PLD+", 3), ("plain", 4)]
    assert said["step"]["sentence"].startswith("PLD and AdaPLD need the fewest forwards, 9 (2.00 tokens per step)")
    short = _lane("plain", 1.0, 1.0, 12)  # a draw ended its text early
    short.numbers["metrics"]["tokens"] = 12
    apart = claim([short, _lane("SpS", 0.9, 2.6, 15), _lane("PLD", 0.8, 1.0, 12)])
    assert apart["step"]["sentence"] == "SpS writes the most tokens per step, 2.60; plain decoding writes 1.00."
    assert apart["step"]["lanes"][0]["id"] == "SpS" and "steps" not in apart["stars"]
    alone = _lane("CASD", 6.0, 8.0), _lane("PLD+", None, 9.0)  # of two runs one has a plain run of its own
    alone[1].numbers["metrics"]["tokens_per_s"] = 50.0
    bars = {row["id"]: row["bar"] for row in claim(alone)["time"]["lanes"]}
    assert bars == {"CASD": 20 * 1000 / 60, "PLD+": 20 * 1000 / 50}, "all bars have one unit"
    near = claim([_lane("plain", 1.0, 1.0), _lane("A", 1.5, 2.001), _lane("B", 1.4, 2.0), _lane("C", 1.3, 1.5)])
    assert near["stars"]["tokens_per_step"] == ["A", "B"], "numbers that look alike"
    level = claim([_lane("plain", 1.0, 1.0, 9), _lane("PLD", 1.0, 1.0, 9)])
    assert level["step"]["sentence"] == "No method needs fewer forwards than plain decoding, 9."


def _rerun_lane(name: str, low: float, middle: float, high: float, runs: int = 3) -> Lane:
    spread = {"speedup": [low, high], "tokens_per_s": [10 * low, 10 * high]}
    return _lane(name, middle, 4.0, runs=runs, spread=spread)


def test_a_place_is_one_and_the_lanes_that_are_clearly_faster() -> None:
    said = claim([_lane("plain", 1.0, 1.0), _rerun_lane("A", 1.8, 2.0, 2.2), _rerun_lane("B", 1.6, 1.85, 1.9, 5)])
    assert [row["place"] for row in said["time"]["lanes"]] == [1, 1, 3]
    assert said["time"]["sentence"].startswith("A and B are 2.00× and 1.85× as fast as plain decoding, and share place")
    assert "speedup" not in said["stars"] and said["time"]["number"] == ""
    assert "speedup" not in claim([_lane("plain", 1.0, 1.0), _lane("A", 0.8), _lane("B", 0.6)])["stars"]
    assert said["repeats"] == "Median of 1 run of plain decoding, 3 of A, 5 of B, in alternation."
    first = said["time"]["lanes"][0]
    assert first["low"] < first["bar"] < first["high"]
    apart = claim([_rerun_lane("A", 1.95, 2.0, 2.2), _rerun_lane("B", 1.6, 1.85, 1.9)])
    assert [row["place"] for row in apart["time"]["lanes"]] == [1, 2] and "A wins" in apart["time"]["sentence"]
    wide = claim([_rerun_lane("A", 2.2, 2.4, 2.5), _rerun_lane("B", 1.9, 2.0, 2.1), _rerun_lane("C", 1.1, 1.8, 2.3)])
    assert [(row["id"], row["place"]) for row in wide["time"]["lanes"]] == [("A", 1), ("C", 1), ("B", 2)]


def test_plain_decoding_takes_its_place_by_the_same_rule() -> None:
    """The defect: PLD and AdaPLD, whose repeats overlap plain decoding's, stood three places before it."""
    spans = {"plain": (662, 753, 779), "PLD": (551, 623, 695), "PLD+": (527, 570, 613), "AdaPLD": (537, 589, 688),
             "GLIDE": (639, 815, 977)}  # fmt: skip
    lanes = [_rerun_lane(name, *(315 / (at - 438) for at in reversed(span))) for name, span in spans.items()]
    said = claim(lanes)
    rows = [(row["id"], row["place"]) for row in said["time"]["lanes"]]
    assert rows == [("PLD+", 1), ("AdaPLD", 1), ("PLD", 1), ("plain", 2), ("GLIDE", 2)]
    assert said["time"]["number"] == "2.39×" and said["stars"]["speedup"] == said["stars"]["tokens_per_s"] == ["PLD+"]
    assert said["time"]["sentence"] == (
        "PLD+ is 2.39× as fast as plain decoding, and shares place 1 with AdaPLD and PLD: their repeats overlap, so no "
        "order can be told among them. AdaPLD and PLD are not clearly faster than plain decoding."
    )
    without = claim([lanes[0], lanes[1], lanes[3]])["time"]
    assert {row["place"] for row in without["lanes"]} == {1} and without["number"] == ""
    assert "the repeats of AdaPLD (median 2.09×) overlap plain decoding's" in without["sentence"]


def test_the_reason_is_of_the_median_that_it_explains() -> None:
    """A lane whose recorded run was disturbed: its repeats took a quarter of that time."""
    said = claim([_lane("A", 1.9, pace=0.25), _lane("B", 1.2)])["time"]["sentence"]
    assert said.endswith("its steps take less time (12.5 against 50.0 ms each).")


@pytest.mark.parametrize(
    ("ms", "repeats", "doubted", "places"),
    [
        # ms per token of plain decoding and per step of A, B (2 tokens per step) and C (1.25), all of 20 tokens
        ((50, 50, 55, 60), {}, "", [1, 2, 4, 3]),  # nobody was disturbed: A, B, plain, C
        ((90, 50, 55, 95), {}, "PABC", []),  # plain decoding: A and B came out too fast, C did not, and divides by it
        ((90, 50, 120, 95), {}, "PABC", []),  # plain decoding and B: A alone shows it
        ((50, 50, 120, 60), {}, "", [1, 4, 3, 2]),  # B: slow, and nothing says that it cannot be
        ((50, 5, 55, 60), {}, "A", [1, 3, 2]),  # A: no other run bears so short a step out
        ((90, 5, 55, 60), {}, "PABC", []),  # A and plain decoding: B and C show the latter
        ((51, 50, 55, 60), {}, "A", [1, 3, 2]),  # by as much as two speeds may differ: only A's own number is marked
        ((90, 50, 55, 95), {"P": [50, 50]}, "", [1, 2, 3, 4]),  # repeated: its median is right
        ((50, 50, 55, 70), {"C": [210, 70]}, "C", [1, 2, 3, 4]),  # C, in part: marked, and it has its place
        ((50, 50, 55, 60), {"P": [210, 50]}, "P", [1, 2, 4, 3]),
        ((90, 50, 55, 95), {"A": [50, 50], "B": [55, 55]}, "PABC", []),  # in part: plain decoding is as it was
    ],
)  # fmt: skip
def test_where_plain_decoding_was_disturbed_nothing_that_divides_by_it_counts(
    ms: tuple[int, ...], repeats: dict[str, list[int]], doubted: str, places: list[int]
) -> None:
    """Sentence, number, places and stars by time; by forwards all stays as it is."""
    emitted = {"P": [1] * 20, "A": [2] * 10, "B": [2] * 10, "C": [1, 1, 1, 2] * 4}
    traces = {}
    for (key, tokens), step_ms in zip(emitted.items(), ms, strict=True):
        name = "plain" if key == "P" else key
        run = {
            "prompt_length": 1, "method": {"name": name, "title": name}, "sampling": {}, "stop": "length",
            "machine": {"processor": "x", "engine": "eager", "threads": 1},
            "timings": {
                "decode_ms": step_ms * len(tokens), "repeats_ms": [one * len(tokens) for one in repeats.get(key, [])]
            },
        }  # fmt: skip
        traces[key] = Trace.new(run)
        steps = {name: [0] * len(tokens) for name in traces[key].tables["steps"]}
        steps |= {"emitted": tokens, "accepted": [n - 1 for n in tokens], "drafted": [2 * (n - 1) for n in tokens]}
        traces[key].extend({"tokens": {"id": [0, *range(20)]}, "steps": steps})
    numbers = numbers_of(traces)
    said = claim_of(traces, numbers)
    assert "".join(key for key in traces if "speedup" in numbers[key]["doubts"]) == doubted
    assert [row["place"] for row in said["time"]["lanes"] if row["place"]] == sorted(places)
    assert said["repeats"].endswith(" differ widely from run to run (‡).") == any(210 in ms for ms in repeats.values())
    order = [row["id"] for row in said["time"]["lanes"] if row["place"]]
    assert [order.index(key) + 1 for key in "ABPC" if key in order] == places
    assert len(said["time"]["sentence"]) <= 230  # two lines of the page
    if len(doubted) > 1:
        assert "by time nobody can be said to win: plain decoding was disturbed" in said["time"]["sentence"]
        assert said["time"]["number"] == "" and not {"speedup", "tokens_per_s"} & said["stars"].keys()
    else:
        assert said["time"]["number"] and said["stars"]["speedup"]
    assert [row["place"] for row in said["step"]["lanes"]] == [1, 1, 3, 4]
    assert said["stars"]["steps"] == ["A", "B"]


def test_plain_decoding_is_run_again_by_itself_as_long_as_it_is_in_doubt(target: Any) -> None:
    desk = Tiny(target)
    prompt = Prompt.from_ids(prompt_ids(3, 40))
    traces = {m: record(target, prompt, m, max_new_tokens=16) for m in ("plain", "pld")}
    repeats = desk.services["compare"].repeats
    contenders = [Contender(PLAIN, "method", True, str), Contender("pld", "method", True, str)]
    traces["plain"].run["timings"]["decode_ms"] = 1000 * traces["pld"].run["timings"]["decode_ms"]
    for turn, _ in (turns := repeats._plain_again(traces, contenders, Rounds((), 0))):
        assert turn.contender.name == PLAIN
        right = traces["pld"].run["timings"]["decode_ms"]
        repeats._ms["plain"] = [*repeats._ms.get("plain", []), right]
        if len(repeats._ms["plain"]) > 3:
            raise AssertionError("the median is right, yet it is run again")
    assert len(repeats._ms["plain"]) == 3 and not list(turns)  # three of four agree
    desk.end()


def test_recorded_runs_are_repeated_in_alternation_and_doubted_ones_again(target: Any) -> None:
    desk = Tiny(target)
    prompt = Prompt.from_ids(prompt_ids(3, 40))
    keys = [put(desk, record(target, prompt, m, max_new_tokens=16), m.replace("+", "-")) for m in ("plain", "pld")]
    slow = desk.store.get("plain")  # as if something had disturbed it: PLD's speedup cannot be
    slow.run["timings"]["decode_ms"] *= 1000
    put(desk, slow, "plain")
    compare = desk.services["compare"]
    assert "cannot be" in compare.numbers(keys)["pld"]["doubts"]["speedup"]
    order: list[str] = []
    run_of = desk.run_of

    def note_and_run(*given: Any, **more: Any) -> Any:
        order.append(given[2])
        return run_of(*given, **more)

    desk.run_of = note_and_run  # type: ignore[method-assign]
    assert compare.repeat(keys, "me")["of"] == 4
    until(lambda: compare.rounds(keys)["over"], "the repeats are over")
    assert compare.rounds(keys)["text"] == "" and order[:4] == ["plain", "pld", "pld", "plain"]
    assert len(order) > 4  # what was in doubt was run again by itself
    said, numbers = compare.claim(keys), compare.numbers(keys)
    assert numbers["pld"]["runs"] == 1 + order.count("pld") and numbers["pld"]["metrics"]["speedup"] < 10
    assert re.search(r"^Median of \d+ runs? of .*, in alternation\.", said["repeats"])
    assert desk.store.get("pld").run["timings"]["repeats_ms"]  # they stay with the run
    foreign = desk.store.get("pld")
    foreign.run["model"]["name"] = "another"
    refused = compare.repeat(["plain", put(desk, foreign, "foreign")], "me")
    assert refused["over"] and "made with another" in refused["text"]
    desk.end()


def test_an_output_of_no_token_is_identical_to_nothing(target: Any) -> None:
    trace = record(target, Prompt.from_ids(prompt_ids(3)), "pld", max_new_tokens=4)
    written = trace.output_ids
    assert check_output(trace, written)["state"] == "identical"
    for table in ("tokens", "steps", "nodes", "targets"):
        for values in trace.tables[table].values():
            del values[trace.run["prompt_length"] if table == "tokens" else 0 :]
    assert not trace.output_ids and check_output(trace, [])["state"] == "unknown"
    assert "no token" in check_output(trace, written).get("text", "no token")
