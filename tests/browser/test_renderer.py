"""The renderer in real Chromium, through the standalone page: one file from disk, as it is exported."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from decoders.trace.files import load
from decoders.trace.report import payload
from decoders.trace.trace import Trace
from specviz.places import GALLERY
from specviz.views import notebook
from specviz.views.export import standalone_html
from specviz.views.web import embed_json
from tests import recordings, waiting
from tests.browser.pace import cost
from tests.browser.test_app import share
from tests.waiting import becomes, expect

Open = Callable[..., Any]
IN_POOL = """async all => {
    const { POOL } = await import("specviz/base/model.js");
    return all.map(e => Number(e.dataset.p) - POOL);
}"""
# a click on each fold of the draft tree, until there is none
UNFOLD = """() => {
    const { tree } = specviz.inspector;
    for (let k = 0; k < 200; k++) {
        const at = tree.placed.findIndex((one) => one.hidden || one.kind === "chip");
        if (at < 0) return;
        tree.boxes[at].group.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    }
}"""
TREE_SVG = '(await import("specviz/inspect/downloads.js")).treeSvg(v)'


@pytest.fixture
def open_trace(page: Any, tmp_path: Path) -> Open:
    """Writes a trace's standalone page, opens it from disk and waits until it is drawn."""

    def open_(trace: Trace, hash: str = "", step: int = 0) -> Any:
        file = tmp_path / "trace.html"
        file.write_text(standalone_html(trace, step), encoding="utf-8")
        page.goto(file.as_uri() + hash)
        page.wait_for_selector(".sv-row")
        return page

    return open_


def value(page: Any, code: str) -> Any:
    return page.evaluate(f"async () => {{ const v = specviz.inspector; return {code}; }}")


def until(page: Any, code: str) -> None:
    """Waits for an expression to be true. (Playwright's own wait needs eval, which the page's policy forbids.)"""
    waiting.until(lambda: page.evaluate(f"() => {code}"), code, rest=lambda s: page.wait_for_timeout(1000 * s))


def show(page: Any, tab: str) -> None:
    """Brings a panel beside the text into sight."""
    page.locator(".sv-lower").get_by_role("tab", name=tab, exact=True).click()


def step_of(page: Any) -> int:
    return value(page, "v.number")


def first_copy(trace: Trace) -> tuple[int, int, int]:
    """(output position, source, length) of the first copied run of at least three tokens."""
    tokens = trace.tables["tokens"]
    position = trace.run["prompt_length"]
    while True:
        size, source = 0, tokens["source"][position]
        while tokens["kind"][position + size] == "accepted" and tokens["source"][position + size] == source + size:
            size += 1
        if size >= 3:
            return position, source, size
        position += max(1, size)


def light(page: Any) -> set[int]:
    return set(page.eval_on_selector_all(".sv-lit", "all => all.map(e => Number(e.dataset.p))"))


def test_keys_move_through_the_steps(open_trace: Open) -> None:
    trace = recordings.chain()
    page = open_trace(trace)
    last = trace.rows("steps") - 1
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "Shift+ArrowRight", "End", "Home"):
        page.keyboard.press(key)
        seen.append(step_of(page))
    assert seen == [1, 2, 1, 11, last, 0]
    steps = trace.tables["steps"]
    page.keyboard.press("]")
    first = next(k for k in range(1, last) if steps["drafted"][k] and not steps["accepted"][k])
    assert step_of(page) == first
    page.keyboard.press("]")
    page.keyboard.press("[")
    assert step_of(page) == first
    slider = page.get_by_role("slider", name="Step")
    assert slider.get_attribute("aria-valuenow") == str(first + 1)
    assert "accepted" in slider.get_attribute("aria-valuetext")
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keyboard help").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog", name="Keyboard help").is_visible()
    assert page.problems == []


def test_playback_runs_and_stops(open_trace: Open) -> None:
    page = open_trace(recordings.repeat(recordings.chain(), 3))
    page.get_by_role("button", name="More rows").click()
    page.select_option("[aria-label='Playback speed']", "4")  # 63 steps: sixteen seconds in which it can be stopped
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Play", exact=True).click()
    until(page, "specviz.inspector.number > 2")
    page.get_by_role("button", name="Pause").click()
    stopped = step_of(page)
    page.wait_for_timeout(150)
    assert step_of(page) == stopped


def test_the_timeline_is_dragged(open_trace: Open) -> None:
    trace = recordings.chain()
    page = open_trace(trace)
    box = page.locator(".sv-timeline").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 30, steps=3)
    page.mouse.up()
    assert step_of(page) == trace.rows("steps") - 1


def test_hover_links_a_copy_both_ways(open_trace: Open) -> None:
    trace = recordings.chain()
    position, source, size = first_copy(trace)
    page = open_trace(trace, f"#step={trace.tables['tokens']['step'][position]}")
    run = set(range(position, position + size)) | set(range(source, source + size))
    page.hover(f'.sv-output [data-p="{position + 1}"]')
    becomes(page, lambda: light(page), run)
    expect(page.locator(".sv-links path.sv-link")).not_to_have_count(0)
    until(page, "!document.querySelector('.sv-tip').hidden")
    page.hover(f'.sv-prompt [data-p="{source + 1}"]')
    becomes(page, lambda: run <= light(page), True)
    page.mouse.move(2, 2)
    until(page, "document.querySelectorAll('.sv-lit').length === 0")
    expect(page.locator(".sv-links path")).to_have_count(0)


def test_a_copy_from_the_output_is_linked_inside_its_pane(open_trace: Open) -> None:
    trace = recordings.nasty()
    tokens, prompt = trace.tables["tokens"], trace.run["prompt_length"]
    position = next(p for p in range(prompt, trace.rows("tokens")) if tokens["source"][p] >= prompt)
    page = open_trace(trace, f"#step={tokens['step'][position]}")
    page.evaluate("p => specviz.inspector.hoverToken(p)", position)
    ends = page.eval_on_selector_all(".sv-output .sv-lit", "all => all.map(e => Number(e.dataset.p))")
    assert min(ends) <= tokens["source"][position] and max(ends) >= position
    assert page.locator(".sv-prompt .sv-lit").count() == 0


def test_pins_and_the_address_restore_the_view(open_trace: Open, page: Any) -> None:
    trace = recordings.chain()
    position, source, size = first_copy(trace)
    step = trace.tables["tokens"]["step"][position]
    open_trace(trace)
    page.evaluate(
        "window.told = []; ['step', 'pin'].forEach(n => specviz.inspector.on(n, e => window.told.push([n, e])))"
    )
    page.evaluate("p => specviz.inspector.pickToken(p, false)", position)
    assert value(page, "v.state()") == {"trace": trace.run["id"], "step": step, "pins": [position]}
    told = page.evaluate("window.told")
    assert ["pin", {"pins": [position]}] in told
    assert step == 0 or ["step", {"step": step}] in told
    pinned = set(page.eval_on_selector_all(".sv-pinned", "all => all.map(e => Number(e.dataset.p))"))
    assert pinned == set(range(position, position + size)) | set(range(source, source + size))
    until(page, f"location.hash.includes('pins={position}')")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(".sv-row")
    assert value(page, "v.state()") == {"trace": trace.run["id"], "step": step, "pins": [position]}
    page.keyboard.press("Escape")
    assert value(page, "v.state().pins") == []
    assert page.locator(".sv-pinned").count() == 0


def node_rows(trace: Trace, step: int) -> list[dict[str, Any]]:
    nodes = trace.tables["nodes"]
    return [{name: nodes[name][k] for name in nodes} for k, at in enumerate(nodes["step"]) if at == step]


def expansion_of(trace: Trace) -> tuple[int, dict[str, Any]]:
    """A step in which an expansion took the place of the chain's second token, and that expansion."""
    for step in range(trace.rows("steps")):
        for node in node_rows(trace, step):
            if (node["origin"], node["depth"], node["status"]) == ("expansion", 2, "accepted"):
                return step, node
    raise AssertionError("no such step was recorded")


def guesses_of(trace: Trace, step: int, node: int) -> list[dict[str, Any]]:
    rows = trace.tables["guesses"]
    of = [k for k in range(trace.rows("guesses")) if (rows["step"][k], rows["node"][k]) == (step, node)]
    return [{name: rows[name][k] for name in rows} for k in of]


