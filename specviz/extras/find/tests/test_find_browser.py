"""Runs found by their content in the drawer of runs, in real Chromium."""

from __future__ import annotations

from typing import Any

import pytest

from tests import recordings
from tests.stubs import StubDesk, nothing_wrong
from tests.waiting import becomes, expect


@pytest.fixture(scope="module")
def desk(module_home: Any) -> StubDesk:
    hostile = recordings.with_title(recordings.nasty(), "Hostile")
    titled = [
        recordings.with_title(trace, f"Run {n}") for n, trace in enumerate((recordings.chain(), recordings.tree()))
    ]
    return StubDesk(gallery=(*titled, hostile))


def titles(page: Any) -> list[str]:
    return page.locator(".svp-grid .svp-link").all_inner_texts()


def test_a_word_of_a_run_leads_to_its_step(page: Any, port: int, desk: StubDesk) -> None:
    page.goto(f"http://127.0.0.1:{port}/?library=1")
    page.wait_for_selector(".svp-search[placeholder*='rejected tokens']")
    page.fill(".svp-search", "rectangle run")  # of its content, and of its title
    becomes(page, lambda: titles(page), ["Run 1"])
    places = page.locator(".svf-place")
    expect(places.first).to_contain_text("output, step ")
    expect(places.first.locator("mark")).to_have_text("rectangle", ignore_case=True)
    page.fill(".svp-search", "rectangle lossy")
    becomes(page, lambda: titles(page), [])

    # a click opens the step, its tokens marked
    page.fill(".svp-search", "rectangle")
    becomes(page, lambda: titles(page), ["Run 1"])
    place = page.locator(".svf-place:has-text('output, step')").first
    step = int(place.inner_text().split("step ")[1].split()[0])
    place.click()
    becomes(page, lambda: page.evaluate("[specviz.app.shown, specviz.inspector.number + 1]"), ["gallery-1", step])
    becomes(page, lambda: page.evaluate("specviz.inspector.pins.length") > 0, True)
    expect(page.locator(".svr-drawer")).to_be_hidden()

    # text is data
    page.evaluate("search => specviz.openRuns({ search })", '"<img src=x"')
    becomes(page, lambda: titles(page), ["Hostile"])
    expect(page.locator(".svf-place mark").first).to_have_text("<img src=x")
    assert page.locator(".svf-place img, .svf-place script, .svf-place b").count() == 0
    assert page.evaluate("window.__pwned") is None
    page.fill(".svp-search", "no run holds this")
    expect(page.locator(".svp-empty")).to_have_text("No run matches.")
    nothing_wrong(page, port)
