"""The Lab can be read by all (axe), in both themes, wide and narrow."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.test_access import VIOLATIONS, app_in_theme, axe, desk, faults_of, looked_at  # noqa: F401
from tests.browser.views import at, click_through, wait_drawn

TOOLS = {"batch": ".svb-methods", "trees": ".svp-trees .svp-question", "speedup": ".main-svg"}
VIEWS: dict[str, Callable[[Any], None]] = {
    "own": at("tab=lab&lab=own", ".svp-lab > *"),
    "recipe": at("tab=lab&lab=pldplus-fig4", ".svp-lab .main-svg"),
    **{name: at(f"tab=lab&lab={name}", drawn) for name, drawn in TOOLS.items()},
    "verifiers": click_through(
        at("tab=lab&lab=draft-length", ".svp-lab .main-svg"), "summary:has-text('under every verifier')",
        ".svl-judges .svd-judges",
    ),
}  # fmt: skip


def test_the_page_can_be_read_by_all(app_in_theme: Any) -> None:
    app_in_theme.evaluate("specviz.goTo('lab')")
    wait_drawn(app_in_theme, ".svp-lab > *")
    assert app_in_theme.evaluate(VIOLATIONS) == []


@pytest.mark.matrix("every view in both themes and five sizes: ten seconds each, a minute on a busy machine")
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_can_be_read_by_all(page: Any, looked_at: int, axe: str, name: str) -> None:
    assert faults_of(VIEWS[name], page, looked_at, axe, [*VIEWS].index(name)) == []


BACKENDS = [
    {"name": f"backend {number}", "state": state, "text": text}
    for number, (state, text) in enumerate((("busy", ""), ("free", ""), ("starting", ""), ("lost", "killed")), 1)
]


@pytest.mark.slow("further states of pages that were read")
def test_backends_and_the_fields_of_workers_can_be_read_by_all(app_in_theme: Any) -> None:
    def answer(route: Any) -> None:
        there = route.fetch()
        route.fulfill(response=there, json={**there.json(), "backends": BACKENDS})

    app_in_theme.route("**/api/status", answer)
    app_in_theme.evaluate("specviz.goTo('lab')")
    wait_drawn(app_in_theme, ".svp-lab > *")
    app_in_theme.click(".svl-card:has-text('Your own sweep')")
    app_in_theme.fill("#svl-workers", "2")
    app_in_theme.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    shown = app_in_theme.locator(".svp-backends li")
    shown.nth(4).wait_for()
    assert shown.all_text_contents() == [
        "backend 1: at work", "backend 2: free", "backend 3: starting", "backend 4: lost, is started again, killed",
        "1 of 4 busy, 1 lost",
    ]  # fmt: skip
    assert app_in_theme.evaluate(VIOLATIONS) == []
    if shots := os.environ.get("SPECVIZ_SHOTS"):
        app_in_theme.screenshot(path=f"{shots}-{app_in_theme.evaluate('document.body.className')[:12]}.png")
    app_in_theme.unroute_all(behavior="wait")  # for an answer that is on its way
