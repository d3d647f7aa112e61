"""A static site: a list of runs, the inspector, Compare, Attribution, lessons and a player; no server, no Python.

``index.html`` searches and filters the runs; ``run.html?run=KEY`` shows one, ``player.html?run=KEY`` plays it in 60 kB;
``compare.html?prompt=KEY`` sets runs of one prompt beside one another, ``attribution.html?answer=KEY`` an answer beside
its sources; ``lessons.html`` has the lessons. Runs that hold p and q are shown under every verifier, too. A page's
modules and styles stand once, packed (``run.js``), and what it shows is a file of its own, read when it is asked for:
as a script, since pages from disk may fetch nothing else.
``embed.js`` puts a run into another page. A key is a digest, so that no name of a file is a run's own text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from decoders.folders import replacing, write_bytes
from decoders.trace.metrics import compute
from decoders.trace.report import payload
from decoders.trace.trace import Trace
from specviz.groups import group
from specviz.pages.attribution.document import answer_digest
from specviz.pages.lessons.lessons_page import card
from specviz.views import web
from specviz.views.export import PAGE_STYLE, begin_script, page

from .documents import attribution, comparison, lessons, verdicts
from .player import player_document

POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' data: file:; style-src 'self' 'unsafe-inline' file:; "
    "img-src data: blob:; base-uri 'none'"
)
TITLE = 200  # characters of a title in the list, and of a tag
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
STYLE = 'document.head.append(Object.assign(document.createElement("style"), { textContent: style }))'


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a site: the module that draws it, further modules that it imports later, and its elements as markup.
    ``sheets``: its style, where that is not the one of all rooms it imports. ``runs``: whether it has the list of them.
    """

    entry: str
    main: str
    later_scripts: tuple[str, ...] = ()
    sheets: tuple[str, ...] = ()
    runs: bool = True

    def script(self) -> str:
        """Modules and style, packed."""
        names = (self.entry, *self.later_scripts)
        modules = {name: address for entry in names for name, address in web.inline_map(entry).items()}
        style = web.sheets(*self.sheets) if self.sheets else web.styles(modules)
        packed = f'"{web.gzip_json({"imports": modules, "style": style})}"'
        return begin_script(packed, "style", STYLE, self.entry) + "\n"


FRAME = '<div id="around" class="svp"></div>'
PAGES = {
    "index": Page("specviz/site/index.js", '<main id="index" class="sv svp"></main>'),
    "run": Page(
        "specviz/site/run.js",
        f'{FRAME}<main id="inspector" data-step="0"></main><script type="application/json" id="trace"></script>',
        ("specviz/inspect/standalone.js",),
    ),
    "compare": Page(
        "specviz/site/compare.js",
        f'{FRAME}<main class="svp svp-compare"></main>',
        sheets=("compare/page.css", "site/page.css"),
    ),
    "attribution": Page("specviz/site/attribution.js", f"{FRAME}<main></main>"),
    "lessons": Page(
        "specviz/site/lessons.js",
        f'{FRAME}<main class="svp svp-lessons"></main>',
        sheets=("lesson/page.css", "site/page.css"),
    ),
    "player": Page(
        "specviz/player/standalone.js", '<main id="player"></main>', sheets=("player/page.css",), runs=False
    ),
}


@dataclass(frozen=True, slots=True)
class SiteEntry:
    """A run of a site, with what its list says besides. ``gold``: its known quotes as they stand beside its file."""

    trace: Trace
    tags: tuple[str, ...] = ()
    gold: Any = None

    @property
    def key(self) -> str:
        return self.trace.digest[:16]

    @property
    def prompt(self) -> str:
        """The same for all runs of one model on the same prompt; its own where the prompt was not recorded."""
        return self.key if "prompt" in self.trace.run.get("unknown", ()) else self.trace.prompt_key

    @property
    def row(self) -> dict[str, Any]:
        """A line of the list."""
        run = self.trace.run
        metrics = run.get("metrics") or compute(self.trace)
        return {
            "key": self.key, "title": str(run.get("title") or "Untitled run")[:TITLE],
            "tags": [tag[:TITLE] for tag in self.tags],
            "method": str(run["method"].get("title") or run["method"].get("name") or "?").partition(":")[0],
            "model": str((run.get("model") or {}).get("name") or ""), "category": str(run.get("category") or ""),
            "prompt": self.prompt, "answer": "", "judged": False, "tokens": len(self.trace.output_ids),
            "steps": self.trace.rows("steps"), "per_step": metrics.get("tokens_per_step"),
        }  # fmt: skip


