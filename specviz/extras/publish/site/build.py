"""A static site: a list of runs, the inspector, Compare, Attribution, lessons and a player; no server, no Python.

``index.html`` searches and filters the runs; ``run.html?run=KEY`` shows one, ``player.html?run=KEY`` plays it in 60 kB;
``compare.html?prompt=KEY`` sets runs of one prompt beside one another, ``attribution.html?answer=KEY`` an answer beside
its sources; ``lessons.html`` has the lessons. Runs that hold p and q are shown under every verifier, too. A page's
modules and styles stand once, packed (``run.js``), and what it shows is a file of its own, read when it is asked for:
as a script, since pages from disk may fetch nothing else.
``embed.js`` puts a run into another page. A key is a digest, so that no name of a file is a run's own text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from decoders.errors import UserError, first_line
from decoders.trace.report import payload
from specviz.groups import group
from specviz.views import web
from specviz.views.export import PAGE_STYLE, begin_script, page

from .documents import attribution, comparison, lane, lessons, verdicts
from .entries import SiteEntry
from .folder import FileContent, SiteFolder, digest
from .player import player_document

log = logging.getLogger(__name__)

FAULTS = ArithmeticError, AttributeError, LookupError, TypeError, UserError, ValueError  # what hostile runs raise

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
        ("specviz/opening/standalone.js",),
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


class SiteWriter:
    """Writes the files of a site's runs; ``faults`` has a sentence for each that could not be made. ``judges``: drafts
    are judged, which takes a second or two per run; else ``pending`` has those left for a next time.
    """

    def __init__(self, site: SiteFolder, entries: Iterable[SiteEntry], judges: bool = True) -> None:
        self.site, self.judges = site, judges
        self.pending: list[str] = []
        self.entries = {entry.key: entry for entry in reversed(list(entries))}
        self.entries = dict(reversed(self.entries.items()))  # of a run that is there twice, the first
        plains = sorted((entry for entry in self.entries.values() if entry.is_plain), key=_plain_order)
        self._plains = group((plain.facts["prompt"], plain) for plain in plains)
        self.rows = {key: entry.row for key, entry in self.entries.items()}
        self.faults: list[str] = []

    def run(self, entry: SiteEntry) -> None:
        """A run's own files: its trace, beside plain decoding of its prompt, its player, and its drafts judged."""
        key, site, name = entry.key, self.site, f"judged/{entry.key}.js"
        plains = self.alike(entry)
        made_of = digest(key, [plain.key for plain in plains])

        def judge_drafts() -> FileContent:
            under = verdicts(entry.read())
            return (None, False) if under is None else (pack_script(under), True)

        site.make(f"traces/{key}.js", made_of, lambda: (pack_script(payload(entry.with_speedup(plains))), None))
        site.make(f"players/{key}.js", digest(key), lambda: (pack_script(player_document(entry.read())), None))
        if entry.facts["guessed"] and (self.judges or site.is_current(name, digest(key))):
            self.rows[key]["judged"] = site.make(name, digest(key), judge_drafts)
        elif entry.facts["guessed"]:
            self.pending.append(key)

    def plains(self, entry: SiteEntry) -> list[SiteEntry]:
        """Plain decoding of a run's prompt, in ``_plain_order``."""
        return [plain for plain in self._plains.get(entry.facts["prompt"], ()) if plain.key in self.entries]

    def alike(self, entry: SiteEntry) -> list[SiteEntry]:
        """The run of plain decoding, none or one, that a run's speedup is formed with."""
        pairing_key = "" if entry.is_plain else entry.facts["pairing_key"]
        return [plain for plain in self.plains(entry) if plain.facts["pairing_key"] == pairing_key != ""][:1]

    def runs(self) -> None:
        """Every run's own files; one of which they cannot be made is left out of the site, and named."""
        for key, entry in list(self.entries.items()):
            try:
                self.run(entry)
            except FAULTS as fault:
                self.fault(entry, "left out: {} cannot be shown", fault)
                del self.entries[key], self.rows[key]
                for folder in ("traces", "players", "judged"):
                    self.site.files.pop(f"{folder}/{key}.js", None)

    def answers(self) -> None:
        """Answers beside their sources, each by all runs that wrote it."""
        for answer, members in _groups(self.entries, lambda entry: entry.facts["answer_digest"]).items():
            gold = next((entry.gold for entry in members.values() if entry.gold is not None), None)
            latest_first = sorted(members.values(), key=SiteEntry.when, reverse=True)
            signals = {entry.facts["signal"]: entry for entry in latest_first if entry.facts["signal"]}
            signal_entries = [entry for entry in members.values() if entry in signals.values()]

            def links(signal_entries: Sequence[SiteEntry] = signal_entries, gold: Any = gold) -> FileContent:
                document = attribution([entry.read() for entry in signal_entries], gold)
                return (None, False) if document is None else (pack_script(document), True)

            try:
                if self.site.make(f"answers/{answer}.js", digest([entry.key for entry in signal_entries], gold), links):
                    for key in members:
                        self.rows[key]["answer"] = answer
            except FAULTS as fault:
                self.fault(next(iter(members.values())), "{} is without Attribution", fault)

    def outcomes(self) -> dict[str, str]:
        """Comparisons of the runs of a prompt; gives the sentence of each by its prompt."""
        sentences = {}
        for prompt, members in _groups(self.entries, lambda entry: entry.facts["prompt"]).items():
            try:
                if len(members) > 1:
                    plains = self.plains(next(iter(members.values())))
                    lanes = {entry.key: self.lane(entry) for entry in (*plains, *members.values())}
                    sentences[prompt] = self.site.make(
                        f"prompts/{prompt}.js", digest([*lanes]), lambda lanes=lanes: _comparison_file(lanes)
                    )
            except FAULTS as fault:
                self.fault(next(iter(members.values())), "the runs of {} are without Compare", fault)
        return sentences

    def lane(self, entry: SiteEntry) -> str:
        """A run as a comparison of its prompt's runs needs it, packed. It is kept in the site's record, so that no
        other run is opened when one is new.
        """
        whole_plains = [plain for plain in self.plains(entry) if plain.facts["whole_plain"]]
        same_settings = (plain for plain in whole_plains if plain.facts["plain_key"] == entry.facts["plain_key"])
        base, reference, plains = next(iter(whole_plains), None), next(same_settings, None), self.alike(entry)

        def read_lane() -> FileContent:
            base_run, reference_run = (None if plain is None else plain.read() for plain in (base, reference))
            return None, web.gzip_json(lane(entry.with_speedup(plains), base_run, reference_run))

        made_of = digest(entry.key, [plain and plain.key for plain in (base, reference, *plains)])
        return self.site.make(f"lanes/{entry.key}", made_of, read_lane)

    def fault(self, entry: SiteEntry, sentence: str, fault: Exception) -> None:
        """Name a run of which something cannot be made."""
        log.debug("run %s", entry.key, exc_info=fault)
        self.faults.append(f"{sentence.format(repr(entry.facts['title']))} ({first_line(fault)})")

    def lessons(self) -> list[dict[str, Any]]:
        """The lessons and the runs that they are about; gives their cards."""
        site, made_of = self.site, digest("lessons")
        lesson_entry = site.old.get("lessons/")
        if lesson_entry is not None and lesson_entry[0] == made_of and site.keep(lesson_entry[2]["files"]):
            return site.make("lessons/", made_of, lambda: (None, None))["cards"]
        from specviz.pages.lessons.lessons_page import card

        lesson_by_key, traces = lessons()
        files = [f"lessons/{key}.js" for key in lesson_by_key]
        for key, lesson in lesson_by_key.items():
            site.make(f"lessons/{key}.js", made_of, lambda lesson=lesson: (pack_script(lesson), None))
        for key, trace in traces.items():
            files += [f"traces/{key}.js", f"players/{key}.js"]
            if key not in self.entries:
                site.make(files[-2], made_of, lambda trace=trace: (pack_script(payload(trace)), None))
                site.make(files[-1], made_of, lambda trace=trace: (pack_script(player_document(trace)), None))
        note = {"cards": [card(lesson) for lesson in lesson_by_key.values()], "files": files}
        return site.make("lessons/", made_of, lambda: (None, note))["cards"]


