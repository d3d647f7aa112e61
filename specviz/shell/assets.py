"""The head of the app's page, and the files it names by their content, so that browsers may keep them for ever.

The import map must be there before any module is loaded, and the first view is drawn before Gradio's scripts run. The
``head`` of ``gr.Blocks`` and ``mount_gradio_app`` comes too late for both: Gradio does not put it into the HTML it
sends (``templates/frontend/index.html`` has no place for it) but hands it to its own scripts, which add it when they
have started. So ``with_head`` has the standard library's parser find two kinds of tags in that HTML: our head
goes in behind ``<base>``, and Gradio's cards for social networks, which name other sites, are left out.
"""

from __future__ import annotations

import json
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from specviz.views import web
from specviz.views.web import Asset

FOLDER = Path(__file__).parent
BASE = "web"
FIRST, ENTRY = "specviz/shell/early.js", "specviz/app/main.js"


@cache
def assets() -> dict[str, Asset]:
    """File name → content: the script that brings every module, and the style sheet."""
    contents = {"specviz.js": web.bundle(ENTRY), "specviz.css": web.styles()}
    return dict(web.name_by_content(name, text.encode()) for name, text in contents.items())


@cache
def _late() -> dict[str, Asset]:
    """A file that the page asks for when it is needed: the plotly.js that the package plotly ships."""
    from plotly.offline import get_plotlyjs

    return dict([web.name_by_content("plotly.js", get_plotlyjs().encode())])


def plotly() -> str:
    """The address of plotly.js for the page."""
    return f"{BASE}/{next(iter(_late()))}"


def asset(name: str) -> Asset | None:
    """A file of the page by its name; None if there is none."""
    return assets().get(name) or (_late().get(name) if name.startswith("plotly.") else None)


@cache
def head() -> str:
    """The modules and the styles, a file each. The first module asks for the run while others begin."""
    script, style = assets()
    old_addresses = [name for name in web.modules() if name.endswith("/moved.js")]  # an annex's before the core's
    names = [FIRST, *reversed(old_addresses), ENTRY]
    return "\n".join(
        [
            "<title>specviz</title>",
            '<meta name="color-scheme" content="light dark">',
            f'<link rel="stylesheet" href="{BASE}/{style}">',
            f'<script src="{BASE}/{script}"></script>',
            f'<script type="module">{" ".join(f"import {json.dumps(name)};" for name in names)}</script>',
        ]
    )


class _Tags(HTMLParser):
    """The tags of a page that matter here: ``<base>``, and cards for other sites."""

    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.cards: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        name = about.get("property") or about.get("name") or ""
        if tag == "meta" and name.startswith(("og:", "twitter:")):
            self.cards.append(self.get_starttag_text() or "")
        elif tag == "base":
            self.base = self.get_starttag_text() or ""


def with_head(page: str, root: str = "") -> str:
    """Gradio's page with ours in its head, and no mention of other sites; ``root`` is the path where a proxy shows
    it.
    """
    tags = _Tags()
    tags.feed(page)
    for card in tags.cards:
        page = page.replace(card, "")
    # the addresses in our head are relative to the base
    base = f'<base href="{root}/">' if root else tags.base
    return page.replace(tags.base, f"{base}\n{head()}", 1) if tags.base else page
