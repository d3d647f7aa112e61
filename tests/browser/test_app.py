"""The whole app in real Chromium: what a user does, from the first view to a downloaded page."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from decoders.model.files import catalog
from decoders.trace import files as tracefile
from specviz.app import checked_root
from specviz.pages import pages
from specviz.places import BUNDLED
from specviz.server.desk import Desk
from specviz.server.loader import Loader
from specviz.server.runner import Runner
from specviz.server.store import TraceStore
from specviz.views.examples import examples
from tests import recordings
from tests.browser.pace import cost
from tests.stubs import StubDesk, StubTarget, nothing_wrong, serving
from tests.tiers import matrix
from tests.waiting import WAIT_S, becomes, expect, fits, until

Visit = Callable[..., Any]
MOUNTED = "#sv-inspect .svp-host[data-ready]"


@pytest.fixture(scope="module")
def desk() -> StubDesk:
    return StubDesk(
        pause_s=0.03,
        gallery=(
            recordings.with_title(recordings.earlier_run("4-rename-variable-pld-h"), "Refactor ratelimit.py"),
            recordings.tree(), recordings.with_title(recordings.quote(), "Quoted answer"), recordings.nasty(),
            recordings.repeat(recordings.tree(), 30),
        ),
    )


def open_app(page: Any, port: int, query: str = "", ready: str = MOUNTED) -> Any:
    """The app at an address, once it can be used."""
    page.goto(f"http://127.0.0.1:{port}/{query}")
    page.wait_for_selector(ready)
    page.wait_for_selector("#sv-run:not([disabled])", state="attached")
    return page


@pytest.fixture
def visit(page: Any, port: int, desk: StubDesk) -> Iterator[Visit]:
    """Opens the app at an address; nothing may fail or be asked of other sites."""
    yield partial(open_app, page, port)
    desk.gate.set()
    nothing_wrong(page, port, said=("status of 422",))  # a refusal, which the page tells


def step(page: Any) -> int:
    return page.evaluate("specviz.app.inspector.state().step")


def text_of_page(page: Any) -> str:
    return page.evaluate("specviz.app.shown")


def no_banner(page: Any) -> None:
    expect(page.locator(".svp-banner")).to_be_hidden()


def wait(page: Any, code: str) -> None:
    page.wait_for_function(f"() => {code}")


def wait_for_prompts(page: Any, desk: StubDesk, count: int) -> None:
    """The desk has got so many prompts."""
    until(lambda: len(desk.asked) >= count, f"{count} prompts", rest=lambda s: page.wait_for_timeout(1000 * s))
    assert len(desk.asked) == count


def edit(page: Any) -> None:
    """Opens the form, once it holds the prompt of the run shown."""
    if page.get_attribute(".svp-edit", "aria-expanded") == "false":
        page.click(".svp-edit")
    expect(page.locator(".svp-edit")).to_have_attribute("aria-expanded", "true")
    page.wait_for_selector("#sv-panel .sve-prompt:not(.sve-waits)")


def choose(page: Any, method: str) -> None:
    """Chooses a method in the form."""
    edit(page)
    page.select_option("#svf-method", method)


def take_example(page: Any, number: int = 0) -> None:
    """Has an example in the form."""
    edit(page)
    page.select_option("#sv-example", examples()[number].record.id)


def share(page: Any, entry: str, more: bool = False) -> None:
    """Chooses an entry of the Share menu, or of its further files."""
    page.get_by_role("button", name="Share").click()
    if more:
        page.get_by_role("menuitem", name="More files").click()
    page.get_by_role("menuitem", name=entry).click()


def run(page: Any, press: Callable[[], None] | None = None) -> None:
    """Starts a run and waits until the page has turned to it (a short one may be over by then)."""
    before = page.evaluate("specviz.app.current")
    press() if press else page.click(".svp-go:visible")
    wait(page, f"specviz.app.current !== '{before}'")


def wait_for_end(page: Any) -> None:
    """No run of this page goes on; the last one is shown to its end and listed."""
    listed = "app.runs.some(({ id, kind }) => id === app.shown && kind !== 'live')"
    shown_whole = "app.shown === app.current && app.inspector.model.run.complete"
    wait(page, f"{{ const {{ app }} = specviz; return !app.mine.size && {shown_whole} && {listed}; }}")


def test_a_page_load_asks_for_few_files(page: Any, port: int, visit: Visit) -> None:
    """Gradio's own apart. Modules keep their names all the same, in errors too."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    visit()
    wait(page, "specviz.app.runs.length && specviz.app.lens && specviz.app.whatif")
    paths = [url.partition(f"127.0.0.1:{port}/")[2] for url in asked if not url.startswith("blob:")]
    assert sorted(path.split(".")[-1] for path in paths if path.startswith("web/")) == ["css", "js"]
    assert 3 <= len([path for path in paths if path.startswith(("web/", "api/"))]) <= 16
    trace = page.evaluate("""import("specviz/base/json.js").then(({ getJson }) => getJson("api/runs", Promise.reject()))
        .catch((problem) => problem.stack)""")
    assert re.search(r"specviz/base/json\.js:1\d:\d+", trace)


