"""The first minutes in real Chromium: the race, the first miss, why; the oracle's lane and its words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import recordings
from tests.browser.test_app import MOUNTED, edit, step, text_of_page
from tests.stubs import StubDesk, nothing_wrong
from tests.tiers import matrix
from tests.waiting import becomes, expect, idle

Visit = Callable[..., Any]
FIRST_TIME = "localStorage.removeItem('specviz-opening')"
RACES = """() => {
    const race = document.querySelector(".svo-racing"), text = race?.textContent ?? "";
    const told = ["Plain decoding", "own times"].every((part) => text.includes(part));
    return told && race.querySelector(".svc-acc");
}"""
FEW = 9
# all that can be pressed or typed into and is in sight; the row of pages is one thing
CONTROLS = """() => {
    const seen = (one) => one.checkVisibility({ visibilityProperty: true }) && one.getBoundingClientRect().right > 0
        && one.getBoundingClientRect().top < innerHeight;
    const all = [...document.querySelectorAll("button, a[href], select, input, textarea, summary, [role=slider]")];
    // the pages' names are one control of many parts, and so is the list of verdicts
    const lists = ".tab-wrapper, .svp-skip, .sv-verdicts";
    return ["pages", "verdicts", ...all.filter((one) => seen(one) && !one.closest(lists))
        .map((one) => one.ariaLabel || one.textContent.trim())];
}"""


@pytest.fixture(scope="module")
def desk() -> StubDesk:
    chain, alone = recordings.gallery_run("class-docstring-pld"), recordings.plain()
    return StubDesk(gallery=(chain, alone, recordings.quote()))


@pytest.fixture
def visit(page: Any, port: int) -> Iterator[Visit]:
    """Opens the app at an address, ``new``: as somebody who was never here; nothing may fail or be asked elsewhere."""
    held: list[Any] = []
    looked = threading.Event()

    def hold(route: Any) -> None:
        """The race, of five seconds, begins with the list: not before somebody looks."""
        if looked.is_set():
            route.continue_()
        else:
            held.append(route)

    def go(query: str = "", *, new: bool = False) -> Any:
        page.goto(f"http://127.0.0.1:{port}/api/status")
        if new:
            page.evaluate(FIRST_TIME)
            page.route("**/api/runs", hold)
        page.goto(f"http://127.0.0.1:{port}/{query}")
        page.wait_for_selector(MOUNTED, state="attached")  # another tab may be shown
        page.wait_for_selector("#sv-run:not([disabled])", state="attached")
        if new:
            becomes(page, lambda: bool(held), True)
            looked.set()
            for route in held:
                route.continue_()
        return page

    yield go
    nothing_wrong(page, port)


def first_miss(desk: StubDesk, key: str) -> int:
    steps = desk.store.get(key).tables["steps"]
    return next(k for k, (n, a) in enumerate(zip(steps["drafted"], steps["accepted"], strict=True)) if n and not a)


def test_a_newcomer_sees_a_race_its_best_step_a_miss_and_is_given_the_turn(visit: Visit, desk: StubDesk) -> None:
    page = visit(new=True)
    assert page.evaluate("specviz.app.drawn") > 0  # as without it
    page.wait_for_function(RACES)
    card = page.locator(".svo:not(.svo-racing)")
    accepted = desk.store.get("gallery-0").tables["steps"]["accepted"]
    best = accepted.index(max(accepted))
    expect(card).to_contain_text(f"Step {best + 1}, its best: {max(accepted)} drafted tokens accepted.")
    expect(card).to_contain_text(f"{len(desk.store.get('gallery-0').output_ids)} tokens in")
    becomes(page, lambda: step(page), best)
    expect(page.locator(".sv-arc .sv-arc-line")).to_have_count(1)  # from where it was copied
    expect(page.locator(".sv-sentence")).to_contain_text("copied from line")
    below, box = page.locator(".sv-screen").bounding_box(), card.bounding_box()
    assert box["y"] + box["height"] <= below["y"], "the strip covers nothing"
    assert page.evaluate("document.activeElement.closest('.svo')") is None
    controls = page.evaluate(CONTROLS)
    assert {"Your turn", "Show everything", "Next: a miss"} <= set(controls) and len(controls) <= FEW, controls
    page.keyboard.press("ArrowLeft")  # what the strip says of a step stays true, and leads back
    page.click(".svo-question >> text=Show it")
    becomes(page, lambda: step(page), best)
    expect(page.locator(".svo-question >> text=Show it")).to_have_count(0)
    miss = first_miss(desk, "gallery-0")
    page.click(".svo button:has-text('Next: a miss')")
    becomes(page, lambda: step(page), miss)
    expect(card).to_contain_text(f"Step {miss + 1} drafted")
    expect(card).to_contain_text("would have had" if _lose(desk, miss) else "No ranking could have helped")
    expect(page.locator(".sv-sentence")).to_contain_text("kept none")
    page.evaluate("step => specviz.app.inspector.setStep(step)", best)
    expect(card).not_to_contain_text("ranking could have")  # said of another step than the one that is shown
    page.click(".svo >> text=Show it")
    becomes(page, lambda: step(page), miss)
    page.click(".svo button:has-text('Your turn')")
    expect(page.locator(".svo")).to_have_count(0)
    text = page.locator("#sv-panel textarea >> visible=true").first
    expect(text).to_be_focused()
    expect(text).to_have_value("")  # not the prompt of the run that was raced
    assert text.get_attribute("placeholder")


def _lose(desk: StubDesk, miss: int) -> bool:
    rows = desk.store.get("gallery-0").tables["candidates"]
    return any(w > 0 for s, w in zip(rows["step"], rows["would_accept"], strict=True) if s == miss)


@pytest.mark.slow("the page opened twice")
def test_it_starts_by_itself_once_and_again_by_its_button(visit: Visit) -> None:
    page = visit(new=True)
    page.wait_for_selector(".svo-racing")
    page.keyboard.press("ArrowRight")  # any key skips, and does what it does
    expect(page.locator(".svo-racing")).to_have_count(0)
    becomes(page, lambda: step(page), 1)
    page.keyboard.press("Escape")
    expect(page.locator(".svo")).to_have_count(0)
    page = visit()
    page.click("button:has-text('▶ Race')")
    page.wait_for_selector(".svo-racing")
    page.keyboard.press(" ")  # but the space bar: it brings the best step, and plays nothing
    expect(page.locator(".svo-question")).to_contain_text(f"Step {step(page) + 1}, its best")
    expect(page.locator(".svo-question >> text=Show it")).to_have_count(0)
    assert page.evaluate("specviz.app.inspector.player.timer") == 0
    page.click("button:has-text('Race again')")
    page.wait_for_selector(".svo-racing")
    page.click(".sv-counter")  # so does a click
    expect(page.locator(".svo-racing")).to_have_count(0)


@pytest.mark.parametrize(
    "query", matrix(["?trace=gallery-2", "?step=3", "?tab=runs", "?present=1"], 1, "the page opened again")
)
def test_who_asks_for_something_gets_that(visit: Visit, query: str) -> None:
    page = visit(query, new=True)
    page.wait_for_function("specviz.app.runs.length")
    # the other pages' modules are fetched after it had its chance, in the browser's idle moments
    page.wait_for_function("specviz.app.whatif")
    idle(page)
    assert page.locator(".svo").count() == 0 and page.evaluate("localStorage.getItem('specviz-opening')") is None


def test_who_wants_less_motion_gets_the_end_at_once(visit: Visit, page: Any, desk: StubDesk) -> None:
    page.emulate_media(reduced_motion="reduce")
    page = visit(new=True)
    card = page.locator(".svo:not(.svo-racing)")
    expect(card).to_contain_text(", its best: ")
    accepted = desk.store.get("gallery-0").tables["steps"]["accepted"]
    becomes(page, lambda: step(page), accepted.index(max(accepted)))
    page.evaluate("specviz.app.inspector.setStep(99)")  # what it wrote is in sight with the texts
    page.click(".svo-everything")
    expect(page.locator(".sv-output .sv-t").last).to_be_in_viewport()


def test_without_a_recorded_one_plain_decoding_is_said_to_be_replayed(visit: Visit) -> None:
    page = visit("?trace=gallery-2")
    assert text_of_page(page) == "gallery-2"
    page.click("button:has-text('▶ Race')")
    expect(page.locator(".svo-source")).to_contain_text("this text at one token per forward")


@pytest.mark.slow("the page opened again")
def test_any_run_is_edited_and_run_again(visit: Visit, desk: StubDesk) -> None:
    page = visit("?trace=gallery-2")
    run = desk.store.get("gallery-2").run
    edit(page)
    instruction, context = page.locator("#sv-instruction textarea"), page.locator("#sv-context textarea")
    assert instruction.input_value() == "Summarize these notes in one paragraph."
    passages = context.input_value().split("\n---\n")
    assert len(passages) == 4 and passages[0].startswith("The Grand Hotel opened in 1911")
    expect(page.locator("#svf-method")).to_have_value(run["method"]["name"])
    offer = page.locator("#sv-panel .svm-offer")
    expect(offer).to_contain_text(f"made with {run['model']['name']}, and stub is in use")
    instruction.fill("Answer in your own words.")
    before = len(desk.asked)
    page.click(".svp-go:visible")
    page.wait_for_function("specviz.app.current !== 'gallery-2'")
    prompt = desk.asked[before]
    text = "".join(map(chr, prompt.tokens))
    assert text.startswith("Answer in your own words.") and all(passage in text for passage in passages)
    assert {segment.passage for segment in prompt.segments if segment.name == "context"} == {0, 1, 2, 3}
    page.wait_for_function("!specviz.app.mine.size")


@pytest.mark.slow("the page opened again")
def test_the_oracle_stands_below_the_timeline_with_its_definition(visit: Visit, desk: StubDesk) -> None:
    page = visit()
    told = page.evaluate("specviz.app.inspector.model.report.oracle")
    assert 0 < told["cost"] <= told["recorded"] == desk.store.get("gallery-0").rows("steps")
    page.get_by_role("button", name="More rows").click()
    words = page.locator(".sv-oracle .sv-term")
    expect(words).to_contain_text(f"of {told['recorded']} steps")
    words.focus()
    tip = page.locator(".sv-tip")
    for part in ("= steps − oracle steps", "decoders/trace/oracle.py", "perfect ranking of the same candidates"):
        expect(tip).to_contain_text(part)
    page = visit("?trace=gallery-1")  # plain decoding ranks nothing
    expect(page.locator(".sv-oracle")).to_be_hidden()


@pytest.mark.slow("the page opened again")
def test_every_lane_of_a_comparison_tells_what_its_ranking_cost(visit: Visit) -> None:
    page = visit("?tab=compare&lanes=gallery-0,gallery-1")
    cost = page.locator(".svc-table tr:has(th:has-text('Ranking cost'))")
    expect(cost.locator("td").first).not_to_have_text("–")
    cost.locator("th").focus()
    expect(page.locator(".svc .sv-tip")).to_contain_text("steps − oracle steps")