def test_draft_and_target_stand_side_by_side(open_trace: Open) -> None:
    trace = recordings.cape()
    step, expansion = expansion_of(trace)
    page = open_trace(trace, step=step)
    show(page, "Candidates")
    assert not page.locator(".sv-candidates").is_visible()
    said = guesses_of(trace, step, 1)
    page.locator(".sv-rare").click()  # rare tokens are folded away
    rows = page.locator(".sv-pairs .sv-pair-row:not(.sv-pair-top)")
    assert rows.count() == len(said)
    widths = """all => all.map(row => ["q", "p", "both"].map(name => {
        const bar = row.querySelector(`.sv-pair-bars .sv-pair-${name}`);
        return bar ? parseFloat(bar.style.width) : 0 }))"""
    for one, (q, p, both) in zip(said, rows.evaluate_all(widths), strict=True):
        drafted, target = (100 * max(one[name], 0.004 * (one[name] > 0)) for name in ("draft_prob", "prob"))
        shared = 100 * min(one["draft_prob"], one["prob"])
        assert (q, p) == pytest.approx((drafted, target), abs=0.06)  # what is above 0 has a bar in sight
        assert both == pytest.approx(max(shared, 0.4) if shared >= 0.2 else 0, abs=0.06)
    listed = rows.all_inner_texts()
    rank = int(expansion["term:draft_rank"])
    assert listed[0].startswith("1") and "rejected" in listed[0]
    assert listed[rank].startswith(f"{rank + 1}") and "accepted" in listed[rank]
    row = page.locator(".sv-places").evaluate("e => [e.scrollWidth - e.clientWidth, e.childElementCount]")
    assert row[0] <= 0 and row[1] > 1, "no card is cut at the side"
    nodes = node_rows(trace, step)
    chain = nodes[2]
    page.locator(".sv-beta").hover()
    assert f"Σ min(p, q) = {chain['term:overlap']:.3g}" in tip(page)
    sure = re.fullmatch(
        r"Confidence \(highest q\) (\.\d+) From (\.?\d) to (\.?\d) CAPE grants (\d+) candidates \((\d+) expansions\)",
        page.locator(".sv-sureness").inner_text().replace("\n", " "),
    )
    assert sure and float(sure[1]) == pytest.approx(chain["term:confidence"], abs=0.006)
    beside = sum(node["origin"] == "expansion" and node["parent"] == 1 for node in nodes)
    assert [float(sure[k]) for k in (2, 3)] == [chain["term:bin"] / 10, (chain["term:bin"] + 1) / 10]
    assert [int(sure[k]) for k in (4, 5)] == [beside + 1, beside]
    assert f"{chain['term:kv_delay']:.0f} positions behind" in page.inner_text(".sv-drafter-facts")
    assert page.problems == []


def test_an_accepted_expansion_is_said_and_stands_on_the_path(open_trace: Open, page: Any) -> None:
    trace = recordings.cape()
    step, expansion = expansion_of(trace)
    open_trace(trace, step=step)
    rank = f"{expansion['term:draft_rank'] + 1:.0f}"
    said = rf"the {rank}(st|nd|rd|th) guess"
    assert re.search(rf"kept a path of \d: .+, its {rank}(st|nd|rd|th) guess, not ", page.inner_text(".sv-sentence"))
    show(page, "Candidates")
    assert re.search(f"Accepted here was {said}", page.inner_text(".sv-verdict"))
    assert re.search(f"{said} was accepted", page.get_attribute(".sv-place-of >> nth=1", "aria-label"))
    show(page, "Tree")
    left = "all => [...new Set(all.map(e => Math.round(e.querySelector('.sv-box').getBoundingClientRect().left)))]"
    path = page.eval_on_selector_all(".sv-node-root, .sv-node-accepted, .sv-node-bonus", left)
    assert len(path) == 1, "what was written runs straight down"
    others = page.eval_on_selector_all(".sv-node-rejected", left)
    assert others and min(others) > path[0]
    whole = next(k for k, outcome in enumerate(trace.tables["steps"]["outcome"]) if outcome == "full")
    page.evaluate("k => specviz.inspector.setStep(k)", whole)
    assert re.search(r"The model read .+ in one go and kept ", page.locator(".sv-sentence").text_content())
    page.get_by_role("button", name="More rows").click()
    legend = page.inner_text(".sv-legend")
    for entry in ("first choices: ", "others: ", "where the draft model looked"):
        assert entry in legend


def test_a_node_is_chosen_by_hover_click_and_keys(open_trace: Open, page: Any) -> None:
    trace = recordings.cape()
    step, _ = expansion_of(trace)
    open_trace(trace, step=step)
    show(page, "Tree")
    chosen = page.locator(".sv-place-of[aria-pressed=true]")  # in the tab beside it
    expect(chosen).to_have_attribute("aria-label", re.compile("^Position 2"))
    path = page.locator(".sv-node-accepted")
    path.nth(0).hover()
    expect(chosen).to_have_attribute("aria-label", re.compile("^Position 1"))
    page.locator(".sv-counter").hover()
    expect(chosen).to_have_attribute("aria-label", re.compile("^Position 2"))
    path.nth(0).click()
    page.locator(".sv-counter").hover()
    expect(chosen).to_have_attribute("aria-label", re.compile("^Position 1"))
    show(page, "Candidates")
    chosen.focus()
    page.keyboard.press("ArrowDown")
    expect(chosen).to_have_attribute("aria-label", re.compile("^Position 2"))
    assert page.evaluate("document.activeElement.matches('.sv-place-of')")
    show(page, "Tree")
    page.locator('.sv-node[aria-pressed="true"]').focus()
    page.keyboard.press("ArrowDown")  # from the chain's token to the first beside it
    assert page.locator('.sv-node[aria-pressed="true"]').evaluate("e => e === document.activeElement")
    assert ", the 2nd guess: rejected" in page.locator(".sv-drafter .sv-verdict").text_content()
    page.keyboard.press("ArrowRight")
    assert step_of(page) == step + 1
    assert page.problems == []


def test_the_text_shows_where_the_draft_model_looked(open_trace: Open, page: Any) -> None:
    trace = recordings.cape()
    shown, _ = expansion_of(trace)
    open_trace(trace, step=shown)
    show(page, "Candidates")
    shaded = "[...document.querySelectorAll('[class*=sv-heat-]')].map(e => Number(e.dataset.p))"
    rows = trace.tables["attention"]

    def look_of(node: int, head: int) -> set[int]:
        of = zip(rows["step"], rows["node"], rows["head"], rows["position"], strict=True)
        return {position for step, *at, position in of if (step, *at) == (shown, node, head)}

    assert set(page.evaluate(shaded)) == look_of(1, -1)
    page.select_option("[aria-label='Attention head']", label="head 0")
    assert set(page.evaluate(shaded)) == look_of(1, 0)
    page.locator(".sv-place-of").nth(2).click()
    assert set(page.evaluate(shaded)) == look_of(2, 0)
    page.locator(".sv-looked .sv-go").first.click()
    assert page.get_by_role("button", name="Attention heat").get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="Attention heat").click()
    assert page.evaluate(shaded) == []


def redrawn(trace: Trace) -> tuple[int, dict[str, Any]]:
    """A step whose first token stands and whose second gave way to a draw from the residual, and that node."""
    step = trace.tables["steps"]["accepted"].index(1)
    return step, node_rows(trace, step)[2]


def test_a_rejected_draw_shows_its_ratio_and_the_residual(open_trace: Open, page: Any) -> None:
    trace = recordings.glide()
    step, node = redrawn(trace)
    open_trace(trace, step=step)
    word = page.evaluate("v => specviz.inspector.model.pieces.word(v)", trace.tables["steps"]["bonus"][step])
    assert f"Then it drew {word} from what was left, where the draft had" in page.inner_text(".sv-sentence")
    show(page, "Candidates")
    bonus = page.evaluate("v => specviz.inspector.model.pieces.label(v)", trace.tables["steps"]["bonus"][step])
    said = "v => import('specviz/base/numbers.js').then(({ format }) => format(v))"
    ratio, p, q, draw = (page.evaluate(said, node[k]) for k in ("term:accept_ratio", "prob", "draft_prob", "term:draw"))
    chance = f"rejected. Its chance was min(1, p ÷ q) = {ratio}, of the target's p {p} and the draft model's q {q}."
    assert f"{chance} The number drawn, {draw}, is not below it; the residual" in page.inner_text(".sv-verdict")
    bars = page.eval_on_selector_all(".sv-pair-left", "all => all.map(e => parseFloat(e.style.width))")
    left = sorted((one["residual"] for one in guesses_of(trace, step, 1)), reverse=True)
    assert bars == pytest.approx([100 * share for share in left if share >= 0.001], abs=0.06)
    (given,) = (one for one in guesses_of(trace, step, 1) if one["token"] == trace.tables["steps"]["bonus"][step])
    rank, label, kind, share = page.locator(".sv-residual .sv-this").inner_text().split()
    assert (int(rank) - 1, label, kind) == (given["rank"], bonus, "drawn")
    assert float(share) == pytest.approx(given["residual"], abs=0.006)
    page.locator(".sv-place-of").first.click()
    assert "is below it." in page.inner_text(".sv-verdict")
    assert page.locator(".sv-residual").count() == 0


