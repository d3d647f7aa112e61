"""Five tasks of the first minutes, each in at most five clicks from the start page; and what-if without a mouse."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from decoders import Prompt, record
from decoders.study.look.whatif import ReadRun
from decoders.trace.metrics import regrets
from decoders.trace.trace import Trace
from tests.models import prompt_ids
from tests.stubs import gallery_desk, nothing_wrong
from tests.waiting import becomes, expect

FAMILY = "qwen3"  # of the tiny target
MOST = 5  # clicks
TAB_STOPS = 40  # from the steps to What if


@pytest.fixture(scope="module")
def runs(target: Any) -> dict[str, Trace]:
    """Runs of one prompt, by method; the app opens on the first."""
    prompt = Prompt.from_ids(prompt_ids(3))
    methods: tuple[tuple[str, dict[str, Any]], ...] = (("pld+h", {"k": 6}), ("pld", {"k": 6}), ("plain", {}))
    return {
        name: record(target, prompt, name, params, title="A prompt", max_new_tokens=24) for name, params in methods
    }


@pytest.fixture(scope="module")
def desk(target: Any, runs: dict[str, Trace], module_home: Any) -> Any:
    return gallery_desk(target, {f"run-{number}": trace for number, trace in enumerate(runs.values())})


class Hand:
    """Somebody with a mouse on the start page: every press of the button is counted, by the page itself."""

    def __init__(self, page: Any, port: int) -> None:
        self.page = page
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("#sv-run:not([disabled])")
        page.wait_for_function("specviz.app.whatif?.catalog && !specviz.app.whatif.reason")
        page.evaluate("window.presses = 0; addEventListener('pointerdown', () => presses++, true)")
        self.picks = 0  # from a list that the system draws: the page sees no press

    @property
    def clicks(self) -> int:
        return self.page.evaluate("presses") + self.picks

    def pick(self, select: str, value: str) -> None:
        """One press opens a list, another takes its entry."""
        self.page.select_option(select, value)
        self.picks += 2


@pytest.fixture
def hand(page: Any, port: int) -> Iterator[Hand]:
    hand = Hand(page, port)
    yield hand
    nothing_wrong(page, port)
    assert 0 < hand.clicks <= MOST


def drafted_again(page: Any) -> None:
    page.wait_for_function("specviz.app.whatif.result && !document.querySelector('.svw[aria-busy], .svw-stale')")


@pytest.mark.slow("test_app.py runs prompts")
def test_run_my_prompt(hand: Hand) -> None:
    page = hand.page
    page.click(".svp-edit")
    page.click("label:has-text('Plain text')")
    page.click("#sv-text textarea")
    page.keyboard.press("Control+a")
    page.keyboard.type("one two three one two")
    page.click(".svp-go:visible")
    page.wait_for_function("specviz.app.shown !== 'run-0' && specviz.app.inspector.model.run.complete")
    expect(page.locator(".sv-title")).to_have_text("one two three one two")
    assert page.evaluate("specviz.app.inspector.model.stepCount") > 0


def test_find_the_worst_ranking(hand: Hand, runs: dict[str, Trace]) -> None:
    page = hand.page
    worst = max(regrets(runs["pld+h"]), key=lambda one: (one.tokens, -one.step))
    page.click("role=tab[name=Details]")
    page.click(".sv-regret-table tbody tr >> nth=0")
    becomes(page, lambda: page.evaluate("specviz.app.inspector.number"), worst.step)
    best = page.locator(".sv-crow:has(.sv-best)").first
    expect(best).to_contain_text(str(worst.best))


@pytest.mark.slow("test_whatif.py drafts again")
def test_redraft_the_worst_ranking(hand: Hand, target: Any, runs: dict[str, Trace]) -> None:
    page = hand.page
    worst = max(regrets(runs["pld+h"]), key=lambda one: (one.tokens, -one.step))
    page.click("role=tab[name=Details]")
    page.click(".sv-regret-table tbody tr >> nth=0")
    page.click(".svw-open")
    drafted_again(page)
    hand.pick(".svw-below select >> nth=0", "adapld")
    page.wait_for_function("specviz.app.whatif.result?.trace.run.method.name === 'adapld'")
    expected = ReadRun(target, runs["pld+h"]).redraft(worst.step, "adapld", {})
    expect(page.locator(".svw-words")).to_contain_text(f" {expected.accepted}:")


@pytest.mark.slow("test_compare.py walks through that page")
def test_compare_two_methods(hand: Hand, runs: dict[str, Trace]) -> None:
    page = hand.page
    page.click("role=tab[name='Compare']")
    page.wait_for_selector(".svp-compare[data-ready]")
    page.click("summary:has-text('Or compare recorded runs')")
    page.click("button:has-text('Compare these runs')")
    for name in ("pld+h", "pld"):
        steps = len(runs[name].tables["steps"]["context"])
        title = runs[name].run["method"]["title"].split(":")[0]
        lane = page.get_by_role("region", name="Race").get_by_role("listitem").filter(has_text=title)
        expect(lane.filter(has_text=f"{steps} forwards")).to_be_visible()
    expect(page.get_by_role("row", name="Verify steps")).to_be_visible()


@pytest.mark.slow("test_figures.py draws them")
def test_export_a_figure(hand: Hand) -> None:
    page = hand.page
    with page.expect_download() as kept:
        page.click(".sv-actions [aria-haspopup=menu]")
        page.click("[role=menuitem]:has-text('Figure of this step') >> nth=0")
    with zipfile.ZipFile(kept.value.path()) as archive:
        assert {"figure.pdf", "figure.svg", "references.bib"} <= set(archive.namelist())


@pytest.mark.slow("a walk through several pages")
def test_the_keyboard_alone_leads_from_the_start_to_what_if(page: Any, port: int) -> None:
    Hand(page, port)
    miss = page.evaluate("specviz.app.inspector.number")
    page.keyboard.press("]")  # the next miss: nothing needs the focus for that
    page.wait_for_function("was => specviz.app.inspector.number !== was", arg=miss)
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("To the steps")  # past the editor and the tabs
    page.keyboard.press("Enter")
    at = "document.activeElement?.matches('.sv-lower [role=tab]')"
    stops = 0
    while not page.evaluate(at):
        page.keyboard.press("Tab")
        stops += 1
        assert stops <= TAB_STOPS, "the tabs are too far from the start"
    while not page.evaluate("document.activeElement.classList.contains('svw-open')"):
        page.keyboard.press("ArrowRight")
        stops += 1
        assert stops <= TAB_STOPS, "What if is too far from the start"
    drafted_again(page)
    inside = "document.activeElement?.closest('.svw-below')?.querySelector('select') === document.activeElement"
    for _ in range(8):
        if page.evaluate(inside):
            break
        page.keyboard.press("Tab")
    assert page.evaluate(inside), "its list of methods is a few stops further"
    page.keyboard.type("AdaPLD")
    page.wait_for_function("specviz.app.whatif.result?.trace.run.method.name === 'adapld'")
    expect(page.locator(".svw-words")).to_contain_text("accepted, with")
    assert page.evaluate("presses") == 0 and page.problems == []
