"""Recorded runs as a static site: a list and the inspector, from disk or from any static host, without a server.

``index.html`` searches and filters the runs, and sets those of one prompt beside one another; ``run.html?run=KEY``
shows one. Modules and styles stand once (``list.js``, ``list.css``; ``run.js``, ``run.css``), and a run's trace is its
own file, fetched when it is opened: as a script, since pages from disk may fetch nothing else. ``embed.js`` puts a run
into another page. A key is a digest of the run, so that no name of a file is a run's own text.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from decoders.folders import replacing, write_bytes
from decoders.trace.metrics import compute
from decoders.trace.report import payload
from decoders.trace.trace import Trace

from . import web
from .export import PAGE_STYLE

POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' data: file:; style-src 'self' 'unsafe-inline' file:; "
    "img-src data: blob:; base-uri 'none'"
)
ENTRIES = {"list": ("specviz/site/index.js",), "run": ("specviz/site/run.js", "specviz/inspect/standalone.js")}
EMBED = """/* <script src="embed.js" data-run="KEY" data-height="700"></script> shows a run where it stands. */
(() => {
  const me = document.currentScript, frame = document.createElement("iframe");
  const run = /^[0-9a-f]{16}$/.test(me.dataset.run || "") ? me.dataset.run : "";
  frame.src = new URL("run.html?embed&run=" + run, me.src).href;
  frame.title = "A run of speculative decoding";
  frame.loading = "lazy";
  frame.style.cssText = "width:100%;border:0;height:" + (Number(me.dataset.height) || 700) + "px";
  me.replaceWith(frame);
})();
"""
# modules are data: URLs in an import map, which a classic script can set from disk before the first import
BEGIN = """(() => {{
  const map = document.createElement("script");
  map.type = "importmap";
  map.textContent = JSON.stringify({{ imports: {imports} }});
  document.head.append(map);
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = "{page}.css";
  document.head.append(style);
}})();
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run of a site, with what its list says of it beside what the run says itself."""

    trace: Trace
    tags: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.trace.to_json(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def row(self) -> dict[str, Any]:
        """A line of the list."""
        run = self.trace.run
        metrics = run.get("metrics") or compute(self.trace)
        return {
            "key": self.key, "title": str(run.get("title") or "Untitled run"), "tags": list(self.tags),
            "method": str(run["method"].get("title") or run["method"].get("name") or "?").partition(":")[0],
            "model": str((run.get("model") or {}).get("name") or ""), "category": str(run.get("category") or ""),
            "prompt": self.trace.prompt_key, "tokens": len(self.trace.output_ids), "steps": self.trace.rows("steps"),
            "per_step": metrics.get("tokens_per_step"),
        }  # fmt: skip


def write_site(out: Path, title: str, entries: Iterable[Entry], outcomes: Mapping[str, str]) -> Sequence[str]:
    """Write a site in the place of what ``out`` held, whole or not at all; gives the runs' keys in the list's order.

    ``outcomes``: by prompt (``Trace.prompt_key``), the sentence about its runs.
    """
    rows: dict[str, dict[str, Any]] = {}
    with replacing(out) as new:
        (new / "traces").mkdir()
        for entry in entries:
            row = entry.row
            rows[row["key"]] = row
            packed = base64.b64encode(gzip.compress(json.dumps(payload(entry.trace)).encode(), 9, mtime=0)).decode()
            write_bytes(new / "traces" / f"{row['key']}.js", f'specvizTrace("{packed}");\n'.encode())
        data = web.embed_json({"title": title, "runs": [*rows.values()], "outcomes": dict(outcomes)})
        files = {"embed.js": EMBED}
        for page, names in ENTRIES.items():
            modules = {name: where for entry in names for name, where in web.inline_map(entry).items()}
            files[f"{page}.js"] = BEGIN.format(imports=web.embed_json(modules), page=page)
            files[f"{page}.css"] = PAGE_STYLE + web.styles(modules)
        files["index.html"] = _page(title, "list", '<main id="index" class="sv svp"></main>', data)
        main = '<div id="around" class="svp"></div><main id="inspector" data-step="0"></main>'
        files["run.html"] = _page(title, "run", f'{main}<script type="application/json" id="trace"></script>', data)
        for name, text in files.items():
            write_bytes(new / name, text.encode())
    return list(rows)


def _page(title: str, script: str, main: str, data: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · specviz</title>
<script src="{script}.js"></script>
</head>
<body>
<noscript>These runs are drawn with JavaScript.</noscript>
{main}
<script type="application/json" id="site">{data}</script>
<script type="module">import "{ENTRIES[script][0]}";</script>
</body>
</html>
"""
