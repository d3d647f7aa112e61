"""Marks of the token panes pixel by pixel, at one and at two device pixels: none touches a letter or an underscore."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from decoders.trace import files as tracefile
from specviz.places import GALLERY
from specviz.views import web
from specviz.views.export import standalone_html
from tests.tiers import matrix

RUN = "1-class-docstring-adapld"  # its identifiers have underscores and descenders
MARKS = (
    "", "sv-now", "sv-source", "sv-offered", "sv-ghost", "sv-root", "sv-anchor", "sv-pinned", "sv-light", "sv-picked",
    "sv-differs", "sv-unread",
)  # fmt: skip
INK, LINE = 90, 48  # of 255: from here on a pixel is part of a letter, or of a mark's line

# a mark on every token of the text; what stands on lines in sight, of the prompt or of the output
PAINT = """([mark, end]) => {
    const v = specviz.inspector;
    v.setStep(v.model.stepCount - 1);
    const pane = v.text;
    for (const layer of ["step", "heat", "ghost"]) pane.paint(layer, []);
    v.draft.clear();
    v.draft.view = undefined; // nothing is drawn anew where it is scrolled
    if (mark) pane.paint("step", pane.spans.map((_, k) => [pane.base + k, mark]));
    pane.body.scrollTop = end ? pane.body.scrollHeight : 0;
    const inside = pane.body.getBoundingClientRect();
    const high = parseFloat(getComputedStyle(pane.code).lineHeight);
    const boxes = [...pane.code.querySelectorAll(".sv-line")].map((line) => line.getBoundingClientRect());
    return boxes.flatMap(({ x, y, height }) =>
        Array.from({ length: Math.round(height / high) }, (_, k) => [x, y + k * high, inside.right - x - 4, high]),
    ).filter(([, y]) => y > inside.top + 12 && y + high < inside.bottom - 12);
}"""
LETTERS = (
    ".sv-t, .sv-t * { background: none !important; box-shadow: none !important; outline: 0 !important; "
    "text-decoration: none !important; color: #000 !important } "
    ".sv-t::before, .sv-t::after { display: none !important }"
)
MARKED = ".sv-t, .sv-t * { color: transparent !important }"


@pytest.fixture(params=matrix([1, 2], 1, "four times the pixels"), ids=["1x", "2x"])
def sharp(chromium: Any, tmp_path: Path, request: Any) -> Iterator[tuple[Any, int]]:
    """A run's own page, and how many device pixels make one of its own."""
    (tmp_path / "run.html").write_text(standalone_html(tracefile.load(GALLERY / f"{RUN}.spectrace")), encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1280, "height": 820}, device_scale_factor=request.param)
    page = context.new_page()
    page.goto((tmp_path / "run.html").as_uri())
    page.wait_for_selector(".sv-row")
    yield page, request.param
    context.close()


def picture(page: Any, style: str) -> np.ndarray:
    """The page's pixels with a style sheet more, [height, width, 3]."""
    code = """css => { const s = new CSSStyleSheet(); s.replaceSync(css); document.adoptedStyleSheets = [s]; }"""
    page.evaluate(code, style)
    return np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)


