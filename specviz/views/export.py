"""A trace as one interactive HTML file that opens from disk, without a server and without a single request."""

from __future__ import annotations

from html import escape
from typing import Any

from decoders.trace.report import payload
from decoders.trace.trace import Trace

from . import web

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'"
)

PAGE_STYLE = """
html { background: #f6f7f9; color-scheme: light; }
html.dark { background: #0f1318; color-scheme: dark; }
body { margin: 0; padding: 14px 16px 20px; }
@media (max-width: 600px) { body { padding: 8px; } }
"""


def standalone_page(title: str, main: str, data: tuple[str, Any], entry: str) -> str:
    """One HTML page that works from disk and follows the system's theme. ``main`` is its element, as markup; ``data``
    the id of a script element and what it holds as JSON; ``entry`` the module that draws it, ``specviz/…``.
    """
    style = f"<style>{PAGE_STYLE}{web.styles(web.reachable(entry))}</style>"
    return page(title, f"{style}\n{web.map_tag(web.inline_map(entry))}", main, data, entry, POLICY)


def page(title: str, head: str, main: str, data: tuple[str, Any], entry: str, policy: str) -> str:
    """A page that works from disk: ``head`` brings style and modules, as markup; the others as ``standalone_page`` has
    them; ``policy`` is what it may load.
    """
    name, value = data
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · specviz</title>
{head}
</head>
<body>
{main}
<script type="application/json" id="{name}">{web.embed_json(value)}</script>
<script type="module">import "{entry}";</script>
</body>
</html>
"""


def standalone_html(trace: Trace, step: int = 0) -> str:
    """The whole page: modules, style and trace in one; opens at ``step`` (from 0), or at ``#step=`` of its address."""
    words = "<noscript>This page draws the trace with JavaScript.</noscript>"
    return standalone_page(
        str(trace.run.get("title") or trace.run.get("id") or "run"),
        f'<main id="inspector" data-step="{int(step)}">{words}</main>',
        ("trace", payload(trace)),
        entry="specviz/inspect/standalone.js",
    )
