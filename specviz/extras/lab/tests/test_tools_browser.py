"""What stands in the Lab's list beside experiments: old addresses of it, the calculator, Back and Forward."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.test_acceptance import desk, old_address, target  # noqa: F401
from tests.browser.test_back import app, at, turn  # noqa: F401
from tests.waiting import expect, fits


@pytest.mark.parametrize(("tab", "drawn"), [("trees", ".svp-trees"), ("doctor", ".svp-doctor[data-ready]")])
def test_views_of_other_pages_stand_in_the_list(page: Any, port: int, tab: str, drawn: str) -> None:
    page.goto(f"http://127.0.0.1:{port}/?tab={tab}")
    page.wait_for_selector(f".svp-lab {drawn} >> visible=true")
    page.wait_for_function(f"new URL(location.href).searchParams.get('lab') === '{tab}'")
    expect(page.locator(f".svl-item[data-name={tab}]")).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("tab", name="Doctor")).to_have_count(0)


@pytest.mark.slow("the page opened again")
def test_the_calculator_answers_as_it_is_moved(old_address: Any) -> None:
    page = old_address("speedup", ".svp-lab .svp-numbers dd")
    speedup = page.locator(".svp-numbers dd").nth(2)
    expect(speedup).to_have_text("2.35×")  # (1 - .7^6) / .3 / (5 * .05 + 1)
    page.fill(".svd-rows", "1:30, 6:60")
    expect(speedup).to_have_text("1.31×")
    page.fill(".svd-rows", "30")
    expect(page.locator(".svd-result .svp-error")).to_contain_text("write rows:ms")
    page.problems[:] = [problem for problem in page.problems if "status of 422" not in problem]
    page.fill(".svd-rows", "")
    expect(speedup).to_have_text("2.35×")
    slider = page.locator(".svp-slider input").nth(2)
    slider.focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".svp-slider output").nth(2)).to_have_text("7")
    expect(speedup).to_have_text("2.33×")  # (1 - .7^8) / .3 / 1.35
    expect(page.locator(".svd-charts .main-svg").first).to_be_visible()


@pytest.mark.matrix("every part of the page")
def test_the_calculator_fits_a_phone(old_address: Any) -> None:
    fits(old_address("speedup", ".svp-lab .svp-numbers dd"), 400)


@pytest.mark.slow("a walk through a page and back")
def test_back_leads_to_the_recipe_that_was_chosen_before(app: Any) -> None:
    turn(app, "Lab", ".svl-paper")
    first = "pldplus-fig4"
    app.locator(".svl-paper summary").first.click()
    app.locator(f".svl-card[data-name={first}]").click()
    app.locator(f".svl-item[data-name={first}][aria-current]").wait_for()
    app.locator(".svl-item[data-name=speedup]").click()
    at(app, lab="speedup")
    app.go_back()
    expect(app.locator(f".svl-item[data-name={first}]")).to_have_attribute("aria-current", "true")
    app.go_forward()
    expect(app.locator(".svl-item[data-name=speedup]")).to_have_attribute("aria-current", "true")
