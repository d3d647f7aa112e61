"""The page "Acceptance": sets by method, the calculator, and two outputs judged by a small model."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from decoders import generate
from decoders.errors import UserError
from decoders.model.target_model.target import Target
from decoders.study.judge import two_outputs as judging
from decoders.study.judge.two_outputs import IDENTICAL, NOT_GREEDY, two_outputs
from decoders.trace.acceptance import DEFINITIONS
from decoders.trace.files import save
from specviz.cli import main
from specviz.pages.acceptance import acceptance_page as service
from specviz.pages.acceptance import judging as background
from specviz.pages.acceptance.acceptance_page import Counting
from specviz.pages.acceptance.claim import DIFFERENT_PROMPTS, claim_of_runs
from specviz.pages.acceptance.sets import SetCounts, pooled_by_method

from . import recordings
from .models import prompt_ids
from .stubs import StubDesk
from .test_definitions import acceptance
from .waiting import until

RUNS = (recordings.chain(), recordings.tree(), recordings.cape())


@pytest.fixture(scope="module")
def desk(module_home: Path) -> StubDesk:
    return StubDesk(gallery=RUNS)


def test_runs_are_pooled_by_method_with_every_formula_filled_in(client: TestClient) -> None:
    ids = [trace.run["id"] for trace in RUNS]
    sets = client.post("/api/acceptance/runs", json={"ids": [*ids, ids[0]]}).json()["sets"]
    assert sum(one["runs"] for one in sets) == len(RUNS)  # one that is named twice counts once
    for one in sets:
        mine = [trace for trace in RUNS if trace.run["method"]["name"] == one["method"]]
        values = acceptance(mine).pooled.values()
        assert one["pooled"] == pytest.approx(values)
        assert {*one["worked"]} == {key for key, value in values.items() if value is not None}
        assert not any("{" in text for text in one["worked"].values())
    assert client.post("/api/acceptance/runs", json={"ids": ids}).json()["sets"] == sets  # from what is kept


def test_methods_are_held_against_each_other_on_prompts_that_all_of_them_ran() -> None:
    """AdaPLD on one prompt and CASD on another say nothing of who has more accepted."""
    counts = {name: SetCounts.of(recordings.gallery_run(name)) for name in (
        "class-docstring-pld", "class-docstring-pld-h", "account-check-casd", "class-docstring-adapld",
    )}  # fmt: skip
    pld, pld_h, casd, adapld = counts.values()
    assert claim_of_runs([adapld, casd]) == DIFFERENT_PROMPTS
    both = claim_of_runs([pld, pld_h])
    assert both.startswith("PLD+ by hidden states has more accepted than PLD: ")
    known, _, unknown = both.partition(" tokens per step. The first drafted token was accepted in ")[2].partition("; ")
    assert re.fullmatch(r"9 of 11 drafts, against \d+ of \d+", known) and unknown.startswith("11 drafts of ")
    assert "because" not in both and "most of all" not in both  # nothing is claimed and taken back
    assert claim_of_runs([pld, pld_h, replace(pld_h, prompt="another")]).endswith(
        "Of 1 prompt that all of them ran; 1 not."
    )
    assert claim_of_runs([pld]).startswith("PLD makes ") and claim_of_runs([]) == ""
    totals = [replace(run, prompt=None) for run in (pld, pld_h)]  # of a server
    assert claim_of_runs(totals) == DIFFERENT_PROMPTS


def test_confidences_of_the_same_numbers_share_a_row() -> None:
    """A greedy chain's ``confidence`` is the q of the token it drafted."""
    (entry,) = pooled_by_method([SetCounts.of(recordings.gallery_run("class-docstring-sps"))])
    labels = [one["label"] for one in entry["calibration"]]
    assert "draft probability q = confidence" in labels
    measures = [(one["outcome"], one["count"], one["rate"], one["auroc"], one["ece"]) for one in entry["calibration"]]
    assert len({*measures}) == len(measures)


