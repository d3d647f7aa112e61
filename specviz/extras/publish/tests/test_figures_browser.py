"""Figures in real Chromium: of a step, their fonts, and a race that moves."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from specviz.extras.publish.figures.race import race_svg
from specviz.extras.publish.figures.step import step_figure
from specviz.extras.publish.figures.svg import svg
from tests import recordings
from tests.browser.test_app import Visit, desk, share, visit  # noqa: F401


@pytest.mark.slow("two figures are made")
def test_the_step_that_is_shown_is_a_figure_in_one_click(visit: Visit) -> None:
    page = visit("?trace=gallery-2&step=3")
    with page.expect_download() as caught:
        share(page, "Figure of this step For a paper")
    with zipfile.ZipFile(caught.value.path()) as archive:
        names = set(archive.namelist())
        assert "Step 3 of" in archive.read("README.txt").decode()
    assert {"figure.pdf", "figure.svg", "figure.tex", "references.bib", "page.html"} <= names
    with page.expect_download() as caught:
        share(page, "Figure of this step (PDF)", more=True)
    assert Path(caught.value.path()).read_bytes().startswith(b"%PDF")


def test_the_fonts_of_figures_open_and_a_race_runs(page: Any, tmp_path: Path) -> None:
    """Chromium refuses a font without names; groups of the race appear when their moment has come."""
    run = recordings.chain()
    (tmp_path / "step.svg").write_text(svg(step_figure(run, 0)), "utf-8")
    (tmp_path / "race.svg").write_text(race_svg([run, run]), "utf-8")
    for name in ("step", "race"):
        page.goto((tmp_path / f"{name}.svg").as_uri())
        loads = "async () => Promise.all([...document.fonts].map(async (font) => (await font.load()).status))"
        states = page.evaluate(loads)
        assert len(states) >= 2 and set(states) == {"loaded"}
    shown = """(ms) => {
        for (const one of document.getAnimations()) { one.pause(); one.currentTime = ms; }
        return [...document.querySelectorAll("g[class^=m]")].filter((g) => getComputedStyle(g).opacity === "1").length;
    }"""
    counts = [page.evaluate(shown, ms) for ms in (0, 2500, 5500)]
    assert 0 == counts[0] < counts[1] < counts[2] == page.locator("g[class^=m]").count()
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate("document.getAnimations().length") == 0
    assert page.problems == []
