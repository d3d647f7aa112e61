"""Heads in the inspector, in real Chromium: the chain of first guesses, what stood in its place, states, what was left
out.
"""

from __future__ import annotations

from typing import Any

import pytest

from decoders.trace import files
from decoders.trace.trace import Trace
from specviz.pages.lessons.lessons_page import LESSONS
from tests.stubs import StubDesk, nothing_wrong
from tests.waiting import expect

RUNS = ("medusa", "eagle2")


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return [files.load(LESSONS / f"toy-docstring-{name}.spectrace") for name in RUNS]


@pytest.fixture(scope="module")
def desk(traces: list[Trace], module_home: Any) -> StubDesk:
    return StubDesk(gallery=tuple(traces))


def step_where(trace: Trace, holds: Any) -> int:
    """The first step (from 0) whose nodes, as dicts, hold."""
    table = trace.tables["nodes"]
    for step in range(trace.rows("steps")):
        rows = [row for row, number in enumerate(table["step"]) if number == step]
        if holds([{name: column[row] for name, column in table.items()} for row in rows]):
            return step
    raise AssertionError("there is no such step")


def other_guess(nodes: list[dict[str, Any]]) -> int:
    """The rank, from 0, of an accepted first token that was not the first guess; 0 where there is none."""
    stood = [node for node in nodes if node["parent"] == 0 and node["status"] == "accepted"]
    return int(stood[0]["term:draft_rank"]) if stood else 0


@pytest.mark.slow("18 s for more of what the test behind it finds")
def test_heads_show_their_first_guesses_as_a_chain(page: Any, port: int, desk: StubDesk, traces: list[Trace]) -> None:
    medusa = traces[0]
    step = step_where(medusa, other_guess)
    rows = [row for row, number in enumerate(medusa.tables["nodes"]["step"]) if number == step]
    rank = other_guess([{name: column[row] for name, column in medusa.tables["nodes"].items()} for row in rows])
    page.goto(f"http://127.0.0.1:{port}/?trace=gallery-0&step={step + 1}")
    panel = page.locator("section.sv-drafter")
    expect(panel.locator(".sv-place-of")).to_have_count(medusa.tables["steps"]["depth"][step])
    ending = {1: "2nd", 2: "3rd"}.get(rank, f"{rank + 1}th")
    expect(panel.locator(".sv-place-of b").first).to_have_text(ending)
    page.locator(".sv-lower").get_by_role("tab", name="Candidates").click()
    panel.locator(".sv-place-of").first.click()
    expect(panel.locator(".sv-verdict")).to_contain_text(f"Accepted here was the {ending} guess")
    nothing_wrong(page, port)


def test_eagle_shows_how_near_its_states_came_and_what_it_left_out(
    page: Any, port: int, desk: StubDesk, traces: list[Trace]
) -> None:
    eagle = traces[1]
    steps = eagle.tables["steps"]
    near = steps["term:feature_cosine"]
    step = next(number for number, value in enumerate(near) if value is not None and steps["accepted"][number])
    page.goto(f"http://127.0.0.1:{port}/?trace=gallery-1&step={step + 1}")
    panel = page.locator("section.sv-drafter")
    expect(panel).to_contain_text("The head's states against the target's own: cosine")
    shown = panel.locator("p", has_text="cosine").locator("b").inner_text()
    assert float(shown) == pytest.approx(near[step], abs=0.006)
    out = steps["term:scored"][step] - steps["drafted"][step]
    page.locator(".sv-lower").get_by_role("tab", name="Candidates").click()
    left = panel.locator(".sv-left-out summary")
    expect(left).to_contain_text(f"Left out of the tree: {out:,.0f} tokens")
    items = panel.locator(".sv-left-out li")
    expect(items.first).to_be_hidden()
    left.click()
    expect(items.first).to_be_visible()
    nothing_wrong(page, port)
