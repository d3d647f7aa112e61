"""Real Chromium for the browser tests: one browser for this folder, one context (and console log) per test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.pace import throttle
from tests.waiting import WAIT_S

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # the last list counts: Playwright's own, and the address bar's two pop-ups, which are pages of their own in every
    # new window of the new headless mode (a third of what opening our page costs)
    "--disable-features=" + ",".join((
        "AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync",
        "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "LensOverlay",
        "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch",
        "ThirdPartyStoragePartitioning", "WebUIOmniboxAimPopup", "WebUIOmniboxPopup",
    )),
]  # fmt: skip


def _missing(why: str) -> Any:
    """Skips, or fails where a browser is required."""
    if os.environ.get("SPECVIZ_REQUIRE_BROWSER") == "1":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """A running Chromium (``playwright.sync_api.Browser``); it and its event loop end with this folder's tests."""
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        _missing("the package playwright is not installed")
    places = [os.environ.get("CHROMIUM", ""), "/usr/bin/chromium", "/usr/bin/chromium-browser"]
    path = next((place for place in places if place and Path(place).exists()), None)
    if path is None:
        _missing("no Chromium at $CHROMIUM, /usr/bin/chromium or /usr/bin/chromium-browser")
    expect.set_options(timeout=1000 * WAIT_S)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


# what an earlier test stored is forgotten when a page opens a site for the first time
FORGET = """try {
  if (!sessionStorage.getItem("known")) { localStorage.clear(); sessionStorage.setItem("known", "1"); }
} catch { /* no site yet */ }"""


@pytest.fixture(scope="package")
def shared(chromium: Any) -> Iterator[Any]:
    """One browser context for all tests: Gradio's scripts are fetched and compiled once per server, not per test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 820}, accept_downloads=True)
    context.set_default_timeout(1000 * WAIT_S)
    context.add_init_script(FORGET)
    context.on("page", throttle)
    yield context
    context.close()


@pytest.fixture
def context(shared: Any) -> Iterator[Any]:
    """A 1280 × 820 browser context without cookies, permissions or pages."""
    shared.clear_cookies()
    shared.clear_permissions()
    yield shared
    for page in shared.pages:
        page.close()


@pytest.fixture
def another(chromium: Any) -> Iterator[Any]:
    """A second user's browser context: nothing is shared with ``context``."""
    context = chromium.new_context(viewport={"width": 1280, "height": 820})
    context.set_default_timeout(1000 * WAIT_S)
    context.on("page", throttle)
    yield context
    context.close()


@pytest.fixture
def page(context: Any) -> Any:
    """A page that remembers what went wrong on it (``page.problems``) and what it asked for (``page.requests``)."""
    page = context.new_page()
    page.problems = []
    page.requests = []
    page.on("console", lambda said: page.problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    return page