def test_a_given_answer_is_no_lossy_run_and_is_not_counted(desk: StubDesk) -> None:
    """A run that was told what to write is left out of every set, and a method's two variants have two names."""
    forced, lossy, free = (recordings.chain() for _ in range(3))
    for name, trace in {"given-1": forced, "lossy-1": lossy, "free-1": free}.items():
        trace.run["id"] = name
        trace.run["method"] = {**trace.run["method"], "lossless": trace is free}
    forced.run["forced"] = True
    ids = [desk.store.put(trace, kind="opened") for trace in (forced, lossy, free)]
    try:
        answer = desk.services["acceptance"].runs(Counting(ids=ids))
        title = free.run["method"]["title"]
        assert answer["forced"] == 1 and [one["title"] for one in answer["sets"]] == [f"{title} (lossy)", title]
        assert desk.services["acceptance"].runs(Counting(ids=ids[:1])) == {
            "sets": [], "sentence": "", "calibration": "", "forced": 1,
        }  # fmt: skip
        assert desk.store.entry("given-1").summary["forced"] and desk.store.entry("given-1").summary["lossless"]
    finally:
        for key in ids:
            desk.store.remove(key)


def test_what_is_kept_is_bounded(client: TestClient, desk: StubDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    page = desk.services["acceptance"]
    assert page._counts.maxsize == service.MAX_SUMS
    monkeypatch.setattr(page, "_counts", type(page._counts)(1))
    client.post("/api/acceptance/runs", json={"ids": [trace.run["id"] for trace in RUNS]})
    assert len(page._counts) == 1


def test_a_run_that_was_deleted_is_counted_no_more(client: TestClient, desk: StubDesk) -> None:
    trace = recordings.chain()
    trace.run["id"] = "deleted-soon"
    body = {"ids": [desk.store.put(trace, kind="opened")]}
    assert client.post("/api/acceptance/runs", json=body).status_code == 200
    desk.store.remove("deleted-soon")
    assert client.post("/api/acceptance/runs", json=body).status_code == 404


@pytest.mark.parametrize(
    ("sent", "status", "sentence"),
    [
        ({"ids": []}, 422, "No run is chosen"), ({"ids": ["0" * 12]}, 404, ""), ({"ids": "x"}, 422, ""),
        ({"ids": ["../../etc"]}, 404, ""),
    ],
)  # fmt: skip
def test_bad_runs_are_refused(client: TestClient, sent: Any, status: int, sentence: str) -> None:
    answer = client.post("/api/acceptance/runs", json=sent)
    assert answer.status_code == status and sentence in answer.json()["error"]


def test_the_calculator(client: TestClient) -> None:
    sent = {"acceptance": 0.8, "cost": 0.1, "rows": "1:30, 8:33, 32:60"}
    answer = client.post("/api/acceptance/forecast", json=sent).json()
    made = answer["forecasts"]
    assert made[0]["speedup"] == 1.0 and answer["measured_to"] == 32
    assert made[answer["best"]]["speedup"] == max(one["speedup"] for one in made) > 1.5
    useless = client.post("/api/acceptance/forecast", json={"acceptance": 0.0, "cost": 0.2}).json()
    assert useless["best"] == 0 and useless["measured_to"] is None
    odd = ("2:30", f"1:30, {10**400}:40", "1:1e-320, 8:1e300")
    for wrong in ({"acceptance": 1.5, "cost": 0}, {"acceptance": 0.5, "cost": -1}, *({**sent, "rows": r} for r in odd)):
        refused = client.post("/api/acceptance/forecast", json=wrong)
        assert refused.status_code == 422 and len(refused.json()["error"]) > 20


def test_the_definitions_are_told(client: TestClient) -> None:
    answer = client.get("/api/acceptance").json()
    assert [one["label"] for one in answer["definitions"]] == [one.label for one in DEFINITIONS]
    assert answer["rows"] == ""  # a stub has no latency


def test_the_command_prints_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], client: TestClient
) -> None:
    paths = [tmp_path / f"{n}.spectrace" for n in range(len(RUNS))]
    for trace, path in zip(RUNS, paths, strict=True):
        save(trace, path)
    assert main(["acceptance", *map(str, paths), "--json"]) == 0
    sets = client.post("/api/acceptance/runs", json={"ids": [trace.run["id"] for trace in RUNS]}).json()["sets"]
    assert json.loads(capsys.readouterr().out) == sets
    assert main(["acceptance", str(paths[0])]) == 0
    printed = capsys.readouterr().out
    assert all(one.label in printed for one in DEFINITIONS) and "AUROC" in printed


