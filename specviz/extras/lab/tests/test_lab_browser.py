"""The lab in real Chromium: choose, estimate, run, watch, open the runs behind a point, and find the results again."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from specviz.places import home
from specviz.workers.sweep import Standing, WorkerState
from tests import recordings
from tests.models import tiny_target
from tests.stubs import StubDesk, nothing_wrong
from tests.waiting import WAIT_S, becomes, expect, fits

from ..experiments import Experiment, Line, PaperSeries, Results, plan, run_experiment
from .test_sheets import CASES, SHEET, WORDS

Visit = Callable[..., Any]
COMPLETE = ".svl-results[data-state=complete] .svp-chart .main-svg"


@pytest.fixture(scope="module")
def desk(module_home: Path) -> StubDesk:
    return StubDesk(gallery=(recordings.chain(),))


@pytest.fixture
def visit(page: Any, port: int, desk: StubDesk) -> Iterator[Visit]:
    def go(query: str = "?tab=lab&lab=own") -> Any:
        page.goto(f"http://127.0.0.1:{port}/{query}")
        page.wait_for_selector(".svl-card, #svl-run:not([disabled])", state="attached")
        return page

    yield go
    desk.gate.set()
    desk.pause_s = 0.0
    nothing_wrong(page, port, said=["status of 422"])


def sweep(page: Any, values: str = "2, 4", count: str = "2") -> None:
    """PLD's draft length on the examples."""
    chosen = page.locator(".svl-check input:checked").evaluate_all("boxes => boxes.map(b => b.value)")
    for name in {"pld"} ^ set(chosen):
        page.click(f".svl-check input[value='{name}']")
    page.select_option("#svl-param-0", "k")
    page.fill("#svl-values-0", values)
    page.select_option("#svl-prompts", "examples")
    page.fill("#svl-count", count)


def test_a_cold_lab_shows_recorded_results(visit: Visit) -> None:
    """A picture per experiment; it opens what was recorded, with its settings behind one button."""
    page = visit("?tab=lab")
    recipes = page.evaluate("specviz.app.pages.lab.gallery.recipes.map((one) => one.name)")
    assert page.locator(".svl-recipe").count() == len(recipes) > 80
    shapes = ".svl-recipe :is(svg:has(polyline, rect, .svl-level), .svl-bars)"
    expect(page.locator(shapes)).to_have_count(len(recipes))
    expect(page.locator(".svl-strip:visible")).to_have_count(page.locator(".svl-paper").count())  # all are folded
    for text in page.locator(".svl-strip > *").all_inner_texts()[::9]:  # each has its figure, title and quantity
        assert re.search(r".\n\w.+\n\w.+: .*\d", text), text
    assert page.locator(".svl-named span").count() > 90  # each bar has its name
    said = page.locator(".svl-gallery .svl-outcome").inner_text()
    assert sum(map(int, re.findall(r"(?<=[✓◐≈✗–] )\d+", said))) == len(recipes)
    figures = page.evaluate("specviz.app.pages.lab.gallery.recipes.map((one) => one.figure)")
    places = [re.sub(", [a-z§].*", "", figure) for figure in figures]  # the first one in the paper
    assert sorted(page.locator(".svl-strip svg + small > span").all_text_contents()) == sorted(places)
    page.locator(".svl-paper summary").first.click()
    page.locator(".svl-card[data-name=pldplus-fig4]").press("Enter")
    expect(page.locator(".svl-results[data-state=complete] .svp-chart").first).to_be_visible()
    expect(page.locator("#svl-run")).to_be_hidden()
    page.click(".svl-settings > summary")
    expect(page.locator("#svl-run")).to_be_visible()
    page.go_back()
    expect(page.locator(".svl-card[data-name=pldplus-fig4]")).to_be_visible()  # still unfolded
    page.click(".svl-card[data-result=draft-length]")
    expect(page.locator(".svl-results[data-state=complete] .svp-chart")).to_have_count(1)
    expect(page.locator(".svl-shipped")).to_be_visible()
    expect(page.locator(".svl-bar button:has-text('Delete')")).to_have_count(0)
    page.click(".svl-every > summary")
    page.locator(".svl-table td .svp-link").first.click()
    expect(page.locator(".svl-runs li").first).to_contain_text("= ")  # a run's parameters
    page.locator(".svl-runs .svp-link").first.click()
    page.wait_for_function("() => specviz.app.shown")


