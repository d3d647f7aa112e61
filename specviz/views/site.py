"""Recorded runs as a static site: a list and the inspector, from disk or from any static host, without a server.

``index.html`` searches and filters the runs, and sets those of one prompt beside one another; ``run.html?run=KEY``
shows one, ``player.html?run=KEY`` plays it in 60 kB. Modules and styles stand once, packed (``list.js``, ``run.js``,
``player.js``), and what is shown of a run is a file of its own, read when it is opened: as a script, since pages from
disk may fetch nothing else. ``embed.js`` puts a run into another page. A key is a digest of the run, so that no name of
a file is a run's own text.
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
from .player import player_document

POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' data: file:; style-src 'self' 'unsafe-inline' file:; "
    "img-src data: blob:; base-uri 'none'"
)
NO_SCRIPT = "<noscript>These runs are drawn with JavaScript.</noscript>"
EMBED = """/* <script src="embed.js" data-run="KEY"></script> plays a run where it stands;
   data-view="inspector" shows all of it, data-height="700" is its height in pixels. */
(() => {
  const me = document.currentScript, frame = document.createElement("iframe"), { run, view, height } = me.dataset;
  const whole = view === "inspector";
  const key = /^[0-9a-f]{16}$/.test(run || "") ? run : "";
  frame.src = new URL(`${whole ? "run" : "player"}.html?embed&run=${key}`, me.src).href;
  frame.title = "A run of speculative decoding";
  frame.loading = "lazy";
  frame.style.cssText = "width:100%;border:0;height:" + (Number(height) || (whole ? 700 : 560)) + "px";
  me.replaceWith(frame);
})();
"""
# modules are data: URLs in an import map, which a classic script can set from disk before the first import
BEGIN = """(async () => {{
  const bytes = Uint8Array.from(atob("{packed}"), (sign) => sign.charCodeAt(0));
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const {{ imports, style }} = JSON.parse(text);
  const [map, sheet] = ["script", "style"].map((name) => document.createElement(name));
  map.type = "importmap";
  map.textContent = JSON.stringify({{ imports }});
  sheet.textContent = style;
  document.head.append(sheet, map);
  await import("{entry}");
}})().catch((problem) => {{
  document.querySelector("main").textContent = "This page needs a browser of 2023 or later: " + problem.message;
}});
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a site: the module that draws it, further modules that it imports later, and its elements as markup.
    ``sheet``: its style, where that is not the one of all rooms it imports. ``runs``: whether it has the list of them.
    """

    entry: str
    main: str
    later: tuple[str, ...] = ()
    sheet: str = ""
    runs: bool = True

    def script(self) -> str:
        """Modules and style, packed."""
        names = (self.entry, *self.later)
        modules = {name: where for entry in names for name, where in web.inline_map(entry).items()}
        style = web.sheet(self.sheet) if self.sheet else web.styles(modules)
        return BEGIN.format(packed=web.gzip_json({"imports": modules, "style": style}), entry=self.entry)


PAGES = {
    "index": Page("specviz/site/index.js", '<main id="index" class="sv svp"></main>'),
    "run": Page(
        "specviz/site/run.js",
        '<div id="around" class="svp"></div><main id="inspector" data-step="0"></main>'
        '<script type="application/json" id="trace"></script>',
        ("specviz/inspect/standalone.js",),
    ),
    "player": Page("specviz/player/page.js", '<main id="player"></main>', sheet="player/page.css", runs=False),
}


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
        for entry in entries:
            row = entry.row
            rows[row["key"]] = row
            _write(new / "traces", row["key"], payload(entry.trace))
            _write(new / "players", row["key"], player_document(entry.trace))
        listed = {"title": title, "runs": [*rows.values()], "outcomes": dict(outcomes)}
        data = f'<script type="application/json" id="site">{web.embed_json(listed)}</script>'
        write_bytes(new / "embed.js", EMBED.encode())
        for name, one in PAGES.items():
            write_bytes(new / f"{name}.js", one.script().encode())
            head = f'<style>{PAGE_STYLE}</style>\n<script defer src="{name}.js"></script>'
            body = "\n".join([NO_SCRIPT, one.main, *([data] if one.runs else [])])
            write_bytes(new / f"{name}.html", page(title, head, body, POLICY).encode())
    return list(rows)


def _write(folder: Path, key: str, value: Any) -> None:
    """A file of data that a page reads as a script (``base/files.js``)."""
    folder.mkdir(exist_ok=True)
    write_bytes(folder / f"{key}.js", f'specvizFile("{web.gzip_json(value)}");\n'.encode())