def test_a_block_verdict_is_told_as_it_was_recorded(open_trace: Open, page: Any) -> None:
    """Block verification records P, h and its own reasons, and no accept ratio: nothing of the ratio rule is said."""
    trace = recordings.glide()
    step, _ = redrawn(trace)
    nodes, count = trace.tables["nodes"], trace.rows("nodes")
    words = "draw 0.97 ≥ h = 0.25, none behind it is accepted: redrawn from the residual"
    nodes["reason"][nodes["step"].index(step) + 2] = words
    nodes["term:accept_ratio"] = [None] * count
    for key, value in (("block_p", 0.5), ("block_h", 0.25)):
        nodes[f"term:{key}"] = [value if nodes["step"][k] == step else None for k in range(count)]
    open_trace(trace, step=step)
    show(page, "Candidates")
    said = page.inner_text(".sv-verdict")
    assert f"rejected ({words})." in said and "p/q" not in said
    page.hover("h4:has-text('Residual, that replaced')")
    tip = page.inner_text(".sv-tip")
    assert "max(0, P · p − q)" in tip and tip.count("P = .5") + tip.count("P = 0.5") == 1


def probes_of(trace: Trace, step: int, node: int) -> list[int]:
    rows = trace.tables["probes"]
    places = zip(rows["step"], rows["parent"], rows["token"], strict=True)
    return [token for at, parent, token in places if (at, parent) == (step, node)]


def test_prompt_tokens_hang_below_the_nodes_and_lead_to_states(open_trace: Open, page: Any) -> None:
    trace = recordings.ppd()
    steps = trace.tables["steps"]
    open_trace(trace, step=1)
    show(page, "Tree")
    page.evaluate(UNFOLD)
    nodes = node_rows(trace, 1)
    counts = [len(probes_of(trace, 1, node)) for node in range(len(nodes))]
    assert len(set(counts)) > 1 and steps["term:state"][1] == 3
    (last,) = (index for index, node in enumerate(nodes) if node["status"] == "accepted")
    by_node = """all => specviz.inspector.tree.boxes
        .filter(b => all.includes(b.group) && b.item.kind === 'node')
        .map(b => [b, b.parts.get('hung')])
        .map(([b, hung]) => [b.item.node.index,
            (hung.children[0].getAttribute('d').match(/l4 4-4 4/g) || []).length, hung.textContent,
            hung.classList.contains('sv-hung-read'), b.group.getAttribute('aria-description')])"""
    drawn = sorted(page.eval_on_selector_all(".sv-node", by_node))
    assert [(index, marks, text) for index, marks, text, _, _ in drawn] == [
        (node, count, f"→{count}") for node, count in enumerate(counts)
    ]
    assert [index for index, *_, read, _ in drawn if read] == [last]  # where acceptance ended
    assert f"{counts[0]} prompt tokens: state {counts[0]} next" in drawn[0][4]
    assert f"{counts[last]} prompt token: state {counts[last]} next" in drawn[last][4] and "accepted" in drawn[last][4]
    assert page.locator(".sv-node").count() == len(nodes) + 1  # prompt tokens are no candidates
    assert page.locator(".sv-distances text").all_text_contents() == ["distance 1", "distance 2"]
    show(page, "Why")
    sentence = page.inner_text(".sv-sentence")
    ahead = "Trained prompt tokens made the model guess ahead of itself"
    assert f"{ahead}: {len(nodes) - 1} tokens, 2 deep." in sentence
    leads = "so the next step's tree is that of state\u00a0"
    assert f"1\u00a0prompt token hangs on the last accepted token, {leads}1." in sentence
    page.get_by_role("button", name="More rows").click()
    legend = page.inner_text(".sv-legend")
    assert f"prompt tokens {trace.rows('probes')}" in legend and "next state" in legend
    page.evaluate("k => specviz.inspector.setStep(k)", steps["outcome"].index("plain"))
    assert "Nothing was drafted: " in page.inner_text(".sv-sentence")
    said = f"3\u00a0prompt tokens hang on the last written token, {leads}3."
    assert said in page.inner_text(".sv-sentence")
    assert ElementTree.fromstring(value(page, TREE_SVG)).tag.endswith("}svg")
    page.keyboard.press("End")  # a stop token: no state follows
    assert leads not in page.inner_text(".sv-sentence")
    assert "the run ended" in page.locator(".sv-prompts .sv-verdict").text_content()
    hung = trace.tables["probes"]
    bare = [k for k, place in enumerate(zip(hung["step"], hung["parent"], strict=True)) if place != (1, last)]
    trace.tables["probes"] = {name: [values[k] for k in bare] for name, values in hung.items()}
    trace.tables["nodes"]["term:next_state"][trace.tables["nodes"]["step"].index(1) + last] = 0.0
    steps["term:next_state"][1] = 0.0
    page.evaluate("t => specviz.inspector.load(t, {step: 1})", payload(trace))
    said = f"No\u00a0prompt token hangs on the last accepted token, {leads}0."
    assert said in page.inner_text(".sv-sentence")
    said = page.locator(".sv-prompts .sv-verdict").text_content()
    assert "without a prompt token: the next step has no guesses, state 0" in said
    assert page.problems == []


@pytest.mark.slow("one more drawing")
def test_guesses_stand_beside_what_the_text_became(open_trace: Open, page: Any) -> None:
    trace = recordings.ppd()
    tokens, steps = trace.tables["tokens"]["id"], trace.tables["steps"]
    open_trace(trace)
    show(page, "Candidates")
    seen = set()
    for step in range(8):
        page.evaluate("k => specviz.inspector.setStep(k)", step)
        last = steps["accepted"][step] and value(page, "v.model.step(v.number).last")
        guessed = probes_of(trace, step, last)
        end = steps["context"][step] + steps["emitted"][step]
        rows = page.locator(".sv-guessed tbody tr")
        assert rows.count() == len(guessed)
        for d, token in enumerate(guessed):
            cells = rows.nth(d).locator("td")
            label = page.evaluate("id => specviz.inspector.model.pieces.label(id, 16)", token)
            became = page.evaluate("id => specviz.inspector.model.pieces.label(id, 16)", tokens[end + d])
            assert cells.nth(0).locator("code").inner_text() == label
            assert cells.nth(2).locator("code").inner_text() == became
            told = cells.nth(2).locator(".sv-role").inner_text()
            assert (told == "as guessed") == (token == tokens[end + d])
            seen.add(re.sub(r"\d+", "N", told))
    assert seen == {"as guessed", "guess N", "not offered"}
    truths = page.locator(".sv-true").all_inner_texts()
    assert len(truths) == 3 and "distance 1" in truths[0] and "of " in truths[0]
    assert page.problems == []


@pytest.mark.slow("one more drawing")
@pytest.mark.usefixtures("home")
def test_choosing_a_prompt_token_shows_where_it_looked(open_trace: Open, page: Any) -> None:
    """Two vectors each: what they guess together is told, and their places are marked in the panes."""
    from decoders import Prompt, record
    from tests.drafts import save_tiny_part
    from tests.models import prompt_ids, tiny_target

    target = tiny_target()
    save_tiny_part(target, "ppd", vectors=2)
    trace = record(target, Prompt.from_ids(prompt_ids(2)), "ppd", {"watch": 2, "size": 30}, max_new_tokens=8)
    probes, looks = trace.tables["probes"], trace.tables["attention"]
    open_trace(trace, step=0)
    show(page, "Candidates")
    assert not page.locator(".sv-drafter").is_visible(), "attention of prompt tokens is no draft model's"
    joint = [row for row, kind in enumerate(probes["kind"]) if kind == "joint" and probes["step"][row] == 0]
    first = [probes["token"][row] for row in joint]
    firsts = page.locator(".sv-guessed tbody td:nth-of-type(1) code").all_inner_texts()
    assert firsts == page.evaluate("ids => ids.map(id => specviz.inspector.model.pieces.label(id, 16))", first)
    marked = value(page, "v.prompts.look.map(one => one.position)")
    rows = [row for row, at in enumerate(looks["step"]) if at == 0]

    def weight_of(probe: int, head: int) -> set[int]:
        node = sorted({looks["node"][row] for row in rows})[probe]
        return {looks["position"][row] for row in rows if (looks["node"][row], looks["head"][row]) == (node, head)}

    assert set(marked) == weight_of(0, -1) and page.locator("[class*='sv-heat-']").count() >= len(marked)
    assert page.locator('.sv-pick[aria-pressed="true"]').inner_text() == "1"
    page.locator(".sv-pick").nth(1).click()
    assert set(value(page, "v.prompts.look.map(one => one.position)")) == weight_of(1, -1)
    assert "Where the prompt token of distance 2 looked" in page.inner_text(".sv-prompts .sv-looked")
    assert page.locator(".sv-pick").nth(1).evaluate("e => e === document.activeElement")
    page.locator(".sv-prompts .sv-look-select[aria-label='Attention head']").select_option("1")
    assert set(value(page, "v.prompts.look.map(one => one.position)")) == weight_of(1, 1)
    page.locator(".sv-prompts .sv-toggle", has_text="Attention heat").click()
    assert page.locator("[class*='sv-heat-']").count() == 0
    assert "where the prompt token looked" in page.locator(".sv-legend").text_content()
    page.evaluate("t => specviz.inspector.load(t, {})", payload(recordings.ppd()))
    assert page.locator(".sv-pick").count() == 0 and not page.locator(".sv-prompts .sv-look-select").first.is_visible()
    assert page.problems == []


