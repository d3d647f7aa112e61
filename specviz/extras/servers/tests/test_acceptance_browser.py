"""A server's file on the page Acceptance, in real Chromium."""

from __future__ import annotations

from pathlib import Path

from tests.browser.test_acceptance import Visit, desk, target, visit  # noqa: F401
from tests.waiting import becomes, expect


def test_a_servers_file_stands_beside_the_runs_and_sets_are_split(visit: Visit) -> None:
    page = visit("&runs=gallery-0")
    sets = "specviz.app.pages.acceptance.sets.map((one) => one.title)"
    before = page.evaluate(sets)
    files = page.get_by_label("Servers' files")
    files.set_input_files(str(Path(__file__).parent / "samples" / "vllm_metrics.prom"))
    becomes(page, lambda: len(page.evaluate(sets)), len(before) + 1)
    expect(page.locator(".svd-defined")).to_contain_text(page.evaluate(sets)[-1])
    page.get_by_label("split by the server's cached tokens").check()
    becomes(page, lambda: "cached tokens not told" in " ".join(page.evaluate(sets)), True)
