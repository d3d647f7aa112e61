"""The tab "Layers" in real Chromium: each layer is left out, a bar leads to tokens, a token to its step."""

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
    run = record(target, Prompt.from_ids(prompt_ids(3) * 2), "pld", max_new_tokens=30, stop_ids=())
    return gallery_desk(target, {"run": run})


def test_each_layer_is_left_out_on_demand(page: Any, port: int) -> None:
    page.goto(f"http://127.0.0.1:{port}/?trace=run")
    tab = page.locator(".sv-lower").get_by_role("tab", name="Layers", exact=True)
    tab.click()
    page.click("text=Leave out each layer")
    bars = page.locator(".svly-bars g")
    expect(bars).to_have_count(3)
    expect(page.locator(".svly")).to_contain_text("How many of 30 first choices stay without one layer.")
    expect(page.locator(".svly h3").first).to_have_text("Which layers did this text not need?")  # stays with its answer
    assert page.evaluate("(() => { const box = (what) => document.querySelector(what).getBoundingClientRect(); "
                         "return box('.svly-bars g:last-of-type').right <= box('.svly').right - 20; })()")  # fmt: skip
    expect(page.locator(".svly-most")).not_to_have_count(0)
    expect(page.locator(".svly-least")).not_to_have_count(0)
    expect(page.locator(".svly-token")).to_have_count(30)
    changed = page.evaluate("fetch(`api/layers/run/run`).then((answer) => answer.json())")["task"]["report"]["changed"]
    layer = max(range(3), key=lambda number: len(changed[number]))
    bars.nth(layer).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".svly h3").last).to_contain_text(f"Without layer {layer + 1} the choice changes at ")
    expect(page.locator(".svly-changes")).to_have_count(len(changed[layer]))
    page.locator(".svly-changes").last.click()
    position = changed[layer][len(changed[layer]) - 1]
    assert page.evaluate(f"specviz.inspector.model.stepOf({position}) === specviz.inspector.number")
    fits(page, 400)
    page.reload()
    tab.click()
    expect(bars).to_have_count(3)
    nothing_wrong(page, port)


@pytest.mark.matrix("the tab in both themes and five sizes: half a minute")
def test_the_tab_can_be_read_by_all(page: Any, looked_at: int, axe: str) -> None:
    tab = click_through(at("trace=own-pld", ".sv-row"), ".ui-tab:has-text('Layers')", ".svly-form")
    read = click_through(tab, ".svly-form button", ".svly-bars")
    assert faults_of(read, page, looked_at, axe) == []
