"""Draft lengths of chosen runs, as the page Compare asks for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from decoders.trace.load import Cell, Load
from tests import recordings
from tests.stubs import StubDesk

RUNS = (recordings.chain(), recordings.tree(), recordings.cape())


@pytest.fixture(scope="module")
def desk(module_home: Path) -> StubDesk:
    return StubDesk(gallery=RUNS)


def test_other_servers_lengths_are_replayed_by_method(
    client: TestClient, desk: StubDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = {"ids": [trace.run["id"] for trace in RUNS]}
    answer = client.post("/api/lengths/runs", json=sent).json()
    assert sum(one["runs"] for one in answer["sets"]) == len(RUNS) and not answer["measured"]
    policies = next(one["policies"] for one in answer["sets"] if one["policies"])
    assert policies[0]["policy"] == "oracle" and policies[0]["regret"] == 0
    model = RUNS[0].run["model"]["name"]
    load = Load(model, {}, tuple(Cell(b, r, 64, 10.0, 9.0, 11.0) for b in (1, 2) for r in (1, 4)))
    monkeypatch.setattr("decoders.study.measure.load.kept_load", lambda target: load)
    monkeypatch.setattr(desk.loader, "target", object())
    sets = client.post("/api/lengths/runs", json=sent).json()["sets"]
    batches = sets[0]["batches"]
    assert [one["batch"] for one in batches][:2] == [1, 2] and batches[-1]["measured"] is False
    best = next(one["tiers"] for one in sets if one["tiers"])
    assert 0 <= best["alpha"] <= 1 and best["cost"] > 0 and best["measured_to"] == 2
    assert [row["batch"] for row in best["curve"]] == [row["batch"] for row in best["best"]] == [1, 2, 4, 8, 16, 32, 64]
    assert best["curve"][0]["alpha"][0] == best["best"][0]["break_even_one"], "the table's are points of the curve"
    assert "num_speculative_tokens_per_batch_size" in json.loads(best["vllm"]) and json.loads(best["sglang"])
    assert client.post("/api/lengths/runs", json={"ids": []}).status_code == 422