CARDS = """() => [...document.querySelectorAll('.svl-recipe')].map((card) => {
  const wide = [...card.querySelectorAll('b, small, .svl-say, .svl-agreed')]
    .filter((one) => one.getBoundingClientRect().right > card.getBoundingClientRect().right - 8);
  const verdict = card.querySelector('.svl-agreed');
  const fills = [...card.querySelectorAll('.svl-picture :is(rect, polyline, .svl-level)')]
    .filter((one) => !one.hasAttribute('fill-opacity')).map((one) => getComputedStyle(one).color);
  const named = [...card.querySelectorAll('.svl-scale i')].map((one) => getComputedStyle(one).backgroundColor);
  return { name: card.dataset.name, wide: wide.map((one) => one.textContent), text: card.textContent,
    lines: verdict ? verdict.getBoundingClientRect().height / parseFloat(getComputedStyle(verdict).fontSize) : 0,
    bars: [...card.querySelectorAll('.svl-bars > *')].map((one) => one.innerText),
    unnamed: [...new Set(fills)].length > 1 ? fills.filter((one) => !named.includes(one)) : [] };
})"""


@pytest.mark.parametrize("width", [1280, 400])
def test_every_card_fits_and_names_its_colours(visit: Visit, page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    visit("?tab=lab")
    page.evaluate("document.querySelectorAll('.svl-paper').forEach((one) => { one.open = true; })")
    cards = page.evaluate(CARDS)
    assert len(cards) > 80
    for card in cards:
        assert card["wide"] == [] and card["unnamed"] == [], card
        assert all(re.search(r".\n.*\d", bar) for bar in card["bars"]), card
        assert card["lines"] < 2.2, card  # its padding and one line
        assert not re.search(r"\d (%|ms|nats|hours|tokens/)", card["text"]), card  # a number breaks from no unit


def test_the_gallery_waits_for_no_model_and_no_result(page: Any, port: int) -> None:
    """What comes along is shown at once; one's own results join, and a card that was clicked opens then."""
    held: list[Any] = []
    released = threading.Event()

    def hold(route: Any) -> None:
        if released.is_set():
            route.continue_()
        else:
            held.append(route)

    page.route(re.compile("/api/(lab|runs|methods)$"), hold)
    page.goto(f"http://127.0.0.1:{port}/?tab=lab")
    page.wait_for_selector(".svl-paper")
    expect(page.locator(".svl-card[data-result]")).to_have_count(0)
    page.locator(".svl-paper summary").first.click()
    page.click(".svl-card[data-name=pldplus-fig4]")
    expect(page.locator(".svl-gallery")).to_have_attribute("aria-busy", "true")
    released.set()
    for route in held:
        route.continue_()
    expect(page.locator(".svl-results[data-state=complete] .svp-chart").first).to_be_visible()
    page.go_back()
    expect(page.locator(".svl-card[data-result=draft-length]")).to_be_visible()
    nothing_wrong(page, port)


def test_a_recipe_opens_with_its_example_result(visit: Visit) -> None:
    page = visit("?tab=lab&lab=pldplus-table8")
    expect(page.locator(".svl-results[data-state=complete] .svp-chart")).to_have_count(1)
    expect(page.locator(".svl-setup .svl-compared")).to_contain_text("Here: 1 of 2 comparisons comes out")
    expect(page.locator(".svl-points > li")).to_have_count(2)
    expect(page.locator(".svl-points").get_by_label("in another order")).to_have_count(1)
    expect(page.locator(".svl-points > li").first).to_contain_text("The paper: 3.14 with 1 averaged state")
    expect(page.locator(".svl-caption")).to_contain_text("An example result, recorded on")
    expect(page.locator(".svl-bar button:has-text('Delete')")).to_have_count(0)
    # times that a busy machine made rough say so where they are shown
    page.locator(".svl-item[data-name='adapld-table1']").click()
    page.wait_for_selector(".svl-results[data-state=complete] .svl-sheet")
    expect(page.locator(".svl-rough")).to_contain_text("times and speedups are rough: other work kept")
    # a table stands once, with the paper's numbers in its rows; another of its models takes their place
    speed = page.locator(".svl-sheet").first
    expect(speed.locator("tbody tr").last.locator(".svl-theirs").last).to_have_text("2.27")
    expect(page.locator(".svp-chart")).to_have_count(0)
    page.select_option(".svl-sheets select", "Vicuna-33B")
    expect(page.locator(".svl-sheet").first.locator("tbody tr").last.locator(".svl-theirs").last).to_have_text("1.74")
    page.locator(".svl-item[data-name='casd-table5']").click()
    expect(page.locator(".svl-answers")).to_have_count(4)
    places = "(cells) => cells.map((one) => Math.round(one.getBoundingClientRect().right))"
    columns = page.locator(".svl-answers tbody tr:first-child .svl-long").evaluate_all(places)
    assert len({*columns}) == 1, "the answers of all prompts stand below each other"
    page.locator(".svl-item[data-name='own']").click()
    expect(page.locator(".svl-compared")).to_have_count(0)


@pytest.mark.slow("a result more")
def test_many_charts_of_the_paper_stand_behind_a_button(visit: Visit) -> None:
    page = visit("?tab=lab&lab=ppd-table1")
    expect(page.locator(".xtick text").first).to_be_in_viewport()
    page = visit("?tab=lab&lab=glide-table1")
    expect(page.locator(".svl-results[data-state=complete] .svp-chart:visible")).to_have_count(4)
    page.click("summary:has-text('(7 charts)')")
    expect(page.locator(".svl-paper .main-svg:visible").first).to_be_visible()
    expect(page.locator(".svl-paper:visible")).to_have_count(7)


@pytest.mark.slow("five results more than the test before opens")
def test_every_recipe_with_a_recorded_result_opens_with_it(visit: Visit) -> None:
    """No blank: what was recorded with SmolLM2 is there before anything was run."""
    page = visit("?tab=lab&lab=own")
    recorded = page.evaluate("specviz.app.pages.lab.catalog.recorded.map((one) => [one.name, one.id])")
    recipes = page.evaluate("specviz.app.pages.lab.catalog.recipes.map((one) => one.name)")
    examples = {name: key for name, key in recorded if name in recipes}
    assert len(examples) > 45
    for name in sorted(name for name in examples if not name.startswith("casd"))[::12]:  # the stub's CASD has no rules
        page.click(f".svl-item[data-name='{name}']")
        becomes(page, lambda: page.evaluate("specviz.app.pages.lab.id"), examples[name])
        page.wait_for_selector(".svl-results[data-state=complete] .svp-chart, .svl-results[data-state=complete] table")


def test_a_sweep_from_the_first_click_to_its_runs(visit: Visit, tmp_path: Path) -> None:
    page = visit()
    sweep(page)
    page.wait_for_selector(".svl-estimate:has-text('4 runs, about')")
    page.click("#svl-run")
    page.wait_for_selector(COMPLETE)
    expect(page.locator(".svp-chart .gtitle").first).to_contain_text("Tokens per step")
    expect(page.locator(".svl-table tbody tr")).to_have_count(2)
    with page.expect_download() as caught:
        page.click(".svl-bar a:has-text('Runs: CSV')")
    caught.value.save_as(tmp_path / "runs.csv")
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 5
    point = page.locator(".svp-chart .scatterlayer .points path").nth(1)
    point.scroll_into_view_if_needed()
    place = point.bounding_box()
    page.mouse.move(place["x"] + 2, place["y"] + 2)
    page.wait_for_selector(".svp-chart .hovertext")
    page.mouse.click(place["x"] + 4, place["y"] + 4)
    page.wait_for_selector(".svl-dialog[open] h3:has-text('Draft length = 4')")
    trace = page.get_attribute(".svl-dialog [data-trace]", "data-trace")
    page.click(".svl-dialog [data-trace]")
    page.wait_for_function("id => specviz.app.shown === id", arg=trace)
    expect(page.locator("#sv-inspect")).to_be_visible()
    becomes(page, lambda: f"trace={trace}" in page.evaluate("specviz.link()"), True)
    page.click("[role=tab]:has-text('Lab')")
    page.wait_for_selector(COMPLETE)  # still there
    page.reload()
    page.click("[role=tab]:has-text('Lab')")
    page.wait_for_selector(COMPLETE)  # and found again
    expect(page.locator("#svl-values-0")).to_have_value("2, 4")


def reach(page: Any, selector: str, most: int = 24) -> None:
    """By Tab alone."""
    for _ in range(most):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is more than {most} stops away: {page.evaluate(FOCUSED)}")


FOCUSED = "document.activeElement.outerHTML.slice(0, 200)"


@pytest.mark.slow("a whole experiment once more")
def test_the_keyboard_alone_leads_from_the_list_to_a_run(visit: Visit) -> None:
    """An experiment is chosen, asked for, run and opened; the list of 90 is one stop on the way."""
    page = visit("?tab=lab&lab=batch")
    page.evaluate("window.presses = 0; addEventListener('pointerdown', () => presses++, true)")
    reach(page, ".svl-item")
    expect(page.locator(":focus")).to_have_attribute("data-name", "batch")
    page.keyboard.press("End")
    last = page.locator(".svl-item").last.get_attribute("data-name")
    expect(page.locator(":focus")).to_have_attribute("data-name", last)
    page.keyboard.press("Home")  # leads back to all of them
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("[aria-current]:focus")).to_have_attribute("data-name", "own")  # it is not lost
    page.keyboard.press("Tab")
    reach(page, ".svl-check input", 3)
    for name in ("pld+h", "casd", "pld"):
        reach(page, f".svl-check input[value='{name}']")
        if page.locator(":focus").is_checked() != (name == "pld"):
            page.keyboard.press("Space")
            reach(page, f".svl-check input[value='{name}']", 1)
        if name != "pld":
            page.keyboard.press("Shift+Tab")
            page.keyboard.press("Shift+Tab")
    reach(page, "#svl-param-0")
    page.keyboard.type("Draft length")
    reach(page, "#svl-values-0")
    page.keyboard.press("Control+a")
    page.keyboard.type("2, 4")
    reach(page, "#svl-prompts")
    page.keyboard.press("Home")
    reach(page, "#svl-count")
    page.keyboard.press("Control+a")
    page.keyboard.type("2")
    reach(page, "#svl-run")
    page.wait_for_selector(".svl-estimate:has-text('4 runs, about')")
    page.keyboard.press("Enter")
    page.wait_for_selector(COMPLETE)
    reach(page, ".svl-every > summary", 60)
    page.keyboard.press("Enter")
    reach(page, ".svl-table .svp-link", 60)
    page.keyboard.press("Enter")
    page.wait_for_selector(".svl-dialog[open]")
    page.keyboard.press("Escape")
    expect(page.locator(".svl-table .svp-link").first).to_be_focused()
    page.keyboard.press("Enter")
    reach(page, ".svl-dialog[open] [data-trace]", 3)
    trace = page.locator(":focus").get_attribute("data-trace")
    page.keyboard.press("Enter")
    page.wait_for_function("id => specviz.app.shown === id", arg=trace)
    assert page.evaluate("presses") == 0


