"""Steps drafted again in Chromium by a tiny model: other methods, parameters and places, regret, a run that goes on."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from decoders import Prompt, record
from decoders.study.look.whatif import ReadRun
from decoders.trace.metrics import ranking_regret, regrets
from decoders.trace.trace import Trace
from specviz.views.export import standalone_html
from specviz.words import plural
from tests.models import prompt_ids
from tests.stubs import gallery_desk, nothing_wrong
from tests.waiting import becomes, expect

FAMILY = "qwen3"  # of the tiny target
PANEL = ".svw-below"
# the nodes that the other draft has, in the tree over the recorded one
WOULD_NODES = "specviz.app.inspector.tree.view.nodes.filter(({ index, draft }) => index && draft !== 'recorded')"
WOULD = f"{WOULD_NODES}.length"
NOTICE = """() => { const { made } = specviz.app.whatif;
    const [words, use] = ["span", "button"].map((one) => document.createElement(one));
    words.textContent = "This run was made with SmolLM2-135M-Instruct, and specviz-demo is in use. It is opened " +
        "beside that for this run; new runs use specviz-demo.";
    use.textContent = "Use SmolLM2-135M-Instruct";
    made.replaceChildren(words, use);
    made.hidden = false; }"""


@pytest.fixture(scope="module")
def run(target: Any) -> Trace:
    return record(target, Prompt.from_ids(prompt_ids(3)), "pld+h", {"k": 6}, max_new_tokens=24)


@pytest.fixture(scope="module")
def desk(target: Any, run: Trace, module_home: Path) -> Any:
    theirs = Trace.from_json(copy.deepcopy(run.to_json()))
    theirs.run["model"] = {**theirs.run["model"], "name": "somebody's", "key": "0" * 24}
    stepless = Trace.new(copy.deepcopy(run.run))  # as a run is before its first step
    prompt = run.run["prompt_length"]
    stepless.tables["pieces"] = copy.deepcopy(run.tables["pieces"])
    stepless.tables["tokens"] = {name: column[:prompt] for name, column in run.tables["tokens"].items()}
    return gallery_desk(target, {"mine": run, "theirs": theirs, "stepless": stepless})


def answer(page: Any) -> str:
    """The panel's sentence, once the server has answered."""
    page.wait_for_function("specviz.app.whatif.result && !document.querySelector('.svw[aria-busy], .svw-stale')")
    return page.inner_text(".svw-words")


def asked_again(page: Any) -> None:
    page.evaluate("specviz.app.whatif.result = null")


