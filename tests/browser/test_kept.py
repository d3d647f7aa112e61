"""State kept from run to run, in the browser: its line at the parameters, Empty, and a run's cold or warm start."""

from __future__ import annotations

from typing import Any

import pytest

from decoders.method.kept import kept_with, owned_by
from specviz.server.http import COOKIE
from tests import recordings
from tests.browser.test_app import edit, open_app
from tests.stubs import METHODS, StubDesk, StubMethod
from tests.waiting import expect

METHOD = StubMethod("recycling", "Token Recycling", keeps="matrix")


class Rows(list[int]):
    unit = "tokens with a row"


@pytest.fixture(scope="module")
def desk() -> StubDesk:
    runs = []
    for warm, before, count in ((False, 0, 1), (True, 120, 340)):
        trace = recordings.chain()
        trace.run["kept"] = {"warm": warm, "unit": Rows.unit, "count": count, "before": before}
        runs.append(trace)
    made = StubDesk(gallery=tuple(runs))
    made._methods = lambda: {**METHODS, METHOD.name: METHOD}
    return made


def test_the_line_beside_the_parameters_counts_and_empties(page: Any, port: int, desk: StubDesk) -> None:
    open_app(page, port)
    edit(page)
    line = page.locator(".svf-kept")
    expect(line).to_be_hidden()
    page.select_option("#svf-method", "recycling")
    expect(line).to_have_text("Matrix: nothing is kept of your runs.")
    owner = next(cookie["value"] for cookie in page.context.cookies() if cookie["name"] == COOKIE)
    for whose, count in ((owner, 2560), ("somebody", 7), (owner, 2560)):
        with owned_by(whose):
            kept_with(desk.target()).of("recycling", Rows).extend(range(count))
    page.click(".svp-go:visible")
    expect(line).to_contain_text("Matrix: 5,120 tokens with a row, from 2 runs")
    edit(page)
    page.get_by_role("button", name="Empty what Token Recycling keeps of your runs").click()
    expect(line).to_have_text("Matrix: nothing is kept of your runs.")
    with owned_by("somebody"):
        assert kept_with(desk.target()).sizes() == {"recycling": "7 tokens with a row"}
    page.select_option("#svf-method", "pld")
    expect(line).to_be_hidden()
    assert page.problems == []


@pytest.mark.slow("the page opened again")
def test_a_runs_details_say_cold_or_warm(page: Any, port: int) -> None:
    told = {
        "gallery-0": ("Start cold", "It began with nothing of earlier runs, and ended with 1 token with a row."),
        "gallery-1": (
            "Start warm", "It began with 120 tokens with a row of earlier runs, and ended with 340 tokens with a row."
        ),
    }  # fmt: skip
    for key, (chip, words) in told.items():
        open_app(page, port, f"?trace={key}")
        page.get_by_role("tab", name="Details").click()
        shown = page.locator(".sv-parameters .sv-chip").first
        expect(shown).to_have_text(chip)
        shown.focus()
        expect(page.locator(".sv-tip")).to_contain_text(words)
    assert page.problems == []
