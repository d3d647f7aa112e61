"""A trace as one interactive HTML file that opens from disk, without a server and without a single request."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

from decoders.trace.report import payload
from decoders.trace.trace import Trace
from specviz.words import mark_unseen

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


# unpacks modules, which are data: URLs in an import map, as a classic script can set one before the first import; and
# what comes with them, which it takes
BEGIN = """(async () => {{
  const bytes = Uint8Array.from(atob({packed}), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const {{ imports, {name} }} = await new Response(stream).json();
  {take};
  {add}
  await import("{entry}");
}})().catch((problem) => {{
  document.querySelector("main").textContent = "This page needs a browser of 2023 or later: " + problem.message;
}});"""


def begin_script(packed: str, name: str, take: str, entry: str) -> str:
    """The script that unpacks modules and begins with ``entry``; ``take`` uses what is packed with them as ``name``."""
    return BEGIN.format(packed=packed, name=name, take=take, entry=entry, add=web.ADD_MAP)


def standalone_page(title: str, main: str, data: tuple[str, Any], entry: str) -> str:
    """One HTML page that works from disk and follows the system's theme. ``main`` is its element, as markup; ``data``
    the id of a script element and what it holds as JSON; ``entry`` the module that draws it, ``specviz/…``. Data and
    modules are compressed (``read_page`` reads them).
    """
    name, value = data
    document = {"imports": web.inline_map(entry), "data": json.dumps(value, separators=(",", ":"), ensure_ascii=False)}
    style = f"<style>{PAGE_STYLE}{web.styles(web.reachable(entry))}</style>"
    packed = f'<script type="application/json" id="{name}">{web.gzip_json(document)}</script>'
    text = f'document.getElementById("{name}").textContent'
    begin = f"<script>{begin_script(text, 'data', f'{text} = data', entry)}</script>"
    return page(f"{title} · specviz", style, f"{main}\n{packed}\n{begin}", POLICY)


def read_page(html: str) -> dict[str, Any]:
    """The contents of a page of ``standalone_page``: {"imports": its modules, "data": its data as JSON}."""
    packed = re.findall(r'<script type="application/json" id="[^"]+">([^<]*)</script>', html)[0]
    return web.unzip_json(packed)


def page(title: str, head: str, body: str, policy: str) -> str:
    """A page that works from disk: style in ``head``, elements and scripts in ``body``; ``policy``: what may load."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(mark_unseen(title))}</title>
{head}
</head>
<body>
{body}
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
        entry="specviz/opening/standalone.js",
    )
