"""The page "Compare" in real Chromium: recorded runs as a race, by output position and by link; lanes that run live."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock
from urllib.parse import unquote

import pytest

from decoders.trace.check import check
from decoders.trace.trace import Trace
from specviz.server.forms import PromptForm
from tests import recordings
from tests.browser.pace import cost
from tests.stubs import StubDesk, StubRun, nothing_wrong, visiting
from tests.waiting import WAIT_S, becomes, expect, fits, until

Visit = Callable[..., Any]
STATE = "specviz.app.pages.compare"


def run(name: str, title: str = "") -> Trace:
    """A run of one prompt by a method."""
    trace = recordings.gallery_run(f"class-docstring-{name}")
    trace.run["method"].update({"title": title} if title else {})
    return trace


def lossy_run() -> Trace:
    """A run whose own token of a late step is "int", where the others wrote another word."""
    trace = run("pld", "Lossy method")
    trace.run["method"].update(name="casd", lossless=False)
    pieces, steps, nodes = (trace.tables[table] for table in ("pieces", "steps", "nodes"))
    step = max(k for k, token in enumerate(steps["bonus"][:-1]) if trace.text([token]).strip().isalpha())
    fresh = max(pieces["id"]) + 1
    for name, value in (("id", fresh), ("hex", b" int".hex()), ("special", False)):
        pieces[name].append(value)
    trace.tables["tokens"]["id"][steps["context"][step + 1] - 1] = steps["bonus"][step] = fresh
    nodes["token"][nodes["step"].index(step + 1)] = fresh
    check(trace)
    return trace


class Lanes(StubDesk):
    """A desk whose runs differ by method; one method breaks."""

    def run_of(self, target: Any, prompt: Any, method: str, title: str, cancel: threading.Event, **_: Any) -> Any:
        whole = run({"pld+h": "pld-h", "casd": "adapld"}.get(method, method))
        whole.run["method"].update(name=method)
        return StubRun(whole, cancel, fail_at=3 if method == "pld+h" else -1, gate=self.gate)


@pytest.fixture(scope="module")
def desk() -> Lanes:
    names = ("plain", "pld", "pld-h", "adapld")
    runs = [run(name, f"Method {letter}") for name, letter in zip(names, "ABCD", strict=True)]
    runs[3].run["timings"]["repeats_ms"] = [runs[3].run["timings"]["decode_ms"]] * 2
    many = [recordings.repeat(run(name), 20) for name in names]  # 2,120 tokens
    return Lanes(gallery=(*runs, lossy_run(), recordings.nasty(), *many))


@pytest.fixture
def visit(page: Any, port: int, desk: Lanes) -> Iterator[Visit]:
    yield from visiting(page, port, "compare")
    desk.gate.set()


def over(page: Any) -> None:
    page.wait_for_function(f"() => Object.keys({STATE}.numbers).length && Object.keys({STATE}.lens).length")
    page.wait_for_function(f"() => Object.values({STATE}.lens).every((one) => one.state !== 'checking')")


def count(page: Any) -> list[int]:
    """Tokens that the clock shows, in the order of the lanes' letters."""
    written = f"{STATE}.live ? lane.steps : lane.done({STATE}.clock, {STATE}.at)"
    lanes = page.evaluate(f"{STATE}.lanes.map(({{ lane }}) => lane && lane.start({written}))")
    return [count for count in lanes if count is not None]


def bars(page: Any) -> dict[str, float]:
    """The share of each lane's bar that is filled, by its letter."""
    length = "1 - parseFloat(lane.parts.fill.style.clipPath.split(' ')[1]) / 100"
    return dict(page.evaluate(f"{STATE}.lanes.map((lane) => [lane.mark, {length}])"))


