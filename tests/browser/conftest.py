"""Real Chromium for the browser tests: one browser for this folder, one tab that is as new for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
    "--host-resolver-rules=MAP *.test 127.0.0.1",  # names that lead to our servers
    # the last list counts: Playwright's own, and the address bar's two pop-ups, which are pages of their own in every
    # new window of the new headless mode (a third of what opening our page costs)
    "--disable-features=" + ",".join((
        "AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync",
        "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "LensOverlay",
        "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch",
        "ThirdPartyStoragePartitioning", "WebUIOmniboxAimPopup", "WebUIOmniboxPopup",
    )),
]  # fmt: skip

SIZE = {"width": 1280, "height": 820}

# the shell first: the same engine without a browser's window around it, which is less work a page
PLACES = ("/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser")


def found_chromium() -> str | None:
    """The Chromium to test with: ``CHROMIUM`` where that is set, else the first that is installed."""
    return next((place for place in (os.environ.get("CHROMIUM", ""), *PLACES) if place and Path(place).exists()), None)


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
    path = found_chromium()
    if path is None:
        _missing(f"no Chromium at $CHROMIUM, {', '.join(PLACES[:-1])} or {PLACES[-1]}")
    expect.set_options(timeout=1000 * WAIT_S)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


# what an earlier test stored is forgotten when a page of a test opens a site for the first time
FORGET = """try {
  if (sessionStorage.getItem("test") !== "TEST") {
    localStorage.clear(); sessionStorage.clear(); sessionStorage.setItem("test", "TEST");
    localStorage.setItem("specviz-opening", "1"); // nobody is here for the first time, but in test_opening.py
  }
} catch { /* no site yet */ }"""


def _line(said: Any) -> str:
    """The console's line; of a request that failed, with what was asked for."""
    return f"{said.text}: {urlsplit(said.location['url']).path}" if "Failed to load" in said.text else said.text


class User:
    """Somebody with a browser: one context, and one tab in which each test's page is opened.

    The tab stays, so Gradio's scripts are fetched and compiled once per site: a page costs half of one in a new tab.
    For a test it is as new: nothing stored, no cookies, no permissions, the same size, the mouse outside.
    """

    def __init__(self, browser: Any) -> None:
        self.context = browser.new_context(viewport=dict(SIZE), accept_downloads=True)
        self.context.set_default_timeout(1000 * WAIT_S)
        self.context.on("page", throttle)
        self.tab: Any = None
        self.tests = 0

    def page(self) -> Any:
        """The tab as a test's page: it remembers what went wrong (``problems``) and what it asked for (``requests``).
        """
        if self.tab is None or self.tab.is_closed() or not self._without_script():
            self.tab = self._new_tab()
        # a module's page lasts beside those of its tests: with both scripts each would forget what the other knows
        self.tests += 1
        script = {"source": FORGET.replace("TEST", str(self.tests))}
        self.tab.script = self.tab.session.send("Page.addScriptToEvaluateOnNewDocument", script)["identifier"]
        self.tab.problems, self.tab.requests = [], []
        return self.tab

    def _new_tab(self) -> Any:
        tab = self.context.new_page()
        tab.script = None
        tab.session = self.context.new_cdp_session(tab)
        tab.session.send("Page.enable")
        tab.on("console", lambda said: tab.problems.append(_line(said)) if said.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: tab.problems.append(error.stack or str(error)))
        tab.on("request", lambda request: tab.requests.append(request.url))
        return tab

    def rest(self) -> None:
        """After a test: its pages are closed, the tab is empty. Where that fails, the next test has another tab."""
        try:
            self._clear()
        except BaseException:
            tab, self.tab = self.tab, None
            if tab is not None:
                tab.close()
            raise

    def _clear(self) -> None:
        for page in self.context.pages:
            if page is not self.tab:
                page.close()
        self.context.clear_cookies()
        self.context.clear_permissions()
        if self.tab is None or self.tab.is_closed():
            return
        self.tab.unroute_all(behavior="ignoreErrors")
        self.tab.goto("about:blank")
        if not self._without_script():
            return
        self.tab.set_viewport_size(dict(SIZE))
        self.tab.emulate_media(color_scheme="light", reduced_motion="no-preference")
        self.tab.mouse.move(-1, -1)

    def _without_script(self) -> bool:
        """The tab runs nothing of a test any more; false where it had to be closed for that."""
        tab, script = self.tab, self.tab.script
        tab.script = None
        try:
            if script is not None:
                tab.session.send("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})
        except Exception as problem:  # pages from disk have a process of their own, which knows no script by this name
            if "Script not found" not in str(problem):
                raise
            tab.close()
            return False
        return True


@pytest.fixture(scope="module")
def port(desk: Any) -> Iterator[int]:
    """The port at which a module's ``desk`` (a fixture of its own) is served."""
    from tests.stubs import serving

    with serving(desk) as number:
        yield number


def _user(browser: Any) -> Iterator[User]:
    user = User(browser)
    yield user
    user.context.close()


@pytest.fixture(scope="package")
def user(chromium: Any) -> Iterator[User]:
    yield from _user(chromium)


@pytest.fixture(scope="package")
def stranger(chromium: Any) -> Iterator[User]:
    yield from _user(chromium)


@pytest.fixture
def page(user: User) -> Iterator[Any]:
    """A 1280 × 820 page that remembers what went wrong (``problems``) and what it asked for (``requests``)."""
    yield user.page()
    user.rest()


@pytest.fixture
def context(page: Any) -> Any:
    """The page's browser context."""
    return page.context


@pytest.fixture
def another(stranger: User) -> Iterator[Any]:
    """A second user's page: nothing is shared with ``page``."""
    yield stranger.page()
    stranger.rest()