def touching_lines(page: Any, scale: int, mark: str, end: bool) -> list[str]:
    """Lines of text in which a mark covers a letter, or no clear pixel is between a letter and the line below it."""
    lines = page.evaluate(PAINT, [mark, end])
    assert len(lines) > 10
    letters, marks = picture(page, LETTERS), picture(page, MARKED)
    wrong = []
    for x, y, wide, high in lines:
        rows = slice(round(y * scale), round((y + high) * scale))
        columns = slice(round(x * scale), round((x + wide) * scale))
        text, drawn = letters[rows, columns], marks[rows, columns]
        ink = text.max(axis=2) < 255 - INK
        fill = drawn[len(drawn) // 2]  # what stands behind the letters of a column
        line = np.abs(drawn - fill).max(axis=2) > LINE
        sides = np.abs(np.diff(fill, axis=0)).max(axis=1) > 4  # of boxes: they stand between two letters
        line &= ~np.convolve(np.append(sides, False), np.ones(5 * scale), "same").astype(bool)
        line &= np.abs(drawn - drawn[:, :1]).max(axis=2) > LINE  # nor the card itself
        near = ink.copy()
        near[1:] |= ink[:-1]
        if count := int((near & line).sum()):
            wrong.append(f"y {y:.0f}: {count} pixels")
    return wrong


@pytest.mark.slow("pictures of every mark")
def test_a_mark_leaves_every_letter_whole(sharp: tuple[Any, int]) -> None:
    page, scale = sharp
    places = [(mark, end) for mark in MARKS for end in (False, True)]
    assert {place: wrong for place in places if (wrong := touching_lines(page, scale, *place))} == {}


# what a lane of Compare and a box of the tree write, with the lines that they draw below it
LANE = (
    '<div class="svp svp-compare"><div class="sv svc svc-moving"><li class="svc-lane"'
    ' style="--sv-lane: var(--svc-lane-1)"><code class="svc-text"><span><span class="svc-acc">mean_positive(gy)</span> '
    '<span class="svc-own">first_q</span></span></code></li></div></div>'
)
NODE = """<div class="sv"><svg width="200" height="44"><g class="sv-node sv-node-accepted" transform="translate(100)">
    <text class="sv-label" y="17">_positive_gy</text></g></svg>
    <code class="sv-state-accepted">_gy</code> <code class="sv-state-own">_q</code></div>"""
BARE = "code *, code, text { text-decoration-color: #0000 !important; fill: #000 !important; color: #000 !important }"
BLANKS = """() => {
    const walk = document.createTreeWalker(document.querySelector(".svp, .sv"), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replace(/\\S/g, "\u00a0");
}"""


@pytest.mark.parametrize("inside", [LANE, NODE], ids=["a lane of Compare", "a box of the tree"])
def test_lines_below_text_stay_clear_of_underscores(sharp: tuple[Any, int], inside: str) -> None:
    page, scale = sharp
    style = f"<style>{web.styles()}</style><style>.svc-text {{ background: #fff !important; border: 0 !important }}"
    page.set_content(f"<!doctype html><body style='background: #fff'>{style}</style>{inside}")
    text = picture(page, BARE)
    page.evaluate(BLANKS)  # the lines alone
    ink, line = text.max(axis=2) < 255 - INK, picture(page, "").min(axis=2) < 255 - LINE
    near = ink.copy()
    near[1:] |= ink[:-1]
    assert line.sum() > 20 * scale and int((near & line).sum()) == 0


# at every step: what is written below a line that stands on a token, or on something else below a line
CROSSED = """() => {
    const v = specviz.inspector;
    const wrong = [];
    const inner = ({ left, right, top, bottom }) =>
        ({ left: left + 2, right: right - 2, top: top + 3, bottom: bottom - 3 });
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    let below = 0;
    for (let step = 0; step < v.model.stepCount; step++) {
        v.setStep(step);
        const under = [...document.querySelectorAll(".sv-under span")]
            .map((cell) => inner(cell.getBoundingClientRect()));
        const tokens = [...document.querySelectorAll(".sv-text .sv-t, .sv-ghost-text")]
            .flatMap((token) => [...token.getClientRects()].map(inner));
        below += under.length;
        const crossed = (cell, k) =>
            tokens.some((box) => meet(cell, box)) || under.some((box, n) => n > k && meet(cell, box));
        if (under.some(crossed)) wrong.push(step + 1);
    }
    return [below, wrong];
}"""


@pytest.mark.parametrize("width", matrix([1280, 900, 640, 400], 1280, "where lines break"))
def test_branches_below_a_line_stand_on_no_token(chromium: Any, tmp_path: Path, width: int) -> None:
    """A tree of 59 tokens over prose: the refused token may be the first of a broken line."""
    run = tracefile.load(GALLERY / "17-lighthouse-story-eagle3.spectrace")
    (tmp_path / "run.html").write_text(standalone_html(run), encoding="utf-8")
    page = chromium.new_page(viewport={"width": width, "height": 820})
    page.goto((tmp_path / "run.html").as_uri())
    page.wait_for_selector(".sv-row")
    below, wrong = page.evaluate(CROSSED)
    page.close()
    assert below > 100 and wrong == []
