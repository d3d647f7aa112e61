"""Requests that are answered: the server's own names and its own page, over real sockets; and heads that do not
come.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import recordings
from fastapi.testclient import TestClient
from starlette.datastructures import Headers

from specviz.cli import main
from specviz.server.connection import Connection
from specviz.server.guard import SESSION
from specviz.server.hosts import Hosts
from specviz.server.users import Users, hash_password, write_users

from .stubs import StubDesk, app_of, serving
from .waiting import WAIT_S, until

OWN = Hosts()
EVIL = "http://evil.example"
READS = (
    "/", "/login", "/api/runs", "/api/traces/gallery-0", "/api/live/gallery-0", "/api/status", "/config", "/theme.css",
    "/gradio_api/info", "/gradio_api/queue/data?session_hash=x", "/gradio_api/heartbeat/x",
)  # fmt: skip
WRITES = ("/api/runs/delete", "/api/compare/start", "/gradio_api/queue/join", "/gradio_api/call/run",
          "/gradio_api/upload", "/logout")  # fmt: skip


@pytest.fixture(scope="module")
def desk() -> StubDesk:
    return StubDesk(gallery=(recordings.chain(),))


@pytest.fixture(scope="module")
def port(desk: StubDesk) -> Iterator[int]:
    with serving(desk, hosts=OWN) as number:
        assert desk.loader.wait(WAIT_S)
        yield number


def raw(port: int, text: str) -> tuple[int, str]:
    """Status and whole answer to bytes as they are, over a socket; an endless answer is left with its first part."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as link:
        link.sendall(text.encode("latin-1"))
        got = b""
        while b"\r\n\r\n" not in got and (part := link.recv(65536)):
            got += part
        if b"text/event-stream" not in got:
            while part := link.recv(65536):
                got += part
    return int(got.split(b" ", 2)[1]) if got else 0, got.decode("utf-8", "replace")


def head(path: str, *headers: str, method: str = "GET") -> str:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Connection: close", *headers, "", ""))


@pytest.mark.parametrize("path", READS)
def test_another_hosts_name_is_answered_by_no_route(port: int, path: str) -> None:
    status, got = raw(port, head(path, f"Host: evil.example:{port}"))
    assert status == 403 and "was asked for “evil.example”" in got and "--allow-host evil.example" in got
    assert "specviz_browser" not in got and "gradio" not in got


@pytest.mark.parametrize("path", WRITES)
def test_another_hosts_name_writes_nothing(port: int, path: str) -> None:
    """A rebound name is one origin with the server, for the browser."""
    sent = ("Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: same-origin", "Content-Length: 0")
    assert raw(port, head(path, *sent, method="POST"))[0] == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST", "localhost:1", "127.0.0.1:65535"])
def test_this_machines_names_are_answered_at_any_port(port: int, host: str) -> None:
    """A tunnel's port is another one."""
    assert raw(port, head("/api/status", f"Host: {host}"))[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ((), 400),
        (("Host: localhost", "Host: evil.example"), 400),
        (("Host: evil.example", "Host: localhost"), 400),
        (("Host:",), 403),
        (("Host: localhost, evil.example",), 403),
        (("Host: localhost@evil.example",), 403),
        (("Host: evil.example/login?",), 403),
        (("Host: localhost/login?",), 403),
        (("Host: localhost#",), 403),
        (("Host: localhost:80:80",), 403),
        (("Host: localhost:",), 403),
        (("Host: localhost.evil.example",), 403),
        (("Host: 127.0.0.1.evil.example",), 403),
        (("Host: evil-localhost",), 403),
        (("Host: 0.0.0.0",), 403),
        (("Host: 192.0.2.1",), 403),
        (("Host: [::ffff:127.0.0.1]",), 403),
        (("Host: localhost", "X-Forwarded-Host: evil.example"), 403),
        (("Host: localhost", "X-Forwarded-Host: localhost, evil.example"), 403),
        (("Host: \xe9\xff",), 403),
    ],
)
def test_a_host_that_is_none_or_not_ours(port: int, sent: tuple[str, ...], status: int) -> None:
    got = raw(port, head("/api/runs", *sent))
    assert got[0] == status and "gallery-0" not in got[1]


@pytest.mark.parametrize("target", ["http://evil.example/api/runs", "http://localhost/api/runs", "*", "evil.example"])
def test_a_target_with_a_host_of_its_own_is_refused(port: int, target: str) -> None:
    status, got = raw(port, head(target, "Host: localhost"))
    assert status == 400 and "gallery-0" not in got