def test_it_opens_on_a_recorded_run_at_once(visit: Visit) -> None:
    page = visit()
    assert text_of_page(page) == "gallery-0" and page.inner_text(".sv-headline").startswith("Refactor ratelimit.py")
    assert page.evaluate("specviz.app.drawn") > 0  # ms, of which the budget is 1,500 (python -m benchmarks.pace)
    expect(page.locator(".svp-pill")).to_contain_text("stub · 5.3M parameters")


def test_a_method_runs_and_streams(visit: Visit, desk: StubDesk) -> None:
    page = visit()
    choose(page, "pld")
    take_example(page)
    desk.gate.clear()
    run(page)
    wait(page, "specviz.app.inspector.model.stepCount === 4")  # drawn while the run goes on
    becomes(page, lambda: step(page), 3)
    assert not page.evaluate("specviz.app.inspector.model.run.complete")
    desk.gate.set()
    wait_for_end(page)
    whole = desk.store.get(text_of_page(page))
    becomes(page, lambda: page.evaluate("specviz.app.inspector.model.stepCount"), whole.rows("steps"))
    becomes(page, lambda: step(page), whole.rows("steps") - 1)  # it followed to the end
    assert whole.run["title"] == examples()[0].label
    no_banner(page)
    expect(page.locator(".svp-chooser select >> nth=0")).to_have_value(whole.run["id"])


@pytest.mark.slow("test_compare.py stops runs on the page, test_server.py and test_runner.py count their steps")
def test_stop_in_the_middle(visit: Visit, desk: StubDesk) -> None:
    page = visit()
    top = "document.querySelector('.svp-host').getBoundingClientRect().top + scrollY"
    before = page.evaluate(top)
    desk.gate.clear()
    run(page)
    page.wait_for_selector(".svp-banner:has-text('tokens in 4 steps')")
    assert page.evaluate(top) == before, "what is said of a run moves nothing"
    stops = page.locator("button:visible", has_text=re.compile("^Stop$"))
    expect(stops).to_have_count(1)
    stops.click()
    page.wait_for_selector(".svp-banner:has-text('Stopped by you after')")
    assert page.evaluate(top) == before
    desk.gate.set()
    kept = desk.store.get(text_of_page(page))
    assert kept.run["stop"] == "cancelled" and kept.rows("steps") == 4
    expect(page.locator("#sv-run")).to_be_visible()


@pytest.mark.slow("two pages run in turn")
def test_two_users_at_once(visit: Visit, another: Any, port: int, desk: StubDesk) -> None:
    page = visit()
    desk.gate.clear()
    run(page)
    page.wait_for_selector(".svp-banner:has-text('Running')")
    other = open_app(another, port, f"?trace={text_of_page(page)}")  # by its link, while it goes on
    edit(other)
    expect(other.locator("#sv-prompt-part .svp-recorded")).to_be_visible()
    expect(other.locator("#sv-run-note")).to_have_text("")
    run(other)
    other.wait_for_selector(".svp-banner:has-text('Waiting: 1 run before yours.')")
    desk.gate.set()
    wait_for_end(page)
    wait_for_end(other)
    assert text_of_page(page) != text_of_page(other)
    listed = other.evaluate("specviz.app.runs.map(r => r.id)")
    assert text_of_page(other) in listed and text_of_page(page) not in listed


@pytest.mark.slow("a tab of its own")
def test_closing_the_tab_ends_its_run(another: Any, port: int, desk: StubDesk) -> None:
    page = open_app(another, port)
    desk.gate.clear()
    page.evaluate("document.getElementById('sv-run').click()")
    page.wait_for_selector("body.sv-running", state="attached")
    key = page.evaluate("[...specviz.app.mine][0]")
    job = desk.runner.job(key)
    assert job is not None
    page.close()
    assert job.finished.wait(WAIT_S) and job.cancel.is_set()
    desk.gate.set()


@pytest.mark.slow("300 steps")
@pytest.mark.pace
def test_scrubbing_keys_and_hover(visit: Visit) -> None:
    page = visit("?trace=gallery-4")
    page.focus(".sv")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    wait(page, "new URL(location.href).searchParams.get('step') === '4'")
    assert step(page) == 3
    change = "(n) => { const v = specviz.app.inspector; v.setStep((n * 37) % v.model.stepCount); v.host.offsetHeight; }"
    cost(page, "a jump in the app's Inspect (300 steps)", change).within(nodes=1000, layouts=6)  # the text is scrolled
    page.hover(".sv-row .sv-t >> nth=5")
    page.wait_for_selector(".sv-tip:visible")