@pytest.mark.slow("one more drawing")
def test_another_node_tells_where_it_would_have_led(open_trace: Open, page: Any) -> None:
    trace = recordings.ppd()
    none = trace.tables["steps"]["outcome"].index("none")
    open_trace(trace, step=none)
    hung = len(probes_of(trace, none, 1))
    verdict = page.locator(".sv-prompts .sv-verdict")
    assert "Nothing was accepted after the root" in verdict.text_content()
    show(page, "Tree")
    page.locator('.sv-node[aria-pressed="true"]').focus()
    page.keyboard.press("ArrowDown")
    assert page.locator('.sv-node[aria-pressed="true"]').evaluate("e => e === document.activeElement")
    said = verdict.text_content()
    assert f"rejected, has {hung} prompt token; had acceptance ended here, state {hung} would have followed" in said
    assert page.locator(".sv-unread li").count() == hung == 1 and page.locator(".sv-guessed").count() == 0
    page.set_viewport_size({"width": 400, "height": 800})
    page.evaluate("specviz.inspector.setStep(4)")
    becomes(page, lambda: page.evaluate("document.documentElement.scrollWidth") <= 400, True)
    page.evaluate("t => specviz.inspector.load(t, {step: 1})", payload(recordings.chain()))
    assert not page.locator(".sv-prompts").is_visible() and page.locator(".sv-hung").count() == 0
    assert page.problems == []


@pytest.mark.slow("step by step, once more")
def test_prompt_tokens_of_a_live_run_are_those_of_a_full_load(open_trace: Open, page: Any) -> None:
    opening, parts = recordings.deltas(recordings.ppd())
    open_trace(opening)
    page.evaluate("all => all.forEach((delta) => specviz.inspector.append(delta, {}))", parts)
    page.evaluate("specviz.inspector.model.run.complete = true; specviz.inspector.describe()")
    live = value(page, "v.prompts.tally")
    page.evaluate("t => specviz.inspector.load(t, {})", payload(recordings.ppd()))
    assert value(page, "v.prompts.tally") == live and live[0]["seen"] > 20
    assert page.problems == []


def test_without_a_draft_model_there_is_no_panel(open_trace: Open, page: Any) -> None:
    trace = payload(recordings.chain())
    open_trace(recordings.cape())
    show(page, "Candidates")
    assert page.locator(".sv-drafter").is_visible()
    for table in ("guesses", "attention"):
        del trace[table]  # as files were before there was such a thing
    page.evaluate("t => specviz.inspector.load(t, {step: 3})", trace)
    assert not page.locator(".sv-drafter").is_visible() and page.locator(".sv-candidates").is_visible()
    opening, parts = recordings.deltas(recordings.cape())  # a run that has just begun
    page.evaluate("t => specviz.inspector.load(t, {})", payload(opening))
    assert page.locator(".sv-drafter").is_visible() and page.locator(".sv-place-of").count() == 0
    page.get_by_role("button", name="Attention heat").click()
    page.evaluate("all => all.forEach((delta) => specviz.inspector.append(delta, {}))", parts[:2])
    assert page.locator(".sv-place-of").count() == 4 and page.problems == []


OURS = set(
    re.findall(
        r"\w+",
        "a b button canvas circle code dd details div dl dt footer g h2 h3 h4 h5 header i kbd li option p path rect "
        "section select small span summary svg table tbody td text th thead tr ul wbr",
    )
)


def test_hostile_text_stays_text(open_trace: Open, page: Any) -> None:
    trace = recordings.nasty()
    trace.run["method"]["params"]["<img src=x onerror=window.__pwned=4>"] = "<b>x</b>"
    trace.tables["steps"]["reason"] = ["<b>why</b>" if reason else "" for reason in trace.tables["steps"]["reason"]]
    open_trace(trace)
    page.evaluate("specviz.inspector.spaceButton.click(); specviz.inspector.offerButton.click()")
    page.evaluate("""async () => { const v = specviz.inspector;
        const { tokenFacts } = await import("specviz/inspect/keys.js");
        for (let k = 0; k < v.model.stepCount; k++) {
            v.setStep(k);
            const token = v.text.elements(v.model.promptLength + k)[0];
            v.tip.show(token, tokenFacts(v, v.model.promptLength + k));
        } }""")
    drafted, prompted = recordings.cape(), recordings.ppd()
    parts = re.findall(r"<[^>]+>|[^<]+", recordings.NASTY)
    for other in (drafted, prompted):
        texts = itertools.cycle(parts)
        other.tables["pieces"]["hex"] = [next(texts).encode().hex() for _ in other.tables["pieces"]["id"]]
    page.evaluate(
        """t => { const v = specviz.inspector; v.load(t, {});
        for (let k = 0; k < v.model.stepCount; k++) { v.setStep(k); v.drafter.walk(1); } }""",
        payload(drafted),
    )
    page.evaluate(
        """t => { const v = specviz.inspector; v.load(t, {});
        for (let k = 0; k < v.model.stepCount; k++) { v.setStep(k); v.prompts.walk(1); } }""",
        payload(prompted),
    )
    tags = set(page.eval_on_selector_all(".sv *", "all => all.map(e => e.tagName.toLowerCase())"))
    page.evaluate("t => specviz.inspector.load(t, {step: 1})", payload(trace))
    assert page.evaluate("window.__pwned") is None and tags <= OURS
    tags = set(page.eval_on_selector_all(".sv *", "all => all.map(e => e.tagName.toLowerCase())"))
    assert tags <= OURS, tags - OURS
    assert page.locator(".sv b b, .sv img, .sv script").count() == 0
    assert page.inner_text(".sv-title") == "<script>alert(1)</script> ${x}"
    assert "<b>bold</b>" in page.inner_text(".sv-prompt")
    assert page.problems == []


@pytest.mark.slow("one more drawing")
def test_lookaheads_window_is_drawn_below_the_tree(open_trace: Open, page: Any) -> None:
    """Rows of probes, counted; those of another kind are none; text stays text."""
    trace = recordings.nasty()
    pieces = trace.tables["pieces"]
    hostile, pieces["hex"][0] = pieces["id"][0], b"<i>x</i>".hex()
    offsets = (1, 2, 1, 2, 3, 2, 3, 4)
    trace.tables["probes"] = {
        "step": [1] * 9, "parent": [0] * 9, "offset": [*offsets, 1], "kind": ["window"] * 8 + ["dummy"],
        "token": [hostile] * 9, "prob": [0.25] * 9,
    }  # fmt: skip
    open_trace(recordings.chain())
    show(page, "Tree")
    window = page.locator(".sv-lookahead")
    expect(window).to_be_hidden()
    page.evaluate("t => specviz.inspector.load(t, {step: 1})", payload(trace))
    expect(window).to_be_visible()
    expect(window).to_contain_text("Window 8 probes in 3 rows")
    rows = window.locator(".sv-lookahead-row")
    assert [row.locator(".sv-lookahead-cell").count() for row in rows.all()] == [2, 3, 3]
    expect(window.locator(".sv-lookahead-newest .sv-lookahead-name")).to_have_text("row 3")
    assert window.locator("i").count() == 0 and "<i>x" in window.locator(".sv-lookahead-cell").first.inner_text()
    window.locator(".sv-lookahead-newest .sv-lookahead-cell").first.focus()
    assert "first choice after the guess 2 behind the root" in tip(page)
    page.keyboard.press("ArrowLeft")
    expect(window).to_be_hidden()
    assert page.problems == []


def test_split_characters_are_shown_once(open_trace: Open) -> None:
    page = open_trace(recordings.nasty())
    text = page.inner_text(".sv-prompt").replace("⏎", "").replace("␍", "")
    letters = ("👩‍👩‍👧", "🇩🇪", "👍🏽", "naïve", "e\u0301", "日本語の文", "שלום")
    for whole in (*letters, "⟨xF0⟩⟨x9F⟩", "⟨xFF⟩", "⟨U+2028⟩", "⟨x00⟩"):
        assert whole in text, whole
    assert "\ufffd" not in text
    listed = "all => all.map(e => [e.textContent, Number(e.dataset.n)])"
    groups = page.eval_on_selector_all(".sv-prompt .sv-group", listed)
    assert ["日", 3] in groups and ["👩‍👩‍👧", 18] in groups
    position = int(page.eval_on_selector(".sv-prompt .sv-group", "e => e.dataset.p"))
    page.hover(f'.sv-prompt [data-p="{position}"]')
    until(page, "!document.querySelector('.sv-tip').hidden")
    assert "bytes" in page.inner_text(".sv-tip") and "tokens" in page.inner_text(".sv-tip")


def test_whitespace_glyphs_are_switched(open_trace: Open) -> None:
    page = open_trace(recordings.nasty())
    assert "␣" not in page.inner_text(".sv-prompt")
    page.get_by_role("button", name="More rows").click()
    page.get_by_role("button", name="Whitespace").click()
    text = page.inner_text(".sv-prompt")
    assert "two␣␣spaces" in text and "tab→here" in text and "␍" in text


