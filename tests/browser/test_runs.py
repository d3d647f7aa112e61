"""The library of runs and the page where one signs in, in real Chromium."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from specviz.server.forms import PromptForm
from specviz.server.library import Library
from specviz.server.limits import rules_for
from specviz.server.users import Users, hash_password, write_users
from tests import recordings
from tests.stubs import StubDesk, serving
from tests.waiting import WAIT_S, becomes, expect, fits, until

FORM = PromptForm(instruction="Do it.", context="abc")
# what was deleted can be taken back for as long as a test needs, not for ten seconds
NO_HURRY = """() => {
  const { setTimeout } = window;
  window.setTimeout = (act, ms, ...more) => setTimeout(act, ms === 10000 ? 1e9 : ms, ...more);
}"""
TITLES = ("Rename a variable", "Quote the passage", "Sum of two", "<b>bold</b> & brave")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def desk(folder: Path) -> StubDesk:
    chain, quote = recordings.chain(), recordings.quote()
    gallery = recordings.with_title(chain, "Refactor ratelimit.py"), recordings.with_title(quote, "Quoted answer")
    return StubDesk(gallery=gallery, library=Library(folder))


def titles(page: Any) -> list[str]:
    return page.locator(".svp-grid .svp-link").all_inner_texts()


def expect_list(page: Any, *expected: str) -> None:
    """These runs are shown, in any order."""
    becomes(page, lambda: sorted(titles(page)), sorted(expected))


def row(title: str) -> str:
    return f".svp-grid tr[data-id]:has(.svp-link:text-is('{title}'))"


def test_a_walk_through_the_library(page: Any, context: Any, port: int, desk: StubDesk, folder: Path) -> None:
    page.goto(f"http://127.0.0.1:{port}/?tab=runs")
    page.wait_for_selector(".svp-grid")
    heads = page.locator(".svp-grid thead th button").all_inner_texts()
    assert len(heads) == len(set(heads)) and heads.count("Model") == heads.count("Speedup") == 1
    mine = next(c["value"] for c in context.cookies() if c["name"] == "specviz_browser")
    jobs = [desk.submit(FORM, "pld", {}, {}, title=title, owner=mine) for title in TITLES]
    stranger = desk.submit(FORM, "pld", {}, {}, title="A stranger's", owner="somebody")
    assert all(job.finished.wait(WAIT_S) for job in (*jobs, stranger))
    page.evaluate("specviz.refreshRuns()")
    page.wait_for_selector(row("Sum of two"))
    expect_list(page, *TITLES, "Refactor ratelimit.py", "Quoted answer")  # text is data, and one's own
    taken = "^4 runs of yours · 1 not listed · room: 5 of 200 runs, 1 of 256 MiB"
    expect(page.locator(".svr-room")).to_have_text(re.compile(taken))

    lines = page.locator(".svp-grid tr[data-id]").evaluate_all("rows => rows.map((row) => row.offsetHeight)")
    assert set(lines) == {28}  # a line each, with the model's whole name in it
    name = page.locator("td.svr-model").first
    assert name.evaluate("cell => cell.scrollWidth <= cell.clientWidth")

    # tags: in the row, on disk, in the search
    for title, tags in (("Rename a variable", "Good class-4"), ("Sum of two", "good")):
        page.click(f"{row(title)} [aria-label^='Add a tag']")
        page.fill(".svr-newtag", tags)
        page.keyboard.press("Enter")
        page.wait_for_selector(f"{row(title)} .svr-tag:has-text('good')")
    becomes(page, lambda: Library(folder).about(jobs[0].id)["tags"], ["good", "class-4"])
    page.click(".svr-tags button:has-text('good')")
    expect(page.locator(".svp-search")).to_have_value("tag:good")
    expect_list(page, "Rename a variable", "Sum of two")
    page.click(f"{row('Rename a variable')} [aria-label='Remove the tag class-4']")
    page.wait_for_selector(".svr-tags:not(:has-text('class-4'))")
    page.click(f"{row('Sum of two')} [aria-label^='Add a tag']")
    page.fill(".svr-newtag", "no:colons")
    page.keyboard.press("Enter")
    page.wait_for_selector(".svr-problem:has-text('cannot be a tag')")

    # keep, rename, sort
    page.click(f"{row('Sum of two')} [aria-label^='Keep']")
    page.wait_for_selector(f"{row('Sum of two')} [aria-pressed=true]")
    page.fill(".svp-search", "kept lossless model:smol")
    expect_list(page, "Sum of two")
    page.click(f"{row('Sum of two')} [aria-label^='Rename']")
    page.fill(".svr-title input", "Another title")
    page.keyboard.press("Enter")
    page.wait_for_selector(row("Another title"))
    becomes(page, lambda: desk.store.get(jobs[2].id).run["title"], "Another title")
    page.fill(".svp-search", 'method:pld+h "quote the"')
    expect_list(page, "Quote the passage")
    page.fill(".svp-search", "lossy")
    expect_list(page)
    expect(page.locator(".svp-empty")).to_have_text("No run matches.")
    page.fill(".svp-search", "")
    page.click(".svr-sort:has-text('Run')")
    expect(page.locator("th.svr-title")).to_have_attribute("aria-sort", "ascending")
    rows = sorted(("Another title", *TITLES[:2], TITLES[3], "Refactor ratelimit.py", "Quoted answer"), key=str.lower)
    becomes(page, lambda: titles(page), rows)
    expect(page.locator(".svp-kind")).to_have_count(0)
    page.click(".svr-sort:has-text('Run')")
    becomes(page, lambda: titles(page), rows[::-1])

    # several at once; the gallery is looked at, and never changed
    page.evaluate(NO_HURRY)
    assert page.locator(f"{row('Quoted answer')} .svr-act").count() == 0
    page.check("[aria-label='Select all runs that are shown']")
    expect(page.locator(".svr-bar:not(.svr-gone) > span")).to_have_text("6 runs selected")
    expect(page.locator(".svr-bar .svr-danger")).to_have_text("Delete 4 of yours")
    page.uncheck(f"{row('Another title')} .svr-check input")
    page.click(".svr-bar:not(.svr-gone) button:has-text('Delete')")
    expect(page.locator(".svr-gone > span")).to_have_text("Deleted 3 runs.")
    becomes(page, lambda: len(titles(page)), 3)
    assert {path.stem for path in folder.glob("*.spectrace")} >= {job.id for job in jobs}  # until it cannot be undone
    assert page.evaluate("specviz.app.runs.length") == 3
    page.click(".svr-gone button:has-text('Undo')")
    becomes(page, lambda: len(titles(page)), 6)
    page.check("[aria-label='Select all runs that are shown']")
    page.uncheck(f"{row('Another title')} .svr-check input")
    page.click(".svr-bar:not(.svr-gone) button:has-text('Delete')")
    expect_list(page, "Another title", "Refactor ratelimit.py", "Quoted answer")
    page.reload()  # the page goes: what was deleted goes with it
    expect_list(page, "Another title", "Refactor ratelimit.py", "Quoted answer")
    becomes(page, lambda: {path.stem for path in folder.glob("*.spectrace")}, {jobs[2].id, stranger.id})

    # more rows than fit: page by page; a disk that refuses is told once
    def many(route: Any) -> None:
        there = route.fetch()
        answer = there.json()
        runs = [{**answer["runs"][0], "id": f"x{number}"} for number in range(450)]
        room = {**answer["room"], "problem": "Runs are not saved on disk."}
        route.fulfill(response=there, json={**answer, "runs": runs, "room": room})

    page.route("**/api/runs", many)
    page.evaluate("document.dispatchEvent(new CustomEvent('specviz:tab'))")
    expect(page.locator(".svp-grid tr[data-id]")).to_have_count(200)
    page.click("button:has-text('Show 200 more of 450')")
    expect(page.locator(".svp-grid tr[data-id]")).to_have_count(400)
    expect(page.locator(".svr-problem")).to_have_text("Runs are not saved on disk.")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        fits(page, 420)
    expect(page.locator("td.svr-per").first).to_be_visible()  # the number that one looks for stays
    page.unroute_all(behavior="wait")
    assert [p for p in page.problems if "status of 422" not in p] == []


# while one list is on its way another one is asked for, as when a run ends: the first is dropped
LISTED_TWICE = """() => {
  const { fetch } = window;
  window.fetch = (url, ...more) => {
    const answer = fetch(url, ...more);
    if (url === "api/runs") (window.fetch = fetch), specviz.refreshRuns();
    return answer;
  };
}"""


@pytest.mark.slow("Attribution opened beside the library")
def test_what_was_deleted_is_in_no_list_any_more(
    page: Any, context: Any, port: int, desk: StubDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = recordings.chain()
    other.run["method"] = {**other.run["method"], "name": "pld"}  # another signal on the same answer
    wholes = iter((recordings.chain(), other))
    monkeypatch.setattr(desk, "whole", lambda: next(wholes))
    page.goto(f"http://127.0.0.1:{port}/?tab=attribution")
    page.wait_for_selector(".svp-attribution[data-ready]")
    mine = next(c["value"] for c in context.cookies() if c["name"] == "specviz_browser")
    ids = [desk.submit(FORM, "pld", {}, {}, title=title, owner=mine).id for title in ("Gone at once", "Gone later")]
    until(lambda: all(key in desk.store for key in ids), "both runs are over")
    page.evaluate("id => specviz.open(id)", ids[0])
    chooser = page.locator(".sva-runs")
    expect(chooser).to_have_value(ids[0])
    page.evaluate("specviz.openRuns()")
    page.evaluate(NO_HURRY)
    page.click(f"{row('Gone at once')} [aria-label^='Delete']")
    page.wait_for_selector(".svr-gone button")
    expect(chooser.locator(f"option[value='{ids[0]}']")).to_have_text("A run that was deleted")
    becomes(page, lambda: "trace" in page.url, False)  # who loads the page again asks for no run that is gone
    page.click(".svr-gone button:has-text('Undo')")
    expect(chooser.locator(f"option[value='{ids[0]}']")).to_contain_text("Gone at once")
    becomes(page, lambda: f"trace={ids[0]}" in page.url, True)
    page.click(f"{row('Gone at once')} [aria-label^='Delete']")
    page.evaluate(LISTED_TWICE)
    page.click(f"{row('Gone later')} [aria-label^='Delete']")  # the first one is deleted now
    until(lambda: ids[0] not in desk.store, "the run is deleted", rest=lambda s: page.wait_for_timeout(1000 * s))
    page.wait_for_function("specviz.app.shown === 'gallery-0'")  # the run that was open is gone
    assert ids[1] in desk.store
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Attribution").click()
    expect(chooser).to_have_value("gallery-0")
    expect(chooser.locator("option")).to_have_count(len(page.evaluate("specviz.app.runs")))
    assert not {"Gone at once", "Gone later"} & set(" ".join(chooser.locator("option").all_inner_texts()).split(" · "))
    page.wait_for_selector(".svp-attribution[data-ready='gallery-0']")
    assert page.evaluate("[...specviz.app.pages.attribution.docs.keys()]") == ["gallery-0"]
    becomes(page, lambda: "tab=attribution" in page.url and "trace=gallery-0" in page.url, True)
    page.reload()
    page.wait_for_selector(".svp-attribution[data-ready='gallery-0']")
    until(lambda: ids[1] not in desk.store, "the other run is deleted", rest=lambda s: page.wait_for_timeout(1000 * s))
    assert page.problems == []



def test_signing_in_and_out(page: Any, context: Any, tmp_path: Path) -> None:
    words = {"ann": "open sesame", "bob": "bob's own word"}
    write_users(tmp_path / "users", {name: hash_password(word, cost=(2, 1, 1)) for name, word in words.items()})
    desk = StubDesk(gallery=(recordings.quote(),))
    desk.keep_to(rules_for(public=False, accounts=True))
    with serving(desk, Users(tmp_path / "users")) as port:
        page.goto(f"http://127.0.0.1:{port}/?tab=runs&trace=gallery-0")
        assert page.url.endswith("/login?next=%3Ftab%3Druns%26trace%3Dgallery-0")
        page.fill("[name=name]", "ann")
        page.fill("[name=password]", "open says me")
        page.click("button")
        page.wait_for_selector("[role=alert]:has-text('do not belong together')")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            fits(page, 320, 700)
        page.set_viewport_size({"width": 1280, "height": 820})
        expect(page.locator("[name=name]")).to_have_value("ann")
        page.fill("[name=password]", "open sesame")
        page.keyboard.press("Enter")
        page.wait_for_selector(".svp-grid")
        assert "library=1" in page.url and "trace=gallery-0" in page.url
        page.wait_for_selector(".svp-user:has-text('ann')")
        page.keyboard.press("Escape")
        page.click(".svp-go:visible")
        page.wait_for_function("() => specviz.app.runs.some(run => run.kind === 'run')")  # Gradio knows her too
        kinds = lambda: [run["kind"] for run in desk.services["runs"].listing("user:ann")]  # noqa: E731
        becomes(page, kinds, ["run", "gallery"])
        kept = "JSON.stringify(Object.entries(localStorage))"
        secret = "a text that is ann's alone"

        def sign_in(name: str, password: str) -> None:
            page.fill("[name=name]", name)
            page.fill("[name=password]", password)
            page.keyboard.press("Enter")
            page.wait_for_selector(f".svp-user:has-text('{name}')")

        type_secret = f"localStorage.setItem('specviz-typed', {json.dumps(secret)})"  # as the form does
        page.evaluate(type_secret)
        page.click("button:has-text('Log out')")
        page.wait_for_selector("form[action=login]")
        assert secret not in page.evaluate(kept)
        assert not [c for c in context.cookies() if c["name"] in ("specviz_session", "specviz_browser")]
        sign_in("ann", "open sesame")
        page.evaluate(type_secret)
        context.clear_cookies()  # her session ends by itself
        page.reload()
        sign_in("bob", "bob's own word")
        becomes(page, lambda: secret in page.evaluate(kept), False)
    told = ("status of 401", "Response")  # what Gradio's own stream throws when the session is over
    assert [p for p in page.problems if not any(words in p for words in told)] == []