def test_a_step_is_drafted_again_beside_the_recorded_one(
    page: Any, port: int, target: Any, run: Trace, tmp_path: Path
) -> None:
    """One visit through the whole flow; then the exported page, which has no server to ask."""
    worst = max(regrets(run), key=lambda one: (one.tokens, -one.step))
    page.goto(f"http://127.0.0.1:{port}/?trace=mine&step={worst.step + 1}")
    page.wait_for_function("specviz.app.whatif && specviz.app.whatif.catalog && !specviz.app.whatif.reason")

    # the button opens the panel; the run's own method gives the recorded tree
    page.click(".svw-open")
    answer(page)
    asked_again(page)
    page.select_option(f"{PANEL} select >> nth=0", "pld+h")
    assert f"As recorded {plural(worst.chosen, 'token')} accepted" in answer(page) and "the same draft" in answer(page)
    # both drafts are one tree: every node is in both
    assert page.locator(".sv-tree .sv-draft-both").count() > 1
    assert page.locator(".sv-tree :is(.sv-draft-other, .sv-draft-recorded)").count() == 0

    # another method and another parameter: what Python drafts
    page.select_option(f"{PANEL} select >> nth=0", "adapld")
    page.click(".svw-params summary")
    apart = "[...document.querySelectorAll('.svw-fields > *')].every((row) => row.clientWidth > 250)"
    assert page.evaluate(apart), "a parameter's name and its field have room beside each other"
    heights = "all => new Set(all.map((one) => [one.offsetHeight, one.getBoundingClientRect().top].join())).size"
    assert page.locator(".svw-choose > :not(details) select").evaluate_all(heights) == 1, "fields stand on one line"
    cut = "document.querySelector('.svw-rule p').scrollHeight - document.querySelector('.svw-rule p').clientHeight"
    assert page.evaluate(cut) <= 1, "the words about the verifier are whole"
    asked_again(page)
    pieces = "specviz.app.inspector.model.pieces.known"
    page.evaluate(f"specviz.app.inspector.model.trace.nodes.token.forEach((id) => {pieces}.delete(id))")
    page.fill("#svw-svf-k", "2")
    page.wait_for_function("specviz.app.whatif.result?.trace.run.method.params.k === 2")
    expected = ReadRun(target, run).redraft(worst.step, "adapld", {"k": 2})
    drafted = expected.trace.tables["steps"]["drafted"][0]
    becomes(page, lambda: page.evaluate(WOULD), drafted)
    known = f"specviz.app.whatif.result.trace.nodes.token.every((id) => {pieces}.has(id))"
    assert page.evaluate(known), "tokens that the run did not have are written out"
    signs = """() => [...document.querySelectorAll(".svw-legend code")].every(({ textContent: sign }) =>
        [...document.querySelectorAll(".sv-tree svg text")].some((text) => text.textContent.includes(sign)))"""
    assert page.locator(".svw-legend code").count() and page.evaluate(signs), "the legend's numbers are the picture's"
    assert f" {expected.accepted}:" in answer(page)
    assert page.evaluate("document.querySelectorAll('#svf-k').length") <= 1, "ids are there once"

    # the same draft under every verifier, and by one of them
    relaxed = page.evaluate("specviz.app.whatif.result.judged.step.rules.relaxed.accepted")
    page.click(".svw-judged summary")
    expect(page.locator(".svw-judged tr[data-verifier~=relaxed] td").first).to_have_text(str(relaxed))
    asked_again(page)
    page.focus("#svw-svf-verifier")  # as a hand has it; select_option does not
    page.select_option("#svw-svf-verifier", "relaxed")
    expect(page.locator("#svw-svf-verifier")).to_be_focused()
    assert f" {relaxed}:" in answer(page)
    assert page.evaluate("specviz.app.whatif.result.trace.run.method.name") == "adapld@relaxed"
    expect(page.locator("#svw-svf-verifier option[value=block]")).to_be_disabled()  # the run is greedy: matched
    page.click(".svw-judged summary")

    # the best place of the ranking, picked by hand, accepts what was recorded of it
    asked_again(page)
    page.get_by_role("tab", name="Candidates").click()
    expect(page.locator(".sv-tree [class*=sv-draft-]")).to_have_count(0)  # the recorded tree alone
    page.click(".sv-crow:has(.sv-best) .sv-try >> nth=0")
    assert f" {worst.best}:" in answer(page) and "fewer" not in answer(page)
    accepted = f"{WOULD_NODES}.filter(({{ status }}) => status === 'accepted').length"
    becomes(page, lambda: page.evaluate(accepted), worst.best)
    differs = "specviz.app.inspector.tree.view.nodes.filter(({ draft }) => draft === 'other').length"
    assert f"It drafts {plural(page.evaluate(differs), 'token')} more." in answer(page)
    named = page.locator(".sv-tree .sv-draft-other").first
    expect(named).to_have_attribute("aria-description", re.compile("only in this draft"))
    expect(page.locator(".svw-below").get_by_role("button", name="Continue from here")).to_be_visible()
    sight = """() => [".svw .sv-body", ".sv-tree", ".svw-below"].every((name) => {
        const { top, bottom, height } = document.querySelector(`.sv-views ${name}`).getBoundingClientRect();
        return height > 60 && top >= 0 && bottom <= innerHeight; }) && !scrollY"""
    assert page.evaluate(sight), "the tree and the panel are seen together"

    # a notice that another model made the run leaves them in sight; in a narrow window places can be picked
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate(NOTICE)
    becomes(page, lambda: page.evaluate(sight), True)
    page.set_viewport_size({"width": 400, "height": 800})
    page.get_by_role("tab", name="Candidates").click()
    cut = """() => { const one = document.querySelector(".sv-crow .sv-try").getBoundingClientRect();
        return one.right > document.querySelector(".sv-candidates .sv-body").getBoundingClientRect().right; }"""
    becomes(page, lambda: page.evaluate(cut), False)
    page.set_viewport_size({"width": 1280, "height": 820})
    page.evaluate("specviz.app.whatif.made.hidden = true")
    page.click(".svw-open")

    # regret: as the trace's metric has it; a row, in Details, goes to its step
    listed = page.evaluate("specviz.app.inspector.model.report.regrets")
    assert [(one["step"], one["chosen"], one["best"]) for one in listed] == [
        (one.step, one.chosen, one.best)
        for one in sorted(regrets(run), key=lambda one: (-one.tokens, one.step))
        if one.tokens
    ]
    tokens = page.locator(".sv-regret-table tbody td:last-child").all_inner_texts()
    assert tokens == sorted(tokens, key=int, reverse=True)
    shown = float(page.inner_text(".sv-regrets .sv-note").split()[0])
    assert shown == pytest.approx(ranking_regret(run), abs=0.01)
    page.click("role=tab[name=Details]")
    page.click(".sv-regret-table tbody tr >> nth=1")
    second = sorted((r for r in regrets(run) if r.tokens), key=lambda r: (-r.tokens, r.step))[1]
    becomes(page, lambda: page.evaluate("specviz.app.inspector.number"), second.step)
    asked_again(page)
    page.click(".svw-open")
    answer(page)
    becomes(page, lambda: page.evaluate("specviz.app.whatif.result?.step"), second.step)
    expect(page.locator(".sv-regret-table [aria-current]")).to_have_text(f"Step {second.step + 1}")

    # the panel closes where a run without a step is opened, and the other draft goes with it
    page.evaluate("specviz.open('stepless')")
    expect(page.locator(PANEL)).to_be_hidden()
    page.evaluate(f"specviz.open('mine', {{ step: {second.step} }})")
    becomes(page, lambda: page.evaluate("specviz.app.shown"), "mine")
    page.click(".svw-open")

    # a run that goes on from here, among the runs
    asked_again(page)
    page.select_option(f"{PANEL} select >> nth=0", "adapld")
    answer(page)
    page.click("text=Continue from here")
    page.wait_for_function("specviz.app.inspector.model.run.complete && specviz.app.shown !== 'mine'")
    title = page.evaluate("specviz.app.inspector.model.run.title")
    assert title.endswith(f"from step {second.step + 1} with AdaPLD")
    expect(page.locator(PANEL)).to_be_hidden()
    page.wait_for_function("title => specviz.app.runs.some((run) => run.title === title)", arg=title)

    # a run of another model says why it cannot
    page.evaluate("specviz.open('theirs')")
    page.wait_for_function("specviz.app.whatif.reason.includes('somebody')")
    expect(page.locator(".svw-open")).to_have_attribute("aria-disabled", "true")
    expect(page.locator(".sv-try")).to_have_count(0)
    page.locator(".svw-open").dispatch_event("click")  # where it lies when a notice above it comes is left open
    expect(page.locator(".sv-message")).to_contain_text("was made with somebody's")
    expect(page.locator(PANEL)).to_be_hidden()
    nothing_wrong(page, port)

    (tmp_path / "run.html").write_text(standalone_html(run), encoding="utf-8")
    page.goto((tmp_path / "run.html").as_uri())
    page.click("role=tab[name=Details]")
    page.click(".sv-regret-table tbody tr >> nth=0")
    expect(page.locator(".sv-counter")).to_contain_text(f"Step {worst.step + 1} of")
    assert not page.query_selector(".sv-try, .svw-open") and page.problems == []