def test_sets_are_split_by_the_servers_cached_tokens(client: TestClient, desk: StubDesk) -> None:
    runs = []
    for number, cached in enumerate((0, 0, 7)):
        trace = recordings.chain()
        trace.run |= {"id": f"cached-{number}", "imported": {"source": "s", "notes": [], "totals": {"cached": cached}}}
        desk.store.put(trace, kind="opened", owner="*")
        runs.append(trace.run["id"])
    one = client.post("/api/acceptance/runs", json={"ids": runs}).json()["sets"]
    split = client.post("/api/acceptance/runs", json={"ids": runs, "by": "cached"}).json()["sets"]
    assert [row["runs"] for row in one] == [3]
    assert [(row["title"].rpartition(", ")[2], row["runs"]) for row in split] == [
        ("none cached", 2), ("some of the prompt cached", 1)]  # fmt: skip
    assert client.post("/api/acceptance/runs", json={"ids": runs}).json()["sets"] == one
    assert client.post("/api/acceptance/runs", json={"ids": runs, "by": "colour"}).status_code == 422


# --- two outputs

PROMPT = prompt_ids(3, 30)


@pytest.fixture(scope="module")
def plain(target: Target) -> list[int]:
    from decoders import Prompt

    return generate(target, Prompt.from_ids(PROMPT), max_new_tokens=12)


def another(target: Target, plain: list[int], at: int, rank: int) -> list[int]:
    """The plain output, with the target's choice of a rank at one place, and greedy from there on."""
    from decoders import Prompt

    logits = target.reference_logits([*PROMPT, *plain[:at]], rows=1)[0]
    token = int(logits.argsort(descending=True)[rank])
    head = [*plain[:at], token]
    return [*head, *generate(target, Prompt.from_ids([*PROMPT, *head]), max_new_tokens=12 - len(head))]


def test_equal_outputs_and_a_wrong_token(target: Target, plain: list[int]) -> None:
    assert two_outputs(target, PROMPT, plain, list(plain)).verdict == IDENTICAL
    wrong = two_outputs(target, PROMPT, plain, another(target, plain, 5, 60), dtype="float32")
    assert (wrong.at, wrong.verdict) == (5, "bug")
    assert wrong.drafted.below.index(wrong.drafted.worst) == 5 and wrong.drafted.worst > wrong.tolerance
    assert wrong.plain_prob is not None and wrong.drafted_prob is not None and wrong.plain_prob > wrong.drafted_prob
    lossy = two_outputs(target, PROMPT, plain, another(target, plain, 5, 60), dtype="float32", lossless=False)
    assert lossy.verdict == "lossy by design"


