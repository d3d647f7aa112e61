"""The tab "Places": a run is replayed in stages, followed, kept and stopped; what cannot be replayed is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from decoders import Prompt, UserError, record
from decoders.study.look.places import PlaceReplay, all_drafts, frontier, strip_of
from decoders.verifiers.sampling import Sampling
from specviz.pages.whatif.reading import to_text
from specviz.server.backend_host import Holder
from tests.models import prompt_ids, tiny_target
from tests.stubs import client_of, gallery_desk
from tests.waiting import WAIT_S, until

from ..places import replaying

PAIR = ["pld", "adapld"]


@pytest.fixture(scope="module")
def target(module_home: Path) -> Any:
    return tiny_target()


@pytest.fixture(scope="module")
def trace(target: Any) -> Any:
    prompt = Prompt.from_ids(prompt_ids(3) * 2)
    return record(target, prompt, "composite", {"drafters": "pld,adapld"}, max_new_tokens=30, stop_ids=())


@pytest.fixture(scope="module")
def client(target: Any, trace: Any) -> Iterator[TestClient]:
    drawn = record(target, Prompt.from_ids(prompt_ids(1)), "pld", sampling=Sampling(1.0), max_new_tokens=6)
    with client_of(gallery_desk(target, {"merged": trace, "drawn": drawn})) as client:
        yield client


def ended(client: TestClient, card: dict[str, Any]) -> dict[str, Any]:
    """A replay once it is over."""
    ask = lambda: client.get(f"/api/places/of/{card['id']}").json()  # noqa: E731
    until(lambda: ask()["state"] not in ("queued", "running"), "the replay is over")
    return ask()


def test_a_replay_in_stages_is_the_whole_one(target: Any, trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "STAGE_S", 0.0)
    holder, methods = Holder(target, {}), [[name, None] for name in (*PAIR, "recycling")]
    stages, request = [], {"key": "a", "trace": to_text(trace), "methods": methods}
    while "report" not in (stage := replaying.advance(holder, request)):
        stages.append(stage["done"])
        request = {"key": "a"}
    assert stages == sorted(stages) and len(stages) > 30 and stage["report"]["missing"].keys() == {"recycling"}
    places = PlaceReplay(target, trace)
    drafts, missing = all_drafts(places, [*PAIR, "recycling"])
    lines = {"rows": replaying.ROWS, "lines": frontier(places, drafts, replaying.ROWS)}
    assert stage["report"] == {**strip_of(places, drafts, missing).to_json(), "frontier": lines}
    with pytest.raises(UserError, match="replay it again"):
        replaying.advance(holder, {"key": "a"})
    replaying.advance(holder, {"key": "b", "trace": to_text(trace), "methods": methods})
    replaying.forget(holder, {"key": "b"})
    with pytest.raises(UserError, match="replay it again"):
        replaying.advance(holder, {"key": "b"})
    with pytest.raises(UserError, match="learns from verdicts"):
        for _ in replaying.replay(target, trace, [("recycling", None)]):
            pass


def test_a_replay_is_followed_and_kept(client: TestClient, trace: Any) -> None:
    answer = client.get("/api/places/run/merged").json()
    assert answer["reason"] == "" and answer["chosen"][:2] == PAIR and answer["replay"] is None
    names = [method["name"] for method in answer["methods"]]
    assert "suffix" in names and not {"plain", "composite", "casd"} & {*names}
    card = ended(client, client.post("/api/places/run/merged", json={"methods": PAIR}).json())
    assert card["state"] == "done" and card["done"] == card["total"] and len(card["report"]["reach"]["pld"]) == 30
    assert client.get("/api/places/run/merged").json()["replay"] == card


def test_a_replay_is_stopped(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, advance = threading.Event(), replaying.advance

    def slow(holder: Any, request: Any) -> Any:
        assert "trace" in request or gate.wait(WAIT_S)
        return advance(holder, request)

    monkeypatch.setattr(replaying, "advance", slow)
    card = client.post("/api/places/run/merged", json={"methods": PAIR}).json()
    client.post("/api/places/stop", json={"id": card["id"]})
    gate.set()
    assert ended(client, card)["state"] == "stopped"


def test_what_cannot_be_replayed_is_refused(client: TestClient) -> None:
    assert "greedy runs of a lossless method" in client.get("/api/places/run/drawn").json()["reason"]
    assert client.post("/api/places/run/drawn", json={"methods": PAIR}).status_code >= 400
    for methods in (["plain"], ["casd"], ["nothing"]):
        answer = client.post("/api/places/run/merged", json={"methods": methods})
        assert answer.status_code >= 400 and "cannot be put at a run's places" in answer.json()["error"]
    answer = client.post("/api/places/run/merged", json={"methods": []})
    assert answer.status_code == 422 and "hoose one to 6 methods" in answer.json()["error"]
