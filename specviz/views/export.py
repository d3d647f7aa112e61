"""A trace as one interactive HTML file that opens from disk, without a server and without a single request."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from decoders.trace.report import payload
from decoders.trace.trace import Trace

from . import web

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
)

PAGE_STYLE = """
html { background: #f6f7f9; color-scheme: light; }
html.dark { background: #0f1318; color-scheme: dark; }
body { margin: 0; padding: 14px 16px 20px; }
@media (max-width: 600px) { body { padding: 8px; } }
"""

FOLLOW_THEME = """
(function () {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => document.documentElement.classList.toggle("dark", dark.matches);
  theme();
  dark.addEventListener("change", theme);
})();
"""

# restores #step=12&pins=40,41 and keeps the address up to date
PAGE_SCRIPT = """
(function () {
  const host = document.getElementById("inspector");
  const trace = JSON.parse(document.getElementById("trace").textContent);
  const start = Number(host.dataset.step);
  const view = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    const pins = (asked.get("pins") || "").split(",").filter(Boolean).map(Number);
    return { step: asked.has("step") ? Number(asked.get("step")) : start, pins };
  };
  const inspector = new SpecViz.Inspector(host, { autofocus: true, actions: { link: true } });
  inspector.load(trace, view());
  let waiting = 0;
  const keep = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      try {
        history.replaceState(null, "", inspector.address());
      } catch {
        // a frame without an address of its own
      }
    }, 200);
  };
  inspector.on("step", keep).on("pin", keep);
  addEventListener("hashchange", () => {
    const { step, pins } = view();
    inspector.setStep(step);
    inspector.setPins(pins, false);
  });
  window.specviz = inspector;
})();
"""


def embed_json(value: Any) -> str:
    """JSON that is safe inside a script element: no ``<`` and no line separator is left as itself.

    >>> embed_json({"a": "</script>"})
    '{"a":"\\\\u003c/script>"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def standalone_page(title: str, main: str, data: tuple[str, Any], *, styles: str, scripts: str, start: str) -> str:
    """One HTML page that works from disk and follows the system's theme. ``main`` is its element, as markup; ``data``
    the id of a script element and what it holds as JSON; ``start`` the script that draws it.
    """
    name, value = data
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · specviz</title>
<style>{PAGE_STYLE}{styles}</style>
</head>
<body>
{main}
<script type="application/json" id="{name}">{embed_json(value)}</script>
<script>{scripts}</script>
<script>{FOLLOW_THEME}{start}</script>
</body>
</html>
"""


def standalone_html(trace: Trace, step: int = 0) -> str:
    """The whole page: renderer, style and trace in one; opens at ``step`` (from 0), or at ``#step=`` of its address."""
    words = "<noscript>This page draws the trace with JavaScript.</noscript>"
    return standalone_page(
        str(trace.run.get("title") or trace.run.get("id") or "run"),
        f'<main id="inspector" data-step="{int(step)}">{words}</main>',
        ("trace", payload(trace)),
        styles=web.styles(),
        scripts=web.script(),
        start=PAGE_SCRIPT,
    )
