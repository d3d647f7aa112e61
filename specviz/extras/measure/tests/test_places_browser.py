"""The tab "Places" in real Chromium: a run is replayed, its strip leads to the steps, and is there again later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decoders import Prompt, record
from tests.browser.test_access import axe, faults_of, looked_at  # noqa: F401
from tests.browser.views import at, click_through
from tests.models import prompt_ids, tiny_target
from tests.stubs import gallery_desk, nothing_wrong
from tests.waiting import expect, fits


@pytest.fixture(scope="module")
def desk(module_home: Path) -> Any:
    target = tiny_target()
    prompt = Prompt.from_ids(prompt_ids(3) * 2)
    params = {"drafters": "pld,recycling"}
    return gallery_desk(target, {"merged": record(target, prompt, "composite", params, max_new_tokens=30, stop_ids=())})


def test_places_are_replayed_on_demand(page: Any, port: int) -> None:
    page.goto(f"http://127.0.0.1:{port}/?trace=merged")
    tab = page.locator(".sv-lower").get_by_role("tab", name="Places", exact=True)
    tab.click()
    expect(page.locator(".svps-form summary")).to_contain_text("Drafters: PLD, Token Recycling")
    page.click("text=Replay")
    strip = page.locator(".svps-strip")
    expect(strip).to_be_visible()
    expect(page.locator(".svps")).to_contain_text("Token Recycling learns from verdicts")
    expect(page.locator(".svps")).not_to_contain_text("Token Recycling: Token Recycling")
    expect(page.locator(".svps-regret")).to_have_text("No step could be saved by other drafters")  # merged, fewer
    expect(page.locator(".svps-frontier g")).to_have_count(4)  # pld+h and suffix are tried unasked, and all are merged
    assert "regret" in strip.get_attribute("aria-label")
    box = strip.bounding_box()
    x = box["width"] - 1
    while "Before token 30" not in page.locator(".sv-tip").inner_text() and x > 0:  # from the right to the last place
        x -= 4
        page.mouse.move(box["x"] + x, box["y"] + 20)
    strip.click(position={"x": x, "y": 20})  # in the first drafter's row
    last = page.evaluate("specviz.inspector.model.stepCount") - 1
    assert page.evaluate("specviz.inspector.number") == last
    assert page.evaluate("specviz.inspector.selection.value.step") == last
    strip.press("ArrowLeft")  # by keyboard, from the step shown
    expect(page.locator(".sv-tip")).to_contain_text("Before token")
    first = page.locator(".sv-tip").inner_text()
    strip.press("ArrowLeft")
    expect(page.locator(".sv-tip")).not_to_have_text(first)
    assert page.evaluate("specviz.inspector.number") == last
    fits(page, 400)
    page.reload()
    tab.click()
    expect(strip).to_be_visible()
    nothing_wrong(page, port)


@pytest.mark.matrix("the tab in both themes and five sizes: half a minute")
def test_the_tab_can_be_read_by_all(page: Any, looked_at: int, axe: str) -> None:
    tab = click_through(at("trace=own-pld", ".sv-row"), ".ui-tab:has-text('Places')", ".svps-form")
    replayed = click_through(tab, ".svps-form button:has-text('Replay')", ".svps-frontier")
    assert faults_of(replayed, page, looked_at, axe) == []