@dataclass(frozen=True, slots=True)
class SiteWritten:
    """A site's runs by their keys, in the list's order, those whose drafts are still to be judged, and a sentence for
    each run that was left out.
    """

    keys: list[str]
    pending: list[str]
    faults: list[str]


def write_site(
    out: Path | SiteFolder, title: str, entries: Iterable[SiteEntry], *, with_lessons: bool = True, judges: bool = True
) -> SiteWritten:
    """Write a site, or what is new of it. The list is written last, and what it does not name any more goes then.
    Without ``judges`` drafts that no earlier publish judged are left for a next time.
    """
    site = out if isinstance(out, SiteFolder) else SiteFolder(out)
    writer = SiteWriter(site, entries, judges)
    writer.runs()
    writer.answers()
    outcomes = writer.outcomes()
    cards = writer.lessons() if with_lessons else []
    listing = {"title": title, "runs": [*writer.rows.values()], "outcomes": outcomes, "lessons": cards}
    write_pages(site, title, listing)
    return SiteWritten(list(writer.rows), writer.pending, writer.faults)


def write_pages(site: SiteFolder, title: str, listing: Mapping[str, Any]) -> None:
    """Write a site's pages, the list last, and its record."""
    data = f'<script type="application/json" id="site">{web.embed_json(listing)}</script>'
    if listing["outcomes"]:
        site.make("plotly.js", digest("plotly"), lambda: (get_plotlyjs().encode(), None))
    for name, text in {"embed.js": EMBED, ".nojekyll": ""}.items():
        site.make(name, digest(name), lambda text=text: (text.encode(), None))
    for name, spec in PAGES.items():
        site.make(f"{name}.js", digest(name), lambda spec=spec: (spec.script().encode(), None))
    for name, spec in reversed(PAGES.items()):
        head = f'<style>{PAGE_STYLE}</style>\n<script defer src="{name}.js"></script>'
        body = "\n".join([NO_SCRIPT, spec.main, *([data] if spec.runs else [])])
        html = page(f"{title} · specviz", head, body, POLICY).encode()
        site.make(f"{name}.html", digest(html.decode()), lambda html=html: (html, None))
    site.finish()


def pack_script(value: Any) -> bytes:
    """A file of data that a page reads as a script (``site/files.js``)."""
    return f'specvizFile("{web.gzip_json(value)}");\n'.encode()


def _plain_order(plain: SiteEntry) -> tuple[bool, str, str]:
    """Runs of plain decoding that came to their own end stand first, the earliest before all."""
    return not plain.facts["whole_plain"], *plain.when()


def _comparison_file(lanes: Mapping[str, str]) -> FileContent:
    """A prompt's comparison, and its sentence."""
    document = comparison({key: web.unzip_json(packed) for key, packed in lanes.items()})
    return pack_script(document), document["sets"][0]["claim"]["time"]["sentence"]


def _groups(entries: Mapping[str, SiteEntry], of: Callable[[SiteEntry], str]) -> dict[str, dict[str, SiteEntry]]:
    groups = group((of(entry), (key, entry)) for key, entry in entries.items())
    return {name: dict(members) for name, members in groups.items()}