@pytest.mark.slow("test_inspect.py opens a link to a step, test_renderer.py restores its pins")
def test_a_copied_link_restores_the_view(visit: Visit, page: Any, context: Any) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit("?trace=gallery-1&lesson=1-drafting&at=3")  # where another page stood is no part of it
    page.evaluate("specviz.app.inspector.setStep(8); specviz.app.inspector.setPins([230, 231])")
    share(page, "Copy link to this step")
    becomes(page, lambda: "step=9&pins=230" in page.evaluate("navigator.clipboard.readText()"), True)
    link = page.evaluate("navigator.clipboard.readText()")
    assert "lesson" not in link and "at=" not in link
    share(page, "Cite specviz", more=True)
    becomes(page, lambda: page.evaluate("navigator.clipboard.readText()").startswith("@software{specviz,"), True)
    again = context.new_page()
    again.goto(link)
    again.wait_for_selector(MOUNTED)
    assert again.evaluate("specviz.app.inspector.state()") == {"trace": "gallery-1", "step": 8, "pins": [230, 231]}
    again.close()


@pytest.mark.slow("test_runs.py walks through that page")
def test_a_link_to_the_runs_page(visit: Visit) -> None:
    page = visit("?tab=runs&trace=gallery-2", ready=".svp-grid")
    page.wait_for_selector(".svp-grid button:has-text('Quoted answer')")
    page.fill(".svp-search", "quoted")
    expect(page.locator(".svp-grid .svp-link")).to_have_text(["Quoted answer"])
    page.click(".svp-link")
    page.wait_for_selector(MOUNTED)
    wait(page, "specviz.app.shown === 'gallery-2' && !location.search.includes('tab')")


def test_an_unknown_link_is_a_sentence_and_the_gallery(page: Any, port: int) -> None:
    page.goto(f"http://127.0.0.1:{port}/?trace=gone")
    page.wait_for_selector(".svp-banner:has-text(\"There is no run called 'gone' here\")")
    wait(page, "specviz.app.shown === 'gallery-0'")
    expect(page.locator(".svp-banner[role=alert]")).to_contain_text("Here is a run from the gallery instead.")
    assert [p for p in page.problems if "status of 404" not in p] == []


@pytest.mark.slow("test_imported.py opens a file on the page, test_server.py refuses bad ones")
def test_upload_good_and_bad(visit: Visit, tmp_path: Path) -> None:
    page = visit()
    tracefile.save(recordings.nasty(), tmp_path / "nasty.spectrace")
    (tmp_path / "cut.spectrace").write_bytes((tmp_path / "nasty.spectrace").read_bytes()[:3000])
    chooser = "#sv-bar input[type=file]"
    page.set_input_files(chooser, tmp_path / "nasty.spectrace")
    page.wait_for_selector(".sv-headline:has-text('<script>alert(1)</script>')")
    opened = text_of_page(page)
    page.set_input_files(chooser, tmp_path / "cut.spectrace")
    page.wait_for_selector("#sv-file-note:text('cannot be opened as a trace')")
    assert text_of_page(page) == opened
    page.select_option(".svp-chooser select >> nth=0", "gallery-1")
    expect(page.locator("#sv-file-note")).to_have_text("")
    with page.expect_file_chooser() as again:
        page.click("#sv-open")
    again.value.set_files(tmp_path / "cut.spectrace")
    page.wait_for_selector("#sv-file-note:text('cannot be opened as a trace')")  # once more
    page.set_input_files(chooser, tmp_path / "nasty.spectrace")  # the same file again
    page.wait_for_function("before => specviz.app.shown !== before", arg=opened)


@pytest.mark.slow("test_renderer.py opens such pages from disk, test_server.py downloads them")
def test_a_downloaded_page_opens_from_disk(visit: Visit, context: Any, tmp_path: Path) -> None:
    page = visit("?trace=gallery-2&step=3")
    with page.expect_download() as caught:
        share(page, "Interactive page (HTML)")
    file = tmp_path / caught.value.suggested_filename
    caught.value.save_as(file)
    alone = context.new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    alone.goto(file.as_uri())
    alone.wait_for_selector(".sv-row")
    assert alone.evaluate("specviz.inspector.number") == 2 and asked == [file.as_uri()]
    alone.close()
    with page.expect_download() as caught:
        share(page, "Trace file")
    caught.value.save_as(tmp_path / "a.spectrace")
    assert tracefile.load(tmp_path / "a.spectrace").run["title"] == "Quoted answer"