@pytest.mark.slow("all tabs of a comparison; each has its test")
def test_runs_selected_in_the_library_are_compared_and_held_against_each_other(page: Any, port: int) -> None:
    """By the keyboard alone: two runs of one prompt, their difference, a step of it on Inspect, and the race."""
    page.goto(f"http://127.0.0.1:{port}/?tab=runs")
    page.wait_for_selector(".svp-grid")
    for name in ("gallery-1", "gallery-2"):
        box = page.locator(f"tr[data-id={name}] .svr-check input")
        box.focus()
        page.keyboard.down("Space")
        page.evaluate("specviz.refreshRuns()")  # the list comes again under the key
        page.keyboard.up("Space")
        expect(box).to_be_checked()
    other = page.locator("tr[data-id=gallery-5] .svr-check input")
    other.check()  # of another prompt
    expect(page.locator(".svr-bar button:has-text('Compare')")).to_be_disabled()
    expect(page.locator(".svr-bar button:has-text('Difference')")).to_have_attribute("title", "Select two runs")
    other.uncheck()
    page.focus(".svr-bar button:has-text('Difference')")
    page.keyboard.press("Enter")
    gains = page.get_by_role("region", name="Method C accepted, Method B did not")
    row = gains.locator("tbody tr").first
    expect(row).to_contain_text("of")
    step = int(row.locator("button").first.inner_text().split()[1])
    page.reload()  # the address says which two
    gains.locator("tbody tr button").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("() => specviz.app.tab === 'inspect' && specviz.app.shown === 'gallery-2'")
    becomes(page, lambda: page.evaluate("specviz.inspector.state().step") + 1, step)
    page.goto(f"http://127.0.0.1:{port}/?tab=compare&view=difference&runs=gallery-2,gallery-3")
    expect(page.locator(".svr-gains").last).to_contain_text("accepted 30 of 37 drafted (7 in other branches);")
    page.goto(f"http://127.0.0.1:{port}/?tab=runs")
    for name in ("gallery-1", "gallery-2"):
        page.check(f"tr[data-id={name}] .svr-check input")
    page.click(".svr-bar button:has-text('Compare')")
    expect(page.locator(".svc-lane")).to_have_count(2)
    becomes(page, lambda: "lanes=gallery-1%2Cgallery-2" in page.url, True)


@pytest.mark.slow("the page opened again; test_cards.py has every method's family")
def test_methods_are_grouped_by_family_each_with_a_picture(visit: Visit, page: Any) -> None:
    """The list is the browser's own: it is walked with the keys, and a picture stands before every name."""

    def heads(route: Any) -> None:
        catalog = route.fetch().json()
        trained = {"tokens": 264150, "seconds": 298, "top1": 0.25}
        for method in catalog["methods"]:
            method.update({"family": "heads", "trained": trained} if method["name"] == "pld+h" else {})
        route.fulfill(json=catalog)

    page.route("**/api/methods", heads)
    try:
        visit().wait_for_selector("#svc-method-0")
        groups = page.locator("#svc-method-0 optgroup")
        labels = [str(groups.nth(n).get_attribute("label")).split(":")[0] for n in range(groups.count())]
        assert labels == ["Copy", "Heads", "Not available here"]
        options = page.locator("#svc-method-0 option")
        assert page.locator("#svc-method-0 option > svg[aria-hidden=true]").count() == options.count() == 4
        texts = [str(options.nth(n).text_content()) for n in range(options.count())]
        assert texts == ["PLD", "CASD (lossy)", "PLD+ (hidden states) · trained 5 min", "PPD — not available"]
        page.focus("#svc-method-0")
        page.keyboard.press("P")
        page.select_option("#svc-method-0", "pld+h")
        said = "Trained for 5 min on 264,150 tokens; on held-out text 25 % of its first guesses are right."
        expect(page.locator(".svc-form-card").nth(1)).to_contain_text(said)
    finally:
        page.unroute("**/api/methods")


