"""The browser's part: which files it is made of, in which order, and the tags that load them."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from html import escape

from decoders.folders import ASSETS

from .terms import table

FOLDER = ASSETS / "web"

# later scripts use what earlier ones define
SCRIPTS = (
    "dom.js",
    "terms.js",
    "text.js",
    "model.js",
    "pane.js",
    "links.js",
    "timeline.js",
    "tree_layout.js",
    "tree_boxes.js",
    "tree_words.js",
    "tree.js",
    "candidates.js",
    "regret.js",
    "drafting.js",
    "looks.js",
    "drafter_pairs.js",
    "drafter.js",
    "prompts.js",
    "diff.js",
    "lanes.js",
    "shares.js",
    "summary.js",
    "keys.js",
    "downloads.js",
    "controls.js",
    "marks.js",
    "present.js",
    "asked.js",
    "inspector.js",
    "lesson.js",
    "attributing.js",
    "attribution_board.js",
    "attribution_sides.js",
    "attribution.js",
)
STYLES = (
    "theme.css", "parts.css", "page.css", "tokens.css", "tree.css", "table.css",
    "panels.css", "drafter.css", "prompts.css", "regret.css", "lanes.css", "attribution.css",
    "present.css", "lesson.css",
)  # fmt: skip


@cache
def read(name: str) -> str:
    """The text of one web file. Raises FileNotFoundError where the name is not one of them."""
    if name not in SCRIPTS + STYLES:
        raise FileNotFoundError(f"{name} is not a web file; there are {', '.join(SCRIPTS + STYLES)}")
    text = (FOLDER / name).read_text(encoding="utf-8")
    if name == "terms.js":  # what it explains is defined in Python
        known = json.dumps(table(), ensure_ascii=False).replace("<", "\\u003c")
        text = f"(window.SpecViz = window.SpecViz || {{}}).TERMS = {known};\n{text}"
    return text


def script() -> str:
    """All scripts, in order, as one."""
    return "\n".join(read(name) for name in SCRIPTS)


def styles() -> str:
    """All style sheets, in order, as one."""
    return "\n".join(read(name) for name in STYLES)


@cache
def content_hash() -> str:
    """Twelve hexadecimal digits that change when any web file changes: a cache key for their addresses."""
    return hashlib.sha256((script() + styles()).encode()).hexdigest()[:12]


def head_tags(base: str) -> str:
    """``<link>`` and ``<script>`` tags for the files served under the address ``base`` (relative or absolute).

    >>> head_tags("static/web").splitlines()[0].startswith('<link rel="stylesheet" href="static/web/theme.css?v=')
    True
    """
    root, version = escape(base.rstrip("/"), quote=True), content_hash()
    styles = [f'<link rel="stylesheet" href="{root}/{name}?v={version}">' for name in STYLES]
    scripts = [f'<script defer src="{root}/{name}?v={version}"></script>' for name in SCRIPTS]
    return "\n".join(styles + scripts)
