"""The head of the app's page, and the files it names by their content, so that browsers may keep them for ever.

An import map must stand before any module is loaded, and the first view is drawn before Gradio's scripts run. The
``head`` of ``gr.Blocks`` and ``mount_gradio_app`` comes too late for both: Gradio does not put it into the HTML it
sends (``templates/frontend/index.html`` has no place for it) but hands it to its own scripts, which add it when they
have started. So ``with_head`` has the standard library's parser find two kinds of tags in that HTML: our head
goes in behind ``<base>``, and Gradio's cards for social networks, which name other sites, are left out.
"""

from __future__ import annotations

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
    """File name → content: every module and the style sheet."""
    return dict([*web.modules_by_name().values(), _style()])


@cache
def _style() -> tuple[str, Asset]:
    return web.name_by_content("specviz.css", web.styles().encode())


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
    """The import map, the first view's modules, the styles. The first module asks for the run while others load."""
    # "./": an address in an import map begins with a dot or a slash
    addresses = web.import_map(f"./{BASE}")
    old_addresses = [name for name in addresses if name.endswith("/moved.js")]  # an annex's before the core's
    preloads = [f'<link rel="modulepreload" href="{addresses[name]}">' for name in web.reachable(ENTRY)]
    return "\n".join(
        [
            "<title>specviz</title>",
            '<meta name="color-scheme" content="light dark">',
            f'<script type="importmap">{web.embed_json({"imports": addresses})}</script>',
            f'<script type="module" async src="{addresses[FIRST]}"></script>',
            *preloads,
            f'<link rel="stylesheet" href="{BASE}/{_style()[0]}">',
            *(f'<script type="module" src="{addresses[name]}"></script>' for name in [*reversed(old_addresses), ENTRY]),
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