@pytest.mark.slow("the page opened again")
def test_charts_are_whole_when_they_are_first_seen(visit: Visit, desk: Lanes) -> None:
    page = visit()
    with mock.patch.dict(desk.store._entries):
        disturbed = desk.store.get("gallery-3")
        disturbed.run["timings"]["repeats_ms"] = [disturbed.run["timings"]["decode_ms"] / 2] * 2
        desk.store.put(disturbed, kind="gallery", owner="*")
        page.click(".svc-example")
        over(page)
    expect(page.locator(".svc-charts .svp-chart[data-drawn]")).to_have_count(4)
    wide = page.evaluate("document.querySelector('.svc-charts .svp-chart').offsetWidth")
    for plot in page.locator(".svc-charts .svp-plot").all():
        drawn = plot.evaluate("(plot) => [plot.querySelector('.main-svg').clientWidth, plot._fullLayout._size.w]")
        assert drawn[0] > 0.9 * wide and drawn[1] > 0.6 * wide, plot.get_attribute("data-chart")
    times, colors = page.evaluate(
        "[document.querySelector('[data-chart=times]').data.map(({ x, marker }) => [x, marker.color]), "
        f"{STATE}.lanes.map(({{ color }}) => color)]"
    )
    took = disturbed.tables["steps"]["elapsed_ms"][-1] / 2000  # the median's, as the race and the table have it
    lane = page.evaluate(f"{STATE}.lanes.findIndex(({{ id }}) => id === 'gallery-3')")
    assert sum(x[lane] for x, _ in times[1:]) == pytest.approx(took, rel=0.05)
    assert not {color for _, color in times} & {*colors}  # a lane's hue means that lane
    page.locator(".svc-charts .svp-plot").last.scroll_into_view_if_needed()
    assert page.locator(".svc-charts .svp-plot").last.locator(".scatterlayer .trace").count() == 4


def test_a_speedup_that_cannot_be_is_marked_and_not_the_best(visit: Visit, desk: Lanes) -> None:
    """It has no place in the race, no star in the table, and the sentence names it: all three by one claim."""
    page = visit()
    lanes = mock.patch.dict(desk.store._entries)  # the gallery as it was, afterwards
    with lanes:
        disturbed = desk.store.get("gallery-2")
        disturbed.run["timings"]["decode_ms"] = 1.0
        desk.store.put(disturbed, kind="gallery", owner="*")
        page.click(".svc-example")
        over(page)
        cells = page.locator(".svc-table tr:has(th:text-is('Speedup')) td")
        expect(cells.nth(2)).to_have_text(re.compile("× ‡$"))
        cells.nth(2).focus()
        expect(page.locator(".svc .sv-tip")).to_contain_text("tokens per step, which cannot be")
        last = page.locator(".svc-lane").last
        expect(last.locator(".svc-place")).to_have_text("‡")
        expect(last.locator(".svc-name")).to_have_text("Method C")
        first = page.locator(".svc-lane").first.locator(".svc-name").inner_text()
        said = re.compile(rf"^{first} comes first: .*Method C takes no place \(‡\)")
        expect(page.locator(".svc-outcome")).to_have_text(said)
        star = page.locator(".svc-table tr:has(th:text-is('Speedup')) td:has(.svc-star)")
        assert star.evaluate("(cell) => cell.closest('table').rows[0].cells[cell.cellIndex].innerText").endswith(first)
        last.locator(".svc-place").focus()
        expect(page.locator(".svc .sv-tip")).to_contain_text("No place: above the")


