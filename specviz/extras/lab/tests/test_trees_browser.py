"""The page "Trees" in real Chromium: sliders, trees of each state, charts, tables, and the measurement."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from decoders.prompt_tokens.latency import save_latency
from tests import recordings
from tests.browser.pace import cost
from tests.stubs import StubDesk, serving, visiting
from tests.waiting import WAIT_S, expect, fits

from .test_trees_page import Tiny, latency_of

Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def home_of_parts(module_home: Any) -> Tiny:
    return Tiny()


@pytest.fixture(scope="module")
def desk(home_of_parts: Tiny) -> StubDesk:
    return StubDesk(load=lambda: home_of_parts.target, gallery=(recordings.chain(),))


@pytest.fixture
def visit(page: Any, port: int) -> Iterator[Visit]:
    yield from visiting(page, port, "trees")


def slide(page: Any, name: str, value: int) -> dict[str, Any]:
    """Moves a slider; what is drawn in the same task."""
    return page.evaluate(
        """([name, value]) => {
            const slider = document.getElementById(`svt-${name}`);
            slider.value = value;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            const p = specviz.app.pages.trees.data.budgets[specviz.app.pages.trees.m].points
                .find((one) => one.size === specviz.app.pages.trees.size);
            const states = [...document.querySelectorAll(".svt-state")];
            return { point: p, nodes: states.map((one) => one.querySelectorAll(".svt-node").length),
                labels: states.map((one) => [...one.querySelectorAll(".svt-node")].map((node) => node.ariaLabel)) };
        }""",
        [name, value],
    )


def test_the_trees_follow_the_sliders_at_once(visit: Visit) -> None:
    page = visit()
    budgets = page.evaluate("specviz.app.pages.trees.data.budgets")
    expect(page.locator(".svt-size-now")).to_have_text(f"{budgets['3']['chosen']} rows")
    for name, value in (("size", 9), ("size", 0), ("m", 1), ("size", 8), ("m", 3)):
        drawn = slide(page, name, value)
        states = drawn["point"]["states"]
        assert drawn["nodes"] == [len(state["prompts"]) for state in states]
        for labels, state in zip(drawn["labels"], states, strict=True):
            hung = sorted(int(found) for label in labels for found in re.findall(r"state (\d+) follows", label))
            assert hung == sorted(state["prompts"])
    state = drawn["point"]["states"][3]
    sums = page.inner_text(".svt-sum")
    assert f"= {drawn['point']['R']:.3g} accepted per step" in sums and f"{state['pi']:.3g}·" in sums
    assert f"{drawn['point']['candidates']} candidates" in page.inner_text(".svt-state >> nth=3")
    asked = f"3x{drawn['point']['size']}"
    page.wait_for_function("asked => new URL(location.href).searchParams.get('trees') === asked", arg=asked)
    page.reload()
    page.wait_for_selector(".svp-trees[data-ready]")
    expect(page.locator(".svt-size-now")).to_have_text(f"{drawn['point']['size']} rows")


@pytest.mark.slow("the page opened again")
def test_nodes_are_read_with_the_keys_and_the_mouse(visit: Visit) -> None:
    page = visit("&trees=3x32")
    state = page.evaluate("specviz.app.pages.trees.data.budgets[3].points.find((p) => p.size === 32).states[3]")
    page.focus(".svt-state:nth-child(4) .svt-root")
    page.keyboard.press("ArrowRight")
    number = f"{state['p'][0]:.2f}".lstrip("0")
    assert page.inner_text(".svt-told").startswith(f"1st guess: accepted with p {number}; acceptance ends here with")
    page.keyboard.press("ArrowRight")
    assert "1st, then 1st guess (distance 2)" in page.inner_text(".svt-told")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert "The root: nothing of the tree is accepted with probability" in page.inner_text(".svt-told")
    assert page.locator(".svt-state:nth-child(4) .svt-node[tabindex='0']").count() == 1
    page.locator(".svt-state:nth-child(2) .svt-node").nth(2).hover()
    expect(page.locator(".svt-told")).to_have_text(re.compile("^2nd guess: "))


@pytest.mark.slow("the page opened again")
def test_curves_table_and_best_size_tell_the_same(visit: Visit) -> None:
    page = visit("&trees=3x64")
    budget = page.evaluate("specviz.app.pages.trees.data.budgets[3]")
    expect(page.locator(".svt-charts [data-chart]")).to_have_count(3)
    for name in ("speedup", "tau"):
        page.wait_for_selector(f"[data-chart={name}] .main-svg")
    curve = page.evaluate("document.querySelector('[data-chart=speedup]').data[0].y")
    assert curve == [point["speedup"] for point in budget["points"]]
    names = page.evaluate("document.querySelector('[data-chart=tau]').data.map((one) => one.name)")
    assert names == ["designed", "naive", "random", f"best: {budget['best']}", "shown"]
    shown = "document.querySelector('[data-chart=tau]').data.at(-1).x[0]"
    assert page.evaluate(shown) == 64
    assert page.locator(".svt-sizes tbody tr").count() == len(budget["points"])
    assert page.inner_text(".svt-sizes tr:has(small)").startswith(f"{budget['best']} best")
    page.click(".svt-best")
    expect(page.locator(".svt-best")).to_be_disabled()
    expect(page.locator(".svt-size-now")).to_have_text(f"{budget['best']} rows")
    page.wait_for_function(f"{shown} === {budget['best']}")
    page.click("button[aria-label='Show the trees of 12 rows']")
    expect(page.locator(".svt-sizes tr.svp-now")).to_have_attribute("data-size", "12")
    expect(page.locator(".svt-use")).to_contain_text("Runs of PPD use trees of")
    assert page.inner_text(".svt-source").startswith("Measured with these prompt tokens")
    assert page.inner_text(".svt-heats tbody tr >> nth=0").split()[:2] == ["1", ".60"]


@pytest.mark.slow("waits for measurements")
def test_latency_is_measured_on_demand_and_a_disturbance_is_told(
    visit: Visit, home_of_parts: Tiny, desk: StubDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(target: Any, most: int, *, refresh: bool, progress: Callable[[int, int], None]) -> None:
        progress(7, 51)
        page.gate.wait(WAIT_S)
        save_latency(latency_of(target, (5.0, 20.0, 40.0, 80.0), 0.4))

    page = visit()
    page.gate = threading.Event()
    monkeypatch.setattr("decoders.study.measure.latency.latency_for", measure)
    before = page.evaluate("specviz.app.pages.trees.data.budgets[3].best")
    assert page.locator(".svt-disturbed").count() == 0
    page.focus(".svt-measure")
    page.keyboard.press("Enter")
    page.wait_for_selector(".svt-progress:has-text('7 of at most 51')")
    expect(page.locator(".svt-measure")).to_be_disabled()
    page.gate.set()
    page.wait_for_selector(".svt-disturbed:has-text('something else was running')")
    page.wait_for_function("before => specviz.app.pages.trees.data.budgets[3].best !== before", arg=before)
    expect(page.locator(".svt-measure")).to_be_enabled()
    expect(page.locator(".svt-use")).to_contain_text("no size is faster")
    save_latency(home_of_parts.latency)


@pytest.mark.slow("two servers of its own")
def test_without_a_model_or_prompt_tokens_it_says_what_is_assumed(page: Any) -> None:
    for desk, said in (
        (StubDesk(load=None, gallery=(recordings.chain(),)), "Opened for viewing only."),
        (StubDesk(gallery=(recordings.chain(),)), "no set of prompt tokens"),
    ):
        with serving(desk) as port:
            page.goto(f"http://127.0.0.1:{port}/?tab=trees")
            page.wait_for_selector(".svp-trees[data-ready]")
            page.wait_for_selector(f".svt-notes:has-text('{said}')")
            assert "assumed acceptance" in page.inner_text(".svt-notes")
            assert page.inner_text(".svt-source").startswith("Assumed: .35 for the first guess")
            expect(page.locator(".svt-state")).to_have_count(4)
            expect(page.locator(".svt-best")).to_be_disabled()
            assert page.is_disabled(".svt-measure") == (desk.loader.target is None)
            page.wait_for_selector("[data-chart=tau] .main-svg")
            expect(page.locator("[data-chart]")).to_have_count(1)
            page.goto("about:blank")
    assert page.problems == []


@pytest.mark.matrix("every width")
@pytest.mark.parametrize("width", [390, 1000])
@pytest.mark.pace
def test_the_page_is_never_wider_than_the_window(visit: Visit, width: int) -> None:
    page = visit("&trees=3x64", width)
    page.wait_for_selector("[data-chart=speedup] .main-svg")
    fits(page, width, 820)
    move = """(n) => {
        const slider = document.getElementById("svt-size");
        slider.value = 8 + (n % 2);
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        document.body.offsetHeight;
    }"""
    cost(page, f"Trees: the size slider, {width} px wide", move).within(nodes=400, layouts=3)