def test_a_second_choice_within_rounding_is_a_near_tie(
    target: Target, plain: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    second = another(target, plain, 4, 1)
    made = two_outputs(target, PROMPT, plain, second, dtype="float32")
    assert made.verdict == "bug" and made.gap is not None
    monkeypatch.setitem(judging.TOLERANCES, "wide", made.drafted.worst + 1e-6)
    assert two_outputs(target, PROMPT, plain, second, dtype="wide").verdict == "near tie"


def test_an_output_that_nobody_decoded_greedily_proves_nothing(target: Target, plain: list[int]) -> None:
    made = two_outputs(target, PROMPT, another(target, plain, 2, 60), plain, dtype="float32")
    assert made.verdict == NOT_GREEDY


def test_an_output_that_ends_early_differs_where_it_ends(target: Target, plain: list[int]) -> None:
    made = two_outputs(target, PROMPT, plain, plain[:-3], dtype="float32")
    assert made.at == len(plain) - 3 and made.drafted_prob is None and made.plain_prob is not None


@pytest.mark.parametrize(
    ("plain", "drafted", "dtype", "sentence"),
    [([], [1], "float32", "an output is empty"), ([1], [1], "int2", "has no tolerance"),
     ([1] * 5000, [1], "float32", "shorten them")],
)  # fmt: skip
def test_outputs_that_cannot_be_judged(
    target: Target, plain: list[int], drafted: list[int], dtype: str, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        two_outputs(target, PROMPT, plain, drafted, dtype=dtype)


def test_drafts_are_judged_by_every_verifier(client: TestClient, desk: StubDesk) -> None:
    """In the background: the page asks again until all steps are judged; then of one run, step by step."""

    def ready(ask: Any) -> Any:
        return until(lambda: (answer := ask().json()).get("state") != "judging" and answer, "the judgement")

    ids = [trace.run["id"] for trace in RUNS]
    answer = ready(lambda: client.post("/api/acceptance/judge", json={"ids": [*ids, ids[0]]}))
    rules = {one["name"]: one for one in answer["rules"]}
    assert {"match", "block", "typical", "fly"} <= set(rules) and answer["runs"] + len(answer["faults"]) == len(RUNS)
    assert rules["match"]["other_share"] == [0, 0] and rules["match"]["tokens_per_step"][0] > 1
    assert client.post("/api/acceptance/judge", json={"ids": ids}).json() == answer  # from what is kept
    assert "No run is chosen" in client.post("/api/acceptance/judge", json={"ids": []}).text

    ready(lambda: client.get(f"/api/acceptance/judged/{ids[0]}"))
    judged = next(one for one in (client.get(f"/api/acceptance/judged/{key}").json() for key in ids) if "steps" in one)
    step = judged["steps"][0]
    assert set(step["rules"]) == {card["name"] for card in judged["rules"]} and judged["reason"] == ""
    node, stands, chance, why = step["rules"]["match"]["nodes"][0]
    assert node == 1 and stands in (True, False) and 0 <= chance[0] <= chance[1] <= 1 and why
    assert client.get("/api/acceptance/judged/nope").status_code == 404


def test_judging_waits_for_runs_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is decoded comes first; of a long run the first steps are judged, and it says so."""
    monkeypatch.setattr(background, "MOST_STEPS", 1)
    monkeypatch.setattr(background, "WAIT_S", 0.01)
    busy = threading.Event()
    busy.set()
    judge = background.Judging(busy.is_set)
    ask = partial(judge.results, ["a"], lambda _: RUNS[0], bool)
    try:
        assert ask()["state"] == "judging"
        busy.clear()
        (done,) = until(lambda: isinstance(made := ask(), list) and made, "the judgement")
        assert len(done.steps) == 1 < done.of and f"the first 1 of {done.of} steps" in done.note
    finally:
        judge.close()


@pytest.mark.slow("runs judged in the background, with a page of their own")
def test_a_request_of_more_runs_than_are_kept_comes_to_an_end(desk: StubDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run is read once, however often it is asked again; those beyond what is kept are left out, and counted."""
    busy, read, ids = threading.Event(), [], [trace.run["id"] for trace in RUNS]
    monkeypatch.setattr(background, "MAX_JUDGED", 2)
    monkeypatch.setattr(background, "WAIT_S", 0.01)
    monkeypatch.setattr(desk.runner, "busy", busy.is_set)
    trace = desk.trace
    monkeypatch.setattr(desk, "trace", lambda key: (read.append(key), trace(key))[1])
    page = service.AcceptancePage(desk)
    busy.set()
    try:
        assert [page.judge(ids)["state"] for _ in range(3)] == ["judging"] * 3 and read == ids[:2]
        busy.clear()
        answer = until(lambda: (made := page.judge(ids))["state"] == "ready" and made, "the judgement")
        assert "The first 2 of 3 runs are judged; left out: 1." in answer["faults"][-1] and read == ids[:2]
    finally:
        page.close()