@pytest.mark.slow("opens every fold")
def test_large_trees_fold_and_open(open_trace: Open) -> None:
    trace = recordings.gallery_run("lighthouse-story-eagle3")
    page = open_trace(trace)
    sizes = [len([1 for s in trace.tables["nodes"]["step"] if s == k]) for k in range(trace.rows("steps"))]
    page.evaluate("k => specviz.inspector.setStep(k)", next(k for k, n in enumerate(sizes) if k and n == max(sizes)))
    size = sizes[step_of(page)]
    show(page, "Tree")
    until(page, "specviz.inspector.tree.window.room > 0")  # it is laid out for its place
    chip, nodes = ".sv-node-chip", ".sv-node:not(.sv-node-chip):not(.sv-node-bonus)"
    inside = """([nodes, labels]) => [  // at once: its place may still change
        specviz.inspector.tree.placed
            .reduce((sum, one) => sum + (one.hidden ?? 0) + (one.kind === "chip" ? one.count : 0), 0),
        document.querySelectorAll(nodes).length,
        [...document.querySelectorAll(labels)].map((label) => label.textContent),
    ]"""
    folded, drawn, labels = page.evaluate(inside, [nodes, f"{chip} .sv-label, .sv-aside-label"])
    assert folded > 0 and drawn + folded == size
    counts = [int(count) for text in labels for count in re.findall(r"[+▾](\d+)", text)]  # beside a token, and below it
    assert sum(counts) == folded, "each fold says how much it holds"
    # the path that was written is whole, in sight, and runs straight down
    frame = page.locator(".sv-tree .sv-body").bounding_box()
    for node in page.locator(".sv-node-root, .sv-node-accepted, .sv-node-bonus").all():
        box = node.bounding_box()
        assert box["y"] >= frame["y"] and box["y"] + box["height"] <= frame["y"] + frame["height"]
    # one branch is opened: all that was shown is shown still, and no line runs off the panel
    shown = "specviz.inspector.tree.placed.filter(({ kind }) => kind === 'node').map(({ node }) => node.index)"
    before = page.evaluate(shown)
    largest = "specviz.inspector.tree.placed.reduce((a, b) => ((b.hidden ?? 0) > (a.hidden ?? 0) ? b : a)).node.index"
    click = "dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    page.evaluate(f"specviz.inspector.tree.boxOf({largest}).group.{click}")
    until(page, f"{shown}.length > {len(before)}")
    assert set(before) < set(page.evaluate(shown))
    page.evaluate(UNFOLD)
    expect(page.locator(nodes)).to_have_count(size)
    assert page.evaluate("(({ width, room }) => width <= room)(specviz.inspector.tree.window)")


def test_statuses_never_rest_on_colour_alone(open_trace: Open) -> None:
    trace = recordings.tree()
    page = open_trace(trace, step=trace.tables["steps"]["outcome"].index("partial"))
    show(page, "Tree")
    page.evaluate(UNFOLD)
    style = "e => { const s = getComputedStyle(e); return [s.strokeDasharray, s.strokeWidth] }"
    names = ("accepted", "rejected", "unreached")
    looks = {name: tuple(page.eval_on_selector(f".sv-node-{name} .sv-box", style)) for name in names}
    assert len(set(looks.values())) == 3, looks
    line = "e => getComputedStyle(e).textDecorationLine"
    for name in names:  # a line through or below a label would cost it its underscores
        assert page.eval_on_selector(f".sv-node-{name} .sv-label", line) == "none"
    bold = page.eval_on_selector(".sv-node-bonus .sv-label", "e => getComputedStyle(e).fontWeight")
    assert bold == "700"  # the target's own
    show(page, "Why")
    marks = page.locator(".sv-verdict-row .sv-mark").all_text_contents()
    assert {"✓", "✕", "+"} <= set(marks)


def test_the_sentence_says_what_was_recorded(open_trace: Open, page: Any) -> None:
    trace = recordings.chain()
    steps = trace.tables["steps"]
    open_trace(trace)
    partial = next(k for k in range(len(steps["outcome"])) if steps["outcome"][k] == "partial")
    page.evaluate("k => specviz.inspector.setStep(k)", partial)
    sentence = page.inner_text(".sv-sentence")
    assert re.match(rf"{steps['drafted'][partial]} tokens copied from line \d+", sentence)
    kept = steps["accepted"][partial]
    first = "only the first" if kept == 1 else f"the first {kept}"
    assert f"kept {first}" in sentence and "where the draft had" in sentence
    none = next(k for k in range(len(steps["reason"])) if steps["reason"][k])
    page.evaluate("k => specviz.inspector.setStep(k)", none)
    assert f"Nothing was drafted: {steps['reason'][none]}. The model wrote" in page.inner_text(".sv-sentence")
    assert page.get_attribute(".sv-sentence", "aria-live") == "polite"


def details(page: Any) -> None:
    """Opens the tab Details."""
    page.keyboard.press("d")
    page.wait_for_selector(".sv-details:visible")


def tip(page: Any) -> str:
    until(page, "!document.querySelector('.sv-tip').hidden")
    return page.inner_text(".sv-tip")


def test_origins_are_told_by_shape_and_letter_and_the_legend_counts_them(open_trace: Open) -> None:
    trace = recordings.tree()
    nodes, steps = trace.tables["nodes"], trace.tables["steps"]
    step = steps["route"].index("semantic")
    page = open_trace(trace, step=step)
    show(page, "Tree")
    page.evaluate(UNFOLD)
    looks = {}
    for origin in ("branch", "successor"):
        outline = page.locator(f".sv-of-{origin}.sv-node .sv-box").first.get_attribute("d")
        looks[origin] = float(re.search(r"L([\d.]+) [\d.]+Z$", outline)[1])  # where the left side's middle is
    assert looks["branch"] == 0 < looks["successor"]
    assert "L" not in page.get_attribute(".sv-node-root .sv-box", "d")
    branches = [node for node in node_rows(trace, step) if node["origin"] == "branch"]
    assert sorted(page.locator(".sv-of-branch .sv-tag-text").all_text_contents()) == sorted(
        f"B{node['term:branch_rank'] + 1:.0f}" for node in branches
    )
    assert set(page.locator(".sv-of-successor .sv-tag-text").all_text_contents()) == {"S"}
    page.get_by_role("button", name="More rows").click()
    legend = page.inner_text(".sv-legend")
    for origin, label in (("main", "chosen copy"), ("branch", "branch"), ("successor", "successor")):
        of = [k for k, name in enumerate(nodes["origin"]) if name == origin]
        stood = sum(nodes["status"][k] == "accepted" for k in of)
        assert f"{label}: {stood} of {len(of)} accepted" in legend
    assert "found: semantic" in legend


def test_a_branch_lights_its_anchor_and_a_successor_its_source(open_trace: Open) -> None:
    trace = recordings.tree()
    step = trace.tables["steps"]["route"].index("semantic")
    nodes = node_rows(trace, step)
    page = open_trace(trace, step=step)
    show(page, "Tree")
    page.evaluate(UNFOLD)
    drawn = "e => specviz.inspector.tree.boxes.find(box => box.group === e).item.node.index"
    branch = nodes[page.locator(".sv-of-branch.sv-node").first.evaluate(drawn)]
    page.locator(".sv-of-branch.sv-node").first.hover()
    lit_at = page.eval_on_selector_all(".sv-light-anchor", "all => all.map(e => Number(e.dataset.p))")
    assert lit_at == [branch["term:branch_anchor"]]
    said = tip(page)
    assert "rank at the anchor" in said and "log-prob at the anchor" in said
    assert f"no. {branch['term:branch_rank'] + 1:.0f}" in said
    successor = nodes[page.locator(".sv-of-successor.sv-node").first.evaluate(drawn)]
    page.locator(".sv-of-successor.sv-node").first.hover()
    source = page.eval_on_selector_all(".sv-light", "all => all.map(e => Number(e.dataset.p))")
    assert source == [successor["source"]] and "successor's cosine" in tip(page)
    page.mouse.move(2, 2)
    until(page, "!document.querySelector('.sv-light, .sv-light-anchor')")
    assert page.problems == []


def test_a_step_tells_its_route_and_its_times(open_trace: Open) -> None:
    trace = recordings.tree()
    steps = trace.tables["steps"]
    step = steps["origins"].index("branch+successor")
    for control in trace.run["method"]["controls"]:
        control["help"] = "Off: no. On: yes."
    page = open_trace(trace, step=step)
    chips = page.inner_text(".sv-step-facts")
    assert "found by semantic match" in chips and "from branch + successor" in chips and "retrieval" in chips
    assert f"accepted {steps['accepted'][step]} of {steps['drafted'][step]}" in chips and "verified in" in chips
    details(page)
    expect(page.locator(".sv-step-facts")).to_contain_text("Earlier positions compared by embedding")
    expect(page.locator(".sv-parameters")).to_contain_text("Branches on yes")  # what the value means
    page.locator(".sv-step-facts .sv-chip:has-text('retrieval')").hover()
    took = f"{steps['term:retrieval_ms'][step]:.3g}".rstrip("0")
    assert took in tip(page) and "retrieval_ms ÷ verify_ms" in tip(page)
    page.evaluate("k => specviz.inspector.setStep(k)", steps["outcome"].index("none"))
    chips = page.inner_text(".sv-step-facts")
    assert "accepted 0 of" in chips and "from" not in chips


