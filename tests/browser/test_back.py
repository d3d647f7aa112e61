"""Back and Forward: every view that was looked at is an entry of the browser's history, and is shown again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.views import NO_APP, OPENED, app_to_look_at, lesson, open_app, open_of_two, race, wait_drawn
from tests.stubs import nothing_wrong
from tests.waiting import expect

pytestmark = pytest.mark.slow("a walk through all pages and back")
OTHER = "3-class-docstring-pld"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with app_to_look_at() as number:
        yield number


@pytest.fixture
def app(page: Any, port: int) -> Iterator[Any]:
    page.goto(f"http://127.0.0.1:{port}{NO_APP}")
    open_app(page, "", ".sv-timeline")
    page.evaluate(COUNT)
    yield page
    nothing_wrong(page, port)


COUNT = """() => {
  const push = history.pushState;
  window.entries = 0;
  history.pushState = function (...given) { window.entries++; return push.apply(this, given); };
}"""


def length(page: Any) -> int:
    """Entries that the page has added (`history.length` ends at 50, and the tab has a past)."""
    return page.evaluate("window.entries")


def turn(page: Any, tab: str, selector: str) -> None:
    page.get_by_role("tab", name=tab).first.click()
    wait_drawn(page, selector)
    page.wait_for_function("tab => new URLSearchParams(location.search).get('tab') === tab", arg=tab.lower())


def at(page: Any, **asked: str | None) -> None:
    """The address has these parameters."""
    code = "asked => Object.entries(asked).every(([k, v]) => new URLSearchParams(location.search).get(k) === v)"
    page.wait_for_function(code, arg=asked)


def test_back_and_forward_turn_the_tabs_and_a_step_is_no_entry(app: Any) -> None:
    before = length(app)
    app.evaluate("specviz.app.inspector.setStep(3)")
    at(app, step="4")
    assert length(app) == before
    turn(app, "Compare", ".svp-compare[data-ready]")
    app.evaluate("specviz.openRuns()")
    wait_drawn(app, ".svp-grid")
    assert length(app) == before + 2
    app.go_back()
    wait_drawn(app, ".svp-compare[data-ready]")
    app.go_back()
    wait_drawn(app, ".sv-timeline")
    at(app, tab=None, step="4")
    app.go_forward()
    wait_drawn(app, ".svp-compare[data-ready]")
    app.go_forward()
    wait_drawn(app, ".svp-grid")
    assert length(app) == before + 2 and app.locator(".svr-drawer[open]").count() == 1


def test_back_leads_to_the_run_that_was_open_before(app: Any) -> None:
    at(app, trace=OPENED)  # else it is no entry yet, and Back leaves the page
    app.evaluate("id => specviz.open(id, { step: 5 })", OTHER)
    at(app, trace=OTHER, step="6")
    before = length(app)
    app.go_back()
    app.wait_for_function("id => specviz.app.shown === id", arg=OPENED)
    app.go_forward()
    app.wait_for_function("id => specviz.app.shown === id && specviz.inspector.number === 5", arg=OTHER)
    at(app, trace=OTHER, step="6")
    assert length(app) == before
    app.evaluate("specviz.open('no-such-run')")  # said, and no entry
    expect(app.locator(".svp-banner")).to_contain_text("no-such-run")
    at(app, trace=OTHER)
    assert length(app) == before
    assert [problem for problem in app.problems if "status of 404" not in problem] == []
    app.problems.clear()


def test_back_leads_through_a_lessons_stops_to_the_cards(app: Any) -> None:
    lesson(app)
    app.keyboard.press("ArrowRight")
    at(app, lesson="3-ranking", at="3")
    app.go_back()
    app.wait_for_function("specviz.app.pages.lesson.player.at === 1")
    app.get_by_role("button", name="All lessons").click()
    wait_drawn(app, ".svn-cards")
    app.go_back()
    wait_drawn(app, ".sv-lesson .sv-row")
    at(app, tab="lessons", lesson="3-ranking", at="2")
    app.go_forward()
    wait_drawn(app, ".svn-cards")


def test_back_leads_from_chosen_runs_to_the_library_and_from_a_race_to_the_form(app: Any) -> None:
    open_of_two("Acceptance", ".svd-views button")(app)
    app.locator("[data-view=calibration]").click()
    at(app, acceptance="calibration")
    app.go_back()
    app.locator(".svp-acceptance[data-ready=definitions]").wait_for()
    app.go_back()
    wait_drawn(app, ".svp-grid")
    app.go_forward()
    app.locator(".svp-acceptance[data-ready=definitions]").wait_for()
    race(app)
    app.go_back()
    expect(app.locator(".svc-results")).to_be_empty()
    app.go_forward()
    app.wait_for_selector(".svp-chart[data-drawn]")