@pytest.mark.slow("test_inspect.py says what is wrong with a prompt, test_server.py each mistake at its place")
def test_errors_stand_next_to_their_cause_and_the_input_stays(visit: Visit) -> None:
    page = visit()
    edit(page)
    for name in ("instruction", "context"):
        page.fill(f"#sv-{name} textarea", "")
    page.click(".svp-go:visible")
    for note in ("prompt", "run"):
        page.wait_for_selector(f"#sv-{note}-note.svp-error:has-text('The prompt is empty')")
    page.fill("#sv-context textarea", " ")  # what was refused is another text now, and refused once more
    expect(page.locator("#sv-run-note.svp-error:visible")).to_have_count(0)
    page.click(".svp-go:visible")
    page.wait_for_selector("#sv-run-note.svp-error:has-text('The prompt is empty')")
    page.fill("#sv-context textarea", "x" * 2500)
    page.wait_for_selector("#sv-prompt-note.svp-error:has-text('2,500 tokens and the model')")
    page.fill("#sv-context textarea", "short enough")
    page.wait_for_selector("#sv-prompt-note:text('12 of 2,000 tokens')")
    page.click(".svf-params summary")
    page.fill("#svf-k", "500")
    told = page.locator("#svf-k >> xpath=ancestor::div[contains(@class, 'svf-row')]//span").first
    expect(told).to_have_text("Needs a whole number from 1 to 128.")
    page.click(".svp-go:visible")
    page.wait_for_selector("#sv-run-note:text('Draft length needs a whole number from 1 to 128')")
    page.fill("#svf-k", "5")
    run(page)
    expect(page.locator("#sv-panel")).to_be_hidden()  # the run is looked at
    wait_for_end(page)
    expect(page.locator("#sv-run-note.svp-error:visible")).to_have_count(0)
    edit(page)
    expect(page.locator("#sv-context textarea")).to_have_value("short enough")


@pytest.mark.slow("a walk through the whole form")
def test_examples_modes_and_the_method_form(visit: Visit) -> None:
    page = visit()
    edit(page)
    options = page.locator("#svf-method option").all_inner_texts()
    assert "CASD (lossy)" in options and "PPD — not available" in options
    assert page.locator("#svf-method option[value=ppd]").is_disabled()
    page.click("summary:has-text('not available here')")
    expect(page.locator(".svf-missing")).to_contain_text("specviz train ppd")
    choose(page, "casd")
    expect(page.locator("#svf-summary")).to_contain_text("≈ lossy")
    expect(page.locator("#svf-theta")).to_be_disabled()  # optional, and off
    page.check("input[aria-label='Use Threshold']")
    page.fill("#svf-theta", "0.5")
    choose(page, "pld")
    choose(page, "casd")
    expect(page.locator("#svf-theta")).to_have_value("0.5")  # kept
    chats = page.locator("#sv-example option", has_text="shorter, please")
    page.select_option("#sv-example", chats.get_attribute("value"))
    expect(page.locator("#sv-mode input[value=chat]")).to_be_checked()
    roles = page.locator(".sve-message select")
    said = ["user", "assistant", "user"]
    becomes(page, lambda: [roles.nth(n).input_value() for n in range(roles.count())][-3:], said)
    expect(page.locator("#sv-instruction")).to_have_count(0)
    page.check("#sv-mode input[value=segments]", force=True)
    page.wait_for_selector("#sv-instruction", state="visible")


def test_what_was_chosen_while_a_run_of_a_link_is_on_its_way_stays(visit: Visit) -> None:
    """Method, a setting and the prompt; a run that is opened afterwards is followed again."""
    page, held = visit(), []
    edit(page)
    theirs = page.locator("#svf-method").input_value()
    page.route("**/api/traces/gallery-1", lambda route: held.append(route))
    page.goto(page.url.split("?")[0] + "?trace=gallery-1")
    until(lambda: held, "the run is asked for")
    page.wait_for_selector("#sv-run:not([disabled])", state="attached")
    page.click(".svp-edit")
    page.select_option("#svf-method", "casd")
    page.fill("#svf-max_new_tokens", "7")
    example = examples()[1].record
    page.select_option("#sv-example", example.id)
    for route in held:
        route.continue_()
    page.unroute("**/api/traces/gallery-1")
    page.wait_for_function("specviz.app.held === 'gallery-1'")
    expect(page.locator("#svf-method")).to_have_value("casd")
    expect(page.locator("#svf-max_new_tokens")).to_have_value("7")
    expect(page.locator("#sv-example")).to_have_value(example.id)
    page.evaluate("history.pushState(null, '', '?trace=gallery-0'); dispatchEvent(new PopStateEvent('popstate'))")
    page.wait_for_function("specviz.app.held === 'gallery-0'")
    expect(page.locator("#svf-method")).to_have_value(theirs)
    expect(page.locator("#svf-max_new_tokens")).not_to_have_value("7")