def test_columns_that_no_view_knows_are_plain_values(open_trace: Open) -> None:
    trace = recordings.tree()
    step = trace.tables["steps"]["route"].index("semantic")
    trace.tables["candidates"]["hit_count"] = [1234] * trace.rows("candidates")
    trace.tables["nodes"]["warm"] = [True] * trace.rows("nodes")
    trace.tables["steps"]["mood"] = ["<i>calm</i>"] * trace.rows("steps")
    page = open_trace(trace, step=step)
    assert "mood <i>calm</i>" in page.locator(".sv-step-facts").text_content()
    show(page, "Tree")
    page.locator(".sv-of-branch.sv-node").first.hover()
    assert re.search(r"warm\s+yes", tip(page))
    page.evaluate("k => specviz.inspector.setStep(k)", trace.tables["candidates"]["step"][0])
    show(page, "Candidates")
    assert "Hit count" in page.inner_text(".sv-chead")
    assert page.locator(".sv-plain").first.text_content() == "1,234"
    assert page.problems == []


def test_a_forward_that_was_not_stock_code_is_told(open_trace: Open) -> None:
    trace = recordings.chain()
    steps = trace.tables["steps"]
    for name, value in (("engine", "compiled"), ("engine_rows", 16.0), ("engine_keys", 256.0)):
        steps[name] = [value] * len(steps["context"])
    page = open_trace(trace)
    details(page)
    expect(page.locator(".sv-step-facts")).to_contain_text("forward compiled 16 rows, 256 keys")
    stock = open_trace(recordings.chain())
    expect(stock.locator(".sv-step-facts .sv-chip")).not_to_have_count(0)
    expect(stock.locator(".sv-step-facts:not([hidden]) .sv-chip:not([hidden]):has-text('forward')")).to_have_count(0)


def test_the_run_is_broken_down_by_outcome_route_and_time(open_trace: Open) -> None:
    from decoders.trace.metrics import outcomes, step_term_shares

    trace = recordings.tree()
    page = open_trace(trace)
    found = dict(value(page, "v.model.report.outcomes"))
    assert found == outcomes(trace) and "branch+successor" in found
    assert not page.is_visible(".sv-breakdown")  # in the tab Details
    details(page)
    assert "branch + successor" in page.inner_text(".sv-breakdown")
    text = page.inner_text(".sv-breakdown").replace("\n", " ")
    share = step_term_shares(trace)["retrieval_ms"]
    assert f"retrieval {100 * share:.2g}" in text and "How drafts were found" in text
    page.evaluate("t => specviz.inspector.load(t, {})", payload(recordings.chain()))
    assert not page.is_visible(".sv-breakdown")
    expect(page.locator(".sv-step-facts")).to_be_visible()  # the step's own numbers are there for every method


def test_lossy_tokens_are_marked_and_explained(open_trace: Open) -> None:
    trace = recordings.casd()
    tokens = trace.tables["tokens"]
    marked = [p for p, rank in enumerate(tokens["rank"]) if rank > 0]
    page = open_trace(trace, step=trace.rows("steps") - 1)
    assert page.inner_text(".sv-lossy") == "≈ lossy"
    assert page.eval_on_selector_all(".sv-differs", "all => all.map(e => Number(e.dataset.p))") == marked
    corner = "e => getComputedStyle(e, '::after').borderTopWidth"
    assert page.eval_on_selector(f'[data-p="{marked[0]}"]', corner) == "3px"
    page.hover(f'.sv-output [data-p="{marked[0]}"]')
    first = marked[0] - trace.run["prompt_length"]
    preferred = trace.text([trace.tables["plain"]["id"][first]]).replace(" ", "␣")  # the outputs part here
    assert f"accepted at p = {tokens['prob'][marked[0]]:.2f}; the model preferred “{preferred}”" in tip(page)
    page.locator(".sv-lossy").hover()
    assert "may differ from what the model would write" in tip(page)
    assert f"not its first choice {len(marked)}" in page.inner_text(".sv-legend")
    page.evaluate("specviz.inspector.setStep(0)")
    hidden = "e => { const s = getComputedStyle(e, '::after'); return s.display === 'none' || s.content === 'none' }"
    assert page.eval_on_selector(f'[data-p="{marked[0]}"]', hidden)  # not written yet


def test_the_output_is_compared_with_plain_decoding(open_trace: Open) -> None:
    trace = recordings.casd()
    written = trace.output_ids
    words = (token for token in dict.fromkeys(trace.prompt_ids) if trace.text([token]).strip().isalpha())
    others = [token for token in words if token not in written]
    trace.tables["plain"]["id"] = [*written]
    for place, token in zip((10, 40), others, strict=False):
        trace.tables["plain"]["id"][place] = token
    page = open_trace(trace)
    count = len(written)
    assert page.inner_text(".sv-diff .sv-note") == f"only here 2 of {count} tokens, only there 2 of {count}"
    for mark, tokens in (("+", [written[10], written[40]]), ("−", others[:2])):
        texts = [mark + trace.text([token]).strip() for token in tokens]
        assert page.locator(".sv-ins" if mark == "+" else ".sv-del").all_text_contents() == texts
    assert page.locator(".sv-diff-changed code").count() == 4  # two lines, here and there
    page.click(".sv-diff .sv-button")
    assert not page.is_visible(".sv-ins")
    trace.tables["plain"]["id"] = written
    page.evaluate("t => specviz.inspector.load(t, {})", payload(trace))
    assert "identical to plain decoding" in page.inner_text(".sv-diff .sv-note")
    page.evaluate("t => specviz.inspector.load(t, {})", payload(recordings.chain()))
    assert not page.is_visible(".sv-diff")
    page.evaluate("t => specviz.inspector.load(t, {})", payload(load(GALLERY / "10-account-check-casd.spectrace")))
    code = page.locator(".sv-diff-row code").all_text_contents()  # a line end and its spaces are one token
    assert code.count("    def __init__(self, owner, balance):") == 2 and "        self.owner = owner" in code
    assert page.inner_text(".sv-diff .sv-note") == "only here 0 of 94 tokens, only there 30 of 124"
    changed = page.locator(".sv-diff-changed >> nth=0 >> code >> nth=1 >> xpath=span").all_text_contents()
    assert changed[0] == "        −if amount <= 0:⏎" and changed[2].startswith("        self.balance")


def test_the_headline_is_short_and_says_of_nothing_that_it_is_compared(open_trace: Open) -> None:
    """A run that has written nothing is identical to nothing, and shows no earlier map; what few need is in details."""
    trace = load(GALLERY / "17-lighthouse-story-eagle3.spectrace")
    page = open_trace(trace)
    keys = page.eval_on_selector_all(".sv-head .sv-metric", "all => all.map((one) => one.dataset.key)")
    assert keys == ["tokens_per_step", "identical"]  # its plain run was not recorded beside it
    details(page)
    steps = trace.tables["steps"]
    share = 100 * sum(steps["accepted"]) / sum(steps["depth"])
    assert page.inner_text('.sv-all-metrics [data-key="depth_efficiency"] dd') == f"{share:.1f}%"
    assert page.evaluate("specviz.inspector.tree.placed.length > 4")
    nothing = load(GALLERY / "17-lighthouse-story-eagle3.spectrace")
    for table, columns in nothing.tables.items():
        for values in columns.values():
            if table not in ("pieces", "pool", "plain"):
                del values[nothing.run["prompt_length"] if table == "tokens" else 0 :]
    page.evaluate("t => specviz.inspector.load(t, {})", payload(nothing))
    assert page.inner_text('.sv-metric[data-key="identical"] dd') == "–"
    assert page.evaluate("specviz.inspector.tree.window.map.hidden && !specviz.inspector.tree.placed.length")
    page.evaluate("t => specviz.inspector.load(t, {})", payload(recordings.chain()))
    assert page.locator('.sv-head [data-key="copied_share"]').count()


def test_forced_colours_leave_those_that_tell_something(open_trace: Open, page: Any) -> None:
    page.emulate_media(forced_colors="active")
    open_trace(recordings.chain())
    page.get_by_role("button", name="More rows").click()
    page.locator(".sv-verdict-row").first.click()
    colors = page.evaluate("specviz.inspector.colors")
    assert len({colors[name] for name in ("accepted", "rejected", "ghost", "ink")}) == 4
    chosen = ("button[aria-pressed=true]", "[role=tab][aria-selected=true]")
    for told in (".sv-output .sv-t", ".sv-legend .sv-sample", *chosen):
        kept = page.locator(f"{told} >> visible=true").first
        assert kept.evaluate("one => getComputedStyle(one).forcedColorAdjust") == "none", told