@pytest.mark.parametrize("path", [*READS, *WRITES])
@pytest.mark.parametrize(
    "sent",
    [
        ("Origin: http://localhost:7999", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors"),
        ("Origin: http://localhost:7999",),
        ("Origin: null", "Sec-Fetch-Site: cross-site"),
        ("Origin: null",),
        (f"Origin: {EVIL}", "Sec-Fetch-Site: cross-site"),
        ("Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"),
        ("Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"),
        ("Sec-Fetch-Site: sideways",),
    ],
)
def test_a_page_of_another_origin_neither_reads_nor_writes(port: int, path: str, sent: tuple[str, ...]) -> None:
    for method in ("POST",) if path in WRITES else ("GET", "POST"):
        body = () if method == "GET" else ("Content-Type: text/plain", "Content-Length: 0")
        status, got = raw(port, head(path, f"Host: localhost:{port}", *sent, *body, method=method))
        assert status == 403 and "another site or port" in got and "access-control" not in got.lower()


@pytest.mark.parametrize("path", ["/api/runs/delete", "/gradio_api/queue/join", "/"])
@pytest.mark.parametrize("origin", ["http://localhost:7999", "null", EVIL])
def test_no_preflight_lets_another_origin_in(port: int, path: str, origin: str) -> None:
    asked = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")
    status, got = raw(port, head(path, "Host: localhost", f"Origin: {origin}", *asked, method="OPTIONS"))
    assert status == 403 and "access-control" not in got.lower()


def test_the_own_page_programs_and_links_are_answered(port: int) -> None:
    here = f"Host: localhost:{port}"
    own = (f"Origin: http://localhost:{port}", "Sec-Fetch-Site: same-origin")
    kind = ("Content-Type: application/json", "Content-Length: 2")
    for sent in (own, own[:1], own[1:], (), ("Sec-Fetch-Site: none",)):
        status, got = raw(port, head("/api/runs", here, *sent))
        assert status == 200 and "gallery-0" in got and "access-control" not in got.lower()
        assert raw(port, head("/api/runs/stop", here, *kind, *sent, method="POST") + "{}")[0] == 422  # its form's
    link = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document")
    assert raw(port, head("/?tab=runs", here, *link))[0] == 200
    assert raw(port, head("/gradio_api/info", here, *link))[0] == 403


def test_a_visitor_reads_why_in_one_sentence(port: int) -> None:
    status, got = raw(port, head("/", "Host: my-server", "Accept: text/html"))
    assert status == 403 and "<p>This server answers to localhost, 127.0.0.1 and [::1], and was asked for “my-" in got
    status, got = raw(port, head("/", "Host: <b>", "Accept: text/html"))
    assert status == 403 and "<b>" not in got


@pytest.mark.parametrize(
    ("hosts", "answered", "refused"),
    [
        (Hosts.of("127.0.0.1"), ("localhost",), ("192.0.2.1", "example.org")),
        (Hosts.of("gpu7"), ("gpu7", "GPU7:80", "localhost"), ("gpu7.example.org", "192.0.2.1")),
        (Hosts.of("2001:db8::1"), ("[2001:db8::1]:7860",), ("[2001:db8::2]",)),
        (Hosts.of("127.0.0.1", ["Spec.example.org"]), ("spec.example.org", "localhost:9"), ("a.spec.example.org",)),
        (Hosts.of("0.0.0.0"), ("192.0.2.1:7860", "[2001:db8::1]", socket.gethostname()), ("a.org", "1.2.3.4.nip.io")),
        (Hosts.of("::"), ("10.0.0.1", "localhost"), ("example.org", "999.0.0.1", "0x7f.1")),
        (Hosts.of("0.0.0.0", ["*"]), ("example.org", "a.b"), ("a b", "a/b")),
    ],
)  # fmt: skip
def test_names_of_a_server_that_others_reach(hosts: Hosts, answered: tuple[str, ...], refused: tuple[str, ...]) -> None:
    assert [name for name in answered if hosts.refusal(Headers({"host": name}))] == []
    assert [name for name in refused if not hosts.refusal(Headers({"host": name}))] == []


def test_any_address_is_said_last() -> None:
    assert ".local and any IP address, and was asked" in Hosts.of("::").refusal(Headers({"host": "example.org"}))


def test_a_space_answers_to_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_HOST", "me-specviz.hf.space")
    sent = Headers({"host": "me-specviz.hf.space"})
    assert Hosts.of("0.0.0.0").refusal(sent) == "" and Hosts.of("127.0.0.1").refusal(sent)


def test_a_space_is_shown_in_the_hubs_frame_and_in_no_other(desk: StubDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_HOST", "me-specviz.hf.space")
    framing = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe", "sec-fetch-site": "cross-site"}
    for hosts, host, status in ((Hosts.of("0.0.0.0"), "me-specviz.hf.space", 200), (OWN, "localhost", 403)):
        with TestClient(app_of(desk, hosts=hosts)) as client:
            page = client.get("/", headers={**framing, "host": host})
            assert page.status_code == status
            policy = page.headers["content-security-policy"]
            assert policy.endswith("frame-ancestors 'self'" + " https://huggingface.co" * (status == 200))
            if status == 200:  # a browser keeps no Lax cookie there
                assert "SameSite=None; Secure; Partitioned" in page.headers["set-cookie"]
            fetching = {**framing, "sec-fetch-mode": "cors", "sec-fetch-dest": "empty", "host": host}
            assert client.get("/api/runs", headers=fetching).status_code == 403


@pytest.mark.parametrize("name", ["http://a.org", "a.org:80", "a.org/x", "", "*.a.org", "a b"])
def test_a_name_that_is_none_is_told_at_the_start(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "--allow-host", name]) == 2
    said = capsys.readouterr().err
    assert "--allow-host" in said and "give a name or an address alone" in said


def test_nobody_signs_in_by_a_host(tmp_path: Path) -> None:
    """Starlette before 1.0 made a request's path of its Host."""
    write_users(tmp_path / "users", {"ann": hash_password("open sesame", cost=(2, 1, 1))})
    app = app_of(StubDesk(gallery=(recordings.chain(),)), Users(tmp_path / "users"), Hosts.of("127.0.0.1", ["*"]))
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        for host in ("x/login?", "localhost/login?", "localhost/login#", "x"):
            answer = client.get("/api/runs", headers={"host": host, "cookie": f"{SESSION}=x"})
            assert answer.status_code in (401, 403) and "gallery-0" not in answer.text


def test_a_path_is_the_requests_own(tmp_path: Path) -> None:
    """Whatever the Host: the guard is asked beneath the check of names."""
    write_users(tmp_path / "users", {"ann": hash_password("open sesame", cost=(2, 1, 1))})
    hosts = Hosts()
    object.__setattr__(hosts, "refusal", lambda headers: "")
    app = app_of(StubDesk(gallery=(recordings.chain(),)), Users(tmp_path / "users"), hosts)
    with TestClient(app, base_url="http://localhost", follow_redirects=False) as client:
        answer = client.get("/api/runs", headers={"host": "x/login?"})
        assert answer.status_code == 401 and json.loads(answer.text)["error"].startswith("You are not signed in")


@pytest.mark.slow("waits for a limit of time")
def test_a_head_that_does_not_come_ends_its_connection(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, wait = threading.Event(), Connection._wait_for_head

    def wait_for_what_is_sent(connection: Connection) -> None:
        """The server's clock starts behind what the client sends, however late that is."""
        assert sent.wait(WAIT_S)
        wait(connection)

    monkeypatch.setattr(Connection, "_wait_for_head", wait_for_what_is_sent)
    whole = f"GET /api/status HTTP/1.1\r\nHost: localhost:{port}\r\n"
    for first, begun in (("", ""), ("", "GET / HTTP/1.1\r\nHost: local"), ("", whole + "\r\n" + whole), (whole, whole)):
        sent.clear()
        monkeypatch.setattr(Connection, "head_s", WAIT_S if first else 0.5)
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as link:
            got = b""
            if first:  # a whole request: its head is answered, and only the next one has half a second
                link.sendall(f"{first}\r\n".encode())
                sent.set()
                while not got.endswith(b"}") and (part := link.recv(65536)):
                    got += part
                assert got.startswith(b"HTTP/1.1 200")
                monkeypatch.setattr(Connection, "head_s", 0.5)
            link.sendall(begun.encode())
            sent.set()
            since = time.monotonic()
            while part := link.recv(65536):
                got += part
            whole_one = first or "\r\n\r\n" in begun
            assert time.monotonic() - since < WAIT_S and got.startswith(b"HTTP/1.1 200" if whole_one else b"")
            assert b"HTTP/1.1 4" not in got and got.count(b"HTTP/1.1 ") == bool(whole_one)


def test_a_body_may_take_its_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock runs any more once the head is there."""
    monkeypatch.setattr(Connection, "head_s", WAIT_S)
    wait, clocks = Connection._wait_for_head, []

    def look(connection: Connection) -> None:
        wait(connection)
        clocks.append(connection._late)

    monkeypatch.setattr(Connection, "_wait_for_head", look)
    sent = head("/api/runs/stop", f"Host: localhost:{port}", "Content-Type: application/json", "Content-Length: 2",
                method="POST")  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as link:
        until(lambda: clocks, "the connection is made")
        (clock,) = clocks
        assert clock is not None and not clock.cancelled()
        link.sendall(sent.encode())
        until(lambda: len(clocks) > 1, "the head is there")
        assert clock.cancelled() and clocks[1:] == [None]
        link.sendall(b"{}")
        assert link.recv(65536).startswith(b"HTTP/1.1 422")
