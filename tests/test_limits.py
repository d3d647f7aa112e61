"""Limits of one user of a shared server, and what a public one leaves out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import recordings
from fastapi.testclient import TestClient

from specviz.commands.app import LIMITS
from specviz.server.forms import PromptForm, Refusal
from specviz.server.http import refusal
from specviz.server.limits import NUMBERS, Rules, Window, caller, rules_for

from .stubs import StubDesk, at_work, client_of
from .waiting import WAIT_S

FORM = PromptForm("text", text="abc")


@pytest.fixture(scope="module")
def public() -> Iterator[tuple[TestClient, StubDesk]]:
    desk = StubDesk(gallery=(recordings.chain(),))
    changed = {"upload": "1", "asks": "30", "runs": "3", "waiting": "2"}
    desk.keep_to(rules_for(public=True, accounts=False, overrides=changed))
    with client_of(desk) as client:
        client.get("/")
        yield client, desk


def asking(desk: StubDesk, who: str) -> None:
    """``who`` asks from here on, and has not asked before."""
    desk.runner.keep_to(desk.rules)
    caller.set(who)


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    token = caller.set("")
    yield
    caller.reset(token)


def test_rules_are_strict_where_others_are_let_in() -> None:
    own, signed, public = (rules_for(public=p, accounts=a) for p, a in ((False, False), (False, True), (True, False)))
    assert own == Rules() and not own.is_shared and signed.is_shared and public.is_shared
    assert own.runs == 0 < public.runs < signed.runs and public.new_tokens < own.new_tokens == signed.new_tokens
    assert tuple(NUMBERS) == LIMITS  # what the command names
    assert rules_for(public=True, accounts=True, overrides={"runs": "7"}).runs == 7
    for name, text, said in (("speed", "1", "choose one of runs"), ("runs", "x", "a whole"), ("upload", "0", "1 to")):
        with pytest.raises(ValueError, match=said):
            rules_for(public=True, accounts=False, overrides={name: text})


def test_a_window_forgets_keys_of_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specviz.server.limits.MAX_KEYS", 10)
    window = Window(1)
    assert all(window.take(f"key{k}") == 0 for k in range(50)) and len(window._times) == 10
    assert Window(0).take("any") == 0


def test_runs_per_minute_and_waiting_runs_per_user(public: tuple[TestClient, StubDesk]) -> None:
    _, desk = public
    desk.gate.clear()
    try:
        asking(desk, "1.2.3.4")
        jobs = [desk.submit(FORM, "pld", {}, {}, owner=f"cookie{k}") for k in range(2)]  # another cookie is no way out
        with pytest.raises(Refusal, match="2 of your runs wait or go on, and 2 may at a time: wait until") as caught:
            desk.submit(FORM, "pld", {}, {}, owner="cookie3")
        assert caught.value.place == "queue" and caught.value.retry_s == 10
        caller.set("5.6.7.8")
        jobs.append(desk.submit(FORM, "pld", {}, {}))  # somebody else
    finally:
        desk.gate.set()
    assert all(job.finished.wait(WAIT_S) for job in jobs)
    caller.set("1.2.3.4")
    assert desk.submit(FORM, "pld", {}, {}).finished.wait(WAIT_S)
    with pytest.raises(Refusal, match="You started 3 runs within a minute, which is the most: wait") as caught:
        desk.submit(FORM, "pld", {}, {})
    answer = refusal(caught.value)
    assert answer.status_code == 429 and 0 < int(answer.headers["retry-after"]) <= 60
    assert refusal(ValueError("no")).status_code == 422


def test_visitors_without_cookies_have_nothing_in_common(
    public: tuple[TestClient, StubDesk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request has an owner of its own: what began with it, nobody lists, stops, changes or removes."""
    client, desk = public
    asking(desk, "no cookie")
    client.cookies.clear()
    owners: list[str] = []
    listing = desk.services["runs"].listing
    monkeypatch.setattr(desk.services["runs"], "listing", lambda owner: owners.append(owner) or listing(owner))
    desk.gate.clear()
    try:
        asked = {"prompt": {"mode": "text", "text": "abc"}, "lanes": [{"method": "pld"}]}
        ids = [lane["id"] for lane in client.post("/api/compare/start", json=asked).json()["lanes"]]
        for _ in range(2):
            assert not any(row["id"] in ids for row in client.get("/api/runs").json()["runs"])
            for path in ("runs/stop", "runs/delete", "compare/stop"):
                assert not client.post(f"/api/{path}", json={"ids": ids}).json()["done"]
        assert all(desk.runner.job(key) for key in ids)
    finally:
        desk.gate.set()
    assert len(set(owners)) == 2 and all(owner.startswith("nobody:") for owner in owners)


def test_sizes_are_limited_with_what_is_allowed(public: tuple[TestClient, StubDesk]) -> None:
    client, desk = public
    asking(desk, "sizes")
    big = PromptForm(instruction="x" * 20_000, context="y" * 20_001)
    for form, settings, said in (
        (big, {}, "The prompt has 40,001 characters and at most 40,000 are taken here: shorten it."),
        (FORM, {"max_new_tokens": 2000}, "2,000 new tokens were asked for and at most 1,024 are made here"),
    ):
        with pytest.raises(Refusal, match=said):
            desk.submit(form, "pld", {}, settings)
    settings = {c["name"]: c for c in client.get("/api/methods").json()["settings"]}
    assert settings["max_new_tokens"]["high"] == 1024  # the page's own control says so
    with pytest.raises(Refusal, match="This file has 1.5 MiB and at most 1 MiB are opened here"):
        desk.open_file(bytes(3 << 19))


def test_bodies_are_bounded_whatever_they_say_of_themselves(public: tuple[TestClient, StubDesk]) -> None:
    client, _ = public
    upload = client.post("/gradio_api/upload", files={"files": ("a.spectrace", bytes(2 << 20))})
    assert upload.status_code == 413 and upload.json()["error"].startswith("More than 1 MiB were sent")
    pieces = (b" " * (1 << 20) for _ in range(12))  # no length is given
    answer = client.post("/api/runs/delete", content=pieces, headers={"content-type": "application/json"})
    assert answer.status_code in (413, 422) and "8 MiB were sent" in answer.json()["error"]


def test_too_many_requests_are_told_when_to_come_back(public: tuple[TestClient, StubDesk]) -> None:
    client, _ = public
    codes = [client.post("/api/runs/change", json={"ids": []}).status_code for _ in range(31)]
    assert codes[0] == 200 and codes[-1] == 429
    last = client.post("/api/compare/start", json={})
    assert last.status_code == 429 and "wait" in last.json()["error"] and 0 < int(last.headers["retry-after"]) <= 61
    assert client.get("/api/runs").status_code == 200  # looking is free


def test_a_public_server_says_who_may_use_its_pages() -> None:
    fresh = StubDesk()
    fresh.keep_to(rules_for(public=True, accounts=False))
    with client_of(fresh) as client:
        headers = client.get("/").headers
        assert headers["cross-origin-opener-policy"] == "same-origin" and "permissions-policy" in headers


def test_a_server_of_ones_own_has_no_limits_but_its_queue() -> None:
    with at_work(StubDesk()) as desk:
        assert all(desk.submit(FORM, "pld", {}, {}).finished.wait(WAIT_S) for _ in range(30))