def write_site(out: Path, title: str, entries: Iterable[SiteEntry], *, with_lessons: bool = True) -> Sequence[str]:
    """Write a site in the place of what ``out`` held, whole or not at all; gives the runs' keys in the list's order."""
    entries_by_key = {entry.key: entry for entry in entries}
    rows = {key: entry.row for key, entry in entries_by_key.items()}
    with replacing(out) as new:
        for key, entry in entries_by_key.items():
            _write(new / "traces", key, payload(entry.trace))
            _write(new / "players", key, player_document(entry.trace))
            if (under := verdicts(entry.trace)) is not None:
                rows[key]["judged"] = True
                _write(new / "judged", key, under)
        for answer, members in _groups(entries_by_key, lambda entry: answer_digest(entry.trace)[:16]).items():
            gold = next((entry.gold for entry in members.values() if entry.gold is not None), None)
            if (links := attribution([entry.trace for entry in members.values()], gold)) is not None:
                _write(new / "answers", answer, links)
                for key in members:
                    rows[key]["answer"] = answer
        outcomes = {}
        for prompt, members in _groups(entries_by_key, lambda entry: entry.prompt).items():
            if len(members) > 1:
                document = comparison({key: entry.trace for key, entry in members.items()})
                outcomes[prompt] = document["sets"][0]["claim"]["time"]["sentence"]
                _write(new / "prompts", prompt, document)
        if outcomes:
            write_bytes(new / "plotly.js", get_plotlyjs().encode())
        lesson_rows = _write_lessons(new) if with_lessons else []
        listing = {"title": title, "runs": [*rows.values()], "outcomes": outcomes, "lessons": lesson_rows}
        data = f'<script type="application/json" id="site">{web.embed_json(listing)}</script>'
        write_bytes(new / "embed.js", EMBED.encode())
        for name, page_spec in PAGES.items():
            write_bytes(new / f"{name}.js", page_spec.script().encode())
            head = f'<style>{PAGE_STYLE}</style>\n<script defer src="{name}.js"></script>'
            body = "\n".join([NO_SCRIPT, page_spec.main, *([data] if page_spec.runs else [])])
            write_bytes(new / f"{name}.html", page(f"{title} · specviz", head, body, POLICY).encode())
    return list(rows)


def _groups(entries: Mapping[str, SiteEntry], of: Callable[[SiteEntry], str]) -> dict[str, dict[str, SiteEntry]]:
    groups = group((of(entry), (key, entry)) for key, entry in entries.items())
    return {name: dict(members) for name, members in groups.items()}


def _write_lessons(folder: Path) -> list[dict[str, Any]]:
    """Writes the lessons and the runs that they are about; gives their cards."""
    lesson_by_key, traces = lessons()
    for key, trace in traces.items():
        _write(folder / "traces", key, payload(trace))
        _write(folder / "players", key, player_document(trace))
    for key, lesson in lesson_by_key.items():
        _write(folder / "lessons", key, lesson)
    return [card(lesson) for lesson in lesson_by_key.values()]


def _write(folder: Path, key: str, value: Any) -> None:
    """A file of data that a page reads as a script (``site/files.js``)."""
    folder.mkdir(exist_ok=True)
    write_bytes(folder / f"{key}.js", f'specvizFile("{web.gzip_json(value)}");\n'.encode())
