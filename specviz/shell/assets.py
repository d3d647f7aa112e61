"""Scripts and styles the page loads, named by their content, so that browsers may keep them for ever."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent.parent / "ui"
STYLES = ("page", "runs", "compare", "attribution", "lessons", "lab", "trees", "whatif")
SCRIPTS = (  # later ones use what earlier ones define
    "page", "runs",
    "compare_state", "compare_ask", "compare_race", "compare_results", "compare_charts",
    "compare_frame", "compare_live", "compare_recorded", "compare",
    "attribution", "lessons", "lab_batch", "lab", "trees", "whatif",
)  # fmt: skip
REMOTE_META = re.compile(r"<meta\s[^>]*(?:property|name)=\"(?:og|twitter):[^>]*>\s*", re.S)

# asks for the run before any script is there, so that it is drawn before Gradio's scripts begin their work
EARLY = """<script>window.specvizEarly = (() => {
  const id = new URLSearchParams(location.search).get("trace") || 
    document.querySelector("meta[name=specviz-first]").content;
  return id && { id, answer: fetch(new URL("api/traces/" + encodeURIComponent(id), location.href)) };
})();</script>"""


@dataclass(frozen=True, slots=True)
class Asset:
    data: bytes
    media: str


@cache
def assets() -> dict[str, Asset]:
    """File name → content: the renderer's script and style, the page's own, and as one those of the single pages."""
    from specviz.views import web

    def joined(names: Sequence[str], kind: str) -> str:
        return "\n".join((HERE / f"{name}.{kind}").read_text(encoding="utf-8") for name in names)

    files = {
        "specviz.css": web.styles(),
        "page.css": joined(STYLES, "css"),
        "specviz.js": web.script(),
        "page.js": joined(SCRIPTS[:1], "js"),
        "pages.js": joined(SCRIPTS[1:], "js"),
    }
    return dict(_named(name, text.encode()) for name, text in files.items())


@cache
def _late() -> dict[str, Asset]:
    """What the page asks for when it is needed: the plotly.js that the package plotly ships."""
    from plotly.offline import get_plotlyjs

    return dict([_named("plotly.js", get_plotlyjs().encode())])


def plotly() -> str:
    """Where the page finds plotly.js."""
    return f"web/{next(iter(_late()))}"


def asset(name: str) -> Asset | None:
    """A file of the page by its name; None if there is none."""
    return assets().get(name) or (_late().get(name) if name.startswith("plotly.") else None)


def _named(name: str, data: bytes) -> tuple[str, Asset]:
    stem, _, kind = name.partition(".")
    media = "text/css; charset=utf-8" if kind == "css" else "text/javascript; charset=utf-8"
    return f"{stem}.{hashlib.sha256(data).hexdigest()[:12]}.{kind}", Asset(data, media)


@cache
def _head() -> str:
    tags = []
    for name in assets():
        if name.endswith(".css"):
            tags.append(f'<link rel="stylesheet" href="web/{name}">')
        else:
            tags.append(f'<script defer src="web/{name}"></script>')
    return "\n".join(tags)


def with_head(page: str, first: str) -> str:
    """Gradio's page with ours in its head: the run to open on, the renderer, and no mention of other sites."""
    page = REMOTE_META.sub("", page)
    meta = (
        f'<meta name="specviz-first" content="{html.escape(first)}">\n<meta name="color-scheme" content="light dark">'
    )
    return page.replace('<meta charset="utf-8" />', f'<meta charset="utf-8" />\n{meta}\n{EARLY}\n{_head()}', 1)