@pytest.mark.slow("the page opened twice")
def test_the_examples_are_those_of_the_model_in_use(visit: Visit, desk: StubDesk) -> None:
    first, toys = examples()[0], examples(toy=True)
    page = visit()
    take_example(page)
    instruction = page.locator("#sv-instruction textarea")
    expect(instruction).to_have_value(first.record.instruction)
    try:
        desk.loader.model = catalog.BUNDLED  # another model is in use
        visit()
        edit(page)
        expect(page.locator("#sv-example option").nth(1)).to_have_text(toys[0].label)
        page.select_option("#sv-example", toys[4].record.id)
        expect(instruction).to_have_value(toys[4].record.instruction)
    finally:
        desk.loader.model = ""


@pytest.mark.slow("two runs")
def test_a_pool_and_a_reference_reach_the_run(visit: Visit, desk: StubDesk, tmp_path: Path) -> None:
    page = visit()
    (tmp_path / "notes.txt").write_text("One text.\n\nAnother.", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    choose(page, "pld")
    take_example(page)
    page.click("#sv-more > summary")
    reference = page.locator("#sv-reference textarea")
    expect(reference).to_have_value(examples()[0].record.reference or "")
    expect(page.locator("#sv-pool-field")).to_have_count(0)
    expect(page.locator(".svf-may-differ")).to_be_hidden()
    choose(page, "casd")
    expect(page.locator("#sv-pool-field")).to_be_visible()
    expect(page.locator(".svf-may-differ")).to_contain_text("may give another answer")
    chooser = "#sv-pool-field input[type=file]"
    page.set_input_files(chooser, tmp_path / "latin.txt")
    page.wait_for_selector("#sv-pool-field [role=alert]:has-text('latin.txt is not text in UTF-8')")
    page.set_input_files(chooser, tmp_path / "notes.txt")
    page.wait_for_selector("#sv-pool-field :text('notes.txt: 19 characters')")
    reference.fill("the answer")
    before = len(desk.asked)
    run(page)
    wait_for_prompts(page, desk, before + 1)
    prompt = desk.asked[-1]
    assert prompt.reference == "the answer" and (prompt.pool.label, prompt.pool.starts) == ("notes.txt", (0, 9))
    wait_for_end(page)
    edit(page)
    page.click("#sv-pool-clear")
    page.wait_for_selector("#sv-pool-clear", state="detached")
    run(page)
    wait_for_prompts(page, desk, before + 2)
    assert desk.asked[-1].pool is None
    wait_for_end(page)


@pytest.mark.slow("three runs")
def test_an_examples_reference_goes_with_its_prompt(visit: Visit, desk: StubDesk) -> None:
    """An edited example is not scored against the answer to another prompt; undone, the reference is back."""
    whose = examples()[0]  # of three texts, with a reference
    page = visit()
    take_example(page)
    context = page.locator("#sv-context textarea")
    expect(context).to_have_value(whose.prompt["context"])
    said, field = page.locator("#sv-reference-note"), page.locator("#sv-reference textarea")
    expect(said).to_contain_text("measured against the example's reference")
    page.click("#sv-more > summary")
    expect(field).to_have_value(whose.record.reference)
    context.fill("Somebody else's text.")
    before = len(desk.asked)
    run(page)  # at once: the server drops it, too
    wait_for_prompts(page, desk, before + 1)
    assert (desk.asked[-1].reference, desk.asked[-1].reference_of) == ("", "")
    expect(field).to_have_value("")
    expect(said).to_contain_text("not the example's any more")
    wait_for_end(page)
    edit(page)
    context.fill(whose.prompt["context"])
    expect(field).to_have_value(whose.record.reference)
    run(page)
    wait_for_prompts(page, desk, before + 2)
    assert (desk.asked[-1].reference, desk.asked[-1].reference_of) == (whose.record.reference, "the example's")
    wait_for_end(page)
    edit(page)
    field.fill("Mine.")
    expect(said).to_contain_text("measured against your own reference")
    context.fill("Somebody else's text.")
    run(page)
    wait_for_prompts(page, desk, before + 3)
    assert (desk.asked[-1].reference, desk.asked[-1].reference_of) == ("Mine.", "your own")
    wait_for_end(page)


@pytest.mark.slow("four runs")
def test_letting_go_of_the_threshold_runs_again_and_the_runs_are_listed(visit: Visit, desk: StubDesk) -> None:
    page = visit()
    choose(page, "casd")
    slider = page.locator(".svf-row:has(#svf-delta) input[type=range]")
    before = len(desk.asked)
    desk.gate.clear()
    for value in ("0.3", "0.5"):  # the second at once: one run
        slider.evaluate("(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); "
                        "e.dispatchEvent(new Event('change', {bubbles: true})) }", value)  # fmt: skip
    page.wait_for_selector("body.sv-running", state="attached")
    wait_for_prompts(page, desk, before + 1)
    wait(page, "specviz.app.inspector.model.stepCount === 4")
    first = page.evaluate("[...specviz.app.mine][0]")
    edit(page)
    slider.evaluate("e => { e.value = 0.7; e.dispatchEvent(new Event('input', {bubbles: true})); "
                    "e.dispatchEvent(new Event('change', {bubbles: true})) }")  # fmt: skip
    wait_for_prompts(page, desk, before + 2)  # the one that went on was stopped
    wait(page, f"specviz.app.current !== '{first}'")
    desk.gate.set()
    wait_for_end(page)
    second = text_of_page(page)
    assert desk.store.get(first).run["stop"] == "cancelled" and page.input_value("#svf-delta") == "0.7"
    run(page)
    wait_for_end(page)
    page.wait_for_selector(".svp-tries .svp-now")
    rows = page.locator(".svp-tries tbody tr")
    becomes(page, lambda: rows.count() >= 2, True)
    expect(page.locator(".svp-tries thead")).to_contain_text("tokens/step")
    page.click(f".svp-tries tbody tr:nth-child({rows.count() - 1}) button")
    wait(page, f"specviz.app.shown === '{second}'")


@pytest.mark.slow("two runs")
def test_a_failing_run_is_told_and_the_app_goes_on(visit: Visit, desk: StubDesk) -> None:
    page = visit()
    desk.fail_at = 4
    try:
        page.click(".svp-go:visible")  # it may be over before the page has shown that it runs
        page.wait_for_selector(".svp-banner[data-kind=error]:has-text('the stub broke')")
    finally:
        desk.fail_at = -1
    assert desk.store.get(text_of_page(page)).rows("steps") == 4
    run(page)
    wait_for_end(page)
    no_banner(page)


def test_the_header_never_collides(visit: Visit, page: Any) -> None:
    """At 720 and 640 pixels, too: what a window of 1,440 or 1,280 has left at 200 %."""
    visit()
    crossed = """() => {
        const pages = [...document.querySelectorAll("#sv-tabs .tab-container button")];
        const others = [...document.querySelectorAll("#sv-brand .svp-brand > *:not(.svp-grow, .svp-name, [hidden])")];
        const box = (one) => one.getBoundingClientRect();
        return others.filter((one) => pages.some((tab) => box(tab).width && box(one).width
            && box(tab).right > box(one).left + 1 && box(tab).left < box(one).right - 1
            && box(tab).bottom > box(one).top + 1 && box(tab).top < box(one).bottom - 1)).map((one) => one.className);
    }"""
    for width in (500, 640, 720, 800, 900, 1000, 1010, 1100, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        becomes(page, lambda: page.evaluate(crossed), [])


@pytest.mark.matrix("every width and theme")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_width_and_theme_fits(visit: Visit, page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    visit()
    for width in (400, 760, 1280, 1900):
        fits(page, width)
    page.set_viewport_size({"width": 400, "height": 800})
    page.reload()
    page.wait_for_selector(MOUNTED)
    expect(page.locator("#sv-panel")).to_be_hidden()  # the views come first
    bar = page.locator("#sv-bar")
    becomes(page, lambda: bar.bounding_box()["height"] < 3 * 32, True)  # the run's name, and one row of buttons
    assert bar.locator("select").first.bounding_box()["width"] > 300, "its name has the room of a row"
    page.get_by_role("button", name="Share").click()
    box = page.locator(".ui-menu").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 400
    page.keyboard.press("Escape")
    tabs = page.locator(".sv-lower .ui-tabs").first
    expect(tabs).to_have_attribute("data-more", "end")  # a sign that there are more
    page.get_by_role("tab", name="Details").click()
    expect(page.locator(".sv-details")).to_be_in_viewport()
    expect(tabs).to_have_attribute("data-more", "start")
    expect(page.get_by_role("tab", name="Details")).to_be_in_viewport(ratio=0.95)
    edit(page)
    page.set_viewport_size({"width": 400, "height": 380})  # above the keyboard
    page.locator("#sv-instruction textarea").scroll_into_view_if_needed()
    expect(page.locator(".sve-foot .svp-go")).to_be_in_viewport()
    fits(page, 400)
    page.wait_for_selector(".sve-foot .svp-go:not([disabled])")
    page.focus("#sv-instruction textarea")
    run(page, lambda: page.keyboard.press("Control+Enter"))
    page.wait_for_selector("#sv-panel", state="hidden")  # makes room for the views
    wait_for_end(page)
    assert page.evaluate("document.body.classList.contains('dark')") == (scheme == "dark")


def test_the_editor_holds_the_prompt_of_the_run_shown_and_typed_text_comes_back(visit: Visit, desk: StubDesk) -> None:
    page = visit("?trace=gallery-2")
    edit(page)
    context, instruction = page.locator("#sv-context textarea"), page.locator("#sv-instruction textarea")
    expect(instruction).to_have_value("Summarize these notes in one paragraph.")
    instruction.press_sequentially(" Mine!")
    page.wait_for_selector(".svp-earlier:enabled")
    page.keyboard.press("Escape")
    expect(page.locator("#sv-panel")).to_be_hidden()
    expect(page.locator(".svp-edit")).to_be_focused()
    page.select_option(".svp-chooser select >> nth=0", "gallery-0")
    wait(page, "specviz.app.shown === 'gallery-0'")
    edit(page)
    expect(instruction).not_to_have_value(re.compile("Mine!"))
    expect(context).not_to_have_value("")
    page.get_by_role("button", name="Your texts").click()
    page.get_by_role("menuitem", name="Mine!").click()
    expect(instruction).to_have_value(re.compile("one paragraph.*Mine!"))
    expect(page.locator("#svf-method")).to_have_value(desk.store.get("gallery-0").run["method"]["name"])


def test_a_prompt_is_named_undone_and_the_same_on_compare(visit: Visit, desk: StubDesk) -> None:
    """By the keyboard alone: one form on both pages, with one history."""
    page = visit("?trace=gallery-2")
    instruction, recorded = page.locator("#sv-instruction textarea"), page.locator(".svp-recorded")
    edit(page)
    expect(recorded).to_contain_text("token by token")
    instruction.focus()
    page.keyboard.press("Control+End")
    page.keyboard.insert_text(" Mine!")  # at once: a rest between two keys is a step of its own
    expect(recorded).to_have_count(0)  # another prompt than the run's
    page.focus(".svp-naming")
    page.keyboard.type("Pass")
    wait(page, "localStorage.getItem('specviz-prompts')?.includes('Mine!')")  # the text is kept meanwhile
    page.keyboard.type("ages, mine")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Undo").focus()
    page.keyboard.press("Enter")
    expect(instruction).to_have_value("Summarize these notes in one paragraph.")
    expect(recorded).to_contain_text("token by token")
    page.get_by_role("button", name="Redo").focus()
    page.keyboard.press("Enter")
    expect(instruction).to_have_value("Summarize these notes in one paragraph. Mine!")
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector(".svp-compare[data-ready]")
    expect(page.locator(".svc-prompt-form .svp-naming")).to_have_value("Passages, mine")
    page.locator(".svc-prompt-form").get_by_role("button", name="Undo").press("Enter")
    expect(page.locator(".svc-prompt-form #svc-instruction textarea")).to_have_value(
        "Summarize these notes in one paragraph."
    )
    page.get_by_role("button", name="Your texts").press("Enter")
    page.get_by_role("menuitem", name="Passages, mine").press("Enter")
    expect(page.locator("#svc-instruction textarea")).to_have_value("Summarize these notes in one paragraph. Mine!")
    page.get_by_role("tab", name="Inspect").click()
    edit(page)
    expect(page.locator("#sv-panel #sv-instruction textarea")).to_have_value(
        "Summarize these notes in one paragraph. Mine!"
    )


def test_everything_can_be_named_by_a_screen_reader(visit: Visit) -> None:
    page = visit()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, textarea, a[href]')].filter(e => e.offsetParent
        && !e.closest('[aria-hidden=true]') && !(e.getAttribute('aria-label') || e.textContent.trim() || e.title
        || e.labels?.length || e.getAttribute('aria-labelledby'))).map(e => e.outerHTML.slice(0, 120))"""
    )
    assert nameless == []


@pytest.mark.slow("a server of its own")
def test_a_page_without_a_model_says_so(page: Any) -> None:
    def refuse() -> Any:
        raise ValueError("the model folder /nowhere does not exist")

    with serving(StubDesk(load=refuse, gallery=(recordings.quote(),))) as port:
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector(".svp-pill[data-state=failed]")
        page.wait_for_selector(".svf-reason:has-text('The model folder /nowhere does not exist.')")
        page.wait_for_selector("#sv-run[disabled]")
        wait(page, "specviz.app.shown === 'gallery-0'")


@pytest.mark.slow("a server of its own")
def test_what_the_model_cannot_do_stands_beside_the_editor(page: Any) -> None:
    """As for the bundled toy; and while a model loads, the pill says how far that is."""
    gate = threading.Event()

    def load() -> Any:
        desk.loader.tell("Converting tiny.gguf: weights", 0.43)
        assert gate.wait(WAIT_S)
        return StubTarget()

    desk = StubDesk(load=load, gallery=(recordings.quote(),))
    desk.loader.model = "bundled"
    with serving(desk) as port:
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector(".svp-pill[data-state=loading]:has-text('Converting tiny.gguf: weights, 43%')")
        page.click(".svp-edit")
        note = page.locator("#sv-caution .svf-model")
        expect(note).to_contain_text("a toy of 5 million parameters")
        expect(note).not_to_contain_text("`")  # commands are set as code
        gate.set()
        page.wait_for_selector(".svp-pill[data-state=ready]")
        expect(note).to_contain_text("a toy of 5 million parameters")


@pytest.mark.skipif(not (BUNDLED / "model.safetensors").exists(), reason="there is no bundled model")
def test_the_bundled_model_runs(page: Any) -> None:
    """The real engine behind the page: a prompt of one's own, one method, and the text it gives."""

    def load() -> Any:
        from decoders import load_target

        return load_target(str(BUNDLED))

    store = TraceStore()
    desk = Desk(store, Runner(store), Loader(load, name="demo"), pages=pages())
    with serving(desk) as port:
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector(".svp-banner:has-text('There is no recorded run yet')")
        page.wait_for_selector("#sv-run:not([disabled])")
        edit(page)
        page.fill("#sv-instruction textarea", "Make Voogi bold.")
        page.fill("#sv-context textarea", "The company Flavil will move its park to Voogi in 1960.")
        choose(page, "pld")
        page.fill("#svf-max_new_tokens", "24")
        page.wait_for_selector("#sv-prompt-note:text('tokens')")
        page.click(".svp-go:visible")  # over before one could look
        wait(page, "specviz.app.inspector && specviz.app.inspector.model.run.complete")
        page.wait_for_selector("#sv-run", state="visible")  # nothing goes on any more
        key = text_of_page(page)
        trace = store.get(key)
        assert trace.run["title"] == "Make Voogi bold." and trace.run["method"]["name"] == "pld"
        assert 0 < len(trace.output_ids) <= 24 and trace.text(trace.prompt_ids).count("Voogi") == 2
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/traces/{key}") as answer:
            assert json.loads(answer.read())["run"]["complete"]
    assert page.problems == []


@pytest.mark.slow("a text of both directions in every view")
def test_no_text_of_a_run_turns_the_page_round(visit: Visit, desk: StubDesk) -> None:
    """Names that others gave (title, model, method, tags) stand with marks on every page, in tooltips too."""
    trace = recordings.chain()
    trace.run["id"] = "turned-run"
    trace.run["title"], trace.run["model"]["name"] = "\u202etxt.exe", "mo\u2067del"
    trace.run["method"]["title"] = "PLD\u202d: prompt lookup"
    desk.store.put(trace, kind="opened", owner="*", tags=("ta\u202eg",))
    try:
        for query, drawn in (
            ("trace=turned-run", MOUNTED), ("tab=runs&trace=turned-run", ".svp-grid"),
            ("tab=compare&lanes=turned-run,gallery-0", ".svc-lane"),
        ):  # fmt: skip
            page = visit(f"?{query}", ready=drawn)
            page.wait_for_function("() => document.body.textContent.includes('⟨U+202E⟩txt.exe')")
            raw = "[...document.querySelectorAll('*')].filter((one) => !one.closest('script, style, textarea') && "
            raw += "(/[\\u202a-\\u202e\\u2066\\u2067]/.test([one.title, one.ariaLabel, one.innerText].join(' '))))"
            assert page.evaluate(f"{raw}.map((one) => one.outerHTML.slice(0, 200))") == [], query
    finally:
        desk.store.remove("turned-run")


@pytest.mark.parametrize("address", matrix(["spec", "spec/?tab=runs"], 1, "a link to the drawer"))
def test_the_app_stands_under_a_path_of_a_proxy(page: Any, address: str) -> None:
    """Each request goes to that path; a run can be made."""
    desk = StubDesk(gallery=(recordings.chain(),))
    with serving(desk, root_path="/spec") as port:
        open_app(page, port, address, ready=".svp-grid" if "runs" in address else MOUNTED)
        page.evaluate("document.querySelector('#sv-run').click()")
        page.wait_for_function("() => specviz.app.runs.some(run => run.kind === 'run')")
        assert {url for url in page.requests if f":{port}/spec" not in url and url.startswith("http")} == set()
        nothing_wrong(page, port)


def test_a_path_that_can_be_none_is_said() -> None:
    assert checked_root("/a/b-c/") == "/a/b-c" and checked_root("/") == ""
    for path in ("spec", "/a b", "//evil.test", "/<b>", "http://x/y"):
        with pytest.raises(ValueError, match="cannot be a path: give what stands behind the proxy's name"):
            checked_root(path)
