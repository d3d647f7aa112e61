"""Signing in: the file, the tries, the sessions, and that nothing is reached without it."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import recordings
from fastapi.testclient import TestClient

from specviz.cli import main
from specviz.server import users as accounts
from specviz.server.guard import SESSION
from specviz.server.http import COOKIE
from specviz.server.limits import rules_for
from specviz.server.users import Tries, Users, hash_password, matches, read_users, write_users
from specviz.shell.login import login_page

from .stubs import StubDesk, client_of

CHEAP = (2, 1, 1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(accounts.hash_password, "__kwdefaults__", {"cost": CHEAP, "salt": b""})  # scrypt costs 0.1 s
    write_users(tmp_path / "users", {"ann": hash_password("open sesame"), "bob": hash_password("bob's own word")})
    return tmp_path / "users"


def test_a_hash_holds_no_password_and_costs_what_it_should() -> None:
    kept = hash_password("pässword 1")
    assert kept.startswith("scrypt$32768$8$1$") and "pässword" not in kept and kept != hash_password("pässword 1")
    assert matches("pässword 1", kept) and not matches("pässword 2", kept)


def test_the_file_is_private_and_read_back(file: Path) -> None:
    assert set(read_users(file)) == {"ann", "bob"} and (os.name != "posix" or file.stat().st_mode & 0o077 == 0)
    assert [p.name for p in file.parent.iterdir()] == ["users"]  # no part of it is left behind


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ann:secret", "line 1 of .* is not NAME:HASH"),
        ("a b:" + hash_password("x" * 8, cost=CHEAP), "is not NAME:HASH"),
        ("ann:scrypt$99999999$8$1$00$00", "is not NAME:HASH"),
        ("ann:scrypt$3$1$1$" + "00" * 16 + "$" + "00" * 32, "is not NAME:HASH"),
        ("\n".join(["ann:" + hash_password("x" * 8, cost=CHEAP)] * 2), "line 2 of .* names ann a second time"),
        ("# nobody\n", "names nobody: add somebody"),
        (b"\xff", "cannot be read"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, line: str | bytes, said: str) -> None:
    path = tmp_path / "users"
    path.write_bytes(line if isinstance(line, bytes) else line.encode())
    with pytest.raises(ValueError, match=said):
        Users(path)
    with pytest.raises(ValueError, match="cannot be read .*: make it with"):
        Users(tmp_path / "none")


def test_sessions_end_in_time_by_signing_out_and_with_the_account(file: Path) -> None:
    clock = Clock()
    users = Users(file, session_s=60.0, clock=clock)
    assert users.sign_in("ann", "open says me", "here") == users.sign_in("eve", "open sesame", "here") == ""
    first, second = (users.sign_in("ann", "open sesame", "here") for _ in range(2))
    bobs = users.sign_in("bob", "bob's own word", "here")
    assert users.who(first) == users.who(second) == "ann" and users.who(bobs) == "bob" and users.who("x") == ""
    users.sign_out(first)
    assert users.who(first) == "" and users.who(second) == "ann"
    write_users(file, {"ann": hash_password("another word"), "bob": read_users(file)["bob"]})
    assert users.who(second) == "" and users.who(bobs) == "bob"
    clock.now += 61
    assert users.who(bobs) == ""


def test_failed_tries_are_slowed_by_name_and_address() -> None:
    clock = Clock()
    tries = Tries(clock)
    for _ in range(5):
        assert tries.wait_s("ann", "here") == 0
        tries.on_failure("ann", "here")
    waits = []
    for _ in range(12):
        waits.append(tries.wait_s("ann", "here"))
        clock.now += waits[-1]
        tries.on_failure("ann", "here")
    assert waits[:4] == [2.0, 4.0, 8.0, 16.0] and max(waits) <= accounts.TRIES_S
    assert tries.wait_s("ann", "elsewhere") == 0  # nobody can lock ann out from another place
    tries.on_success("ann", "here")
    assert tries.wait_s("bob", "here") == 0
    for k in range(20):  # guessing names from one address
        tries.on_failure(f"name{k}", "there")
    assert tries.wait_s("bob", "there") > 0
    clock.now += accounts.TRIES_S
    assert tries.wait_s("bob", "there") == 0


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "users")

    def run(*words: str, typed: str = "") -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        code = main(["users", *words])
        out = capsys.readouterr()
        return code, out.out + out.err

    assert run("add", path, "ann", typed="open sesame\n") == (0, f"ann may sign in: specviz app --auth-file {path}\n")
    assert matches("open sesame", read_users(Path(path))["ann"])
    assert run("add", path, "ann", typed="open says me\n") == (0, "ann has another password now\n")
    assert "7 characters and 8 to 200 are needed" in run("add", path, "bob", typed="seven77\n")[1]
    assert "cannot be a user's name" in run("add", path, "a:b", typed="long enough\n")[1]
    assert run("list", path) == (0, "ann\n")
    assert run("remove", path, "bob")[0] == 2 and run("remove", path, "ann")[0] == 0
    assert run("list", path) == (0, "nobody\n")
    assert "open" not in Path(path).read_text()


# --- the whole application behind it ---


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Users, StubDesk]]:
    desk = StubDesk(gallery=(recordings.chain(),))
    desk.keep_to(rules_for(public=False, accounts=True))
    path = tmp_path_factory.mktemp("users") / "users"
    known = {"ann": "open sesame", "bob": "bob's own word"}
    write_users(path, {name: hash_password(password, cost=CHEAP) for name, password in known.items()})
    users = Users(path)
    users._nobody = hash_password("nobody", cost=CHEAP)
    with client_of(desk, users, follow_redirects=False) as client:
        yield client, users, desk


@pytest.fixture
def guard(running: tuple[TestClient, Users, StubDesk]) -> tuple[TestClient, Users, StubDesk]:
    """Nobody is signed in, and nobody has tried."""
    running[0].cookies.clear()
    running[1].tries = Tries()
    return running


def sign_in(client: TestClient, name: str = "ann", password: str = "open sesame", **more: str) -> Any:
    return client.post("/login", data={"name": name, "password": password, **more})


def test_nothing_is_reached_without_signing_in(guard: tuple[TestClient, Users, StubDesk]) -> None:
    client, _, _ = guard
    paths = {getattr(route, "path", "") for route in client.app.routes}  # type: ignore[attr-defined]
    assert {"/api/runs", "/api/compare", "/web/{name:path}"} <= paths
    gradio = {"/config", "/gradio_api/info", "/gradio_api/queue/status", "/gradio_api/startup-events", "/theme.css"}
    paths = {path.replace("{key}", "gallery-0").replace("{name:path}", "x") for path in paths - {"/login"} if path}
    tried = paths | gradio
    for path in tried:
        for method in ("GET", "POST", "HEAD", "PUT"):
            answer = client.request(method, path)
            home = path == "/" and method == "GET"
            assert answer.status_code == (303 if home else 401), (method, path, answer.status_code)
            assert home or method == "HEAD" or "not signed in" in answer.json()["error"]
    sent_to = client.get("/", params={"trace": "a", "tab": "runs"}).headers["location"]
    assert sent_to == "login?next=%3Ftrace%3Da%26tab%3Druns"
    fake = TestClient(client.app, follow_redirects=False, cookies={SESSION: "x" * 43, COOKIE: "user:ann"})
    assert fake.get("/api/runs").status_code == 401


def test_runs_belong_to_the_user(guard: tuple[TestClient, Users, StubDesk]) -> None:
    client, _, desk = guard
    answer = sign_in(client, next="?trace=gallery-0")
    assert (answer.status_code, answer.headers["location"]) == (303, "./?trace=gallery-0")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Max-Age=43200" in cookie
    assert "set-cookie" not in client.get("/").headers  # a browser has no id of its own here
    job = desk.submit_text("abc", owner="user:ann")
    theirs = [run["id"] for run in client.get("/api/runs").json()["runs"]]
    assert job.id in theirs and client.get("/api/status").json()["user"] == "ann"
    other = TestClient(client.app, cookies={COOKIE: "user:ann"})
    sign_in(other, "bob", "bob's own word")
    assert job.id not in [run["id"] for run in other.get("/api/runs").json()["runs"]]
    assert other.post("/api/runs/delete", json={"ids": [job.id]}).json() == {"done": []}
    assert client.post("/logout").status_code == 200 and client.get("/api/runs").status_code == 401
    assert other.get("/api/runs").status_code == 200


def test_wrong_passwords_are_counted_and_the_page_says_so(guard: tuple[TestClient, Users, StubDesk]) -> None:
    client, _, _ = guard
    said = [sign_in(client, password="wrong word") for _ in range(6)]
    assert [a.status_code for a in said] == [401] * 5 + [429]
    assert "do not belong together" in said[0].text and "wait 2 s" in said[5].text
    assert int(said[5].headers["retry-after"]) >= 1
    assert sign_in(client).status_code == 429  # the right one has to wait too


def test_the_login_page_is_plain_and_escapes_what_it_is_given(guard: tuple[TestClient, Users, StubDesk]) -> None:
    client, _, _ = guard
    page = client.get("/login", params={"next": '?x="><script>alert(1)</script>'})
    assert page.status_code == 200 and "<script" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert 'value="$next"' in login_page("", "$next").decode()  # what was given is not looked into
    for target in ("https://elsewhere.org", "//elsewhere.org", "/\\elsewhere.org", "javascript:alert(1)"):
        assert sign_in(client, next=target).headers["location"] == "./"


def test_other_sites_cannot_post(guard: tuple[TestClient, Users, StubDesk]) -> None:
    client, _, _ = guard
    sign_in(client)
    for path in ("/api/runs/delete", "/logout", "/gradio_api/queue/join", "/login"):
        answer = client.post(path, headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 403 and "another site" in answer.json()["error"]
    assert client.get("/api/runs").status_code == 200