def test_differences_are_shortest_edit_scripts(open_trace: Open, page: Any) -> None:
    open_trace(recordings.plain())
    rng = random.Random(3)
    pairs = [([], []), ([1], []), ([], [1, 2]), (list(range(4000)), list(range(5000, 9000)))]
    for _ in range(60):
        a, b = ([rng.randrange(4) for _ in range(rng.randrange(12))] for _ in range(2))
        pairs.append((a, b))
    for a, b in pairs:
        edits = page.evaluate("async ([a, b]) => (await import('specviz/inspect/diff.js')).difference(a, b)", [a, b])
        assert [a[x] for sign, x, _ in edits if sign != "−"] == a
        assert [b[y] for sign, _, y in edits if sign != "+"] == b
        same = [(x, y) for sign, x, y in edits if sign == "="]
        assert all(a[x] == b[y] for x, y in same) and same == sorted(same)
        longest = [[0] * (len(b) + 1) for _ in range(len(a) + 1)] if len(a) < 20 else None
        if longest is not None:
            for x, y in itertools.product(range(len(a)), range(len(b))):
                best = max(longest[x][y + 1], longest[x + 1][y])
                longest[x + 1][y + 1] = longest[x][y] + 1 if a[x] == b[y] else best
            assert len(same) == longest[-1][-1]


@pytest.fixture(scope="module")
def pool_file() -> bytes:
    """A trace file of CASD that drafts from passages of which the target read a compressed form."""
    from decoders import Prompt, load_target
    from decoders.prompt.compress import compress
    from decoders.study.look.teacher_forcing import answer_ids, forced_trace

    target = load_target("bundled")
    passages = (
        "The Halvorsen bridge opened in 1932. It crosses the river Enna at Tormund, and it carries trains and cars.",
        "Tormund is a town of 41,000 people. Its harbour froze every winter until the power station warmed the water.",
    )
    whole = Prompt.from_segments(target.tokenizer, "Answer from the passages.", passages)
    prompt = compress(whole, target.tokenizer, 2)
    answer = answer_ids(target, passages[0])
    trace = forced_trace(target, replace(prompt, reference="It opened in 1932."), answer, "casd")
    return recordings.save_trace(trace)


def test_a_pool_stands_under_the_prompt_and_is_linked(open_trace: Open, pool_file: bytes) -> None:
    trace = load(pool_file)
    tokens, nodes = trace.tables["tokens"], trace.tables["nodes"]
    position = next(p for p, place in enumerate(tokens["pool"]) if place >= 0)
    page = open_trace(trace, step=tokens["step"][position])
    assert f"the full context · {trace.rows('pool')} tokens · 2 passages" in page.inner_text(".sv-pool .sv-note")
    assert "PASSAGE 2" in page.inner_text(".sv-pool").upper()
    boxes = [page.locator(name).bounding_box() for name in (".sv-text", ".sv-pool")]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"] + 1, "the pool stands below the text"
    page.hover(f'.sv-output [data-p="{position}"]')
    at = page.eval_on_selector_all(".sv-pool .sv-lit", IN_POOL)
    assert tokens["pool"][position] in at and page.locator(".sv-links path.sv-link").count() >= 1
    show(page, "Tree")
    page.locator(".sv-of-datastore.sv-node").first.hover()
    until(page, "document.querySelector('.sv-pool .sv-light')")
    node = next(k for k, step in enumerate(nodes["step"]) if step == tokens["step"][position] and nodes["pool"][k] >= 0)
    at = page.eval_on_selector_all(".sv-pool .sv-light", IN_POOL)
    assert at == [nodes["pool"][node]] and "line 1 of the pool" in tip(page)
    assert page.locator(".sv-crows .sv-place").first.text_content().startswith("pool ")
    page.evaluate("p => specviz.inspector.pickToken(p, false)", position)
    assert page.locator(".sv-pool .sv-pinned").count() > 0
    page.hover(".sv-pool .sv-t >> nth=3")
    assert "in the pool" in tip(page)
    assert page.problems == []


def test_a_pool_recorded_in_stretches_shows_its_gaps(open_trace: Open, pool_file: bytes) -> None:
    trace = load(pool_file)
    used = {p for table in ("tokens", "nodes", "candidates") for p in trace.tables[table]["pool"]}
    pool = trace.tables["pool"]
    keep = [k for k, p in enumerate(pool["position"]) if any(abs(p - q) <= 2 for q in used if q >= 0) and p > 3]
    for table in ("tokens", "nodes", "candidates"):
        trace.tables[table]["pool"] = [-1 if -1 < p <= 3 else p for p in trace.tables[table]["pool"]]
    trace.tables["pool"] = {name: [values[k] for k in keep] for name, values in pool.items()}
    page = open_trace(trace, step=trace.rows("steps") - 1)
    assert page.locator(".sv-pool .sv-segment").first.inner_text().startswith("…")
    assert f"({len(keep)} shown)" in page.inner_text(".sv-pool .sv-note")
    assert page.problems == []


def test_compression_and_quality_are_told_with_their_formulas(open_trace: Open, pool_file: bytes) -> None:
    trace = load(pool_file)
    short, full = trace.run["compression"]["kept_tokens"], trace.run["compression"]["context_tokens"]
    page = open_trace(trace)
    said = page.inner_text(".sv-compression")
    assert f"context {full} → {short} tokens ({full / short:.1f}×, extractive)" in said and "keys and values" in said
    details(page)
    page.locator(".sv-compression span:has-text('keys and values')").hover()
    assert "12,288 bytes per token" in tip(page)
    assert "F1 Agreement of the answer" in page.inner_text('.sv-all-metrics[aria-label="Against the reference"]')
    assert not page.is_visible(".sv-reference-text")
    page.click(".sv-reference summary")
    assert page.inner_text(".sv-reference-text") == trace.run["reference"]


def test_candidates_show_ranking_and_regret(open_trace: Open) -> None:
    trace = recordings.chain()
    page = open_trace(trace)
    table = trace.tables["candidates"]
    regret = {}
    for row, step in enumerate(table["step"]):
        best, chosen = regret.get(step, (-1, -1))
        would = table["would_accept"][row]
        regret[step] = (max(best, would), would if table["chosen"][row] else chosen)
    step = next(k for k, (best, chosen) in regret.items() if best > chosen)
    page.evaluate("k => specviz.inspector.setStep(k)", step)
    best, chosen = regret[step]
    show(page, "Candidates")
    assert f"(ranking regret {best - chosen})" in page.inner_text(".sv-remark")
    expect(page.locator(".sv-best").first).to_be_visible()
    assert page.locator(".sv-chosen").count() == 1
    page.hover(".sv-crows .sv-chosen")
    assert page.locator(".sv-light").count() > 1
    assert page.get_by_role("columnheader", name="Hidden cosine").is_visible()


def test_live_append_equals_a_full_load(open_trace: Open, page: Any) -> None:
    trace = recordings.nasty()
    opening, parts = recordings.deltas(trace)
    open_trace(opening)
    page.evaluate("all => all.forEach((delta) => specviz.inspector.append(delta, {}))", parts)
    assert step_of(page) == len(parts) - 1  # it followed the run
    legend = page.locator(".sv-legend").text_content()  # counts come when the run is over: none is too low
    assert "accepted" in legend and not re.search(r"\d", legend)
    shot = """() => { const v = specviz.inspector; v.setStep(7); v.setStep(9); return {
        output: v.text.code.textContent, rows: v.text.rows.length, runs: v.model.runs.length,
        classes: [...v.text.code.querySelectorAll('.sv-t')].map(e => e.className.split(' ').sort().join(' ')),
        tree: v.tree.body.textContent, sentence: v.sentence.textContent } }"""
    live = page.evaluate(shot)
    full = Trace(trace.run, {**trace.tables, "candidates": {**trace.tables["candidates"]}})
    full.tables["candidates"]["would_accept"] = [-1] * full.rows("candidates")
    page.evaluate("t => specviz.inspector.load(t, {step: 0})", payload(full))
    assert page.evaluate(shot) == live
    page.evaluate("t => specviz.inspector.load(t, {})", payload(opening))
    assert page.locator(".sv-node, .sv-crow[data-k]:visible").count() == 0  # nothing of the other trace stays
    page.evaluate("all => all.forEach((delta) => specviz.inspector.append(delta, {}))", parts[:9])
    page.evaluate("specviz.inspector.setStep(3)")
    page.evaluate("d => specviz.inspector.append(d, {metrics: {tokens_per_step: 7.5}})", parts[9])
    assert step_of(page) == 3  # someone who looks back is left there
    assert page.inner_text(".sv-counter").split()[-2:] == ["of", "10"] and "7.50" in page.inner_text(".sv-metrics")
    assert page.problems == []


def test_the_export_makes_no_request_and_no_error(open_trace: Open, page: Any) -> None:
    open_trace(recordings.tree(), "#step=4&pins=300")
    assert step_of(page) == 4 and value(page, "v.pins") == [300]
    page.keyboard.press("End")
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.problems == []
    policy = page.get_attribute("meta[http-equiv]", "content")
    assert "default-src 'none'" in policy


