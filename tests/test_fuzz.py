"""No request makes a server error: a few hostile ones to every route, and those that once did."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import recordings
from fastapi.testclient import TestClient

from decoders.errors import UserError
from decoders.folders import typed_path
from specviz.shell import sound
from specviz.shell.toolkit import upload_folder
from tests.fuzz import Fuzz, answer_to, routes_of
from tests.hostile import Request, multipart

from .recordings import save_trace
from .stubs import StubDesk, app_of, client_of
from .waiting import WAIT_S

JSON = {"content-type": "application/json"}
NOT_JSON = "What was sent is not JSON: a number in it is not finite, or a text not Unicode."
LONG = "x" * 5000


@pytest.fixture(scope="module")
def desk() -> StubDesk:
    return StubDesk(gallery=(recordings.chain(),))


@pytest.fixture(scope="module")
def client(desk: StubDesk) -> Iterator[TestClient]:
    with client_of(desk, raise_server_exceptions=False) as made:
        yield made


@pytest.mark.slow("hundreds of requests to every route")
def test_hostile_requests_are_never_a_server_error(tmp_path: Path) -> None:
    """A few to every route of the app, the assistants' included, in each of its forms but for a real model's."""
    fuzz = Fuzz(tmp_path, model=False)
    asyncio.run(fuzz.run(700, 20))
    asked = {route.partition(": ")[2] for route in fuzz.seen}
    assert {str(route) for form in fuzz.forms for route in routes_of(form.app)} <= asked
    assert {route.partition(": ")[0] for route in fuzz.seen} == {"own", "accounts", "public"}
    assert fuzz.failures == [], "\n".join(map(str, fuzz.failures[:3]))


def test_a_sender_who_leaves_in_the_middle_of_a_file_is_no_error(desk: StubDesk) -> None:
    body = multipart("a.txt", b"x" * 50)
    headers = (("host", "127.0.0.1"), ("content-type", "multipart/form-data; boundary=x"))
    sent = Request("POST", "/gradio_api/upload", headers, body, pieces=2, cut=True)
    answer = asyncio.run(answer_to(app_of(desk), sent))
    assert (answer.status, answer.error) == (400, "")


def test_two_streams_of_one_page_that_both_end_are_no_error(desk: StubDesk) -> None:
    """The second finds that the first has taken its session away."""
    app = app_of(desk)
    session = "the-page"

    async def leave_twice() -> list[str]:
        (gradio,) = (route.app for route in app.routes if getattr(route, "path", None) == "")
        gradio.get_blocks()._queue.pending_messages_per_session[session] = asyncio.Queue()
        sent = Request("GET", f"/gradio_api/queue/data?session_hash={session}", (("host", "127.0.0.1"),), b"")
        return [answer.error for answer in await asyncio.gather(*(answer_to(app, sent) for _ in range(2)))]

    assert asyncio.run(leave_twice()) == ["", ""]


@pytest.mark.parametrize("body", ['{"ids": [], "add": NaN}', '{"ids": [], "n": 1e999}', '{"ids": ["\\ud800"]}'])
@pytest.mark.parametrize("path", ["/api/runs/change", "/gradio_api/run/predict", "/gradio_api/queue/join"])
def test_what_python_reads_and_json_is_not_is_one_sentence(client: TestClient, path: str, body: str) -> None:
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code == 422 and answer.json() == {"error": NOT_JSON}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((f"{folder}{LONG}", 404) for folder in ("/assets/", "/static/", "/web/", "/gradio_api/file=", "/")),
        ("/static/%00", 404),
        ("/?page=nowhere", 404),
        *((f"/gradio_api/{name}", 404) for name in ("proxy=http://[::1", "custom_component/1/a/b/c", "deep_link")),
    ],
)
def test_an_address_that_leads_nowhere_is_one_sentence(client: TestClient, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status_code == status and answer.json()["error"].endswith(".")


@pytest.mark.parametrize(
    ("path", "sent", "status", "said"),
    [
        ("run/predict", {"data": [], "fn_index": "go"}, 422, "The fields that were sent are not those of the form"),
        ("run/predict", {"data": 1}, 422, "data"),
        ("run/nowhere", {"data": []}, 404, "There is no such endpoint"),
        ("call/nowhere", {"data": []}, 404, "There is no such endpoint"),
        ("run/predict", {"data": [], "fn_index": -(10**19)}, 404, "There is no such endpoint"),
        ("queue/join", {"data": [], "fn_index": 0, "session_hash": ""}, 422, "“session_hash”, is empty"),
        ("call/v2/nowhere", {}, 404, "There is no such endpoint"),
        ("call/v2/run", {}, 422, "No value provided for required argument: prompt."),
        ("call/v2/run", {"prompt": "a", "zeta": 1}, 422, "zeta"),
        ("call/v2/trace_summary", {}, 422, "No value provided for required argument: trace_id"),
        *(("queue/join", {"data": [], "fn_index": n, "session_hash": "x"}, 404, "There is no such endpoint")
          for n in (-1, 999, 2**63)),
        ("component_server", {"component_id": -1, "fn_name": "x", "session_hash": "x"}, 404, "There is no such page"),
    ],
)
def test_what_does_not_fit_the_form_is_one_sentence(
    client: TestClient, path: str, sent: dict[str, Any], status: int, said: str
) -> None:
    if sent.get("fn_index") == "go":  # the event of a part that has a field
        events = client.get("/config").json()["dependencies"]
        sent = {**sent, "fn_index": next(event["id"] for event in events if event["targets"][0][-1] == "go")}
    answer = client.post(f"/gradio_api/{path}", json=sent)
    assert answer.status_code == status and said in answer.json()["error"] and answer.json()["error"].endswith(".")


def test_a_form_for_a_component_that_is_not_there_is_one_sentence(client: TestClient) -> None:
    kind = {"content-type": "multipart/form-data; boundary=x"}
    sent = (b"", b'--x\r\nContent-Disposition: form-data; name="component_id"\r\n\r\n1\r\n--x--\r\n')
    for one in sent:
        assert client.post("/gradio_api/component_server", content=one, headers=kind).status_code == 404


def test_a_form_that_is_none_is_one_sentence(client: TestClient) -> None:
    kind = {"content-type": "multipart/form-data; boundary=" + "x" * 300}
    answer = client.post("/gradio_api/upload", content=b"0", headers=kind)
    assert answer.status_code == 400 and answer.json() == {"error": "What was sent is no form with files."}
    kind = {"content-type": "multipart/form-data; boundary=x"}
    for query, name in (("?upload_id=x", "a"), ("", "files")):
        field = f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\nb\r\n--x--\r\n'
        answer = client.post(f"/gradio_api/upload{query}", content=field, headers=kind)
        assert answer.status_code == 400 and answer.json() == {"error": "What was sent is no form with files."}


def test_an_error_of_the_server_stays_one_and_is_logged(
    client: TestClient, desk: StubDesk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Negative control: nothing that breaks for another reason is called the sender's mistake."""

    def break_down(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(desk, "catalog", break_down)
    with TestClient(client.app) as careful, pytest.raises(KeyError, match="a bug"):
        careful.get("/api/methods")
    assert client.get("/api/methods").status_code == 500
    monkeypatch.setattr(sound.gr.Blocks, "preprocess_data", break_down)
    assert client.post("/gradio_api/run/predict", json={"data": [], "fn_index": 0}).status_code == 500


def test_two_who_upload_the_same_file_both_open_it(client: TestClient, desk: StubDesk) -> None:
    """Gradio names an upload by what is in it: both have the same path."""
    data = save_trace(recordings.quote())
    sent = [client.post("/gradio_api/upload", files={"files": ("a.spectrace", data)}).json()[0] for _ in range(2)]
    assert sent[0] == sent[1]
    gate = threading.Barrier(2)

    def open_file(_: int) -> str:
        gate.wait(WAIT_S)
        return client.post("/api/inspect/open", json={"path": sent[0]}).json()["id"]

    with ThreadPoolExecutor(2) as pool:
        opened = list(pool.map(open_file, range(2)))
    assert len(set(opened)) == 2 and all(key in desk.store for key in opened)
    open_file_again = client.post("/gradio_api/upload", files={"files": ("a.spectrace", data)}).json()[0]
    assert open_file_again == sent[0] and Path(sent[0]).is_file()


def test_only_uploads_are_opened(client: TestClient, tmp_path: Path) -> None:
    """A path of this machine's is none, whatever it holds or leads to."""
    (tmp_path / "a.spectrace").write_bytes(save_trace(recordings.quote()))
    folder = upload_folder()
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / f"link-{tmp_path.name}"
    link.symlink_to(tmp_path / "a.spectrace")
    try:
        for path in (tmp_path / "a.spectrace", link, folder / ".." / "x", folder, "/etc/passwd", "", "\0", "x" * 900):
            answer = client.post("/api/inspect/open", json={"path": str(path)})
            assert answer.status_code == 422 and "choose one again" in answer.json()["error"], path
    finally:
        link.unlink()


ODD_PATHS = ("x" * 300, "/" + "a/" * 4000, "~nobody-here/x", "/tmp/\x00")


@pytest.mark.parametrize("text", ODD_PATHS)
def test_a_text_that_can_be_no_path_is_one_sentence(text: str) -> None:
    with pytest.raises(UserError, match=r"cannot be a path .*: give that of a file or folder on this machine"):
        typed_path(text)


@pytest.mark.parametrize("text", ODD_PATHS)
def test_a_typed_path_that_can_be_none_is_one_sentence(client: TestClient, desk: StubDesk, text: str) -> None:
    """Wherever a page takes a path: a recorder's folder, another model."""
    desk.loader.pick = lambda *_: None
    try:
        answers = [client.post("/api/models/choose", json={"model": text})]
        if "servers" in desk.services:  # an annex's
            answers.append(client.post("/api/servers/ask", json={"folder": text}))
    finally:
        desk.loader.pick = None
    for answer in answers:
        assert answer.status_code == 422 and answer.json()["error"].endswith("."), answer.text


def test_an_event_of_the_browser_alone_is_no_endpoint(client: TestClient) -> None:
    """Gradio lists those events with the others, and they have no function here."""
    events = client.get("/config").json()["dependencies"]
    browser = [event for event in events if not event["backend_fn"]]
    assert browser
    for event in browser:
        sent = {"data": [None] * len(event["inputs"]), "fn_index": event["id"], "session_hash": "x"}
        answer = client.post("/gradio_api/run/predict", json=sent)
        assert answer.status_code == 422 and "There is no such endpoint" in answer.json()["error"]
