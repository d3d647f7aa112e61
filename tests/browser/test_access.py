"""What a screen reader is told, and whether what is drawn can be read: axe-core on every page, light and dark.

The library comes from npm and is for developers only: the test is skipped where ``SPECVIZ_AXE`` does not name its file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decoders.trace import files as tracefile
from specviz.places import GALLERY
from tests.stubs import StubDesk, serving

PAGES = {  # and what is there when one is drawn
    "inspect": "#sv-run:not([disabled])",
    "compare": ".svp-compare[data-ready]",
    "attribution": ".svp-attribution[data-ready]",
    "lessons": ".svp-lessons[data-ready]",
    "lab": ".svp-lab > *",
    "trees": ".svp-trees[data-ready]",
    "runs": ".svp-grid",
}


@pytest.fixture(scope="module")
def axe() -> str:
    place = os.environ.get("SPECVIZ_AXE", "")
    if not Path(place).is_file():
        if os.environ.get("SPECVIZ_REQUIRE_NODE") == "1":
            pytest.fail(f"SPECVIZ_AXE names no file ({place!r}), and SPECVIZ_REQUIRE_NODE is set")
        pytest.skip("SPECVIZ_AXE does not name axe-core's axe.min.js: users need none")
    return Path(place).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    runs = sorted(GALLERY.glob("*.spectrace"))[:4]
    with serving(StubDesk(gallery=tuple(tracefile.load(run) for run in runs))) as number:
        yield number


SERIOUS = """() => axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .filter((rule) => ["serious", "critical"].includes(rule.impact))
  .map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html.slice(0, 200)).join(" and ")}`))"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("tab", PAGES)
def test_every_page_can_be_read_by_all(page: Any, port: int, axe: str, tab: str, theme: str) -> None:
    page.goto(f"http://127.0.0.1:{port}/?tab={tab}&__theme={theme}")
    page.wait_for_selector(PAGES[tab])
    page.wait_for_function("window.specviz && specviz.app && specviz.app.drawn")
    page.evaluate(axe)
    assert page.evaluate(SERIOUS) == []


def test_what_is_wrong_is_seen(page: Any, port: int, axe: str) -> None:
    page.goto(f"http://127.0.0.1:{port}/?tab=runs")
    page.wait_for_selector(PAGES["runs"])
    page.evaluate(axe)
    page.evaluate("document.querySelector('.svp-grid').parentElement.append(document.createElement('button'))")
    assert page.evaluate(SERIOUS) == ["button-name: <button></button>"]