def test_downloads_of_the_browser(open_trace: Open, page: Any) -> None:
    trace = recordings.tree()
    open_trace(trace, "#step=3")
    got = {}
    tree = "Draft tree of this step"
    for name in (f"{tree} (SVG)", f"{tree} (PNG)", "Candidates (CSV)", "Tree nodes (CSV)"):
        with page.expect_download() as download:
            share(page, name, more=True)
        got[name[-4:-1]] = Path(download.value.path()).read_bytes()
    lines = got["CSV"].decode().split("\r\n")
    assert lines[0] == ",".join([*trace.tables["nodes"], "text"])
    svg = value(page, TREE_SVG)
    assert ElementTree.fromstring(svg).tag.endswith("}svg") and "class=" not in svg
    assert got["PNG"].startswith(b"\x89PNG") and len(got["PNG"]) > 2000
    assert page.problems == []


@pytest.mark.matrix("every width")
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_is_never_wider_than_the_window(open_trace: Open, page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    open_trace(recordings.nasty(), "#step=6")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = [page.locator(name).bounding_box() for name in (".sv-text", ".sv-lower")]
    beside = boxes[1]["x"] >= boxes[0]["x"] + boxes[0]["width"]
    assert beside == (width > 860), "the panel stands beside the text, in a narrow window below it"
    page.evaluate("t => specviz.inspector.load(t, {step: 1})", payload(recordings.cape()))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    inside = "e => { const b = e.closest('.sv-body'); return b.scrollWidth <= b.clientWidth }"
    show(page, "Candidates")
    assert page.eval_on_selector(".sv-drafter-parts", inside)


STEP_COST = {"nodes": 1000, "layouts": 5}  # the draft in the text asks twice where its tokens stand
STEP = """() => {
    const v = specviz.inspector;
    v.setStep((v.number + 1) % v.model.stepCount);
    v.root.getBoundingClientRect(); v.tree.svg.getBoundingClientRect(); void v.text.body.scrollHeight;
}"""


@pytest.mark.slow("every step of many runs")
@pytest.mark.pace
def test_a_step_change_touches_little(open_trace: Open) -> None:
    page = open_trace(recordings.repeat(recordings.tree(), 30))
    assert value(page, "v.model.stepCount") >= 300
    cost(page, "Inspect: the next step, 300 steps", STEP).within(**STEP_COST)
    with pytest.raises(AssertionError, match="nodes"):  # the bound tells a step from drawing all again
        page.evaluate("t => { globalThis.again = t }", payload(recordings.repeat(recordings.tree(), 30)))
        cost(page, "Inspect: everything drawn again", "() => specviz.inspector.load(again, {})", 2).within(**STEP_COST)
    for name, trace in (("drafted", recordings.cape()), ("prompted", recordings.ppd())):
        page.evaluate("t => specviz.inspector.load(t, {})", payload(trace))
        cost(page, f"Inspect: the next step, {name}", STEP).within(**STEP_COST)


@pytest.mark.slow("8,000 tokens")
@pytest.mark.pace
def test_a_long_context_stays_usable(open_trace: Open) -> None:
    page = open_trace(recordings.repeat(recordings.gallery_run("class-docstring-pld"), 20, 32))
    prompt, all_ = value(page, "[v.model.promptLength, v.model.tokenCount]")
    assert prompt > 7500 and all_ - prompt > 1900
    most = page.evaluate("""() => { const v = specviz.inspector; let most = 0, at = 0;
        for (let k = 0; k < v.model.stepCount; k++) {
            const { length } = v.model.rows("candidates", k);
            if (length > most) [most, at] = [length, k];
        }
        v.setStep(at); return most; }""")
    assert most > 200
    show(page, "Candidates")
    assert page.locator(".sv-crows .sv-crow").count() < 40
    page.eval_on_selector(".sv-candidates .sv-body", "e => { e.scrollTop = e.scrollHeight }")
    page.wait_for_selector(f'.sv-crow[data-k="{most - 1}"]')
    page.keyboard.press("End")
    shown = page.evaluate("""() => { const v = specviz.inspector, pane = v.text.body.getBoundingClientRect();
        const box = v.text.elements(v.model.tokenCount - 1)[0].getBoundingClientRect();
        return box.top >= pane.top && box.bottom <= pane.bottom; }""")
    assert shown
    cost(page, "Inspect: the next step, 2,000 tokens after 7,500", STEP).within(nodes=2500, layouts=4)


def test_dark_and_light_follow_the_system(open_trace: Open, page: Any) -> None:
    open_trace(recordings.chain())
    paper = "getComputedStyle(document.querySelector('.sv-card')).backgroundColor"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    until(page, "document.documentElement.classList.contains('dark')")
    assert page.evaluate(paper) != "rgb(255, 255, 255)"


CONTRAST = """() => {
    const parse = (c) => (c.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
    const linear = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    const light = (rgb) => rgb.reduce((sum, v, k) => sum + linear(v) * [0.2126, 0.7152, 0.0722][k], 0);
    const over = (top, under) => {
        const a = top.length > 3 ? top[3] : 1;
        return top.slice(0, 3).map((v, k) => v * a + under[k] * (1 - a));
    };
    const poor = new Map();
    for (const e of document.querySelectorAll(".sv *")) {
        const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        if (!own || !e.getClientRects().length || e.closest("svg, [aria-hidden=true]")) continue;
        const layers = [];
        for (let p = e; p; p = p.parentElement) layers.push(parse(getComputedStyle(p).backgroundColor));
        const back = layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
        const a = light(over(parse(getComputedStyle(e).color), back)), b = light(back);
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) poor.set(e.className, +ratio.toFixed(2));
    }
    return Object.fromEntries(poor);
}"""


@pytest.mark.matrix("every theme")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(open_trace: Open, page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    open_trace(recordings.tree(), "#step=12")
    page.evaluate("specviz.inspector.offerButton.click()")
    page.get_by_role("button", name="More rows").click()
    for tab in ("Why", "Tree", "Candidates"):
        show(page, tab)
        assert page.evaluate(CONTRAST) == {}, tab
    for trace in (recordings.cape(), recordings.glide(), recordings.ppd()):
        page.evaluate("t => specviz.inspector.load(t, {step: 1})", payload(trace))
        assert page.evaluate(CONTRAST) == {}
    page.evaluate("specviz.inspector.setStep(4)")  # guessed, and became
    assert page.evaluate(CONTRAST) == {}


def test_a_trace_of_another_version_is_refused(open_trace: Open, page: Any) -> None:
    open_trace(recordings.chain())
    code = "try { specviz.inspector.load({schema: 'spectrace/9', run: {}}) } catch (e) { return e.message }"
    said = page.evaluate(f"() => {{ {code} }}")
    assert "spectrace/1" in said and "spectrace/9" in said


def test_json_in_a_page_cannot_end_its_element() -> None:
    text = embed_json({"a": "</script><!--\u2028\u2029"})
    assert "<" not in text and "\u2028" not in text and "\u2029" not in text
    assert json.loads(text) == {"a": "</script><!--\u2028\u2029"}


def test_the_notebook_frame_holds_the_page() -> None:
    html = notebook.show(recordings.quote(), step=2)._repr_html_()
    assert html.startswith("<iframe srcdoc=") and "sandbox=" in html
    assert "<script" not in html  # the page is one escaped attribute


@pytest.mark.parametrize("width", [400, 1280])
def test_a_peek_at_a_far_source_hides_no_draft_and_cuts_no_line(open_trace: Open, page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800 if width == 400 else 500})
    trace = recordings.gallery_run("class-docstring-pld-h")
    open_trace(trace)
    far = page.evaluate(
        """count => {
        const { inspector } = specviz, { draft, text } = inspector, found = [];
        for (let step = 1; step < count; step++) {
            inspector.setStep(0);
            text.fresh = true;
            inspector.setStep(step);
            if (draft.peek.hidden) continue;
            const edge = draft.peek.getBoundingClientRect().bottom;
            const { context } = inspector.model.step(step);
            const high = parseFloat(getComputedStyle(text.code).lineHeight);
            const row = text.rows.map(({ line }) => line.getBoundingClientRect()).findLast(({ top }) => top <= edge);
            found.push([text.elements(context)[0].getBoundingClientRect().top - edge, (edge - row.top) % high]);
        }
        return found;
    }""",
        trace.rows("steps"),
    )
    assert len(far) > 1
    for below, shaved in far:
        assert below > 20, "a line of what the draft goes on from is seen too"
        assert min(shaved, abs(21 - shaved)) < 1


def test_a_tapped_tab_brings_its_panel_and_keeps_the_caret_in_sight_on_a_phone(open_trace: Open, page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    for name, step in (("class-docstring-pld-h", 9), ("lighthouse-story-eagle3", 3)):
        open_trace(recordings.gallery_run(name), step=step)
        show(page, "Tree")
        until(page, "document.querySelector('.sv-lower').getBoundingClientRect().bottom <= innerHeight + 1")
        top, caret = page.evaluate("""() => [document.querySelector('.sv-lower').getBoundingClientRect().top,
            specviz.inspector.text.elements(specviz.inspector.model.step(specviz.inspector.number).context)[0]
                .getBoundingClientRect().top]""")
        assert top < 200 and 0 <= caret < top
        until(page, "!specviz.inspector.tree.window.larger")  # all of it is seen
