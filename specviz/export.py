"""A trace as one interactive HTML file that opens from disk, without a server and without a single request."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from decoders.trace import Trace

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

# follows the system's theme, restores #step=12&pins=40,41 and keeps the address up to date
PAGE_SCRIPT = """
(function () {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => document.documentElement.classList.toggle("dark", dark.matches);
  theme();
  dark.addEventListener("change", theme);
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


def standalone_html(trace: Trace, step: int = 0) -> str:
    """The whole page: renderer, style and trace in one; opens at ``step`` (from 0), or at ``#step=`` of its address."""
    title = escape(str(trace.run.get("title") or trace.run.get("id") or "run"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · specviz</title>
<style>{PAGE_STYLE}{web.styles()}</style>
</head>
<body>
<main id="inspector" data-step="{int(step)}"><noscript>This page draws the trace with JavaScript.</noscript></main>
<script type="application/json" id="trace">{embed_json(trace.to_json())}</script>
<script>{web.script()}</script>
<script>{PAGE_SCRIPT}</script>
</body>
</html>
"""