def test_where_plain_decoding_was_disturbed_every_speedup_is_marked(visit: Visit, desk: Lanes) -> None:
    page = visit()
    with mock.patch.dict(desk.store._entries):
        disturbed = desk.store.get("gallery-0")
        disturbed.run["timings"]["decode_ms"] *= 100
        desk.store.put(disturbed, kind="gallery", owner="*")
        page.click(".svc-example")
        over(page)
        expect(page.locator(".svc-outcome")).to_contain_text("nobody can be said to win: plain decoding was disturbed")
        expect(page.locator(".svc-number")).to_be_hidden()
        expect(page.locator(".svc-lane .svc-place")).to_have_text(["‡"] * 5)
        expect(page.locator(".svc-lane .svc-value.svc-doubted")).to_have_text([re.compile("× ‡$")] * 5)
        expect(page.locator(".svc-table tr:has(th:text-is('Speedup')) td .svc-star")).to_have_count(0)
        page.check(".svc-clocks input[value=step]", force=True)  # forwards were counted
        expect(page.locator(".svc-lane .svc-place").first).to_have_text("1")
        expect(page.locator(".svc-value.svc-doubted")).to_have_count(0)


@pytest.mark.slow("waits for a clock")
def test_the_text_of_a_lane_follows_the_clock(visit: Visit) -> None:
    page = visit()
    page.click(".svc-example")
    over(page)
    page.check(".svc-clocks input[value=step]", force=True)
    page.focus(".svc-slider")
    page.keyboard.press("End")
    seen = """() => [...document.querySelectorAll('.svc-text')].map((text) => {
        const end = [...text.querySelectorAll('.svc-tail span')].at(-1)?.getBoundingClientRect();
        const box = text.getBoundingClientRect();
        return !end || (end.bottom <= box.bottom + 1 && end.bottom > box.top);
    })"""
    expect(page.locator(".svc-text").first).to_be_hidden()  # at rest all wrote the same
    for _ in range(4):
        page.keyboard.press("PageDown")
        becomes(page, lambda: page.evaluate(seen), [True] * 5)


