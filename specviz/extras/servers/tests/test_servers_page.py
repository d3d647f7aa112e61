"""Connecting a server: the prompt that it is sent, its acceptance while it answers, the run; and what goes wrong."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from decoders.errors import UserError
from decoders.importers import open_log
from specviz.server.http import COOKIE
from specviz.server.limits import Rules
from tests import recordings
from tests.stubs import StubDesk, client_of
from tests.waiting import WAIT_S, until

from .. import page as service
from ..answer import HttpAnswer
from ..client import AnswerStream, Server, ServerFault, checked_address, find_server
from ..recorder import ServerRecorder
from ..watching import Metrics
from .model_server import SERVERS, llama_chunks, model_server
from .test_server_recorder import VOCAB, batch, recording

PROMPT = {"mode": "segments", "instruction": "Count.", "context": "one\n---\ntwo", "question": "<b>How</b> many?"}


@pytest.fixture
def desk(home: Path) -> StubDesk:
    return StubDesk(gallery=(recordings.chain(),))


@pytest.fixture
def client(desk: StubDesk) -> Iterator[TestClient]:
    with client_of(desk) as made:
        made.cookies.set(COOKIE, "0" * 32)
        yield made


def ask(client: TestClient, **sent: Any) -> dict[str, Any]:
    answer = client.post("/api/servers/ask", json={"prompt": PROMPT, **sent})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refuse(client: TestClient, status: int = 422, **sent: Any) -> str:
    answer = client.post("/api/servers/ask", json={"prompt": PROMPT, **sent})
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def now(client: TestClient, one: dict[str, Any]) -> dict[str, Any]:
    return client.get(f"/api/servers/of/{one['id']}").json()


def over(client: TestClient, one: dict[str, Any]) -> dict[str, Any]:
    return until(lambda: (seen := now(client, one))["done"] and seen, "the connection is over")


def test_a_plain_vllm_is_asked_and_its_run_arrives_as_any_other(client: TestClient, desk: StubDesk) -> None:
    with model_server() as server:
        server.pause = 20
        one = ask(client, address=f" {server.address}/v1/ ", key="secret", max_new_tokens=48)
        until(lambda: now(client, one)["text"], "the first text is there while the server answers")
        server.counts = {"drafts": 14, "drafted": 70, "accepted": 18, "tokens": 60}
        seen = until(lambda: (a := now(client, one)["acceptance"])["drafts"] and a, "the metrics were looked at")
        assert (seen["drafts"], seen["drafted"], seen["accepted"], seen["tokens"]) == (4, 20, 6, 20), "since it began"
        assert seen["mean_length"] == 2.5 and seen["by_position"] == [1.5] and not now(client, one)["done"]
        server.gate.set()
        end = over(client, one)
        body = server.asked[0]
        assert server.keys[0] == "Bearer secret" and "secret" not in str(end)
    assert body["path"] == "/v1/chat/completions" and body["vllm_xargs"] == {"specviz": 1}
    assert body["messages"][0]["content"] == "Count.\n\n[1] one\n[2] two\n\n<b>How</b> many?"
    assert (body["max_tokens"], body["model"], body["return_token_ids"]) == (48, "toy", True)
    assert end["problem"] == "" and end["server"] == "vLLM: toy"
    (expected,) = open_log((SERVERS / "vllm_numbers.jsonl").read_bytes()).traces
    trace = desk.trace(end["traces"][0])
    assert trace.output_ids == expected.output_ids and trace.prompt_ids == expected.prompt_ids
    assert trace.tables["steps"]["accepted"] == expected.tables["steps"]["accepted"]
    assert end["text"] == expected.text(expected.output_ids)
    assert trace.run["title"] == "Count."
    rows = client.get("/api/runs").json()["runs"]
    assert [row["title"] for row in rows if row["id"] == trace.run["id"]] == ["Count."]
    assert len(client.get(f"/api/servers/of/{one['id']}?after=5").json()["text"]) == len(end["text"]) - 5


def test_llama_cpps_chunks_tell_its_drafts(client: TestClient, desk: StubDesk) -> None:
    with model_server("llamacpp", llama_chunks()) as server:
        end = over(client, ask(client, address=server.address, prompt={"mode": "chat", "text": "Say it."}))
        paths = [body["path"] for body in server.asked]
    assert paths == ["/apply-template", "/completion"] and server.asked[1]["prompt"] == "<|Say it.|>"
    run = desk.trace(end["traces"][0]).run
    seen = end["acceptance"]
    assert seen["drafted"] == run["metrics"]["drafted"] > 0 and seen["accepted"] == run["metrics"]["accepted"]
    assert seen["tokens"] == run["metrics"]["tokens"] and len(seen["by_position"]) > 1 and seen["per_second"] > 0


def test_the_recorders_file_is_taken_where_its_folder_is_named(
    client: TestClient, desk: StubDesk, tmp_path: Path
) -> None:
    """Its name holds the request's id; another request's file is left alone. A text goes to /v1/completions."""
    folder = tmp_path / "runs"
    recorder = ServerRecorder(folder, "vllm-recorder", "vLLM, recorded")
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(1))
    with model_server() as server:
        key = server.chunks[0]["id"]
        folder.mkdir()
        server.pause = 5
        one = ask(client, address=server.address, folder=str(folder), prompt={"mode": "text", "text": "on and on"})
        for name, token in ((f"{key}-0a1b", 8), ("chatcmpl-other", 9)):
            new = recording(name)
            recorder.begin(new)
            recorder.step(batch([[token, 3]], [[token]], logits, [new]))
            recorder.flush()
        seen = until(lambda: (a := now(client, one)["acceptance"])["drafts"] == 2 and a, "the folder was looked at")
        assert seen["mean_length"] == 2.0 and seen["by_position"] == [1.0]
        recorder.end([f"{key}-0a1b", "chatcmpl-other"])
        server.gate.set()
        end = over(client, one)
        assert server.asked[0]["path"] == "/v1/completions" and server.asked[0]["prompt"] == "on and on"
    recorder.close()
    (trace,) = map(desk.trace, end["traces"])
    assert trace.output_ids == [8, 3] and trace.run["imported"]["source"] == "vllm-recorder" and end["problem"] == ""


def test_a_recorder_that_wrote_nothing_loses_nothing(
    client: TestClient, desk: StubDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "RECORDER_S", 0.2)
    with model_server() as server:
        end = over(client, ask(client, address=server.address, folder=str(tmp_path)))
    assert "wrote no file of this request" in end["note"]
    assert desk.trace(end["traces"][0]).run["imported"]["source"] == "vllm"


def test_a_watched_folders_runs_arrive_until_it_is_stopped(client: TestClient, desk: StubDesk, tmp_path: Path) -> None:
    recorder = ServerRecorder(tmp_path, "vllm-recorder", "vLLM, recorded")
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(1))

    def write(name: str) -> None:
        new = recording(name)
        recorder.begin(new)
        recorder.step(batch([[8, 3]], [[8]], logits, [new]))
        recorder.end([name])
        recorder.flush()

    write("before")
    old = next(tmp_path.glob("*.spectrace"))
    old.rename(tmp_path / "old.txt")
    one = ask(client, folder=str(tmp_path))
    write("first")
    (tmp_path / "broken-x.spectrace").write_bytes(b"no trace")
    seen = until(lambda: (s := now(client, one))["traces"] and s["problem"] and s, "a run arrived")
    assert seen["acceptance"]["requests"] == 1 and not seen["done"]
    assert "broken-x.spectrace cannot be opened" in seen["problem"]
    write("second")
    assert client.post("/api/servers/stop", json={"id": one["id"]}).status_code == 200
    end = over(client, one)
    titles = [desk.trace(key).run["title"].split(": ")[-1] for key in end["traces"]]
    assert titles == ["first", "second"]
    recorder.close()


def test_a_server_that_dies_leaves_what_it_wrote(client: TestClient, desk: StubDesk) -> None:
    with model_server() as server:
        server.dies = 12
        end = over(client, ask(client, address=server.address))
        assert end["problem"].endswith("ended in the middle of its answer.") and end["text"]
        trace = desk.trace(end["traces"][0])
        assert len(trace.output_ids) >= 11 and trace.text(trace.output_ids) == end["text"]
        assert any("in the middle" in note for note in trace.run["imported"]["notes"])
        server.dies = 0
        end = over(client, ask(client, address=server.address))
        assert not end["traces"] and "in the middle" in end["problem"]


def test_a_request_that_is_stopped_keeps_what_came(client: TestClient, desk: StubDesk) -> None:
    with model_server() as server:
        server.pause = 9
        one = ask(client, address=server.address)
        until(lambda: now(client, one)["text"], "text came")
        client.post("/api/servers/stop", json={"id": one["id"]})
        end = over(client, one)
    assert end["problem"] == "" and desk.trace(end["traces"][0]).output_ids


def test_a_hostile_server_is_only_text(client: TestClient, desk: StubDesk) -> None:
    text = "<script>alert(1)</script>\u202e ../../x"
    chunks = [
        {"id": "../../etc/x", "object": "chat.completion.chunk", "model": text,
         "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]},
        {"choices": 3, "usage": [], "timings": {"draft_n": "x"}, "id": 7},
        {"choices": [{"index": 0, "delta": {"content": None, "tool_calls": [{"function": {"arguments": text}}]}}]},
    ]  # fmt: skip
    with model_server("me", chunks) as server:
        end = over(client, ask(client, address=server.address))
    assert end["text"] == text and end["server"] == "OpenAI-like: toy"
    trace = desk.trace(end["traces"][0])
    assert trace.text(trace.output_ids) == text and "tokens.id" in trace.run["unknown"]


def test_bad_addresses_and_servers_are_a_sentence_each(client: TestClient) -> None:
    assert "does not answer" in refuse(client, address="http://127.0.0.1:9")
    assert "Give a server's address" in refuse(client)
    assert "is no folder" in refuse(client, folder="/nowhere/at/all")
    assert "prompt is empty" in refuse(client, address="http://127.0.0.1:9", prompt={"mode": "text", "text": " "})
    assert "1 to 4,096" in refuse(client, address="http://127.0.0.1:9", max_new_tokens=0)
    with model_server() as server:
        for path, answer, words in (
            ("/v1/models", (200, "<html>"), "does not answer in JSON"),
            ("/v1/models", (200, '{"data": []}'), "names no model"),
            ("/v1/models", (401, "no"), "API key"),
            ("/v1/models", (302, "http://169.254.169.254/latest"), "answers 302"),
            ("/v1/models", (404, '{"error": {"message": "a\\nb\\u0007"}}'), "answers 404: a b"),
        ):
            server.answers = {path: answer}
            assert words in refuse(client, address=server.address), words
        server.answers = {"/v1/chat/completions": (400, '{"error": {"message": "too long: 9 tokens"}}')}
        end = over(client, ask(client, address=server.address))
        assert "answers 400: too long: 9 tokens" in end["problem"] and not end["traces"]
        server.answers = {"/metrics": (404, "")}
        end = over(client, ask(client, address=server.address))
        assert "acceptance is not shown" in end["note"] and end["acceptance"]["tokens"] and end["traces"]
        server.answers, server.chunks = {}, [{"error": {"message": "engine is dead"}}]
        assert "answers: engine is dead" in over(client, ask(client, address=server.address))["problem"]


@pytest.mark.parametrize(
    "text", ["", "file:///etc/passwd", "ftp://x", "http://", "http://a b", "http://u:p@host", "http://x:99999", "x:1",
             "http://h/?a=1", "http://é"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ServerFault, match=r"is no address of a server: give http://HOST:PORT"):
        checked_address(text)


def test_only_the_owner_of_an_app_may_connect(client: TestClient, desk: StubDesk) -> None:
    with model_server() as server:
        one = over(client, ask(client, address=server.address))
        desk.keep_to(Rules(public=True))
        assert "Only the owner" in refuse(client, 403, address=server.address)
        desk.keep_to(Rules(accounts=True))
        assert "Only the owner" in refuse(client, 403, folder="/tmp")
        desk.services["servers"]._tasks.find(one["id"]).owner = "another browser"
        assert client.get(f"/api/servers/of/{one['id']}").status_code == 404
        assert client.post("/api/servers/stop", json={"id": one["id"]}).status_code == 404


def test_few_connections_at_once(client: TestClient) -> None:
    with model_server() as server:
        server.pause = 3
        asked = [ask(client, address=server.address) for _ in range(service.AT_ONCE)]
        assert "wait for one" in refuse(client, 429, address=server.address)
        server.gate.set()
        assert not [end["problem"] for one in asked if (end := over(client, one))["problem"]]


def test_a_server_that_hangs_up_leaves_no_socket_open() -> None:
    """It hangs up on a request that is longer than what the system takes on unread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(WAIT_S)
        hang_up = threading.Thread(target=lambda: listening.accept()[0].close())
        hang_up.start()
        gc.collect()  # of other tests' sockets nobody warns below
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(ServerFault, match="does not answer"):
                Server(f"http://127.0.0.1:{listening.getsockname()[1]}", "vLLM", "toy").post("/", "x" * (32 << 20))
            gc.collect()
        hang_up.join(WAIT_S)
        assert not hang_up.is_alive()
    assert not [w for w in caught if w.category is ResourceWarning and "unclosed <socket" in str(w.message)]


