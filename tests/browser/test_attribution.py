"""Attribution in real Chromium: the exported page counts as Python does; the page's flows, from a run to a score."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decoders.study.attribute.attribution import WAYS, links
from decoders.study.attribute.export import split_by_link, to_json
from decoders.study.attribute.quotes import gold_json, parse_quotesum, score_links
from decoders.study.look.teacher_forcing import answer_ids, forced_trace
from decoders.trace.trace import Trace
from specviz.pages.attribution.document import document, standalone
from tests import recordings
from tests.browser.pace import cost
from tests.stubs import nothing_wrong, serving
from tests.test_attribution_page import ANSWER, CONTEXT, ROW, attribution_desk, documents_desk, tiny
from tests.waiting import WAIT_S, becomes, expect, fits

# the same vector for both: documents at min_run 1, and what they come to at each threshold
VECTOR = """async (numbers) => {
  const A = await import("specviz/attribution/links.js");
  return specviz.attribution.signals.map((signal) => Object.values(signal.views).map((doc) => numbers.map((n) => {
    const found = A.at(doc, n);
    return { links: found.links, copied: found.copied_tokens, uncopied: found.uncopied, verbatim: !found.not_verbatim,
        sources: found.sources, parts: A.parts(found.links, [...doc.output].length).map(([a, b, link]) =>
            [[...doc.output].slice(a, b).join(""), link ? link.number : 0]),
        score: found.score,
        cut: (() => { const at = A.places(doc.output); return found.links.map(({ output: [a, b] }) =>
            doc.output.slice(at(a), at(b))); })() };
}))); }"""


def answer_with_quotes() -> tuple[Trace, Any]:
    target, gold = tiny(), parse_quotesum({**ROW, "source2": "a new 🏮 stood"}, "q")
    return forced_trace(target, gold.record().prompt(target.tokenizer), answer_ids(target, gold.answer)), gold


@pytest.mark.slow("a page from disk")
@pytest.mark.pace
def test_the_exported_page_counts_as_python_does(page: Any, tmp_path: Path) -> None:
    trace, gold = answer_with_quotes()
    traces = [trace, recordings.nasty(), recordings.tree(), recordings.cape()]
    known = [gold_json(trace, gold), None, None, None]
    docs = [document(one, gold if quotes else None) for one, quotes in zip(traces, known, strict=True)]
    file = tmp_path / "attribution.html"
    file.write_text(standalone(docs, 3), encoding="utf-8")
    page.goto(file.as_uri())
    becomes(page, lambda: page.evaluate("'specviz' in globalThis"), True)  # its modules are unpacked first
    numbers = [1, 2, 3, 5, 8, 20]
    found = page.evaluate(VECTOR, numbers)
    for one, quotes, views in zip(traces, known, found, strict=True):
        for (way, how), rows in zip(WAYS.items(), views, strict=True):
            for n, mine in zip(numbers, rows, strict=True):
                here = links(one, n, **how)
                told = json.loads(json.dumps(to_json(one, here)))
                index = {(s["kind"], s["passage"]): k for k, s in enumerate(told["sources"])}
                for link in (*mine["links"], *told["links"]):
                    link.pop("source_index")  # sources nobody used any more are not in the list of this threshold
                assert mine["links"] == told["links"] and mine["verbatim"] == told["verbatim"]
                assert mine["copied"] == told["copied_tokens"] and mine["cut"] == [x["text"] for x in told["links"]]
                assert mine["uncopied"] == [span["output_tokens"] for span in told["uncopied"]]
                every = document(one)["views"][way]["sources"]
                for source, share in zip(every, mine["sources"], strict=True):
                    if (source["kind"], source["passage"]) in index:
                        theirs = told["sources"][index[source["kind"], source["passage"]]]
                        assert share == {key: theirs[key] for key in share}
                    else:
                        assert not any(share.values())
                order = {link: number for number, link in enumerate(here, 1)}
                assert mine["parts"] == [[text, order[link] if link else 0] for text, link in split_by_link(one, here)]
                if quotes:
                    score = score_links(one, gold, here)
                    assert score is not None and mine["score"] == pytest.approx(
                        {name: getattr(score, name) for name in mine["score"]}
                    )
    # the page itself: several signals, the keys, the threshold, what is hostile stays text
    assert page.locator(".sv-a-lane").count() == 7  # head, known quotes, the text alone, four signals
    page.click(".sv-a-board summary")
    page.locator("button.sv-a-lane").nth(2).click()
    assert page.inner_text(".sv-a-answer .sv-a-text").count("<") == to_json(traces[1], [])["output"].count("<")
    assert page.locator(".sv-a-grid :is(script, img, i i, svg svg, b b)").count() == 0
    page.focus('[data-side="answer"][data-run="1"]')
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.run") == "2"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.side") == "source"
    expect(page.locator('[data-side="answer"].sv-a-lit')).to_have_count(1)
    expect(page.locator(".sv-a-line")).not_to_have_count(0)
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.side") == "answer"
    page.keyboard.press("Escape")
    page.mouse.move(0, 0)
    expect(page.locator(".sv-a-lit, .sv-a-line")).to_have_count(0)
    change = "(n) => { specviz.attribution.set({ minRun: 1 + (n % 24) }); document.body.offsetHeight; }"
    cost(page, "a move of Attribution's slider", change).within(nodes=250, layouts=8)
    assert page.problems == [] and all(url.startswith(("file:", "data:")) for url in page.requests)


@pytest.fixture(scope="module")
def port(module_home: Path) -> Iterator[int]:
    desk = attribution_desk(tiny)
    with serving(desk) as found:
        assert desk.loader.wait(WAIT_S)
        yield found


def attribution_requests(page: Any) -> list[str]:
    """This page's requests to the server; the shell asks for the model's state and the runs in its own time."""
    shell = ("/api/status", "/api/runs", "/gradio_api/", "/web/")  # its polls, and modules fetched at idle time
    return [url for url in page.requests if not any(part in url for part in shell)]


@pytest.mark.slow("the whole way from a run to scored quotes")
def test_from_a_run_to_a_score(page: Any, port: int) -> None:
    other = {"same": False, "name": "Another", "loaded": "tiny-llama", "model": "", "beside": True}
    page.route("**/api/models/of/one", lambda route: route.fulfill(json=other))
    page.goto(f"http://127.0.0.1:{port}/?trace=one")
    page.wait_for_selector("body.sv-mounted")
    page.get_by_role("button", name="Share").click()
    page.get_by_role("menuitem", name="Attribute this run").click()
    page.wait_for_selector(".svp-attribution[data-ready='one']")
    expect(page.locator(".sva-made")).to_contain_text("This run was made with Another")
    # a recorded run: the text alone, two signals that wrote the same, the threshold without the server
    lanes = page.locator("button.sv-a-lane")
    expect(lanes).to_have_count(3)
    expect(page.locator(".sv-a-tile").first).to_contain_text(re.compile(r"^Word for word\d+ %"))
    page.click(".sv-a-board summary")
    shown = lanes.nth(1)
    expect(shown).to_have_attribute("aria-pressed", "true")
    lanes.first.focus()
    page.keyboard.press("Enter")
    expect(lanes.first).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".sv-a-signal")).to_have_count(0)
    lanes.nth(1).click()
    expect(page.locator(".sv-a-signal")).to_contain_text("Its drafts linked")
    # both ends of a link
    asked = attribution_requests(page)
    before = page.locator('[data-side="answer"]').count()
    page.evaluate("""() => { const s = document.querySelector(".sv-a-range"); s.value = 12;
        s.dispatchEvent(new Event("input", { bubbles: true })); }""")
    expect(page.locator(".sv-a-now").first).to_have_text("12")
    becomes(page, lambda: page.locator('[data-side="answer"]').count() < before, True)
    # rarity: the marks of common words go, the numbers stay
    said = page.inner_text(".sv-a-summary")
    page.evaluate("""() => { const s = document.querySelector(".sv-a-bits"); s.value = 80;
        s.dispatchEvent(new Event("input", { bubbles: true })); }""")
    expect(page.locator(".sv-a-min").nth(1)).to_contain_text(re.compile(r"below 80 bits: \d+ of \d+"))
    assert page.inner_text(".sv-a-summary") == said
    page.wait_for_function("new URL(location.href).searchParams.get('bits') === '80'")
    page.evaluate("""() => { const s = document.querySelector(".sv-a-bits"); s.value = 0;
        s.dispatchEvent(new Event("input", { bubbles: true })); }""")
    page.hover('[data-side="answer"] >> nth=0')
    for linked in ('[data-side="source"].sv-a-lit', ".sv-a-line"):
        expect(page.locator(linked)).not_to_have_count(0)
    # the lines' layer lies over the whole page: a fill of its own would hide all text
    expect(page.locator(".sv-a-links")).to_have_css("background-color", "rgba(0, 0, 0, 0)")
    page.click("button.sv-a-lane >> nth=2")
    expect(page.locator("button.sv-a-lane").nth(2)).to_have_attribute("aria-pressed", "true")
    assert attribution_requests(page) == asked
    page.wait_for_function("new URL(location.href).searchParams.get('min_run') === '12'")
    expect(page.locator(".sv-a-min").first).to_contain_text("minimum length 12")
    expect(page.locator(".sva-signals button:disabled[title*='no GLIDE draft model']")).to_have_count(1)
    # an answer of one's own, by two signals; an empty one first
    page.click("[data-opens=own]")
    page.fill(".sva-own [name=context]", CONTEXT)
    page.fill(".sva-own [name=answer]", " ")
    page.check(".sva-own input[value=casd]")
    page.click(".sva-own .sva-go")
    page.wait_for_selector(".sva-own .svp-error:has-text('The answer is empty')")
    page.fill(".sva-own [name=answer]", ANSWER)
    page.click(".sva-own .sva-go")
    page.wait_for_selector(".svp-attribution:not([data-ready='one'])")
    page.wait_for_function("document.querySelectorAll('button.sv-a-lane').length === 3")
    expect(page.locator(".sv-a-title .sv-chip")).to_have_text("answer given")
    expect(page.locator(".sva-made")).to_be_hidden()  # the model in use made this one
    expect(page.locator(".sv-a-answer")).to_contain_text("<b>now</b>")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export").click()
        page.get_by_role("menuitem", name="JSON").click()
    told = json.loads(Path(saved.value.path()).read_text("utf-8"))
    assert told["min_run"] == 12 and all(ANSWER[slice(*link["output"])] == link["text"] for link in told["links"])
    # read without each passage: a table, a sentence and heat; then without the words of a link
    page.click(".sv-a-ask")
    expect(page.locator("td .sv-a-weight")).to_have_count(6)  # the whole answer and two sentences, by two passages
    page.locator("td .sv-a-weight").nth(2).click()
    expect(page.locator(".sv-a-said")).to_contain_text(re.compile("^Passage 1 (contributed|corroborates|speaks|took)"))
    expect(page.locator(".sv-a-said")).to_contain_text("the prompt is read again without it")
    parts = re.compile(r"^(contributed|corroborates only|against|no decisive part) P[12]")
    expect(page.locator(".sv-a-caused").first).to_contain_text(parts)
    expect(page.locator(".sv-a-absents")).to_have_count(0)  # this answer has no number and no name
    # head and panes count used sources alike, and say what they speak of
    [verbatim, linked] = [page.inner_text(f".sv-a-tile >> nth={k}") for k in (0, 1)]
    assert verbatim.startswith("Word for word") and "linked " in linked
    used = re.findall(r"\d of 2 passages", linked)
    assert page.inner_text(".sv-a-sources header").find(f"{used[0]} linked") >= 0
    page.locator("button.sv-a-lane").first.click()
    used = re.findall(r"\d of 2 passages", verbatim)
    expect(page.locator(".sv-a-sources")).to_contain_text(f"{used[0]} quoted word for word")
    page.locator("button.sv-a-lane").nth(1).click()
    page.locator("td .sv-a-weight").nth(2).click()
    page.locator("td .sv-a-weight").nth(2).click()
    assert page.locator(".sv-a-answer .sv-a-heat").count() > 0
    assert page.inner_text(".sv-a-matrix tr[aria-current] th").startswith("the old lamp")
    page.locator('[data-side="answer"]').first.click()
    expect(page.locator(".sv-a-said")).to_contain_text("This place ")
    expect(page.locator(".sv-a-matrix tr[aria-current]")).to_have_count(0)
    expect(page.locator(".sv-a-line")).not_to_have_count(0)
    for key in ("ArrowRight", "Enter", "Escape"):  # which lets go of all, wherever the focus is
        page.keyboard.press(key)
    expect(page.locator(".sv-a-line, .sv-a-heat, .sv-a-lit")).to_have_count(0)
    expect(page.locator(".sv-a-said")).to_contain_text("Choose a number")
    # a source that is pointed at, by its tag or its head, lights what was copied from it
    page.hover(".sv-a-caused .sv-a-key >> nth=0")
    expect(page.locator('[data-side="answer"].sv-a-lit')).not_to_have_count(0)
    page.hover(".sv-a-answer h3")
    expect(page.locator(".sv-a-lit")).to_have_count(0)
    page.focus(".sv-a-passage-head >> nth=0")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    expect(page.locator('[data-side="answer"].sv-a-lit')).not_to_have_count(0)
    page.click("text=+ PLD+ by attention")
    page.wait_for_function("document.querySelectorAll('button.sv-a-lane').length === 4")
    # known quotes: a wrong line is named, the good one scored and opened
    page.click("[data-opens=quotes]")
    page.fill(".sva-quotes textarea", "{bad\n" + json.dumps(ROW))
    page.click("text=Score these rows")
    page.wait_for_selector(".sva-scores[data-state=done]")
    expect(page.locator(".sva-scores")).to_contain_text("line 1 was left out")
    expect(page.locator(".sva-sweep tbody tr:not(.sva-paper, .svp-kind)")).to_have_count(2)
    page.click(".sva-answers .svp-link")
    page.wait_for_selector(".sv-a-lane-gold")
    expect(page.locator(".sv-a-gold-box dd").last).to_have_text(re.compile(r"^(\.\d{3}|1\.000)$"))
    fits(page, 420, 860)
    page.evaluate("specviz.goTo('inspect')")
    page.wait_for_selector(".sv-headline .sv-chip:has-text('answer given')")
    nothing_wrong(page, port, said=["status of 422"])  # the empty answer's


def test_the_first_view_is_an_answer_about_a_document(page: Any) -> None:
    with serving(documents_desk()) as port:
        page.goto(f"http://127.0.0.1:{port}/?tab=attribution")
        buttons = page.locator(".sva-documents button")
        expect(buttons).to_have_text(["A lease", "A laboratory report", "Notes of a meeting"])
        expect(buttons.first).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".sv-a-asked")).to_have_text("Can I end the lease early?")
        # what it was recorded with, no model being here: cause, and words that stand in no source
        expect(page.locator(".sv-a-caused")).to_have_text(["contributed P1P2", "no decisive part P3"])
        expect(page.locator(".sv-a-ask")).to_be_hidden()
        expect(page.locator(".sv-a-absents")).to_have_text("All 6 occur in the sources.")
        page.set_viewport_size({"width": 1280, "height": 800})
        assert page.locator(".sv-a-answer").bounding_box()["y"] < 260
        buttons.nth(1).click()  # spans of the question are no passage's, and need no quotation
        linked = "41 of 65 tokens, in 6 spans: 36 to 1 of 3 passages, 5 to the rest of the prompt. ✓ verbatim"
        expect(page.locator(".sv-a-tile").nth(1)).to_have_text(re.compile(f"Its drafts linked {linked}$"))
        page.locator("td .sv-a-weight").first.click()
        expect(page.locator(".sv-a-said")).to_contain_text("without it these are 8.7 times less likely")
        words = page.locator(".sv-a-answer rt").evaluate_all("(all) => all.map((rt) => rt.getBoundingClientRect())")
        assert all(a["right"] <= b["left"] or a["y"] != b["y"] for a, b in itertools.pairwise(words))
        buttons.nth(2).click()
        expect(page.locator(".sv-a-matrix tbody tr")).to_have_count(5)
        expect(page.locator(".sv-a-matrix tbody tr >> nth=1")).to_contain_text("= −0.6")
        # who asks for a run gets it
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("body.sv-mounted")
        page.get_by_role("button", name="Share").click()
        page.get_by_role("menuitem", name="Attribute this run").click()
        page.wait_for_selector(".svp-attribution[data-ready='one']")
        expect(buttons.first).to_have_attribute("aria-pressed", "false")
        nothing_wrong(page, port)