def test_recorded_runs_race_and_align(visit: Visit, desk: Lanes) -> None:
    page = visit("&trace=gallery-0")
    expect(page.locator(".svc-empty")).to_contain_text("who needs how many forwards")
    expect(page.locator(".svc-prompt-form .svp-recorded")).to_contain_text("prompt of the run that is open")
    page.wait_for_selector(".svc-prompt-form .sve-prompt:not(.sve-waits)")
    held = "[...document.querySelectorAll('.svc-prompt-form textarea')].map((area) => area.value).join()"
    assert "Add a docstring to this class." in page.evaluate(held)
    assert page.locator(".svc-form-card option[disabled]").count() >= 1  # ppd lacks its prompt tokens
    assert "specviz train ppd" in page.text_content(".svc-settings")
    # open stand the prompt, the methods and Run; the rest says in a line what it is
    expect(page.locator(".svc-columns details[open]")).to_have_count(0)
    expect(page.locator(".svc-settings > details > summary").first).to_have_text(
        re.compile("^Settings: at most .*, greedy$")
    )
    page.click(".svc-example")
    over(page)
    runs = {name: desk.store.get(f"gallery-{n}") for n, name in enumerate("PABCD")}
    total = len(runs["P"].output_ids)
    assert "lanes=gallery-0%2Cgallery-1%2Cgallery-2%2Cgallery-3%2Cgallery-4" in page.url
    begins = f"(({{ ruler }}) => ruler.places.at(-1) > ruler.wide && ruler.left === 0)({STATE})"
    assert page.evaluate(begins)  # of an output wider than the picture the first tokens are in sight
    # at rest: the first to finish on top, a bar as long as its lane took, and a sentence that says who won
    took = {name: trace.tables["steps"]["elapsed_ms"][-1] for name, trace in runs.items()}
    expect(page.locator(".svc-lane .sv-lane-mark")).to_have_text(sorted(runs, key=took.__getitem__))
    becomes(page, lambda: count(page)[:4], [total] * 4)
    expect(page.locator(".svc-lane .svc-place")).to_have_text(["1", "2", "3", "3", "5"])  # a run and its copy
    expect(page.locator(".svc-lane").first.locator(".svc-value")).to_have_text(page.inner_text(".svc-number"))
    once = re.compile("✓ All but Lossy method wrote the same.*3 of Method D, in alternation. A whisker")
    expect(page.locator(".svc-once")).to_contain_text(once)
    expect(page.locator(".svc-table th:has-text('Verifying') small")).to_have_text(" ms, first run")
    for name, share in bars(page).items():
        assert share == pytest.approx(took[name] / max(took.values()), abs=1e-4)
    winner = runs[min(took, key=took.__getitem__)].run["method"]["title"]
    expect(page.locator(".svc-outcome")).to_contain_text(re.compile(rf"{winner} comes first: \d\.\d+× plain decoding"))

    page.get_by_role("button", name="Copy as slide").press("Enter")  # the same claim, as a picture
    slides = page.get_by_role("menuitem", name="Save")
    expect(slides).to_have_count(2)
    for entry in slides.all():
        svg = unquote(str(entry.get_attribute("href")))
        assert svg.startswith("data:image/svg+xml") and f">{page.inner_text('.svc-number')}<" in svg and winner in svg
        assert re.search("✓ All but .*Median of 1", svg) and "× plain decoding<" in svg
        assert re.fullmatch(r"[\w-]+-(light|dark)\.svg", str(entry.get_attribute("download")))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("menuitem", name="Copy, dark").click()
    expect(page.get_by_role("button", name="Slide copied")).to_be_visible()
    expect(page.get_by_role("button", name="Copy as slide")).to_be_visible()
    is_over = threading.Event()
    state = {"count": 1, "of": 10, "run": "gallery-0", "text": ""}
    page.route("**/api/compare/repeat*", lambda route: route.fulfill(json=state | {"over": is_over.is_set()}))
    page.get_by_role("button", name="Repeat them").click()
    expect(page.locator(".svc-repeats")).to_contain_text("Shown so far: the runs before these repeats. Repeating in")
    is_over.set()
    expect(page.locator(".svc-once")).to_contain_text(once)
    page.unroute("**/api/compare/repeat*")
    page.get_by_role("button", name="Repeat them").click()  # recorded elsewhere: that is said
    expect(page.locator(".svc-repeats")).to_contain_text("This run was made with")

    page.check(".svc-clocks input[value=step]", force=True)  # orders, and the same number of forwards for all
    fewest = sorted(runs, key=lambda name: runs[name].rows("steps") / len(runs[name].output_ids))
    expect(page.locator(".svc-lane .sv-lane-mark")).to_have_text(fewest)
    expect(page.locator(".svc-outcome")).to_contain_text("the fewest forwards")
    page.focus(".svc-slider")
    page.keyboard.press("Home")
    becomes(page, lambda: count(page), [0] * 5)
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    emitted = [sum(trace.tables["steps"]["emitted"][:3]) for trace in runs.values()]
    becomes(page, lambda: count(page), emitted)
    expect(page.locator(".svc-at")).to_have_text("3 forwards")
    page.check(".svc-clocks input[value=time]", force=True)
    page.keyboard.press("End")
    clock = page.evaluate(f"{STATE}.at")
    high = page.evaluate("document.querySelector('.svc-lanes').offsetHeight")
    assert clock == pytest.approx(max(trace.tables["steps"]["elapsed_ms"][-1] for trace in runs.values()))
    page.focus(".svc-slider")
    page.keyboard.press(" ")  # plays from the start
    page.wait_for_function(f"() => {STATE}.playing && {STATE}.at > 0 && {STATE}.at < {clock / 2}")
    page.keyboard.press(" ")
    at = page.evaluate(f"{STATE}.at")
    assert page.evaluate("document.querySelector('.svc-lanes').offsetHeight") == high  # the page below stands still
    expect(page.locator(".svc-outcome")).to_have_text(re.compile(r"^After \d+(\.\d+)? m?s: (?!.*wins)"))
    expect(page.locator(".svc-number")).to_be_hidden()  # nobody has won yet
    expect(page.locator(".svc-measure")).to_have_text(f"Tokens written, of {total}")
    done = [sum(t <= at for t in trace.tables["steps"]["elapsed_ms"]) for trace in runs.values()]
    emitted = [sum(t.tables["steps"]["emitted"][:n]) for t, n in zip(runs.values(), done, strict=True)]
    becomes(page, lambda: count(page), emitted)
    position = lambda: int(page.get_attribute(".sv-ruler", "aria-valuenow"))  # noqa: E731
    writing = [count for count in emitted if count < total]
    becomes(page, position, max(writing))  # follows the race, not a lane that is over
    assert page.evaluate(
        "[...document.querySelectorAll('.sv-ruler-names .ui-clip')]"
        ".every((name) => name.scrollWidth <= name.clientWidth)"
    )  # there is room for them

    page.locator(".sv-ruler-over").click(position={"x": 300, "y": 10})  # scrubs by output position
    position = page.evaluate(f"{STATE}.at")
    assert page.evaluate(f"{STATE}.clock") == "position" and 0 < position < total
    said = page.inner_text(".svc-reached")
    for name, trace in list(runs.items())[:4]:
        step = trace.tables["tokens"]["step"][trace.run["prompt_length"] + position - 1]
        assert re.search(rf"\b{name} {step + 1}\b", said)
    assert page.get_attribute(".sv-ruler", "aria-valuetext") == said

    stretch = page.locator(".svc-stretch").first
    ((first, last, forwards),) = re.findall(r"tokens (\d+)–(\d+): [A-E] (\d+)", stretch.inner_text())
    winner = runs[stretch.locator(".sv-lane-mark").inner_text()]
    start = winner.run["prompt_length"] + int(first) - 1
    steps = winner.tables["tokens"]["step"][start : winner.run["prompt_length"] + int(last)]
    assert len(set(steps)) == int(forwards)
    stretch.locator(".svc-go").click()
    becomes(page, lambda: page.evaluate(f"{STATE}.at"), int(last))

    lens = page.locator(".svc-lens-row").all_inner_texts()
    outputs = zip(runs["P"].output_ids, runs["D"].output_ids, strict=True)
    (word,) = (runs["P"].text([token]).strip() for token, other in outputs if token != other)
    assert "the reference" in lens[0] and all("identical to plain decoding" in text for text in lens[1:4])
    assert "lossy by design" in lens[4] and "int" in lens[4] and word in lens[4]
    page.click(".svc-diff summary")
    sides = [page.inner_text(f".svc-diff .sv-{side}") for side in ("ins", "del")]
    assert sides[0].endswith("int") and sides[1].endswith(word)
    steps = page.locator(".svc-table tr:has(th:has-text('Verify steps')) td").all_inner_texts()
    assert [text.removesuffix(" ★") for text in steps] == [str(trace.rows("steps")) for trace in runs.values()]
    assert sum("★" in text for text in steps) >= 1
    expect(page.locator(".svc-bars")).to_have_count(4)
    page.focus(".svc-table tbody th >> nth=0")
    expect(page.locator(".svc .sv-tip")).to_contain_text("mean over steps of (accepted + 1)")
    page.wait_for_selector("[data-chart=cumulative] .main-svg")
    ends = "document.querySelector('[data-chart=cumulative]').data.map((one) => one.y.at(-1))"
    becomes(page, lambda: page.evaluate(ends)[:4], [total] * 4)

    page.reload()  # the link opens the same comparison
    page.wait_for_selector(".svp-compare[data-ready]")
    over(page)
    becomes(page, lambda: count(page)[:4], [total] * 4)
    page.check(".svc-clocks input[value=step]", force=True)
    page.focus(".svc-slider")
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.locator(".svc-lane:has(.sv-lane-mark:text-is('B')) .svc-name").click()
    page.wait_for_function("() => specviz.app.shown === 'gallery-2'")
    becomes(page, lambda: page.evaluate("specviz.app.inspector.state().step"), 4)


