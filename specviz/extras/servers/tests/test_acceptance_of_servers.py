"""Acceptance of servers' files: as the definitions count it, and on the page Acceptance as in the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from decoders.importers import open_log
from decoders.trace import metrics
from specviz.cli import main
from tests.test_acceptance_page import RUNS, desk  # noqa: F401
from tests.test_definitions import RUN, acceptance

SAMPLES = Path(__file__).parent / "samples"


def server(name: str) -> bytes:
    """A sample of a server's numbers."""
    return (SAMPLES / name).read_bytes()


def test_what_an_imported_run_does_not_know_is_not_counted():
    """SGLang's stream tells what was accepted of each step, and of the drafted tokens their number alone; a stream of
    anybody tells neither.
    """
    sglang, anybody = (
        trace for name in ("sglang_stream.txt", "openai_stream.jsonl") for trace in open_log(server(name)).traces
    )
    counted = acceptance([sglang])
    values = counted.pooled.values()
    assert values.pop("tokens_per_step") == metrics.compute(sglang)["tokens_per_step"] == 11 / 5
    assert values.pop("emitted_per_step") == 11 / 5
    assert values.pop("draft_acceptance") == 6 / 12, "its totals"
    assert set(values.values()) == {None} and not counted.lengths and not counted.depths()
    assert set(acceptance([anybody]).pooled.values().values()) == {None}
    both, own = acceptance([sglang, RUN]).pooled.values(), acceptance([RUN]).pooled.values()
    assert both.pop("tokens_per_step") == both.pop("emitted_per_step") == (4 + 6 + 4 + 5) / 9
    drafted = acceptance([RUN]).pooled.drafted
    assert both.pop("draft_acceptance") == (6 + 4) / (12 + drafted) == 10 / 20
    assert both == {key: value for key, value in own.items() if key in both}


def test_tokens_that_were_not_recorded_are_of_no_class():
    (trace,) = open_log(server("vllm_detailed.json")).traces
    assert {row["key"]: row["decided"] for row in acceptance([trace]).to_json()["groups"]["class"]} == {
        "word": 12, "no text": 4,
    }  # fmt: skip


def test_a_servers_file_is_a_set_beside_the_runs_as_in_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], client: TestClient
) -> None:
    """Numbers of many requests, which are no run: their totals are a set all the same."""
    place = SAMPLES / "vllm_metrics.prom"
    sent = {"ids": [], "files": [{"name": place.name, "text": place.read_text(encoding="utf-8")}]}
    (found,) = client.post("/api/acceptance/runs", json=sent).json()["sets"]
    assert main(["acceptance", str(place), "--json"]) == 0
    assert [found] == json.loads(capsys.readouterr().out) and found["parts"]["drafted"] > 0
    both = client.post("/api/acceptance/runs", json={**sent, "ids": [RUNS[0].run["id"]]}).json()["sets"]
    assert [one["title"] for one in both] == [RUNS[0].run["method"]["title"], found["title"]]
    rates = (SAMPLES / "sglang_decode.log").read_text(encoding="utf-8")
    for text, words in (("no log", "a.txt holds nothing that is known"), (rates, "rates and no counts")):
        answer = client.post("/api/acceptance/runs", json={"ids": [], "files": [{"name": "a.txt", "text": text}]})
        assert answer.status_code == 422 and words in answer.json()["error"], answer.text
    many = client.post("/api/acceptance/runs", json={**sent, "files": sent["files"] * 21})
    assert many.status_code == 422