@pytest.mark.slow("the page opened again")
def test_a_recipe_is_explained_and_drawn_beside_the_paper(visit: Visit) -> None:
    page = visit("?tab=lab&lab=own")
    page.hover("[data-name='adapld-table4']")
    page.mouse.down()
    page.evaluate("""() => { // between press and release the model is another one
        window.before = specviz.app.pages.lab.catalog;
        specviz.app.model.number = -1;
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    page.wait_for_function("specviz.app.pages.lab.catalog !== before")
    page.mouse.up()
    expect(page.locator(".svp-asked .ui-soft")).to_contain_text("AdaPLD, table 4")
    page.click(".svl-settings > summary")
    expect(page.locator(".svl-estimate")).to_contain_text("adapld")  # the stub has no such method
    expect(page.locator("#svl-run")).to_be_disabled()
    page.click("[data-name='pldplus-table8']")
    for fact in ("states averaged, m", "table 8 (Vicuna-7B)"):
        expect(page.locator(".svl-facts")).to_contain_text(fact)
    page.wait_for_function("new URL(location.href).searchParams.get('lab') === 'pldplus-table8'")


@pytest.mark.slow("the page opened again")
def test_bad_values_are_told_and_nothing_is_lost(visit: Visit) -> None:
    page = visit()
    sweep(page, values="0, 5")
    page.wait_for_selector(".svl-note.svp-error:has-text('K=0 is out of range: a whole number from 1 to 128')")
    page.fill("#svl-values-0", "1..100")
    page.fill("#svl-count", "13")
    page.wait_for_selector(".svl-estimate:has-text('1,300 runs')")
    page.click("#svl-run")
    page.wait_for_selector(".svl-dialog[open]:has-text('This is 1,300 runs')")
    page.click(".svl-dialog button:has-text('Not now')")
    expect(page.locator("#svl-values-0")).to_have_value("1..100")
    page.select_option("#svl-metric", "quality_f1")
    page.select_option("#svl-prompts", "file")
    page.set_input_files("#svl-file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"hello"})
    page.wait_for_selector(".svl-note.svp-error:has-text('none')")
    expect(page.locator("#svl-metric")).to_have_value("quality_f1")


@pytest.mark.slow("a whole experiment once more")
def test_progress_and_cancel(visit: Visit, desk: StubDesk) -> None:
    page = visit()
    desk.pause_s = 0.02  # all of it would take most of a minute: it cannot be over before it is stopped
    sweep(page, values="1..10", count="13")
    page.wait_for_selector(".svl-estimate:has-text('130 runs')")
    page.click("#svl-run")
    page.wait_for_selector(".svl-left:has-text('of 130 runs · about')")
    page.wait_for_selector(".svp-chart .main-svg")  # drawn while it goes on
    page.click(".svl-cancel")
    page.wait_for_selector(".svl-results[data-state=cancelled]")
    expect(page.locator(".svl-bar")).to_contain_text("cancelled: what was done is kept")
    expect(page.locator(".svl-progress")).to_be_hidden()
    page.click(".svl-bar button:has-text('Delete')")
    page.wait_for_selector(".svl-results:not(:has(.svp-chart))", state="attached")


class Sweeping:
    """A sweep by workers that goes on until it is stopped."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def run(self, told: Callable[[Standing], None], cancel: threading.Event) -> None:
        failures = {"unit": "The worker was lost 3 times with this unit."}
        end = time.monotonic() + WAIT_S
        while (now := time.monotonic()) < end and not cancel.wait(0.1):  # told anew, so that it stays at 3 s
            workers = [WorkerState(f"worker {n}", "at work", now - 3, n) for n in (1, 2)]
            told(Standing(13, done=3, started=now - 6, workers=workers, failures=failures))
        assert cancel.is_set()


@pytest.mark.cluster("workers beside the page")
def test_workers_go_on_without_the_tab_until_stop(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def spread(target: Any, planned: Any, workers: Any, *_: Any, results: Results, **__: Any) -> Sweeping:
        started.append((workers.count, workers.on))
        return Sweeping(results)

    monkeypatch.setattr("specviz.extras.lab.page.lab_page.spread", spread)
    page = visit()
    sweep(page, values="1..10", count="13")
    expect(page.locator("#svl-on")).to_be_hidden()
    page.fill("#svl-workers", "2")
    expect(page.locator("#svl-on")).to_be_visible()
    page.click("#svl-run")
    expect(page.locator(".svl-left")).to_contain_text("3 of 13 prompts · about")
    expect(page.locator(".svl-crew li").first).to_have_text("worker 1 at work, 3 s · 1 done")
    expect(page.locator(".svl-crew .svl-failed").last).to_have_text("The worker was lost 3 times with this unit.")
    key = page.evaluate("() => specviz.app.pages.lab.id")
    page.goto("about:blank")  # the tab is closed
    page = visit(f"?tab=lab&lab={key}")
    expect(page.locator(".svl-crew li").first).to_contain_text("worker 1")
    page.click(".svl-cancel")
    page.wait_for_selector(".svl-results[data-state=cancelled]")
    assert started == [(2, "processes")]


@pytest.mark.matrix("every width and theme")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_width_and_theme_fits(visit: Visit, page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    visit()
    sweep(page)
    page.click("#svl-run")
    page.wait_for_selector(COMPLETE)
    for width in (390, 760, 1280, 1900):
        fits(page, width)
    ink = page.evaluate("getComputedStyle(document.querySelector('.svp-chart .gtitle')).fill")
    assert (int(re.findall(r"\d+", ink)[0]) > 128) == (scheme == "dark")


LIVE = Experiment(
    "live", "A table", (Line("Plain decoding", "plain"), Line("PLD", "pld"), Line("PPD", "ppd")), paper="pldplus",
    figure="table 1", question="Is it drawn?", prompts="examples", count=3, max_new_tokens=12, x="category",
    chart="sheet", papers=(PaperSeries("PLD", "table 1", "tokens_per_step", (("SUM", 2.5),), "Vicuna"),),
)  # fmt: skip


@pytest.mark.slow("a whole experiment once more")
def test_a_table_is_run_drawn_and_opened(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the recipe to the runs behind a cell; a method without its part has the command in its row."""
    monkeypatch.setattr("specviz.extras.lab.page.lab_page.recipes", lambda: {LIVE.name: LIVE})
    monkeypatch.setattr("specviz.extras.lab.page.requests.find_recipe", lambda name: LIVE)
    page = visit("?tab=lab&lab=live")
    page.wait_for_selector(".svl-estimate:has-text('6 runs, about')")
    page.click("#svl-run")
    page.wait_for_selector(".svl-results[data-state=complete] .svl-sheet")
    table = page.locator(".svl-sheet")
    expect(table.locator("thead")).to_contain_text("here: stub")
    expect(table.locator("thead")).to_contain_text("paper: table 1, Vicuna")
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.last).to_contain_text("Prompt tokens are missing")
    pld = rows.filter(has_text="PLD")
    expect(pld.locator(".svl-theirs")).to_have_text("2.50")
    pld.locator(".svl-cell").last.click()  # on all prompts
    page.wait_for_selector(".svl-dialog[open]")
    page.keyboard.press("Escape")
    page.click(".svl-every summary")
    page.locator(".svl-every .svp-link", has_text="3 runs").last.click()
    expect(page.locator(".svl-dialog[open] [data-trace]")).to_have_count(3)
    trace = page.locator(".svl-dialog [data-trace]").first.get_attribute("data-trace")
    page.locator(".svl-dialog [data-trace]").first.click()
    page.wait_for_function("id => specviz.app.shown === id", arg=trace)


@pytest.mark.slow("a large table")
def test_a_papers_table_is_drawn_with_whose_numbers_it_has_and_what_would_fill_a_row(page: Any, port: int) -> None:
    """Results that were made: ours first, the paper's apart and in grey, and no number where nothing was run."""
    target = tiny_target("llama")
    results = run_experiment(target, plan(target, SHEET, CASES))
    results.save(home() / "lab" / results.id)
    page.goto(f"http://127.0.0.1:{port}/?tab=lab&lab={results.id}")
    expect(page.locator(".svl-results[data-state=complete] .svl-sheet")).to_have_count(2)
    steps, speed = (page.locator(".svl-sheet").filter(has_text=text) for text in ("Tokens per step", "Speedup"))
    expect(steps.locator(".svl-theirs")).to_have_count(0)
    head, pld = (speed.locator("tbody tr").filter(has_text=name) for name in ("Head", "PLD"))
    expect(head.locator(".svl-absent")).to_have_text(WORDS)
    expect(head.locator(".svl-theirs")).to_have_text(["3.50", "–"])  # the head's, which was not run here
    expect(pld.locator(".svl-theirs")).to_have_text(["2.50", "2.00"])
    expect(page.locator(".svl-caption")).to_contain_text("Grey: the paper's numbers (Vicuna)")
    fits(page, 400)