def test_lanes_run_live_and_one_that_fails_leaves_the_others(visit: Visit, desk: Lanes) -> None:
    page = visit()
    page.wait_for_selector(".svc-run:not([disabled])")
    page.select_option("#svc-method-0", "pld")
    page.select_option("#svc-method-1", "pld+h")
    for _ in range(page.locator(".svc-remove").count() - 2):
        page.locator(".svc-remove").last.click()
    expect(page.locator(".svc-remove")).to_have_count(2)
    page.check("#svc-mode:enabled input[value=segments]", force=True)
    page.fill("#svc-instruction textarea", "Edit the code.")
    desk.gate.clear()
    page.click(".svc-run")
    page.wait_for_function(f"() => {STATE}.lanes[0]?.lane?.steps === 4")  # drawn while it goes on
    # the numbers are there before they are drawn: that waits for the first answer about every lane
    for lane, text in enumerate(["running", "waiting: 1 run before it"]):
        expect(page.locator(".svc-state").nth(lane)).to_have_text(text)
    becomes(page, lambda: count(page)[:1], [4])
    expect(page.locator(".svc-run")).to_be_disabled()
    jobs = [desk.runner.job(key) for key in page.evaluate(f"{STATE}.lanes.map((one) => one.id)")]
    assert all(job is not None and job.session for job in jobs)  # closing the tab stops them
    expect(page.locator(".svc-turns")).to_contain_text("one after another")
    expect(page.locator(".svc-measure")).to_contain_text("Time so far, of an estimated")
    expect(page.locator(".svc-controls")).to_be_hidden()  # no race of lanes that are not there
    cut = "[...document.querySelectorAll('.svc-lane')].filter((lane) => lane.scrollHeight > lane.clientHeight).length"
    assert page.evaluate(cut) == 0
    expect(page.locator(".svc-key li:visible")).to_have_count(2)  # plain decoding: nothing accepted, no oracle
    desk.gate.set()
    page.wait_for_function(f"() => {STATE}.playing")  # the race, now that all are there; it ends by itself
    page.click(".svc-play")
    over(page)
    expect(page.locator(".svc-turns")).to_be_hidden()
    states = page.evaluate(f"{STATE}.lanes.map((one) => one.state)")
    assert states == ["done", "done", "failed"]
    expect(page.locator(".svc-lane:nth-child(3) .svc-error")).to_contain_text("the stub broke")
    expect(page.locator(".svc-lens-row").nth(1)).to_contain_text("identical")
    expect(page.locator(".svc-lens-rows")).not_to_contain_text("near tie:")
    desk.gate.clear()
    page.set_viewport_size({"width": 400, "height": 700})
    page.click(".svc-setup > summary")
    page.click(".svc-run")
    top = "document.querySelector('.svc-setup').getBoundingClientRect().top >= 0"
    becomes(page, lambda: page.evaluate(top), True)
    page.wait_for_function(f"() => {STATE}.lanes[0]?.lane?.steps === 4")
    heights = "new Set([...document.querySelectorAll('.svc-lane')].map((row) => row.offsetHeight)).size"
    becomes(page, lambda: page.evaluate(heights), 1)  # running or waiting
    page.click(".svc-stop")
    page.wait_for_function(f"() => {STATE}.lanes.every((one) => one.state === 'stopped')")
    expect(page.locator(".svc-lane:nth-child(3)")).to_contain_text("Stopped before it began.")
    page.wait_for_selector(".svc-run:not([disabled])", state="attached")
    desk.gate.set()


