from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import recordings
from fastapi.testclient import TestClient

from decoders.trace import files as tracefile
from decoders.trace.report import payload
from specviz.app import open_desk
from specviz.places import GALLERY
from specviz.server import http as routes
from specviz.server import routes as server
from specviz.server.forms import PromptForm, Refusal
from specviz.shell import assets as ui
from specviz.views.export import read_page, standalone_html

from .stubs import StubDesk, client_of, serving
from .waiting import WAIT_S, until

FORM = PromptForm(instruction="Do it.", context="abc")


@pytest.fixture(scope="module")
def desk() -> StubDesk:
    return StubDesk(gallery=(recordings.chain(), recordings.nasty()), pause_s=0.002)


def test_the_page_names_no_other_site_and_has_our_head(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert client.get("/api/first").json()["run"]["id"] == "gallery-0"
    script, style = ui.assets()
    assert f'<script src="web/{script}"></script>' in page.text and f'href="web/{style}"' in page.text
    for tag in ("<script src=", "<link"):
        assert not [part for part in page.text.split(tag)[1:] if part.split(">")[0].find("http") >= 0]
    assert "fonts.googleapis" not in page.text and "og:image" not in page.text


def test_every_answer_has_security_headers(client: TestClient) -> None:
    for path in ("/", "/api/status", "/api/traces/none", "/config"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'self'" in headers["content-security-policy"]
        assert "connect-src 'self'" in headers["content-security-policy"]


@pytest.mark.parametrize("name", ["/etc/passwd", "app.py", "assets/demo/target/config.json"])
def test_files_of_the_machine_are_not_served(client: TestClient, name: str) -> None:
    assert client.get(f"/gradio_api/file={name}").status_code in (403, 404)


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/api/nothing"])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 or "gradio_config" in answer.text


def test_scripts_are_named_by_their_content_and_kept_for_ever(client: TestClient) -> None:
    for name, asset in ui.assets().items():
        answer = client.get(f"/web/{name}")
        assert answer.content == asset.data and "immutable" in answer.headers["cache-control"]
    assert client.get("/web/page.js").status_code == 404
    assert client.get("/web/..%2fserver.py").status_code == 404


def test_a_trace_comes_whole_with_and_without_compression(client: TestClient, desk: StubDesk) -> None:
    whole = payload(desk.store.get("gallery-0"))
    assert client.get("/api/traces/gallery-0").json() == whole
    assert client.get("/api/traces/gallery-0").headers["content-encoding"] == "gzip"
    plain = client.get("/api/traces/gallery-0", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.json() == whole


@pytest.mark.parametrize("key", ["nonsense", "a%2f..%2fb", "%00", "x" * 300, "..", "a b"])
def test_an_unknown_trace_is_a_sentence(client: TestClient, key: str) -> None:
    answer = client.get(f"/api/traces/{key}/download")
    assert answer.status_code == 404
    if "detail" not in answer.json():
        assert answer.json()["error"].endswith(".")


@pytest.mark.parametrize("path", ["models/of", "whatif"])
def test_a_run_is_looked_up_when_it_is_asked_for(
    client: TestClient, desk: StubDesk, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    key = desk.submit_text().id

    class Slow:  # the first time torch comes with it, which takes seconds
        @property
        def other_model(self) -> Callable[..., None]:
            desk.store.remove(key)
            return lambda *_: None

    monkeypatch.setitem(sys.modules, "decoders.study.look.run_settings", Slow())
    assert client.get(f"/api/{path}/{key}").status_code == 200
    assert key not in desk.store and client.get(f"/api/models/of/{key}").status_code == 404


@pytest.mark.parametrize("format", server.FORMATS)
def test_downloads(client: TestClient, desk: StubDesk, format: str) -> None:
    answer = client.get("/api/traces/gallery-1/download", params={"format": format})
    assert answer.status_code == 200 and answer.headers["content-disposition"].startswith("attachment; filename=")
    if format == "trace":
        assert tracefile.load(answer.content).to_json() == desk.store.get("gallery-1").to_json()
    elif format == "html":
        assert "<script>alert(1)</script>" not in answer.text
        assert 'await import("specviz/opening/standalone.js")' in answer.text
        page = read_page(answer.text)
        assert json.loads(page["data"])["run"]["id"] == "gallery-1" and "specviz/base/dom.js" in page["imports"]
    else:
        assert len(answer.text.splitlines()) > 5 and "," in answer.text.splitlines()[0]


def test_the_exported_page_of_the_longest_gallery_run_is_small() -> None:
    longest = max(GALLERY.glob("*.spectrace"), key=lambda path: path.stat().st_size)
    assert len(standalone_html(tracefile.load(longest)).encode()) <= 600_000


def test_an_unknown_format_is_a_sentence(client: TestClient) -> None:
    answer = client.get("/api/traces/gallery-0/download?format=exe")
    assert answer.status_code == 422 and "use one of trace, html" in answer.json()["error"]


def test_status_and_methods(client: TestClient) -> None:
    assert client.get("/api/status").json()["model"]["text"] == "stub · 5.3M parameters · float32 · cpu"
    catalog = client.get("/api/methods").json()
    found = {m["name"]: m for m in catalog["methods"]}
    assert catalog["reason"] == "" and found["ppd"]["missing"].startswith("Prompt tokens are missing")
    assert not found["casd"]["lossless"]
    theta = found["pld"]["controls"][1]
    assert theta["optional"] and theta["default"] is None and theta["low"] == -1.0


def test_live_events_add_up_to_the_run() -> None:
    desk = StubDesk(pause_s=0.002)
    with serving(desk) as port:
        assert desk.loader.wait(WAIT_S)
        desk.gate.clear()  # until it is watched: of a run that is over there are no events
        job = desk.submit(FORM, "pld", {}, {})
        followed, _ = recordings.deltas(desk.whole())
        numbers = []
        for event in sse(port, f"/api/live/{job.id}?after=-1"):
            desk.gate.set()
            numbers.append(event["seq"])
            followed.extend(event.get("delta", {}))
            if event.get("done"):
                break
        assert numbers == list(range(len(numbers)))
        assert followed.tables["tokens"] == desk.store.get(job.id).tables["tokens"]


def test_runs_belong_to_the_browser_that_made_them(client: TestClient, desk: StubDesk) -> None:
    client.get("/")
    mine = client.cookies[routes.COOKIE]
    job = desk.submit(FORM, "pld", {}, {}, owner=mine)
    assert job.finished.wait(WAIT_S)
    assert job.id in [run["id"] for run in client.get("/api/runs").json()["runs"]]
    stranger = TestClient(client.app)
    assert job.id not in [run["id"] for run in stranger.get("/api/runs").json()["runs"]]
    assert stranger.get(f"/api/traces/{job.id}").status_code == 200  # who has the link may look


def test_cookies_are_not_trusted() -> None:
    assert routes.browser_id(None) == routes.browser_id("x=1") == routes.browser_id(f"{routes.COOKIE}=../../etc") == ""
    assert routes.browser_id(f"{routes.COOKIE}=abc; other=2") == "abc"


@pytest.mark.parametrize(
    ("form", "method", "params", "settings", "place", "words"),
    [
        (PromptForm(), "pld", {}, {}, "prompt", "empty"),
        (PromptForm("text", text="  \n"), "pld", {}, {}, "prompt", "empty"),
        (
            PromptForm("text", text="x" * 2500),
            "pld",
            {},
            {},
            "prompt",
            "2,500 tokens and the model's context holds 2,000",
        ),
        (PromptForm("text", text="x" * 500_000), "pld", {}, {}, "prompt", "500,000 characters"),
        (PromptForm("poem", text="x"), "pld", {}, {}, "prompt", "use one of segments, chat, text"),
        (PromptForm("chat", text="User: a\nAssistant: b"), "pld", {}, {}, "prompt", "last message is not the user's"),
        (FORM, "magic", {}, {}, "method", "choose one of plain, pld"),
        (FORM, "ppd", {}, {}, "method", "specviz train ppd"),
        (FORM, "pld", {"k": "500"}, {}, "method", "Draft length needs a whole number from 1 to 128; given was 500."),
        (FORM, "pld", {"k": None}, {}, "method", "given was nothing"),
        (FORM, "pld", {"k": [1]}, {}, "method", "Draft length needs a whole number"),
        (FORM, "pld", {"k": "1e999"}, {}, "method", "Draft length needs a whole number"),
        (FORM, "pld", {"theta": "nan"}, {}, "method", "Threshold needs a number from -1 to 1"),
        (FORM, "pld", {"mode": "mean"}, {}, "method", "one of max, sum"),
        (FORM, "pld", {"zeta": 1}, {}, "method", "There is no parameter 'zeta' here: there is k, theta, clip, mode."),
        (FORM, "pld", [], {}, "method", "names and values"),
        (FORM, "pld", {}, {"temperature": -1}, "method", "Temperature needs a number from 0 to 2"),
        (FORM, "pld", {}, {"max_new_tokens": 0}, "method", "New tokens needs a whole number from 1"),
    ],
)
def test_bad_input_is_one_sentence_at_its_place(
    client: TestClient,
    desk: StubDesk,
    form: PromptForm,
    method: str,
    params: Any,
    settings: Any,
    place: str,
    words: str,
) -> None:
    with pytest.raises(Refusal) as caught:
        desk.submit(form, method, params, settings)
    assert caught.value.place == place and words in str(caught.value) and str(caught.value).endswith(".")


def test_a_run_begins_with_one_request(client: TestClient, desk: StubDesk) -> None:
    asked = {"prompt": {"mode": "text", "text": "abc", "title": "Mine", "reference": "x", "reference_of": "your own"},
             "method": "pld", "params": {"k": 4}, "settings": {"max_new_tokens": 8}, "session": "a page"}  # fmt: skip
    answer = client.post("/api/runs", json=asked).json()
    assert answer["prompt"] == PromptForm("text", text="abc").key
    key = answer["run"]["id"]
    assert (answer["run"]["title"], answer["run"]["kind"]) == ("Mine", "live")
    until(lambda: key in desk.store, "the run is over")
    assert (desk.asked[-1].reference, desk.asked[-1].reference_of) == ("x", "your own")


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        ({"prompt": {"mode": "text"}}, "prompt", "The prompt is empty"),
        ({"prompt": {"mode": "text", "text": "a", "pool": {"name": "n.txt", "text": " "}}}, "pool", "holds no text"),
        ({"method": "none"}, "method", "There is no method 'none'"),
        ({"params": {"k": 500}}, "method", "Draft length needs a whole number from 1 to 128"),
        ({"prompt": {"mode": "chat", "messages": [{"role": "bot", "content": "a"}]}}, None, "Messages are a list of"),
        ({"prompt": {"reference_of": "<b>"}}, None, "The prompt is given as names and values"),
    ],
)
def test_a_run_that_cannot_begin_says_why_and_where(
    client: TestClient, desk: StubDesk, change: dict[str, Any], place: str | None, message: str
) -> None:
    asked = {"prompt": {"mode": "text", "text": "abc"}, "method": "pld", **change}
    count = len(desk.asked)
    answer = client.post("/api/runs", json=asked)
    assert answer.status_code == 422 and message in answer.json()["error"] and answer.json().get("place") == place
    assert len(desk.asked) == count


def test_counting(client: TestClient, desk: StubDesk) -> None:
    assert desk.count(PromptForm("text", text="abcd")) == "4 of 2,000 tokens"
    assert desk.count(PromptForm()) == ""
    with pytest.raises(Refusal, match="shorten it by at least 501"):
        desk.count(PromptForm("text", text="x" * 2500))


def test_opening_a_file_never_takes_over_another_run(desk: StubDesk, tmp_path: Path) -> None:
    trace = recordings.quote()
    trace.run["id"] = "gallery-0"
    tracefile.save(trace, tmp_path / "a.spectrace")
    key = desk.open_file(tmp_path / "a.spectrace", owner="ann")
    assert key != "gallery-0" and desk.store.get(key).output_ids == trace.output_ids
    assert desk.store.get("gallery-0").output_ids != trace.output_ids


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "version", "huge", "missing"])
def test_a_bad_file_is_one_sentence_and_nothing_is_lost(desk: StubDesk, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.spectrace"
    tracefile.save(recordings.quote(), path)
    whole = path.read_bytes()
    data = {"cut": whole[: len(whole) // 2], "empty": b"", "text": b"hello", "huge": bytes((64 << 20) + 1)}
    if damage == "version":
        with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                new.writestr(name, old.read(name).replace(b"spectrace/1", b"spectrace/9"))
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[damage])
    before = len(desk.store)
    with pytest.raises(Refusal) as caught:
        desk.open_file(path)
    assert caught.value.place == "file" and str(caught.value).endswith(".") and "\n" not in str(caught.value)
    assert len(desk.store) == before


@pytest.mark.slow("a server in a fresh interpreter; test_layers.py has the same for imports")
def test_viewing_needs_no_torch(tmp_path: Path) -> None:
    """A fresh interpreter in which torch and transformers cannot be imported serves a trace."""
    tracefile.save(recordings.quote(), tmp_path / "a.spectrace")
    code = f"""
import sys, os
for name in ("torch", "transformers", "jaxtyping"):
    sys.modules[name] = None
os.environ["SPECVIZ_HOME"] = {str(tmp_path / "home")!r}
from fastapi.testclient import TestClient
from specviz.app import create_app
with TestClient(create_app(trace={str(tmp_path / "a.spectrace")!r}), base_url="http://localhost") as client:
    first = client.get("/api/runs").json()["first"]
    assert client.get("/api/traces/" + first).json()["run"]["method"]["name"] == "pld+h"
    assert client.get("/api/methods").json()["reason"].startswith("Opened for viewing only")
    assert client.get("/api/status").json()["model"]["state"] == "none"
    assert client.get("/").status_code == 200
    assert client.get("/api/traces/" + first + "/download?format=html").status_code == 200
print("served")
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "served", done.stderr[-2000:]


def test_a_missing_trace_file_is_a_sentence(home: Path) -> None:
    with pytest.raises(Refusal, match=r"There is no trace file nowhere\.spectrace"):
        open_desk(trace="nowhere.spectrace")


def test_a_model_that_cannot_be_loaded_leaves_the_gallery() -> None:
    def refuse() -> Any:
        raise ValueError("the model folder /nowhere does not exist; give a folder or a Hub name")

    desk = StubDesk(load=refuse, gallery=(recordings.quote(),))
    with client_of(desk) as client:
        model = client.get("/api/status").json()["model"]
        assert model["state"] == "failed" and model["text"].startswith("The model folder /nowhere does not exist")
        assert client.get("/api/traces/gallery-0").status_code == 200
        with pytest.raises(Refusal, match="does not exist") as caught:
            desk.submit(FORM, "pld", {}, {})
        assert caught.value.place == "model"


def call(port: int, name: str, *data: Any) -> Any:
    """A named endpoint, as the Gradio client calls it."""
    address = f"http://127.0.0.1:{port}/gradio_api/call/{name}"
    answer = httpx.post(address, json={"data": data}, timeout=WAIT_S)
    if answer.status_code != 200:
        return answer.json()
    lines = httpx.get(f"{address}/{answer.json()['event_id']}", timeout=WAIT_S).text.splitlines()
    return json.loads(next(line for line in reversed(lines) if line.startswith("data:"))[5:])[0]


def test_the_named_endpoints_and_no_others() -> None:
    desk = StubDesk()
    with serving(desk) as port:
        assert desk.loader.wait(WAIT_S)
        info = httpx.get(f"http://127.0.0.1:{port}/gradio_api/info", timeout=WAIT_S).json()
        assert set(info["named_endpoints"]) == {"/run", "/methods", "/trace_summary"}
        done = call(port, "run", "hello", "pld", {"k": 5}, {"max_new_tokens": 50}, False)
        assert done["tokens"] == len(desk.whole().output_ids) and done["text"] and done["error"] == ""
        assert call(port, "trace_summary", done["id"])["text"] == done["text"]
        assert "no run called" in call(port, "trace_summary", "../../etc/passwd")["error"]
        assert "given was 9999" in call(port, "run", "hello", "pld", {"k": 9999}, {}, False)["error"]
        assert "no method" in call(port, "run", "hello", "__class__", {}, {}, False)["error"]
        assert "empty" in call(port, "run", "", "pld", {}, {}, True)["error"]


def sse(port: int, path: str) -> Iterator[dict[str, Any]]:
    with httpx.stream("GET", f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])
