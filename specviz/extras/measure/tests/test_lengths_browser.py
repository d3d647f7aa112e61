"""Draft lengths of chosen runs in real Chromium: a view among those of their acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import recordings
from tests.browser.test_access import axe, faults_of, looked_at  # noqa: F401
from tests.browser.views import acceptance
from tests.stubs import StubDesk, nothing_wrong
from tests.waiting import expect, fits


@pytest.fixture(scope="module")
def desk(module_home: Path) -> StubDesk:
    return StubDesk(gallery=(recordings.chain(), recordings.cape()))


def test_policies_of_servers_stand_among_the_views_of_acceptance(page: Any, port: int) -> None:
    page.goto(f"http://127.0.0.1:{port}/?tab=runs&acceptance=lengths")
    expect(page.locator(".ui-panel .svp-acceptance")).to_have_attribute("data-ready", "lengths")
    views = page.locator(".svd-views button")
    expect(views).to_have_text(["Definitions", "Calibration", "Draft lengths", "Other judges"])
    expect(views.nth(2)).to_have_attribute("aria-pressed", "true")
    rows = page.locator(".svd-body table").first.locator("tbody tr")
    expect(rows.nth(0)).to_contain_text(", 1 run")
    expect(rows.nth(1)).to_contain_text("oracle")
    expect(page.locator(".svd-body thead th").first).to_have_text("policy")
    fits(page, 400)
    nothing_wrong(page, port)


@pytest.mark.matrix("the view in both themes and five sizes: ten seconds, a minute on a busy machine")
def test_the_view_can_be_read_by_all(page: Any, looked_at: int, axe: str) -> None:
    assert faults_of(acceptance("lengths"), page, looked_at, axe) == []