def test_a_hostile_stream_leaves_the_run_of_what_was_read(
    client: TestClient, desk: StubDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More chunks than are read, and one chunk of more tokens than a run may have."""
    few = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
    for chunks, many, words in (
        ([few] * 400, 300, "more than 300"), ([few, {"choices": [{"delta": {}, "token_ids": [1] * 1_000_000}]}], 20_000,
                                              "more than 20,000 tokens"),
    ):  # fmt: skip
        monkeypatch.setattr("specviz.extras.servers.client.MOST_CHUNKS", many)
        with model_server("vllm", chunks) as server:
            end = over(client, ask(client, address=server.address))
        assert words in end["problem"] and len(end["traces"]) == 1
        trace = desk.trace(end["traces"][0])
        assert len(trace.output_ids) == (300 if many == 300 else 1)
        assert words in trace.run["imported"]["notes"][-1]


def test_a_dripping_server_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends a byte now and then, so that no single wait is ever long."""
    stop = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection = listening.accept()[0]
        with contextlib.suppress(OSError), connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while not stop.wait(0.02):
                connection.sendall(b" ")

    for call in (lambda a: HttpAnswer(a, "GET", "/v1/models", whole=0.3).json(),
                 lambda a: list(AnswerStream(Server(a, "vLLM", "toy"), "x", max_tokens=4))):  # fmt: skip
        monkeypatch.setattr("specviz.extras.servers.client.STREAM_S", 0.3)
        stop.clear()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=drip, args=(listening,))
            thread.start()
            with pytest.raises(ServerFault, match="not done within 0 s"):
                call(f"http://127.0.0.1:{listening.getsockname()[1]}")
            stop.set()
            thread.join(WAIT_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1%eth0", "::ffff:169.254.169.254", "224.0.0.1"])
def test_link_local_addresses_are_not_asked_whatever_name_leads_there(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where one of a name's addresses is another."""
    asked = list[Any]()
    monkeypatch.setattr(
        "specviz.extras.servers.answer.socket.create_connection", lambda *place, **_: asked.append(place)
    )
    places = [(0, 0, 0, "", ("127.0.0.1", 80)), (0, 0, 0, "", (address, 80))]
    monkeypatch.setattr("specviz.extras.servers.answer.socket.getaddrinfo", lambda *_, **__: places)
    with pytest.raises(ServerFault, match="link-local"):
        find_server("http://metadata.example:80")
    with pytest.raises(UserError, match="link-local"):
        Metrics("http://metadata.example:80").look()
    assert not asked


def test_metrics_follow_no_redirect_and_use_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_server() as server, model_server() as other:
        monkeypatch.setenv("http_proxy", other.address)
        assert Metrics(server.address).look().drafts == 10 and not other.keys
        server.answers["/metrics"] = (302, "moved")
        with pytest.raises(UserError, match="answers 302"):
            Metrics(server.address).look()


def test_the_length_of_a_stream_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specviz.extras.servers.client.MOST_STREAM", 2000)
    with model_server() as server:
        stream = AnswerStream(find_server(server.address), "x", max_tokens=4)
        with pytest.raises(ServerFault, match="no more are read"):
            list(stream)
        assert stream.lines and len(stream.file) < 4000
