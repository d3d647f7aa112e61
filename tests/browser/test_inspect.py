"""Inspect on one screen: what is in sight together, the drawer, the tree's size, keys, a run that streams."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from decoders.prompt.templates import templates
from decoders.trace import files as tracefile
from decoders.trace.report import payload
from decoders.trace.trace import Trace
from specviz.places import GALLERY
from specviz.views.examples import examples
from specviz.views.export import standalone_html
from tests import recordings
from tests.browser.test_app import edit, open_app
from tests.stubs import StubDesk
from tests.waiting import becomes, expect

Visit = Callable[..., Any]
MOUNTED = "body.sv-mounted #sv-inspect .svp-host[data-ready]"
RUNS = ("1-class-docstring-adapld", "2-class-docstring-pld-h", "10-account-check-casd", "12-library-points-pld-h")


def record_of(name: str) -> Trace:
    return tracefile.load(GALLERY / f"{name}.spectrace")


@pytest.fixture(scope="module")
def desk() -> StubDesk:
    return StubDesk(gallery=(*(record_of(name) for name in RUNS), recordings.gallery_run("lighthouse-story-pld")))


@pytest.fixture
def visit(page: Any, port: int) -> Iterator[Visit]:
    def go(query: str = "", width: int = 1280, height: int = 800) -> Any:
        page.set_viewport_size({"width": width, "height": height})
        return open_app(page, port, query, MOUNTED)

    yield go
    assert [text for text in page.problems if "status of 422" not in text] == []  # a refusal, which the page tells


# what of a step is not in sight; every step is drawn in turn, why beside the text, then its tree
OUT_OF_SIGHT = """async () => {
    const v = specviz.app.inspector, wrong = [];
    const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const inside = (name, box, frame) => {
        if (!box || !box.width || box.top < frame.top - 1 || box.left < frame.left - 1 ||
            box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
            wrong.push(`step ${v.number + 1}: ${name} at ${box?.left}, ${box?.top} of ${frame.left}, ${frame.top}`);
    };
    const page = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
    for (const tab of ["why", "tree"]) {
        v.tabs.open(tab);
        await frame();
        for (let k = 0; k < v.model.stepCount; k++) {
            v.setStep(k);
            await frame();
            if (scrollY) wrong.push(`step ${k + 1}: the page is scrolled`);
            const view = v.model.step(k), text = v.text.body.getBoundingClientRect();
            for (const name of [".sv-timeline", ".sv-text", tab === "why" ? ".sv-sentence" : ".sv-tree"])
                inside(name, v.root.querySelector(name)?.getBoundingClientRect(), page);
            for (let at = view.context; at < view.end; at++)
                for (const token of v.text.elements(at).filter((one) => one.textContent.trim() && one.offsetWidth))
                    inside(`token ${at}`, token.getBoundingClientRect(), text);
            for (const token of v.root.querySelectorAll(".sv-ghost-text, .sv-under span"))
                inside(token.textContent, token.getBoundingClientRect(), text);
            if (!v.model.pooled && text.height / 21 < 22) wrong.push(`${text.height / 21} lines of text`);
            if (tab === "why") continue;
            const tree = v.tree.body.getBoundingClientRect();
            for (const name of ["root", "accepted", "bonus"])
                for (const node of v.tree.svg.querySelectorAll(`.sv-node-${name} .sv-box`))
                    inside(name, node.getBoundingClientRect(), tree);
        }
    }
    return wrong;
}"""


@pytest.mark.slow("25 s: every step of a run, in two windows")
@pytest.mark.parametrize("size", [(1440, 900), (1280, 800)])
def test_a_step_is_seen_whole_without_scrolling(visit: Visit, size: tuple[int, int]) -> None:
    page = visit("?trace=gallery-0", *size)
    for number in range(len(RUNS)):
        page.evaluate(f"specviz.open('gallery-{number}')")
        page.wait_for_selector(f'#sv-inspect .svp-host[data-ready="gallery-{number}"]')
        assert page.evaluate(OUT_OF_SIGHT) == []


def test_details_are_a_tab_that_covers_nothing(visit: Visit) -> None:
    page = visit("?trace=gallery-0&step=3")
    details, why = page.locator(".sv-details"), page.get_by_role("tab", name="Why")
    expect(details).to_be_hidden()
    page.keyboard.press("d")
    expect(details).to_be_visible()
    expect(page.get_by_role("tab", name="Details")).to_have_attribute("aria-selected", "true")
    edit(page)
    over = "document.elementFromPoint(innerWidth - 260, 300).closest('#sv-panel, .sv-details')?.id"
    becomes(page, lambda: page.evaluate(over), "sv-panel")
    page.keyboard.press("Escape")
    expect(page.locator("#sv-panel")).to_be_hidden()
    expect(details).to_be_visible()
    run = record_of(RUNS[0]).run
    told = details.inner_text()
    assert "not set" not in told and "accepted" in page.locator(".sv-steps .sv-legend").text_content()
    for control in run["method"]["controls"]:
        assert control["label"] in told, "every parameter, set or left open"
    for help_ in run["metric_help"]:
        if run["metrics"].get(help_["key"]) is not None:
            assert help_["label"] in told
    assert str(run["model"]["name"]) in told
    values = page.eval_on_selector_all(".sv-all-metrics .sv-metric", "all => all.map((one) => one.innerText)")
    assert len(values) > 10 and all(len(said.split()) > 4 for said in values), "each number says what it is"
    page.keyboard.press("d")
    expect(details).to_be_hidden()
    expect(why).to_have_attribute("aria-selected", "true")
    page.keyboard.press("d")
    expect(details).to_be_focused()
    page.keyboard.press("Escape")
    expect(why).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tab", name="Details")).to_be_focused()


TREE = ".sv-views .sv-tree"
COUNTED = """() => {
    const { tree, number, model } = specviz.app.inspector;
    const seen = tree.placed.reduce((sum, item) => sum + ({ chip: item.count, stretch: item.nodes?.length, bonus: 0 }
        [item.kind] ?? 1) + (item.hidden ?? 0), 0);
    return [seen, model.step(number).nodes.length];
}"""
SCALE = "specviz.app.inspector.tree.window.scale"


@pytest.mark.slow("the page opened again")
def test_a_tree_is_folded_opened_zoomed_and_mapped(visit: Visit) -> None:
    page = visit("?trace=gallery-0&step=8")
    page.locator(".sv-lower").get_by_role("tab", name="Tree").click()
    becomes(page, lambda: page.evaluate("specviz.app.inspector.tree.window.room") > 300, True)
    shown, nodes = page.evaluate(COUNTED)
    assert shown == nodes > 20
    size = f"e => parseFloat(getComputedStyle(e).fontSize) * {SCALE}"
    assert page.eval_on_selector(f"{TREE} .sv-label", size) >= 12
    chip = page.locator(f"{TREE} .sv-node-chip")
    while chip.count():
        chip.first.focus()
        page.keyboard.press("Enter")
    assert page.evaluate(COUNTED) == [nodes, nodes]
    page.locator(f"{TREE} .sv-body").focus()
    before = page.evaluate(SCALE)
    for _ in range(4):
        page.keyboard.press("+")
    becomes(page, lambda: page.evaluate(SCALE) > before, True)
    tree_map = page.locator(f"{TREE} .sv-tree-map")
    expect(tree_map).to_be_visible()
    picture = f"document.querySelector('{TREE} .sv-tree-map canvas').toDataURL()"
    light = page.evaluate(picture)
    for dark in (True, False):  # its colours are the theme's at once
        page.click(".svp-theme")
        becomes(page, lambda dark=dark: (page.evaluate(picture) != light) == dark, True)
    rest = page.locator(f"{TREE} .sv-tree-rest")
    expect(rest).to_contain_text("out of sight")
    page.locator(f"{TREE} .sv-body").focus()
    left = "specviz.app.inspector.tree.body.scrollLeft"
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    becomes(page, lambda: page.evaluate(left) > 100, True)
    assert page.evaluate("specviz.app.inspector.number") == 7, "the step stays"
    box = page.locator(f"{TREE} .sv-tree-map canvas").bounding_box()
    page.mouse.click(box["x"] + 3, box["y"] + 3)
    becomes(page, lambda: page.evaluate(left), 0)
    rest.click()
    expect(tree_map).to_be_hidden()
    page.locator(TREE).get_by_role("button", name="Fit the tree").click()
    assert page.evaluate(SCALE) >= 1


@pytest.mark.slow("the page opened again")
def test_keys_step_after_closing_the_editor_and_from_the_run_picker(visit: Visit) -> None:
    page = visit("?trace=gallery-4&step=3")
    number = "specviz.app.inspector.number"
    edit(page)
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(number) == 3
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("]")
    assert page.evaluate(number) > 2
    at = page.evaluate(number)
    page.focus(".svp-chooser select >> nth=0")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("specviz.app.current") == "gallery-4" and page.evaluate(number) == at + 1
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(number) == at
    page.get_by_role("tab", name="Inspect").focus()
    page.keyboard.press("ArrowRight")  # the tabs' own key
    assert page.evaluate(number) == at


@pytest.mark.slow("the page opened again")
def test_the_first_tab_stop_leads_to_the_steps(visit: Visit) -> None:
    page = visit("?trace=gallery-4")
    page.keyboard.press("Tab")
    expect(page.locator(".svp-skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("slider", name="Step")).to_be_focused()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("specviz.app.inspector.number") == 1
    edit(page)
    page.check("#sv-mode input[value=text]", force=True)
    expect(page.locator("#sv-text textarea")).to_be_visible()
    ring = "e => getComputedStyle(e).outlineStyle + ' ' + getComputedStyle(e).outlineWidth"
    for field in ("text", "instruction", "context", "question"):
        if field == "instruction":
            page.check("#sv-mode input[value=segments]", force=True)
            expect(page.locator("#sv-text textarea")).to_have_count(0)
        page.focus(f"#sv-{field} textarea")
        assert page.eval_on_selector(f"#sv-{field} textarea", ring) == "solid 2px"


def test_a_prompt_template_fills_the_instruction(visit: Visit) -> None:
    page = visit()
    edit(page)
    page.click("#sv-more > summary")
    page.get_by_label("Prompt template").select_option("hotpotqa")
    expect(page.locator("#sv-instruction textarea")).to_have_value(templates()["hotpotqa"].text)


def test_what_is_wrong_with_a_prompt_is_said_where_one_looks(visit: Visit) -> None:
    page = visit("?trace=gallery-0")
    edit(page)
    page.check("#sv-mode input[value=text]", force=True)
    page.fill("#sv-text textarea", "x" * 2500)
    page.wait_for_selector("#sv-prompt-note.svp-error")
    page.click(".svp-go:visible")
    wrong = page.locator("#sv-run-note.svp-error")
    expect(wrong).to_contain_text("tokens and the model's context holds 2,000")
    expect(wrong).to_be_in_viewport()
    expect(page.locator("#sv-text textarea")).to_have_value("x" * 2500)


def test_an_examples_name_stands_over_its_own_prompt_alone(visit: Visit) -> None:
    page = visit("?trace=gallery-0")
    edit(page)
    example, first = page.locator("#sv-example"), next(one for one in examples() if one.record.instruction)
    instruction = page.locator("#sv-instruction textarea")
    example.select_option(first.record.id)
    expect(example).to_have_value(first.record.id)
    expect(instruction).to_have_value(first.record.instruction)
    instruction.press("End")
    page.keyboard.insert_text(" Mine.")  # at once: slow typing is several steps to undo
    expect(example).to_have_value("")
    page.get_by_role("button", name="Undo").press("Enter")
    expect(example).to_have_value(first.record.id)


@pytest.mark.slow("reloads, and a second run")
def test_a_draft_outlives_a_reload_and_goes_with_another_run(visit: Visit) -> None:
    page = visit("?trace=gallery-0")
    edit(page)
    page.select_option("#sv-example", "account-check")
    page.check("#sv-mode input[value=chat]", force=True)
    page.fill(".sve-message textarea >> nth=0", "User: <b>not</b> another message")
    page.click(".sve-add")
    page.fill(".sve-message textarea >> nth=1", "An answer.")
    page.click(".sve-add")
    page.fill(".sve-message textarea >> nth=2", "And now?")
    page.wait_for_function("localStorage.getItem('specviz-draft')?.includes('And now?')")
    page.reload()
    page.wait_for_selector("#sv-run:not([disabled])")
    edit(page)
    written = "[...document.querySelectorAll('#sv-text textarea')].map((area) => area.value)"
    texts = ["User: <b>not</b> another message", "An answer.", "And now?"]
    assert page.evaluate(written) == texts
    assert page.locator("#sv-panel b:has-text('not')").count() == 0
    page.keyboard.press("Escape")
    page.select_option(".svp-chooser select >> nth=0", "gallery-1")
    page.wait_for_function("specviz.app.shown === 'gallery-1'")
    edit(page)
    expect(page.locator(".svp-recorded")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    becomes(page, lambda: page.evaluate(written), texts)


def test_a_prompt_is_typed_and_run_by_the_keyboard_alone(visit: Visit, desk: StubDesk) -> None:
    page = visit("?trace=gallery-0")
    page.locator(".svp-edit").press("Enter")
    expect(page.locator("#sv-panel textarea:visible").first).to_be_focused()
    page.locator("#sv-mode input:checked").press("ArrowRight")
    expect(page.locator("#sv-text textarea")).to_have_count(1)
    page.locator("#sv-panel textarea:visible").first.focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("one two three one two")
    count = len(desk.asked)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#sv-panel")).to_be_hidden()
    becomes(page, lambda: len(desk.asked), count + 1)
    assert "one two three one two" in "".join(map(chr, desk.asked[-1].tokens))


def test_one_click_on_run_is_two_requests_and_a_stream(visit: Visit, desk: StubDesk) -> None:
    """Until its first step is drawn: the run, its events, what there is of it when it begins."""
    page = visit("?trace=gallery-0")
    edit(page)
    page.select_option("#sv-example", "account-check")
    page.wait_for_selector("#sv-prompt-note:has-text('tokens')")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.method} {urlsplit(request.url).path}"))
    desk.gate.clear()
    page.click(".svp-go:visible")
    page.wait_for_function("specviz.app.inspector.model.stepCount === 4")
    key = page.evaluate("specviz.app.current")
    # the status is asked for every few seconds, the example's tokens are counted, Gradio's blobs come when they come
    others = ("/api/status", "/api/inspect/count")
    asked = [path for path in asked if not path.endswith(others) and "://" not in path]
    desk.gate.set()  # a run that ends is asked for again, with the list
    assert sorted(asked) == [f"GET /api/live/{key}", f"GET /api/traces/{key}", "POST /api/runs"]


LINES = """() => [...specviz.inspector.text.code.querySelectorAll(".sv-row")].map((row) =>
    [row.querySelector(".sv-no").textContent, row.querySelector(".sv-line").textContent])"""


def test_lines_and_their_numbers_are_right_while_a_run_streams(page: Any, tmp_path: Any) -> None:
    whole = record_of(RUNS[0])
    opening, parts = recordings.deltas(copy.deepcopy(whole))
    (tmp_path / "run.html").write_text(standalone_html(opening), encoding="utf-8")
    page.goto((tmp_path / "run.html").as_uri())
    page.wait_for_selector(".sv-row")
    page.evaluate("all => all.forEach((delta) => specviz.inspector.append(delta, {}))", parts)
    streamed = page.evaluate(LINES)
    page.evaluate("t => specviz.inspector.load(t, {})", payload(whole))
    assert streamed == page.evaluate(LINES) and len(streamed) > 10
    assert page.problems == []


def test_a_link_to_a_step_opens_where_the_step_is(visit: Visit) -> None:
    page = visit("?trace=gallery-1&step=12")
    seen = """() => {
        const v = specviz.app.inspector, view = v.model.step(v.number), pane = v.text.body.getBoundingClientRect();
        const box = v.text.elements(view.context)[0].getBoundingClientRect();
        return box.top >= pane.top && box.bottom <= pane.bottom && v.text.body.scrollTop > 0;
    }"""
    becomes(page, lambda: page.evaluate(seen), True)