@pytest.mark.slow("a further comparison of recorded runs")
def test_runs_that_are_gone_are_named_and_leave_the_others(page: Any, port: int) -> None:
    page.goto(f"http://127.0.0.1:{port}/?tab=compare&lanes=gallery-0,gone,gallery-1")
    page.wait_for_selector(".svp-compare[data-ready]")
    over(page)
    expect(page.locator(".svc-lane .svc-error")).to_contain_text("no run called 'gone' here: it was deleted")
    expect(page.locator(".svc-lens-row")).to_have_count(2)
    expect(page.locator(".svc-same")).to_contain_text("✓ Both wrote the same")
    page.goto(f"http://127.0.0.1:{port}/?tab=compare&lanes=gone")
    expect(page.locator(".svc-stretches")).to_have_text("No lane wrote anything.")
    expect(page.locator(".svc-setup").first).to_have_attribute("open", "")  # the way on
    expect(page.locator(".sv-ruler")).to_be_hidden()  # nothing has a size in it
    nothing_wrong(page, port, said=["404"])


@pytest.mark.slow("live runs once more")
def test_steps_that_come_while_a_run_is_fetched_are_drawn_when_it_is_there(visit: Visit, desk: Lanes) -> None:
    """The answer is as old as its question; the steps told since then are not in it, and nobody tells them again."""
    begin = threading.Event()

    class Late(StubRun):
        def __iter__(self) -> Iterator[Any]:
            assert begin.wait(WAIT_S)
            yield from super().__iter__()

    desk.gate.clear()
    before = desk.submit(PromptForm("text", text="abc"), "pld", {}, {}, owner="somebody")
    until(lambda: before.state == "running", "the run before it holds the worker")
    with mock.patch.object(desk, "run_of", lambda *stated, **_: Late(run("pld"), stated[-1], gate=desk.gate)):
        page = visit()
        page.wait_for_selector(".svc-run:not([disabled])")
        page.select_option("#svc-method-0", "pld")
        for _ in range(page.locator(".svc-remove").count() - 1):
            page.locator(".svc-remove").last.click()
        page.check("#svc-mode:enabled input[value=segments]", force=True)
        page.fill("#svc-instruction textarea", "Edit the code.")
        page.click(".svc-run")
        page.wait_for_function(f"() => {STATE}.lanes[0]?.source?.readyState === 1")  # it waits, and is listened to
        held: list[Any] = []
        page.route("**/api/traces/*", lambda route: held.append((route, route.fetch())))
        page.evaluate(
            f"""() => {{ window.told = 0; {STATE}.lanes[0].source.addEventListener("message",
            (message) => {{ if (JSON.parse(message.data).delta) window.told += 1; }}); }}"""
        )
        before.cancel.set()
        becomes(page, lambda: len(held), 1)  # it runs now: asked for, and answered without a step
        begin.set()
        page.wait_for_function("() => window.told === 4")
        assert page.evaluate(f"{STATE}.lanes[0].lane") is None
        route, answer = held[0]
        route.fulfill(response=answer)
        page.wait_for_function(f"() => {STATE}.lanes[0].lane?.steps === 4")  # while the fifth is waited for
        page.unroute("**/api/traces/*")
        desk.gate.set()
        over(page)


@pytest.mark.slow("four lanes of 2,000 tokens")
@pytest.mark.pace
def test_scrubbing_four_lanes_of_2000_tokens(visit: Visit) -> None:
    page = visit("&lanes=gallery-6,gallery-7,gallery-8,gallery-9", 1280)
    over(page)
    assert min(page.evaluate(f"{STATE}.lanes.map((one) => one.lane.length)")) >= 2000
    page.wait_for_function(f"() => {STATE}.stretches.length > 0")
    page.wait_for_selector("[data-chart=steps] .main-svg")
    for clock in ("position", "time", "step"):
        if clock == "position":
            page.locator(".sv-ruler-over").click(position={"x": 300, "y": 10})
        else:
            page.check(f".svc-clocks input[value={clock}]", force=True)
        scrub = """async (n) => {
            const slider = document.querySelector(".svc-slider");
            slider.value = ((37 * n) % 100) / 100 * slider.max;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            await new Promise(requestAnimationFrame);
        }"""
        cost(page, f"Compare: scrubbing four lanes of 2,000 tokens by {clock}", scrub).within(nodes=600, layouts=4)
    fits(page, 420, 820)
