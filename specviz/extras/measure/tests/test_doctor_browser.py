"""The drafter doctor in real Chromium: a part is chosen, examined, stopped; its report is read and saved."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from decoders.model.target_model.target import Target
from decoders.parts import DESCRIPTION
from tests import recordings
from tests.drafts import needs_kinds, save_tiny_part
from tests.models import tiny_target
from tests.stubs import StubDesk, nothing_wrong
from tests.waiting import WAIT_S, becomes, expect, fits

from ..doctor import examination

pytestmark = needs_kinds("medusa")


@pytest.fixture(scope="module")
def target(module_home: Path) -> Target:
    made = tiny_target()
    file = save_tiny_part(made, "medusa") / DESCRIPTION
    log = [{"tokens": 100_000, "top1": [0.2, 0.1]}, {"tokens": 200_000, "top1": [0.25, 0.1]}]
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {"training": {"log": log}}), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def desk(target: Target) -> StubDesk:
    return StubDesk(load=lambda: target, gallery=(recordings.chain(),))


def ends(line: Any) -> list[list[float]]:
    """The points [x, y] of a line of two."""
    return [[float(number) for number in point.split(",")] for point in line.get_attribute("points").split()]


@pytest.mark.slow("examines a part of a tiny target with every control")
def test_a_part_is_examined_stopped_and_its_report_saved(
    page: Any, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specviz.extras.measure.doctor.doctor.OUTSIDE_SHARE", -1.0)  # a fault in any part
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"turns": ["Who was <b>it</b>?"]}\n{"turns": ["Where was it?"]}\n', encoding="utf-8")
    gate, real = threading.Event(), examination.advance

    def advance(holder: Any, asked: Any) -> Any:
        assert "begin" in asked or gate.wait(WAIT_S)
        return real(holder, asked)

    monkeypatch.setattr(examination, "advance", advance)
    page.goto(f"http://127.0.0.1:{port}/?tab=doctor")
    page.wait_for_selector(".svp-doctor[data-ready]")
    expect(page.locator(".svdr-form select").first).to_have_value("own:medusa")
    words = page.locator(".svdr-curve figcaption")
    expect(words).to_contain_text(".25 after 200,000 tokens. A doubling brought .05 (.04 to .06)")
    measured, guess = page.locator(".svdr-curve polyline:not([class])"), page.locator(".svdr-curve .svdr-guess")
    expect(measured).to_be_visible()
    expect(page.locator(".svdr-curve circle")).to_have_count(2)
    (x, y), last = ends(measured)
    assert x < last[0] and y > last[1], "acceptance has grown: higher up, where y is smaller"
    assert ends(guess)[0] == last, "and goes on from there"
    page.select_option(".svdr-form select >> nth=1", "file")
    page.click("text=Examine")
    expect(page.locator(".svdr-setup [role=alert]")).to_have_text("Choose a prompt file first.")
    page.set_input_files(".svdr-form input[type=file] >> nth=0", prompts)
    page.click(".svdr-form summary")
    for name, value in (("New tokens", "16"), ("Places", "20")):
        page.locator(".svdr-form").get_by_label(name).fill(value)
    page.click("text=Examine")
    expect(page.locator(".svdr-progress [role=status]")).to_contain_text("1 of ")
    page.click(".svdr-progress button")
    gate.set()
    expect(page.locator(".svp-doctor > .svp-note")).to_contain_text("stopped before it was over")
    page.click("text=Examine")
    expect(page.locator(".svdr-state")).to_have_text("✗ 2 faults found")
    found = page.locator(".svdr-finding", has_text="draft vocabulary")
    expect(found.locator(".svdr-advice")).to_contain_text("Take a draft vocabulary that is larger")
    assert page.locator("[aria-label='Controls'] tbody tr").count() >= 3
    with page.expect_download() as saved:
        page.click("text=Report: HTML")
    assert "draft vocabulary" in Path(saved.value.path()).read_text("utf-8")
    expect(page.locator(".svdr-earlier button")).to_have_count(2)
    size = page.viewport_size
    page.set_viewport_size({"width": 320, "height": 800})
    right = "[...document.querySelectorAll('.svdr-earlier button')].map((one) => one.getBoundingClientRect().right)"
    becomes(page, lambda: max(page.evaluate(right)) <= 320, True)  # their words are whole in a narrow window
    page.set_viewport_size(size)
    page.locator(".svdr-earlier button", has_text="stopped").click()
    expect(page.locator(".svdr-report")).to_have_count(0)
    page.reload()
    expect(page.locator(".svdr-state")).to_be_visible()  # the newest is there again
    for width in (400, 1000):
        fits(page, width, 820)
    nothing_wrong(page, port)
