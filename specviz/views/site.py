"""Recorded runs as a static site: a list and the inspector, from disk or from any static host, without a server.

``index.html`` searches and filters the runs, and sets those of one prompt beside one another; ``run.html?run=KEY``
shows one. Modules and styles stand once (``list.js``, ``list.css``; ``run.js``, ``run.css``), and a run's trace is its
own file, fetched when it is opened: as a script, since pages from disk may fetch nothing else. ``embed.js`` puts a run
into another page. A key is a digest of the run, so that no name of a file is a run's own text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders.folders import replacing, write_bytes
from decoders.trace.metrics import compute
from decoders.trace.report import payload
from decoders.trace.trace import Trace

from . import web
from .export import PAGE_STYLE, page

POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' data: file:; style-src 'self' 'unsafe-inline' file:; "
    "img-src data: blob:; base-uri 'none'"
)
NO_SCRIPT = "<noscript>These runs are drawn with JavaScript.</noscript>"
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
        return self.trace.digest[:16]

    @property
    def method(self) -> str:
        """Its method, as the list names it."""
        method = self.trace.run["method"]
        return str(method.get("title") or method.get("name") or "?").partition(":")[0]

    @property
    def row(self) -> dict[str, Any]:
        """A line of the list."""
        run = self.trace.run
        metrics = run.get("metrics") or compute(self.trace)
        return {
            "key": self.key, "title": str(run.get("title") or "Untitled run"), "tags": list(self.tags),
            "method": self.method,
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
            script = f'specvizTrace("{web.gzip_json(payload(entry.trace))}");\n'
            write_bytes(new / "traces" / f"{row['key']}.js", script.encode())
        listed = {"title": title, "runs": [*rows.values()], "outcomes": dict(outcomes)}
        files = {"embed.js": EMBED}
        for script, names in ENTRIES.items():
            modules = {name: where for entry in names for name, where in web.inline_map(entry).items()}
            files[f"{script}.js"] = BEGIN.format(imports=web.embed_json(modules), page=script)
            files[f"{script}.css"] = PAGE_STYLE + web.styles(modules)
        mains = {
            "list": '<main id="index" class="sv svp"></main>',
            "run": '<div id="around" class="svp"></div><main id="inspector" data-step="0"></main>'
            '<script type="application/json" id="trace"></script>',
        }  # fmt: skip
        for name, script in (("index.html", "list"), ("run.html", "run")):
            head = f'<script src="{script}.js"></script>'
            runs = f'<script type="application/json" id="site">{web.embed_json(listed)}</script>'
            begin = f'<script type="module">import "{ENTRIES[script][0]}";</script>'
            files[name] = page(title, head, "\n".join((NO_SCRIPT, mains[script], runs, begin)), POLICY)
        for name, text in files.items():
            write_bytes(new / name, text.encode())
    return list(rows)
