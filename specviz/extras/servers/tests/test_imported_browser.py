"""A server's answer opened on the page, in real Chromium: what it does not say is named, not drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decoders.importers import open_log
from tests import recordings
from tests.browser.test_app import edit, open_app
from tests.stubs import StubDesk, gallery_desk, nothing_wrong, serving
from tests.waiting import expect, fits

from .model_server import LLAMA, model_server
from .test_imported import serve, target

SERVERS = Path(__file__).parent / "samples"


@pytest.fixture(scope="module")
def desk(module_home: Path) -> StubDesk:
    return StubDesk(gallery=(recordings.chain(),))


@pytest.fixture
def inspect(page: Any, port: int) -> Any:
    yield open_app(page, port)
    assert [text for text in page.problems if "/api/inspect/open" not in text] == []


def open_file(page: Any, path: Path) -> None:
    page.set_input_files("#sv-bar input[type=file]", path)


def test_a_servers_answer_is_opened_and_says_what_is_not_recorded(inspect: Any) -> None:
    page = inspect
    open_file(page, SERVERS / "vllm_detailed.json")
    expect(page.locator(".sv-title")).to_have_text("vLLM: chatcmpl-8f2b")
    expect(page.locator(".sv-by")).to_contain_text("not recorded")
    page.keyboard.press("]")
    expect(page.locator("#sv-inspect")).to_contain_text("The server kept")
    expect(page.locator("#sv-inspect")).to_contain_text("What it refused is not recorded.")
    page.locator(".sv-timeline").hover()
    expect(page.locator("#sv-inspect")).to_contain_text("time not recorded")
    open_file(page, SERVERS / "openai_stream.jsonl")
    expect(page.locator("#sv-inspect")).to_contain_text("its tokens and its draft are not recorded")
    expect(page.locator("#sv-inspect")).to_contain_text("does not tell how its drafter ranked")
    open_file(page, LLAMA / "draft_tpt_stop.log")
    expect(page.locator(".sv-why-panel")).to_contain_text("the server accepted 3 more drafted tokens than it wrote")
    open_file(page, SERVERS / "vllm.log")
    expect(page.locator("#sv-file-note")).to_contain_text("Accepted ÷ drafted: 0.54")


def test_text_of_a_server_is_never_markup(inspect: Any, tmp_path: Path) -> None:
    page = inspect
    path = tmp_path / "answer.json"
    path.write_text('{"id": "<img src=x onerror=alert(1)>", "choices": [{"text": "<b>a</b>"}]}')
    assert open_log(path.read_bytes()).traces
    open_file(page, path)
    expect(page.locator(".sv-title")).to_contain_text("<img src=x")
    expect(page.locator("#sv-inspect")).to_contain_text("<b>a</b>")
    expect(page.locator("#sv-inspect img")).to_have_count(0)


@pytest.mark.slow("a model reads the import")
def test_an_import_is_read_and_drafted_again_from_the_page(page: Any, tmp_path: Path, home: Path) -> None:
    """The whole way of a user: open the server's answer, read it with the model in use, compare it with a run."""
    original, answer = serve()
    path = tmp_path / "answer.json"
    path.write_bytes(answer)
    with serving(gallery_desk(target(), {"mine": original})) as number:
        page.goto(f"http://127.0.0.1:{number}/?trace=mine")
        expect(page.locator(".sv-title")).to_be_visible()
        page.wait_for_function("specviz.app.whatif?.catalog && !specviz.app.whatif.reason")
        expect(page.get_by_role("tab", name="Read again")).to_have_count(0)
        open_file(page, path)
        expect(page.locator(".sv-by")).to_contain_text("not recorded")
        page.get_by_role("tab", name="Read again").click()
        panel = page.locator("section.sv-reading")
        panel.get_by_label("Method that drafts every step again").select_option("pld")
        panel.get_by_role("button", name="Read again", exact=True).click()
        expect(page.locator(".sv-by")).to_contain_text("recomputed here")
        expect(page.locator(".sv-by")).to_contain_text("drafts differ")
        expect(panel).to_be_visible()
        nothing_wrong(page, number)


def test_a_server_is_connected_and_the_sheet_fills_while_it_answers(inspect: Any) -> None:
    """The editor's prompt goes out; numbers and text come in; the run opens; nothing of it is markup."""
    page = inspect
    edit(page)
    page.fill("#sv-instruction textarea", "Count <i>from</i> one.")
    page.click("text=Connect a server …")
    sheet = page.locator("dialog.sv-connect")
    expect(sheet).not_to_have_css("background-color", "rgba(0, 0, 0, 0)")  # the page does not shine through
    expect(sheet).to_be_visible()
    sheet.get_by_label("Address").fill("http://127.0.0.1:9")
    sheet.get_by_role("button", name="Send the prompt").click()
    expect(sheet.get_by_role("alert")).to_contain_text("does not answer")
    assert "status of 422" in page.problems.pop(), "the browser says so, too"
    with model_server() as server:
        server.chunks[3]["choices"][0]["delta"]["content"] = "<img src=x onerror=alert(1)>"
        server.pause = 12
        sheet.get_by_label("Address").fill(server.address)
        sheet.get_by_role("button", name="Send the prompt").click()
        expect(sheet.locator(".sv-connect-text")).to_contain_text("<img src=x onerror=alert(1)>")
        server.counts = {"drafts": 14, "drafted": 70, "accepted": 14, "tokens": 60}
        expect(sheet.locator(".ui-table")).to_contain_text("1.50")  # 1 + 2 ÷ 4
        expect(sheet.locator(".sv-connect-places li")).to_have_text("position 150 %")
        assert sheet.locator("img").count() == 0
        fits(page, 390)
        page.set_viewport_size({"width": 1280, "height": 820})
        server.gate.set()
        sheet.get_by_role("button", name="Show the run").click()
        assert server.asked[0]["messages"][0]["content"].startswith("Count <i>from</i> one.")
    expect(sheet).to_be_hidden()
    expect(page.locator(".sv-title")).to_contain_text("Count <i>from</i> one.")
    assert page.evaluate("document.activeElement.textContent") == "Connect a server …"
