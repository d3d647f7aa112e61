"""Pages of other origins in real Chromium, which try to read and write what is the server's own page's."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from specviz.server.guard import Guard
from tests import recordings
from tests.stubs import StubDesk
from tests.waiting import until

DELETE = '{"ids": ["gallery-0"]}'
TEXT = "{method: 'POST', mode: 'no-cors', credentials: 'include', body: '%s'}"
JSON = "{method: 'POST', credentials: 'include', headers: {'content-type': 'application/json'}, body: '%s'}"
FRAME = """const frame = document.createElement('iframe'); frame.name = 'f'; frame.src = %s;
const loaded = () => new Promise((done) => { frame.onload = done; });
const first = loaded(); document.body.append(frame); await first;"""
FORM = FRAME % "'/blank'" + """
const form = document.createElement('form'); form.method = 'post'; form.target = 'f'; form.action = HERE + '%s';
form.enctype = '%s'; document.body.append(form); const second = loaded(); form.submit(); await second;"""
SEEN = "try { return frame.contentDocument.body.innerText } catch { return '' }"
EVENTS = """return new Promise((done) => { const all = new EventSource(HERE + '%s', {withCredentials: true});
all.onopen = () => { all.close(); done('in'); }; all.onerror = () => { all.close(); done(''); }; });"""
LOADED = """return new Promise((done) => { const tag = document.createElement('%s'); tag.onload = () => done('in');
tag.onerror = () => done(''); Object.assign(tag, {%s: HERE + '%s', %s}); document.head.append(tag); });"""
SOCKET = """return new Promise((done) => { const link = new WebSocket(HERE.replace('http', 'ws') + '/');
link.onopen = () => done('in'); link.onerror = () => done(''); });"""
NOBODY = """return new Promise((done) => { onmessage = (sent) => done(sent.data);
const frame = document.createElement('iframe'); frame.sandbox = 'allow-scripts'; const end = '</scr' + 'ipt>';
frame.srcdoc = `<script>fetch('${HERE}/api/runs').then((got) => parent.postMessage(got.ok, '*'),
() => parent.postMessage('', '*'))${end}`; document.body.append(frame); });"""
# what a page of another origin does, HERE being the server: what is returned is true where it got in
FOREIGN = {
    "reads with cookies": "return (await fetch(HERE + '/api/runs', {credentials: 'include'})).ok",
    "reads without cookies": "return (await fetch(HERE + '/api/traces/gallery-0')).ok",
    "reads Gradio's config": "return (await fetch(HERE + '/config', {credentials: 'include'})).ok",
    "deletes with JSON": f"return (await fetch(HERE + '/api/runs/delete', {JSON % DELETE})).ok",
    "deletes with text": f"return (await fetch(HERE + '/api/runs/delete', {TEXT % DELETE})).ok",
    "joins Gradio's queue": f"return (await fetch(HERE + '/gradio_api/queue/join', {TEXT % '{}'})).ok",
    "sends a beacon": f"navigator.sendBeacon(HERE + '/api/runs/delete', '{DELETE}');",
    "reads a run's events": EVENTS % "/api/live/gallery-0",
    "reads Gradio's events": EVENTS % "/gradio_api/heartbeat/x",
    "runs a run as a script": LOADED % ("script", "src", "/api/traces/gallery-0", ""),
    "takes a module": LOADED % ("script", "src", "/api/runs", "type: 'module'"),
    "takes a style": LOADED % ("link", "href", "/theme.css", "rel: 'stylesheet'"),
    "puts it into a frame": FRAME % "HERE + '/'" + SEEN,
    "sends a form with a file": FORM % ("/gradio_api/upload", "multipart/form-data") + SEEN,
    "sends a form of text": FORM % ("/api/runs/delete", "text/plain") + SEEN,
    "opens a socket": SOCKET,
    "reads as nobody": NOBODY,
}
REBOUND = [what for what in FOREIGN if what.split()[0] in ("reads", "deletes", "joins", "opens", "takes")]


class _Blank(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>Elsewhere</title><body>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def desk() -> StubDesk:
    return StubDesk(gallery=(recordings.chain(),))


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[int]:
    """Another server's port, which has a page for every name and path."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Blank)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Method and path of every request that reached the server, and whether it went further."""
    asked: list[tuple[str, bool]] = []
    judge = Guard._elsewhere

    def listen(guard: Guard, request: Any) -> Any:
        problem = judge(guard, request)
        asked.append((f"{request.method} {request.scope['path']}", problem is None))
        return problem

    monkeypatch.setattr(Guard, "_elsewhere", listen)
    return asked


def try_page(page: Any, what: str, address: str) -> bool:
    """True where a page got in that does ``what``."""
    late = "new Promise((done) => setTimeout(() => done(''), 4000))"
    body = f"const HERE = '{address}'; try {{ {FOREIGN[what]} }} catch {{ return ''; }}"
    return bool(page.evaluate(f"() => Promise.race([(async () => {{ {body} }})(), {late}])"))


@pytest.mark.parametrize("name", ["localhost", "a.localhost", "evil.test"])
def test_another_ports_page_a_siblings_and_another_sites_get_nowhere(
    page: Any, port: int, elsewhere: int, desk: StubDesk, calls: list[tuple[str, bool]], name: str
) -> None:
    page.request.get(f"http://localhost:{port}/")  # as its visitor, who has a cookie
    calls.clear()
    got_in = []
    for what in FOREIGN:
        page.goto(f"http://{name}:{elsewhere}/")
        if try_page(page, what, f"http://localhost:{port}"):
            got_in.append(what)
    until(lambda: len(calls) >= len(FOREIGN) - 2, "the browser sent what was tried, but for a socket and a beacon")
    assert got_in == [] and [one for one, further in calls if further] == [] and "gallery-0" in desk.store


def test_a_name_that_was_made_to_lead_here_gets_nowhere(
    page: Any, port: int, desk: StubDesk, calls: list[tuple[str, bool]]
) -> None:
    """DNS rebinding: for the browser, page and server are one origin."""
    answer = page.goto(f"http://evil.test:{port}/")
    assert answer.status == 403
    assert page.inner_text("p") == (
        "This server answers to localhost, 127.0.0.1, [::1] and testserver, and was asked for “evil.test”: start it "
        "with --allow-host evil.test if that is its name."
    )
    assert [what for what in REBOUND if try_page(page, what, f"http://evil.test:{port}")] == []
    assert len(calls) >= 10 and [one for one, further in calls if further] == [] and "gallery-0" in desk.store


def test_the_own_page_may(page: Any, port: int, desk: StubDesk) -> None:
    """The control: what fails elsewhere works here, under each of the server's names; and a link from elsewhere."""
    for name in ("localhost", "127.0.0.1"):
        here = f"http://{name}:{port}"
        page.goto(f"{here}/api/status")
        for what in ("reads with cookies", "reads Gradio's config", "reads Gradio's events"):
            assert try_page(page, what, here), what
    page.goto(f"http://evil.test:{port}/")
    page.evaluate("(to) => { const link = document.createElement('a'); link.href = to; document.body.append(link); "
                  "link.click(); }", f"http://localhost:{port}/api/runs")  # fmt: skip
    until(lambda: "gallery-0" in page.inner_text("body"), "the link leads to the list")
