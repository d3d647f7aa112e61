"""The page "Acceptance" in real Chromium: runs chosen, definitions, calibration, two outputs, the calculator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from decoders import Prompt, generate, load_target
from decoders.model.catalog import BUNDLED, model_place
from tests import synthetic
from tests.stubs import StubDesk, serving, visiting
from tests.waiting import becomes, expect, fits

Visit = Callable[..., Any]


def variant(name: str, **run: Any) -> Any:
    """A chain run by a method of another name."""
    trace = synthetic.chain()
    trace.run |= run
    trace.run["method"] = {**trace.run["method"], "name": name, "title": name.upper()}
    return trace


RUNS = (synthetic.chain(), synthetic.plain(), synthetic.drafted(), *(variant(f"m{k}") for k in range(9)))
SERIES = """() => [...document.querySelectorAll(".svd-charts .svp-plot")].map((plot) => plot.data.map((one) =>
    [one.name, one.marker.color]))"""
PROMPT = "class Point:\n    def __init__(self, x):\n        self.x = x\n"


@pytest.fixture(scope="module")
def target() -> Any:
    return load_target(model_place(BUNDLED))


@pytest.fixture(scope="module")
def port(target: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECVIZ_HOME", str(tmp_path_factory.mktemp("home")))
        gallery = (*RUNS, variant("pld", forced=True))  # a given answer, and a method that the others have, too
        with serving(StubDesk(load=lambda: target, gallery=gallery)) as found:
            yield found


@pytest.fixture
def visit(page: Any, port: int) -> Iterator[Visit]:
    yield from visiting(page, port, "acceptance")


def test_runs_are_counted_by_every_definition(visit: Visit) -> None:
    page = visit()
    expect(page.locator(".svd-defined tbody tr")).to_have_count(len(RUNS))
    expect(page.locator(".svd-defined thead")).to_contain_text("Σ accepted ÷ positions that were decided")
    expect(page.locator(".svd-charts .svp-chart .main-svg").first).to_be_visible()
    expect(page.locator(".svd-groups section")).to_have_count(4)
    page.locator(".svd-runs input").first.uncheck()
    expect(page.locator(".svd-defined tbody tr")).to_have_count(len(RUNS) - 1)
    page.click(".svd-all button:has-text('none')")
    expect(page.locator(".svd-body")).to_have_text("Choose at least one run.")
    page.click(".svd-all button:has-text('all')")
    expect(page.locator(".svd-defined tbody tr")).to_have_count(len(RUNS))


def test_charts_draw_at_most_eight_methods_each_in_a_colour_of_its_own(visit: Visit) -> None:
    page = visit()
    page.wait_for_selector(".svd-charts figure:nth-child(3)[data-drawn]")
    lines = page.locator(".svd-line")
    expect(lines).to_have_count(len(RUNS) - 1)  # plain decoding drafts nothing
    for chart in page.evaluate(SERIES):
        assert len(chart) == 8 == len({name for name, _ in chart}) == len({color for _, color in chart})
    expect(page.locator(".svd-line:disabled")).to_have_count(len(RUNS) - 9)
    last = lines.last.inner_text()
    lines.first.focus()
    page.keyboard.press("Enter")  # one out, another in: the others keep their colours
    lines.last.click()
    becomes(page, lambda: [last in dict(chart) for chart in page.evaluate(SERIES)], [True] * 3)
    assert all(len({color for _, color in chart}) == 8 for chart in page.evaluate(SERIES))
    expect(page.locator(".svd-lead").first).to_contain_text("1 run of a given answer left out")


@pytest.mark.slow("the page opened again")
def test_calibration_says_what_each_confidence_is_worth(visit: Visit) -> None:
    page = visit("&acceptance=calibration")
    expect(page.locator(".svd-table tbody tr").first).to_contain_text("right:")
    expect(page.locator(".svd-charts .svp-chart .main-svg").first).to_be_visible()
    page.click("[data-view=definitions]")
    becomes(page, lambda: "acceptance=" in page.url, False)


@pytest.mark.slow("the page opened again")
def test_two_outputs_are_judged_by_the_model_in_use(visit: Visit, target: Any) -> None:
    page = visit("&acceptance=outputs")
    expect(page.locator(".svd-go")).to_be_disabled()
    prompt = Prompt.from_text(target.tokenizer, PROMPT)
    written = target.tokenizer.decode(generate(target, prompt, max_new_tokens=16))
    areas = page.locator(".svd-body textarea")
    for area, text in zip(areas.all(), (PROMPT, written, written[:-3] + "<b>"), strict=True):
        area.fill(text)
    page.click(".svd-go")
    expect(page.locator(".svd-verdict")).to_have_attribute("data-verdict", "bug")
    expect(page.locator(".svd-text .svd-first")).to_have_count(2)
    expect(page.locator(".svd-text").last).to_contain_text("<b>")  # as text
    areas.nth(2).fill(written)
    page.click(".svd-go")
    expect(page.locator(".svd-verdict")).to_have_text("Both outputs are the same, token by token.")
    page.click("[data-view=definitions]")
    page.click("[data-view=outputs]")
    expect(areas.nth(1)).to_have_value(written)  # nothing that was typed is lost


@pytest.mark.slow("the page opened again")
def test_the_calculator_answers_as_it_is_moved(visit: Visit) -> None:
    page = visit("&acceptance=speedup")
    speedup = page.locator(".svd-numbers dd").nth(2)
    expect(speedup).to_have_text("2.35×")  # (1 - .7^6) / .3 / (5 * .05 + 1)
    page.fill(".svd-rows", "1:30, 6:60")
    expect(speedup).to_have_text("1.31×")
    page.fill(".svd-rows", "30")
    expect(page.locator(".svd-result .svp-error")).to_contain_text("write rows:ms")
    page.problems[:] = [problem for problem in page.problems if "422" not in problem]
    page.fill(".svd-rows", "")
    expect(speedup).to_have_text("2.35×")
    slider = page.locator(".svd-slider input").nth(2)
    slider.focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".svd-slider output").nth(2)).to_have_text("7")
    expect(speedup).to_have_text("2.33×")  # (1 - .7^8) / .3 / 1.35
    expect(page.locator(".svd-charts .main-svg").first).to_be_visible()


@pytest.mark.matrix("every part of the page")
@pytest.mark.parametrize("view", ["definitions", "calibration", "outputs", "speedup"])
def test_it_fits_a_phone(visit: Visit, view: str) -> None:
    fits(visit(f"&acceptance={view}", width=400), 400)
