"""Every page of a site can be read by all (axe), in both themes, wide and narrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decoders.trace import files as tracefile
from specviz.extras.publish.site.build import write_site
from specviz.extras.publish.site.entries import SiteEntry
from specviz.places import GALLERY
from tests.browser.test_access import GRAVE, axe  # noqa: F401


def first(folder: Path) -> str:
    """The key of the largest file in a site's folder."""
    return max(folder.iterdir(), key=lambda path: path.stat().st_size).stem


SITE = {
    "index.html": ("", ".st-prompt"),
    "run.html": ("?run={players}", ".sv-row"),
    "player.html": ("?run={players}", ".svq-chip"),
    "compare.html": ("?prompt={prompts}", ".svp-chart[data-drawn]"),
    "attribution.html": ("?answer={answers}", ".sv-attr [data-run]"),
    "lessons.html": ("?lesson=3-ranking&at=2", ".sv-lesson .sv-row >> visible=true"),
}


# (a site's pages allow no eval, which wait_for_function is)
OVER = """() => Promise.all(document.getAnimations().filter((one) => one instanceof CSSTransition)
  .map((one) => one.finished.catch(() => {})))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "out"
    write_site(out, "Runs", [SiteEntry.of(tracefile.load(run)) for run in sorted(GALLERY.glob("*.spectrace"))])
    return out


@pytest.mark.matrix("six pages of the site each, of the parts that the app's pages show to the first tier")
@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 1280), ("light", 400), ("dark", 400)])
def test_pages_of_a_site_can_be_read_by_all(page: Any, site: Path, axe: str, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 820})
    wrong = []
    for name, (query, drawn) in SITE.items():
        keys = {folder: first(site / folder) for folder in ("players", "prompts", "answers")}
        page.goto((site / name).as_uri() + query.format(**keys))
        page.locator(drawn).first.wait_for()
        page.evaluate(OVER)
        page.evaluate(axe)
        wrong += [f"{name}: {one}" for one in page.evaluate(GRAVE)]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            wrong.append(f"{name} is wider than {width} px")
    assert wrong == []
