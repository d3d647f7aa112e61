"""Screen readers and legibility: axe-core on every page, light and dark.

The library comes from npm and is for developers only: the test is skipped where ``SPECVIZ_AXE`` does not name its file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from decoders.trace import files as tracefile
from specviz.places import GALLERY
from tests.browser.views import DRAWN, NO_APP, VIEWS, app_to_look_at
from tests.stubs import StubDesk
from tests.tiers import matrix

PAGES = {  # and what is there when one is drawn
    "inspect": "#sv-run:not([disabled])",
    "compare": ".svp-compare[data-ready] .sve-prompt:not(.sve-waits)",
    "attribution": ".svp-attribution[data-ready]",
    "lessons": ".svp-lessons[data-ready]",
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
def desk() -> StubDesk:
    runs = sorted(GALLERY.glob("*.spectrace"))[:4]
    return StubDesk(gallery=tuple(tracefile.load(run) for run in runs))


# of what rules may have loaded before, sound and video: all that is asked without axe's experimental rules
VIOLATIONS = """() => axe.run(document, {resultTypes: ["violations"], preload: {assets: ["media"]}})
  .then(({ violations }) => violations
    .map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html.slice(0, 200)).join(" and ")}`))"""
GRAVE = VIOLATIONS.replace(
    ".map((rule)", '.filter(({ impact }) => ["serious", "critical"].includes(impact)).map((rule)', 1
)


@pytest.fixture(scope="module", params=["light", pytest.param("dark", marks=pytest.mark.matrix("the other theme"))])
def app_in_theme(request: pytest.FixtureRequest, user: Any, port: int, axe: str) -> Iterator[Any]:
    """The app in a theme, opened once for all its tabs."""
    page = user.page()
    page.goto(f"http://127.0.0.1:{port}/?__theme={request.param}")
    page.wait_for_function("window.specviz && specviz.app && specviz.app.drawn")
    page.wait_for_selector("body.sv-mounted")  # tabs can be turned
    assert page.evaluate("document.body.classList.contains('dark')") == (request.param == "dark")
    page.evaluate(axe)
    yield page
    user.rest()


def turn_to(page: Any, tab: str) -> None:
    """The tab is shown, and drawn in its last colours."""
    if tab == "runs":  # the drawer, over whatever is open
        page.evaluate("specviz.openRuns()")
    else:
        page.evaluate("document.querySelector('.svr-drawer')?.close()")
        page.evaluate("tab => specviz.goTo(tab)", tab)
    page.locator(f"{PAGES[tab]} >> visible=true").first.wait_for()
    page.wait_for_function("document.getAnimations().every((one) => !(one instanceof CSSTransition))")


@pytest.mark.parametrize("tab", matrix(PAGES, ("compare", "runs"), "further pages"))
def test_every_page_can_be_read_by_all(app_in_theme: Any, tab: str) -> None:
    turn_to(app_in_theme, tab)
    assert app_in_theme.evaluate(VIOLATIONS) == []


def test_what_is_wrong_is_seen(app_in_theme: Any) -> None:
    turn_to(app_in_theme, "runs")
    app_in_theme.locator(".svp-grid >> visible=true").first.evaluate(
        "grid => grid.parentElement.append(document.createElement('button'))"
    )
    assert app_in_theme.evaluate(VIOLATIONS) == ["button-name: <button></button>"]


SIZES = {400: 820, 640: 410, 800: 820, 1440: 900, 1920: 1080}  # 640 × 410: a laptop's window at 200 %
# by axe, in both themes, every other view by the first two and the second two; SPECVIZ_ALL_SIZES=1: all ten
READ = [("dark", 400), ("light", 1440), ("light", 640), ("dark", 1920)]
# a theme has no part in what is too wide: every size once
LOOKS = [(scheme, width) for width in SIZES for scheme in ("light", "dark")]
SHOWN = LOOKS if "SPECVIZ_ALL_SIZES" in os.environ else sorted([*READ, ("light", 800)], key=lambda look: look[1])


@pytest.fixture(scope="module")
def looked_at() -> Iterator[int]:
    with app_to_look_at() as port:
        yield port


def faults_of(view: Callable[[Any], None], page: Any, port: int, axe: str, number: int = 0) -> list[str]:
    """The reason why a view cannot be read by all, in both themes and every size."""
    page.goto(f"http://127.0.0.1:{port}{NO_APP}")
    view(page)
    page.evaluate(axe)
    return faults_of_looks(page, number)


def faults_of_looks(page: Any, number: int = 0) -> list[str]:
    """Faults of a view in both themes and all sizes, two of them by axe, by the view's number."""
    wrong, read = [], READ[2:] if number % 2 else READ[:2]
    for scheme, width in SHOWN:
        page.set_viewport_size({"width": width, "height": SIZES[width]})
        page.evaluate("scheme => document.body.classList.toggle('dark', scheme === 'dark')", scheme)
        page.wait_for_function(DRAWN)
        if (scheme, width) in read or "SPECVIZ_ALL_SIZES" in os.environ:
            wrong += [f"{scheme}, {width} px: {one}" for one in page.evaluate(VIOLATIONS)]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"{scheme}, {width} px: the page is wider")
    return wrong


@pytest.mark.matrix("every view in both themes and five sizes: ten seconds each, a minute on a busy machine")
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_can_be_read_by_all(page: Any, looked_at: int, axe: str, name: str) -> None:
    assert faults_of(VIEWS[name], page, looked_at, axe, [*VIEWS].index(name)) == []
