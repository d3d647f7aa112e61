"""The page "Acceptance" in real Chromium: runs chosen, definitions, calibration, two outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from decoders import Prompt, generate, load_target
from decoders.model.files.catalog import BUNDLED, model_place
from specviz.pages.acceptance.claim import FEWEST
from tests import recordings
from tests.stubs import StubDesk, nothing_wrong, visiting
from tests.waiting import becomes, expect, fits

Visit = Callable[..., Any]


def variant(name: str, **run: Any) -> Any:
    """A chain run by a method of another name."""
    trace = recordings.gallery_run("class-docstring-pld-h")
    trace.run |= run
    trace.run["method"] = {**trace.run["method"], "name": name, "title": name.upper()}
    return trace


RUNS = (variant("pld+h"), recordings.plain(), recordings.cape(), *(variant(f"m{k}") for k in range(9)))
SERIES = """() => [...document.querySelectorAll(".svd-charts .svp-plot")].map((plot) => plot.data.map((one) =>
    [one.name, one.marker.color]))"""
PROMPT = "class Point:\n    def __init__(self, x):\n        self.x = x\n"


@pytest.fixture(scope="module")
def target() -> Any:
    return load_target(model_place(BUNDLED))


@pytest.fixture(scope="module")
def desk(target: Any, module_home: Any) -> StubDesk:
    gallery = (*RUNS, variant("pld", forced=True))  # a given answer, and a method that the others have, too
    return StubDesk(load=lambda: target, gallery=gallery)


@pytest.fixture
def visit(page: Any, port: int) -> Iterator[Visit]:
    yield from visiting(page, port, "acceptance")


@pytest.fixture
def old_address(page: Any, port: int) -> Iterator[Visit]:
    """Opens an address that the page "Acceptance" had when it was one."""

    def go(view: str, ready: str) -> Any:
        page.goto(f"http://127.0.0.1:{port}/?tab=acceptance&acceptance={view}")
        page.wait_for_selector(f"{ready} >> visible=true")
        return page

    yield go
    nothing_wrong(page, port)


@pytest.mark.slow("a walk through three views: half a minute; the counting has tests of its own")
def test_runs_are_counted_by_every_definition(visit: Visit) -> None:
    page = visit()
    expect(page.locator(".svd-defined tbody tr")).to_have_count(len(RUNS))
    expect(page.locator(".svd-defined thead")).to_contain_text("Σ accepted ÷ positions tested")
    formula = page.locator(".svd-defined .svd-formula").first  # the picture, then numbers, then their sums
    expect(formula).to_be_hidden()
    top = "(look) => document.querySelector(look).getBoundingClientRect().top"
    assert page.evaluate(top, ".svd-charts") < page.evaluate(top, ".svd-defined")
    page.click("text=The numbers behind them")
    expect(formula).to_be_visible()
    expect(page.locator(".svd-charts .svp-chart .main-svg").first).to_be_visible()
    expect(page.locator(".svd-groups section")).to_have_count(4)
    for look, is_enough in (("td:not(.svd-rate)", False), (".svd-rate", True)):  # 1 of 1 is no full bar
        texts = page.locator(f".svd-groups {look} small").all_inner_texts()
        assert texts and all((int(text.split()[-1].replace(",", "")) >= FEWEST) == is_enough for text in texts)
    # from the library: by the keyboard alone, those that are selected
    page.evaluate("specviz.openRuns()")
    page.wait_for_selector(".svp-grid")
    for number in (1, 2):
        page.focus(f".svp-grid tr[data-id] >> nth={number} >> .svr-check input")
        page.keyboard.press("Space")
    page.focus(".svr-bar button:has-text('Acceptance')")
    page.keyboard.press("Enter")
    expect(page.locator(".svd-defined tbody tr")).to_have_count(2)
    expect(page.locator(".svp-acceptance .svc-outcome")).to_contain_text("tokens per step")
    page.reload()  # the address says which
    expect(page.locator(".svd-defined tbody tr")).to_have_count(2)
    waiting: list[Any] = []
    page.route("**/api/acceptance/runs", lambda route: waiting.append(route))  # Playwright sets an attribute on it
    page.reload()
    page.click("[data-view=calibration]")  # before they are counted
    becomes(page, lambda: len(waiting), 1)
    waiting[0].continue_()
    page.wait_for_selector(".svp-acceptance[data-ready=calibration] .svd-meanings")
    page.unroute_all(behavior="wait")


@pytest.mark.slow("draws three charts of every method again and again; what they show is counted in the first tier")
def test_charts_draw_at_most_eight_methods_each_in_a_colour_of_its_own(visit: Visit) -> None:
    page = visit()
    page.wait_for_selector(".svd-charts figure:nth-child(3)[data-drawn]")
    lines = page.locator(".svd-line")
    expect(lines).to_have_count(len(RUNS) - 1)  # plain decoding drafts nothing
    for chart in page.evaluate(SERIES):
        assert len(chart) == 8 == len({name for name, _ in chart}) == len({color for _, color in chart})
    expect(page.locator(".svd-line:disabled")).to_have_count(len(RUNS) - 9)
    other = page.locator(".svd-line:disabled").last.inner_text()
    page.locator(".svd-line[aria-pressed=true]").first.focus()
    page.keyboard.press("Enter")  # one out, another in: the others keep their colours
    lines.get_by_text(other, exact=True).click()
    becomes(page, lambda: [other in dict(chart) for chart in page.evaluate(SERIES)], [True] * 3)
    assert all(len({color for _, color in chart}) == 8 for chart in page.evaluate(SERIES))


@pytest.mark.slow("the page opened again")
def test_a_given_answer_is_marked_in_the_library_and_left_out(visit: Visit) -> None:
    page = visit(f"&runs=gallery-0,gallery-{len(RUNS)}")
    expect(page.locator(".svd-defined tbody tr")).to_have_count(1)
    expect(page.locator(".svd-lead").first).to_contain_text("1 run of a given answer left out")
    page.evaluate("specviz.openRuns()")
    row = page.locator(f"tr[data-id=gallery-{len(RUNS)}]")
    expect(row.locator(".svr-method")).to_have_text("PLD (given answer)")  # and not (lossy)
    row.locator(".svr-check input").check()
    expect(page.locator(".svr-bar button:has-text('Acceptance')")).to_be_disabled()


@pytest.mark.slow("the page opened again")
def test_calibration_says_what_each_confidence_is_worth(visit: Visit) -> None:
    page = visit("&acceptance=calibration")
    expect(page.locator(".svd-table thead")).to_contain_text("correct where")
    expect(page.locator(".svp-acceptance .svc-outcome")).to_contain_text("AUROC")
    expect(page.locator(".svd-meanings")).to_contain_text("Σ bins")
    expect(page.locator(".svd-charts .svp-chart .main-svg").first).to_be_visible()
    page.click("[data-view=definitions]")
    becomes(page, lambda: "acceptance=definitions" in page.url, True)


@pytest.mark.slow("the page opened again")
def test_two_outputs_are_judged_by_the_model_in_use(old_address: Visit, target: Any) -> None:
    page = old_address("outputs", ".svp-compare[data-ready]")
    expect(page.locator(".svd-go")).to_be_disabled()
    prompt = Prompt.from_text(target.tokenizer, PROMPT)
    written = target.tokenizer.decode(generate(target, prompt, max_new_tokens=16))
    areas = page.locator(".svc-outputs textarea")
    for area, text in zip(areas.all(), (PROMPT, written, written[:-3] + "<b>"), strict=True):
        area.fill(text)
    page.click(".svd-go")
    expect(page.locator(".svd-verdict")).to_have_attribute("data-verdict", "bug")
    expect(page.locator(".svd-text .svd-first")).to_have_count(2)
    expect(page.locator(".svd-text").last).to_contain_text("<b>")  # as text
    areas.nth(2).fill(written)
    page.click(".svd-go")
    expect(page.locator(".svd-verdict")).to_have_text("Both outputs are the same, token by token.")
    expect(page.locator(".svd-calls")).to_have_count(0)
    areas.nth(1).fill('{"name": "f", "arguments": {}}')
    areas.nth(2).fill('{"arguments": {}, "name": "f"}')
    page.click(".svd-go")
    expect(page.locator(".svd-calls")).to_have_attribute("data-calls", "same call")
    areas.nth(1).fill(written)
    page.click(".svc-outputs summary")
    page.click(".svc-outputs summary")
    expect(areas.nth(1)).to_have_value(written)  # nothing that was typed is lost


@pytest.mark.matrix("every part of the page")
@pytest.mark.parametrize("view", ["definitions", "calibration", "outputs"])
def test_it_fits_a_phone(old_address: Visit, view: str) -> None:
    ready = {"outputs": ".svp-compare[data-ready]"}
    fits(old_address(view, ready.get(view, ".svp-acceptance[data-ready]")), 400)


@pytest.mark.slow("the page opened again, with answers held back; each view has a test of its own")
def test_a_late_answer_is_not_drawn_over_another_view(visit: Visit) -> None:
    page = visit()
    page.evaluate("specviz.openRuns()")
    for number in (0, 2):
        page.check(f"tr[data-id=gallery-{number}] .svr-check input")
    held: list[Any] = []
    page.route("**/api/compare/difference?*", lambda route: held.append(route))
    page.click(".svr-bar button:has-text('Difference')")
    becomes(page, lambda: len(held), 1)
    late = page.query_selector(".svr-difference")
    page.evaluate("specviz.openRuns()")
    page.click(".svr-bar button:has-text('Acceptance')")
    expect(page.locator(".svd-defined tbody tr")).to_have_count(2)
    held[0].continue_()
    becomes(page, lambda: late.get_attribute("data-ready"), "gallery-0,gallery-2")
    expect(page.locator(".svd-defined tbody tr")).to_have_count(2)
    expect(page.locator(".ui-panel .svp-acceptance")).to_have_attribute("data-ready", "definitions")
    expect(page.locator(".svr-gains >> visible=true")).to_have_count(0)
    page.unroute_all(behavior="wait")


@pytest.mark.slow("the page opened again, with answers held back; each view has a test of its own")
def test_verdicts_are_asked_for_once_at_a_time_and_change_no_address_that_was_left(visit: Visit) -> None:
    page = visit()
    polls: list[Any] = []
    page.route("**/api/acceptance/judge", lambda route: polls.append(route))
    page.click("[data-view=judges]")
    becomes(page, lambda: len(polls), 1)
    page.click("[data-view=definitions]")
    page.click("[data-view=judges]")
    becomes(page, lambda: len(polls), 2)
    still = {"state": "judging", "done": 1, "of": 9}
    polls[0].fulfill(json=still)  # of a drawing that was left: nothing more is asked for it
    page.evaluate("fetch('api/acceptance').then((answer) => answer.text()).then(() => 0)")
    assert len(polls) == 2
    polls[1].fulfill(json=still)
    becomes(page, lambda: len(polls), 3)
    expect(page.locator(".svd-body")).to_have_text("Judging: 1 of 9 steps. A run that is decoded comes first.")
    counts: list[Any] = []
    page.route("**/api/acceptance/runs", lambda route: counts.append(route))
    page.evaluate("specviz.openRuns()")
    page.check("tr[data-id=gallery-0] .svr-check input")
    page.click(".svr-bar button:has-text('Acceptance')")
    becomes(page, lambda: len(counts), 1)
    page.evaluate("specviz.openRuns()")
    counts[0].continue_()
    page.wait_for_selector(".svp-acceptance[data-ready]", state="attached")
    assert "acceptance=" not in page.url
    page.unroute_all(behavior="ignoreErrors")
