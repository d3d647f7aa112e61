"""A comparison as a figure, in real Chromium."""

from __future__ import annotations

import re
import zipfile

import pytest

from tests.browser.test_compare import Lanes, Visit, desk, visit  # noqa: F401


@pytest.mark.slow("a figure is made")
def test_a_comparison_is_a_figure_in_one_click(visit: Visit, desk: Lanes) -> None:
    page = visit()
    page.click(".svc-example")
    with page.expect_download() as kept:
        page.click(".svc-figure")
    assert re.fullmatch(r"comparison-.*\.zip", kept.value.suggested_filename)
    with zipfile.ZipFile(kept.value.path()) as archive:
        drawing = archive.read("figure.svg").decode()
        assert {"figure.pdf", "figure.tex", "references.bib", "README.txt"} <= set(archive.namelist())
    for lane in range(5):
        assert f"{desk.store.get(f'gallery-{lane}').run['metrics']['tokens_per_step']:.2f} tokens per step" in drawing
