"""The lens in real Chromium: a refused token through the layers, by click and keyboard; nothing of it is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from decoders import Prompt, record
from decoders.study.look.lens import lens
from decoders.study.look.whatif import ReadRun
from decoders.trace.trace import Trace
from tests.models import prompt_ids
from tests.stubs import gallery_desk, nothing_wrong
from tests.waiting import becomes, expect

FAMILY = "qwen3"  # of the tiny target


@pytest.fixture(scope="module")
def run(target: Any) -> Trace:
    return record(target, Prompt.from_ids(prompt_ids(3)), "adapld", max_new_tokens=24)


@pytest.fixture(scope="module")
def desk(target: Any, run: Trace, module_home: Any) -> Any:
    return gallery_desk(target, {"mine": run})


def first_refused(read: ReadRun) -> tuple[int, int]:
    """The first step with two drafted tokens or more of which one is refused, and the node that the page begins with:
    the first refused one at the end of the accepted path.
    """
    nodes = read.trace.tables["nodes"]
    for step in range(read.trace.rows("steps")):
        rows = read.rows("nodes", step)
        path = [row - rows.start for row in rows if nodes["status"][row] in ("root", "accepted")]
        for row in rows:
            if nodes["status"][row] == "rejected" and nodes["parent"][row] == path[-1] and len(rows) > 2:
                return step, row - rows.start
    raise AssertionError("nothing was refused")


def test_a_refused_token_through_the_layers(page: Any, port: int, target: Any, run: Trace) -> None:
    read = ReadRun(target, run)
    step, node = first_refused(read)
    seen = lens(read, step, node)
    page.goto(f"http://127.0.0.1:{port}/?trace=mine&step={step + 1}")
    page.wait_for_function("specviz.app.whatif?.catalog && !specviz.app.lens.reason")
    panel = page.locator("section.sv-lens")
    expect(panel).to_be_hidden()

    # by keyboard: its tab opens it in the candidates' place, at the token that the target refused
    page.get_by_role("tab", name="Candidates").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(panel.locator("tbody tr")).to_have_count(seen.layers + 1)
    expect(page.locator(".sv-candidates")).to_be_hidden()
    expect(panel).to_contain_text("computed now, teacher-forced")
    assert seen.decided is not None
    expect(panel.locator(".svo-words b")).to_have_text(
        f"from layer {seen.decided} on" if seen.decided else "from the embedding on"
    )
    expect(panel.locator(".svo-decided th")).to_have_text(str(seen.decided) if seen.decided else "embedding")
    last = panel.locator("tbody tr").last.locator("td.svp-num").all_inner_texts()
    assert last[1] == f"#{seen.drafted.ranks[-1] + 1}" and last[3] == f"#{seen.own.ranks[-1] + 1}" == "#1"
    expect(panel.locator(".svo-chart circle")).to_have_count(seen.layers + 1)
    expect(page.locator(".sv-tree [aria-pressed=true]")).to_have_count(1)

    # the chart has axes with their names; ranks are a click away, and drawn on other places
    axes = panel.locator(".svo-axis").all_text_contents()
    assert "probability" in axes and any(text.startswith("layer") for text in axes)
    before = panel.locator("path.svo-rejected").last.get_attribute("d")
    panel.get_by_role("button", name="Rank").click()
    becomes(page, lambda: panel.locator("path.svo-rejected").last.get_attribute("d") != before, True)
    expect(panel.locator(".svo-axis").last).to_have_text("rank")

    # another token of the tree, by the panel's own buttons and by a click
    chosen = "specviz.app.lens.node.index"
    other = "Previous drafted token" if node > 1 else "Next drafted token"
    panel.get_by_role("button", name=other).click()
    becomes(page, lambda: page.evaluate(chosen), node - 1 if node > 1 else node + 1)
    becomes(page, lambda: page.evaluate("specviz.app.lens.result?.node"), node - 1 if node > 1 else node + 1)
    clicked = "new Event('click', { bubbles: true })"
    page.evaluate(f"index => specviz.app.inspector.tree.boxOf(index).group.dispatchEvent({clicked})", node)
    becomes(page, lambda: page.evaluate("specviz.app.lens.result?.node"), node)

    # one panel at a time; Escape closes and gives the focus back; the run itself is as it was
    page.locator(".svw-open", has_text="What if").click()
    expect(panel).to_be_hidden()
    expect(page.locator("section.svw")).to_be_visible()
    page.evaluate("specviz.app.lens.toggle()")
    expect(page.locator("section.svw")).to_be_hidden()
    expect(panel.locator("tbody tr")).to_have_count(seen.layers + 1)
    becomes(page, lambda: panel.evaluate("panel => panel.contains(document.activeElement)"), True)
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.get_by_role("tab", name="Lens")).to_be_focused()
    assert page.evaluate("Object.keys(specviz.app.inspector.model.trace).some((name) => /lens/.test(name))") is False
    nothing_wrong(page, port)
