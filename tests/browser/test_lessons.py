"""The page "Lessons" in real Chromium: every lesson to its last stop by keyboard, questions, presenter mode, links."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from decoders.trace import files as tracefile
from specviz.pages.lessons.lessons_page import LESSONS, LessonRuns, load
from specviz.places import GALLERY
from specviz.server.store import load_folder
from specviz.views.export import standalone_html
from specviz.views.gallery import list_runs
from tests.stubs import StubDesk, nothing_wrong
from tests.waiting import becomes, expect

Visit = Callable[..., Any]
PLAYER = "specviz.app.pages.lesson.player"
FILES = sorted(LESSONS.glob("*.txt"), key=lambda path: int(path.name.split("-")[0]))

# what an inspector holds of a step: nothing of its verdict may be there while a question is open
HELD = f"""() => {{
  const {{ model, number }} = {PLAYER}.inspector;
  const view = model.step(number);
  return {{
    steps: model.stepCount, number, context: view.context, tokens: model.tokenCount,
    states: [...new Set(view.nodes.slice(1).map((node) => node.status))],
    probs: view.nodes.slice(1).filter((node) => node.prob !== null).length,
    would: view.candidates.filter((one) => one.would >= 0).length,
    chosen: view.candidates.filter((one) => one.chosen).length,
    drafted: view.drafted, targets: view.targets.size, plain: model.trace.plain.id.length,
    guessed: model.trace.guesses.step.filter((s, row) => s === number && model.trace.guesses.prob[row] !== null).length,
    probes: {PLAYER}.inspector.prompts.element.getClientRects().length,
    said: {PLAYER}.inspector.sentence.textContent,
  }}
}}"""

# what of the presented views is cut at the foot of the part in which it scrolls
CUT = """() => [...document.querySelectorAll(".sv-presenting .sv-lesson-view .sv-body")].flatMap((body) => {
  const { bottom } = body.getBoundingClientRect();
  const foot = bottom - Number(/^inset\\(0px 0px ([\\d.]+)px/.exec(getComputedStyle(body).clipPath)?.[1] ?? 0);
  const texts = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  const cut = [];
  while (texts.nextNode()) {
    range.selectNode(texts.currentNode);
    const boxes = [...range.getClientRects()];
    if (boxes.some((box) => box.height && box.top < foot - 2 && box.bottom > foot + 4)) cut.push(range.toString());
  }
  return cut;
})"""

IN_PANE = """token => { const [pane, box] = [token.closest(".sv-body"), token].map((e) => e.getBoundingClientRect());
  return box.top >= pane.top && box.bottom <= pane.bottom }"""
IN_CARD = """words => { const card = words.closest(".sv-lesson-text").getBoundingClientRect();
  const { top, bottom } = words.getBoundingClientRect();
  return top >= card.top && bottom <= document.querySelector(".sv-lesson-nav").getBoundingClientRect().top }"""

FOLDED = f"{PLAYER}.inspector.tree.placed.some((item) => item.kind === 'chip')"
WRITTEN = f"""() => {{ const texts = []; CanvasRenderingContext2D.prototype.fillText = (text) => texts.push(text);
  {PLAYER}.inspector.timeline.draw(); return texts }}"""


@pytest.fixture(scope="module")
def desk(module_home: Path) -> StubDesk:
    (module_home / "lessons").mkdir()
    mine = module_home / "lessons" / "mine.txt"
    mine.write_text("title: Mine\nabout: <b>x</b>\n\n# One\n\nText {x}.", encoding="utf-8")
    found = StubDesk(load=None)
    load_folder(found.store, GALLERY, "gallery")
    found.first = "3-class-docstring-pld"
    return found


@pytest.fixture
def visit(page: Any, port: int) -> Iterator[Visit]:
    def go(query: str = "", ready: str = ".svp-lessons[data-ready]") -> Any:
        page.goto(f"http://127.0.0.1:{port}/{query}")
        page.wait_for_selector(ready)
        return page

    yield go
    nothing_wrong(page, port, schemes="data|blob|file")


def at(page: Any, state: str) -> None:
    page.wait_for_selector(f'.sv-lesson[data-ready="{state}"]')


@pytest.mark.slow("several stops of a lesson")
def test_a_panel_comes_with_the_stop_that_is_about_it(visit: Visit, page: Any) -> None:
    """Lesson 1 has no oracle, no regret and no candidates at its first stop, and its tree from the second on."""
    visit("?tab=lessons&lesson=1-drafting", '.sv-lesson[data-ready="1-drafting 0"]')
    inside = page.locator(".sv-lesson-view")
    panels = {name: inside.locator(f".sv-{name} >> visible=true") for name in ("tree", "candidates", "sentence")}
    oracle = inside.locator(".sv-oracle >> visible=true")
    regret = inside.locator("[data-key=ranking_regret] >> visible=true")
    for one in (*panels.values(), oracle, regret, inside.locator(".sv-prompt >> visible=true")):
        expect(one).to_have_count(0)
    expect(inside.locator(".sv-timeline")).to_be_visible()
    expect(inside.locator(".sv-output")).to_be_visible()
    page.keyboard.press("ArrowRight")
    at(page, "1-drafting 1 asked")
    expect(panels["tree"]).to_have_count(1)
    expect(inside.locator(".sv-prompt")).to_be_visible()
    expect(panels["sentence"]).to_have_count(0)
    page.focus("button:has-text('Show everything')")
    page.keyboard.press("Enter")
    expect(panels["candidates"]).to_have_count(1)
    page.keyboard.press("Enter")
    expect(panels["candidates"]).to_have_count(0)
    # a lesson that begins with candidates shows them at once, with what a ranking means
    visit("?tab=lessons&lesson=3-ranking&at=6", '.sv-lesson[data-ready^="3-ranking 5"]')
    expect(panels["candidates"]).to_have_count(1)
    expect(oracle).to_have_count(1)
    # opened by its address, a stop marks all the rows that it is about
    visit("?tab=lessons&lesson=3-ranking&at=2", '.sv-lesson[data-ready="3-ranking 1"]')
    expect(inside.locator(".sv-crow[data-spot]")).to_have_count(2)
    # a node that it is about is drawn by itself, with its probability and rank
    visit("?tab=lessons&lesson=2-one-forward&at=2", '.sv-lesson[data-ready="2-one-forward 1"]')
    expect(inside.locator(".sv-tree [data-spot]")).to_contain_text(".67")
    page.set_viewport_size({"width": 1280, "height": 800})
    visit("?tab=lessons&lesson=7-cape&at=2", '.sv-lesson[data-ready="7-cape 1 asked"]')
    page.keyboard.press("f")
    expect(inside.locator(".sv-tree .sv-node", has_text="8th")).to_be_in_viewport()
    # what a stop names first is brought into sight where not all that it is about fits
    visit("?tab=lessons&lesson=8-casd&at=7", '.sv-lesson[data-ready="8-casd 6"]')
    expect(inside.locator(".sv-diff")).to_be_in_viewport()


@pytest.mark.slow("a second lesson's views")
def test_a_lattice_that_is_told_of_is_whole(visit: Visit, page: Any) -> None:
    """With the row of what was written and is no candidate."""
    page.set_viewport_size({"width": 1280, "height": 800})
    visit("?tab=lessons&lesson=12-block&at=4", '.sv-lesson[data-ready^="12-block 3"]')
    boxes = page.locator(".sv-lattice svg g:has(> rect)")
    bottoms = boxes.evaluate_all("boxes => boxes.map((box) => box.getBoundingClientRect().bottom)")
    expect(boxes.nth(bottoms.index(max(bottoms)))).to_be_in_viewport(ratio=1)
    visit("?tab=lessons&lesson=12-block&at=5", '.sv-lesson[data-ready^="12-block 4"]')
    own = page.locator(".sv-lesson .sv-output .sv-t.sv-now.sv-own")
    becomes(page, lambda: own.evaluate("token => token.getClientRects().length"), 1)  # beside a narrow text, too
    visit("?tab=lessons&lesson=12-block&at=7", '.sv-lesson[data-ready^="12-block 6"]')
    expect(page.locator(".sv-lesson-view .sv-tree")).to_be_visible()
    expect(page.locator(".sv-lesson .sv-lattice")).to_be_hidden()  # it would have no room


@pytest.mark.slow("four lessons presented")
def test_presented_views_end_on_a_whole_line(visit: Visit, page: Any) -> None:
    """A slim tree stands whole beside the text, and an unchecked draft opens on its first token."""
    page.set_viewport_size({"width": 1280, "height": 800})
    for lesson, stop in (("1-drafting", 5), ("9-lossless", 4), ("7-cape", 2), ("14-two-drafters", 2)):
        visit(f"?tab=lessons&lesson={lesson}&at={stop}&present=1", f'.sv-lesson[data-ready^="{lesson} {stop - 1}"]')
        becomes(page, lambda: page.evaluate(CUT), [])
        if lesson == "1-drafting":
            expect(page.locator(".sv-lesson-view .sv-rest")).to_have_text(
                "height):⏎␣×7␣self.width␣=␣width⏎␣×7 · 9 not reached"
            )
        if lesson == "7-cape":
            expect(page.locator(".sv-lesson-view .sv-drafter .sv-verdict")).to_have_text("=: not checked yet.")
            expect(page.locator(".sv-lesson-view .sv-tree-signs")).to_contain_text("drafter's probability")
    expect(page.locator(".sv-lesson-view .sv-tree-rest")).to_be_hidden()
    expect(page.locator(".sv-lesson-view .sv-tree .sv-node")).to_have_count(16)  # the root, and all that was drafted


@pytest.mark.slow("six stops of lessons")
def test_what_a_stop_is_about_is_in_sight_and_says_nothing_else(visit: Visit, page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    inside = page.locator(".sv-lesson-view")
    visit("?tab=lessons&lesson=4-adapld&at=4&present=1", '.sv-lesson[data-ready="4-adapld 3 asked"]')
    for _ in range(2):  # the line that is asked about, and what came behind it
        root = page.evaluate(f"{PLAYER}.inspector.model.step(7).context - 1")
        becomes(page, lambda at=root: inside.locator(f'.sv-output [data-p="{at}"]').first.evaluate(IN_PANE), True)
        page.keyboard.press("2")
        at(page, "4-adapld 3")
    visit("?tab=lessons&lesson=9-lossless&at=3", '.sv-lesson[data-ready="9-lossless 2 asked"]')
    row = inside.locator(".sv-pair-row.sv-this")
    expect(row).to_contain_text("not checked yet")
    expect(row.locator(".sv-pair-number").last).to_have_text("–")
    visit("?tab=lessons&lesson=9-lossless&at=6&present=1", '.sv-lesson[data-ready="9-lossless 5 asked"]')
    expect(inside.locator(".sv-tree .sv-node")).to_have_count(11)  # the root, and all that was drafted
    page.keyboard.press("2")
    page.keyboard.press("Escape")
    at(page, "9-lossless 5")
    expect(inside.locator(".sv-diff")).to_be_visible()
    expect(inside.locator(".sv-lower")).to_be_hidden()  # a run without the drafter's panel of an earlier stop
    becomes(page, lambda: page.evaluate("scrollY"), 0)
    expect(inside.locator(".sv-diff")).to_be_in_viewport(ratio=1)
    visit("?tab=lessons&lesson=8-casd&at=5&present=1", '.sv-lesson[data-ready^="8-casd 4"]')
    page.keyboard.press("2")
    at(page, "8-casd 4")
    expect(inside.locator(".sv-diff")).to_be_in_viewport(ratio=1)
    visit("?tab=lessons&lesson=4-adapld&at=2", '.sv-lesson[data-ready^="4-adapld 1"]')
    for _ in range(2):
        becomes(page, lambda: page.evaluate(FOLDED), False)
        expect(inside.locator(".sv-crow[data-k]").nth(1)).to_be_in_viewport(ratio=1)
        page.keyboard.press("2")
        at(page, "4-adapld 1")
    visit("?tab=lessons&lesson=7-cape&at=3", '.sv-lesson[data-ready^="7-cape 2"]')
    page.keyboard.press("2")
    expect(inside.locator(".sv-drafter .sv-verdict")).to_have_text("):, the 8th guess: accepted.")
    visit("?tab=lessons&lesson=1-drafting&at=2&present=1", '.sv-lesson[data-ready^="1-drafting 1"]')
    page.keyboard.press("2")
    expect(inside.locator(".sv-tree .sv-node")).to_have_count(12)
    visit("?tab=lessons&lesson=7-cape&at=1", '.sv-lesson[data-ready="7-cape 0"]')
    expect(inside.locator(".sv-sureness")).to_contain_text("From .8 to .9 CAPE grants 2 candidates")
    # a source out of sight is told by the line that is shown
    visit("?tab=lessons&lesson=2-one-forward&at=3&present=1", '.sv-lesson[data-ready="2-one-forward 2 asked"]')
    page.keyboard.press("2")
    expect(inside.locator(".sv-peek-where")).to_contain_text("line 19, further up")
    expect(inside.locator(".sv-peek-lines > *").first).to_contain_text(re.compile("^19"))
    visit("?tab=lessons&lesson=2-one-forward&at=2&present=1", '.sv-lesson[data-ready="2-one-forward 1"]')
    expect(inside.locator(".sv-peek-lines > *").first).not_to_have_attribute("style", re.compile("margin"))
    visit("?tab=lessons&lesson=2-one-forward&at=6&present=1", '.sv-lesson[data-ready="2-one-forward 5"]')
    assert {"forward, ms", "25.4", "34.1"} <= set(page.evaluate(WRITTEN))
    # an answer leaves the heading and its own words in sight, and names places as the table does
    visit("?tab=lessons&lesson=3-ranking&at=3", '.sv-lesson[data-ready="3-ranking 2 asked"]')
    page.keyboard.press("2")
    at(page, "3-ranking 2")
    expect(page.locator(".sv-option-right small")).to_have_text("L35")
    expect(inside.locator(".sv-crow[data-k]").first).to_contain_text("L35")
    for shown in (".sv-lesson-stop", ".sv-reveal"):
        becomes(page, lambda name=shown: page.locator(name).evaluate(IN_CARD), True)


@pytest.mark.slow("a lesson opened below a pointer at rest")
def test_no_card_opens_where_a_lesson_comes_to_lie_below_the_pointer(visit: Visit, page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    first = '.sv-lesson[data-ready^="12-block 0"]'
    visit("?tab=lessons&lesson=12-block&at=1", first)
    box = page.locator(".sv-lesson-view .sv-node[data-tip]").first.bounding_box()
    page.click("text=Lessons >> nth=-1")
    start = page.locator(".svn-card", has_text="Drafting a whole block").locator("button").first
    start.wait_for()
    page.mouse.move(box["x"] + 10, box["y"] + 6)
    start.evaluate("e => e.click()")
    page.wait_for_selector(first)
    page.wait_for_selector(".sv-lesson-view .sv-node[data-tip]:hover")
    expect(page.locator(".sv-lesson-view .sv-tip")).to_be_hidden()


@pytest.mark.slow("every stop of every lesson")
def test_every_lesson_to_its_last_stop(visit: Visit, page: Any) -> None:
    visit("?tab=lessons")
    cards = page.locator(".svn-card")
    assert cards.count() == len(FILES) + 1
    expect(page.locator(".svn-faulty")).to_contain_text("mine.txt, line 1: the field minutes: is missing")
    page.focus(".svn-card >> nth=0 >> button")
    page.keyboard.press("Enter")
    for path in FILES:
        lesson = load(path)
        name, asked = path.stem, 0
        for number, stop in enumerate(lesson["stops"]):
            ask = stop["ask"]
            if ask:
                asked += 1
                at(page, f"{name} {number} asked")
                whole = LessonRuns(LESSONS, GALLERY).find(stop["run"])[1]
                held = page.evaluate(HELD)
                where = f"{name}, stop {number + 1}: {held}"
                assert held["number"] == stop["step"] == held["steps"] - 1, where
                assert held["tokens"] == held["context"] == whole.tables["steps"]["context"][stop["step"]], where
                assert set(held["states"]) <= {"unreached"} and not held["probs"] and not held["guessed"], where
                assert not held["would"] and not held["targets"] and not held["plain"] and not held["probes"], where
                assert ask["kind"] != "candidate" or not (held["chosen"] or held["drafted"]), where
                assert held["said"].endswith("?") or ask["kind"] in ("value", "yes"), where
                assert page.locator(".sv-reveal").count() == 0
                page.keyboard.press("ArrowRight")  # not before an answer
                expect(page.locator(".sv-ask-hint")).to_be_visible()
                wrong = ask["answer"] == 0
                page.keyboard.press(str((1 if wrong else 0) + 1 if asked == 1 else ask["answer"] + 1))
                at(page, f"{name} {number}")
                expect(page.locator(".sv-reveal")).to_be_visible()
                expect(page.locator(".sv-option-right")).to_have_count(1)
                assert page.evaluate(f"{PLAYER}.inspector.model.stepCount") == whole.rows("steps")
            else:
                at(page, f"{name} {number}")
            assert page.evaluate(f"{PLAYER}.inspector.number") == stop["step"]
            marked = page.locator(".sv-lesson-view :is(.sv-spot, [data-spot], .sv-spot-token)").count()
            assert marked or not stop["show"], f"{name}, stop {number + 1} highlights nothing"
            page.keyboard.press("ArrowRight" if number % 2 else "Enter")
        at(page, f"{name} end")
        expect(page.locator(".sv-score")).to_have_text(f"{asked - 1} of {asked} predicted")
        expect(page.locator(".sv-missed")).to_have_count(1)
        page.keyboard.press("ArrowRight")  # the next lesson
    assert page.locator(".svp-lessons b:text-is('x')").count() == 0  # text is data


def test_links_presenter_mode_and_resuming(visit: Visit, page: Any) -> None:
    visit("?lesson=1&at=3&present=1")
    at(page, "1-drafting 2 asked")
    line = "all => [...new Set(all.map(e => getComputedStyle(e).textDecorationStyle))]"
    offered = page.eval_on_selector_all(".sv-lesson-view .sv-unread", line)
    assert offered == ["dotted"], "what is offered does not look rejected before the prediction"
    whole = {"x": 0, "y": 0, "width": 1280, "height": 820}
    becomes(page, page.locator(".sv-lesson.sv-presenting").bounding_box, whole)
    for hidden in (".sv-lesson-nav", ".sv-lesson-tools", ".sv-lesson-view .sv-controls", ".sv-lesson-view .sv-actions"):
        expect(page.locator(f"{hidden}:visible")).to_have_count(0)
    size = float(page.evaluate("getComputedStyle(document.querySelector('.sv-lesson-words')).fontSize").strip("px"))
    assert size >= 15 and re.fullmatch(r"0:[0-5]\d", page.inner_text(".sv-lesson > .sv-present-bar .sv-present-time"))
    fits = "(({ scrollHeight, clientHeight }) => scrollHeight <= clientHeight + 2)"
    fits += "(document.querySelector('.sv-lesson-text'))"
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.keyboard.press("2")
    at(page, "1-drafting 2")
    becomes(page, lambda: page.evaluate(fits), True)
    expect(page.locator(".sv-ask-head")).to_have_text("You predicted it")
    page.wait_for_url(lambda url: "present=1" in url and "at=3" in url)
    page.keyboard.press("ArrowLeft")
    at(page, "1-drafting 1 asked")
    page.keyboard.press("Escape")
    expect(page.locator(".sv-presenting")).to_have_count(0)
    page.wait_for_url(lambda url: "present" not in url and "at=2" in url)
    page.set_viewport_size({"width": 1280, "height": 820})
    visit("?lesson=drafting&at=2", '.sv-lesson[data-ready="1-drafting 1 asked"]')
    visit("?lesson=99")
    expect(page.locator(".svn-problem")).to_contain_text("There is no lesson 99. There are 1-drafting, 2-one-forward,")
    # the place and the answers are kept in this browser
    visit("?tab=lessons&lesson=1-drafting")
    at(page, "1-drafting 1 asked")
    page.keyboard.press("1")
    page.keyboard.press("ArrowRight")
    at(page, "1-drafting 2")
    expect(page.locator(".sv-reveal")).to_be_visible()
    page.keyboard.press("f")
    page.wait_for_selector(".sv-lesson.sv-presenting")
    page.keyboard.press("f")
    # beside the lesson one may look around, and come back
    page.click(".sv-lesson-view .sv-timeline", position={"x": 300, "y": 20})
    page.wait_for_selector(".sv-spot", state="detached")
    page.click(".sv-away")
    page.wait_for_selector(".sv-spot")
    becomes(page, lambda: page.evaluate(f"{PLAYER}.inspector.number"), 1)
    page.click("text=Open in Inspect")
    page.wait_for_selector('#sv-inspect .svp-host[data-ready="3-class-docstring-pld"]')
    becomes(page, lambda: page.evaluate("specviz.app.inspector.number"), 1)
    page.get_by_role("tab", name="Rules").click()
    expect(page.locator(".sv-mass-words")).to_contain_text("q 1.0 (not drawn, so certain)")


@pytest.mark.slow("the page opened twice")
def test_presenter_mode_in_inspect_and_in_a_file(visit: Visit, page: Any, tmp_path: Path) -> None:
    visit("?trace=1-class-docstring-adapld&step=4&present=1", "#sv-inspect .sv.sv-presenting")
    assert not page.is_visible(".sv-presenting .sv-controls") and page.is_visible(".sv-presenting .sv-sentence")
    lines = "(({ body, code }) => body.clientHeight / parseFloat(getComputedStyle(code).lineHeight))"
    assert page.evaluate(f"{lines}(specviz.app.inspector.text)") > 15, "the text is in sight, in large type"
    page.keyboard.press("ArrowRight")
    becomes(page, lambda: page.evaluate("specviz.app.inspector.number"), 4)
    expect(page.locator(".sv-presenting .sv-present-place")).to_have_text("Step 5 of 10")
    page.wait_for_function("location.search.includes('step=5') && location.search.includes('present=1')")
    page.keyboard.press("Escape")
    expect(page.locator(".sv-presenting")).to_have_count(0)
    page.wait_for_url(lambda url: "present" not in url)
    page.click("button[aria-label^='Present']")
    page.wait_for_url(lambda url: "present=1" in url)
    page.keyboard.press("F")
    expect(page.locator(".sv-presenting")).to_have_count(0)
    # the numbers of every run, as they are explained, are those of its record
    wrong = page.evaluate(
        """async (names) => {
          const { Model } = await import("specviz/base/model.js");
          const terms = await import("specviz/base/terms.js");
          const wrong = [];
          let checked = 0;
          for (const name of names) {
            const model = new Model(await (await fetch(`api/traces/${name}`)).json());
            for (const key of Object.keys(model.report.metrics)) {
              const told = model.run.metrics[key];
              const found = terms.numbers(key, model);
              if (told === null || told === undefined || !found) continue;
              checked++;
              if (Math.abs(found[1] - told) > 1e-6 * Math.max(1, Math.abs(told))) wrong.push([name, key, told, found]);
            }
          }
          return { wrong, checked };
        }""",
        [path.stem for path in GALLERY.glob("*.spectrace")],
    )
    assert wrong["wrong"] == [] and wrong["checked"] > 10 * len(list_runs())
    page.hover("#sv-inspect .sv-numbers [data-key=tokens_per_step]")
    expect(page.locator("#sv-inspect .sv-tip")).to_contain_text("= mean over steps of (accepted + 1)")
    tip = page.inner_text("#sv-inspect .sv-tip")
    accepted = tracefile.load(GALLERY / "1-class-docstring-adapld.spectrace").tables["steps"]["accepted"]
    assert "= mean over steps of (accepted + 1)" in tip and f"({sum(accepted)} + 10) ÷ 10 = 10.7" in tip
    assert f"{accepted[4]} + 1 = {accepted[4] + 1}" in tip and "decoders/trace/metrics.py · measure" in tip
    page.focus("#sv-inspect :is(.sv-cost, .sv-took) .sv-term >> nth=0")
    expect(page.locator("#sv-inspect .sv-tip")).to_contain_text("draft_ms + verify_ms + commit_ms")
    path = tmp_path / "run.html"
    path.write_text(standalone_html(tracefile.load(GALLERY / "3-class-docstring-pld.spectrace")), encoding="utf-8")
    page.goto(f"{path.as_uri()}#step=2&present=1")
    page.wait_for_selector(".sv.sv-presenting")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(lambda url: url.endswith("#step=3&present=1"))
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: url.endswith("#step=3"))
