"""The browser's part: ES modules and style sheets in the folders of ``assets/web`` and of the annexes, found by looking
there.

Modules name each other by bare specifiers (``import { h } from "specviz/base/dom.js"``); an import map says where each
is. The app gets all modules as one script, which makes the map of ``blob:`` URLs; a page that works from disk has
``data:`` URLs. No module, style or order of ours is listed in Python: what a page needs follows from the import
statements. The few libraries in ``vendor/`` keep the names under which they import each other.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from decoders.extra import extras
from decoders.folders import ASSETS

from . import terms

FOLDER = ASSETS / "web"
PREFIX = "specviz/"
TERMS = PREFIX + "generated/terms.js"  # made here, of what decoders.trace.metrics and specviz.views.terms say
# Preact (elements from a state), htm (templates in plain JavaScript), signals (the state), jsdiff: specifier → file
VENDOR_FILES = MappingProxyType({
    "preact": "vendor/preact.js",
    "preact/hooks": "vendor/hooks.js",
    "htm": "vendor/htm.js",
    "@preact/signals-core": "vendor/signals-core.js",
    "@preact/signals": "vendor/signals.js",
    "diff": "vendor/diff.js",
})  # fmt: skip
# a vendored file has several statements in a line, and no space after ``from``
STATIC = re.compile(
    r"(?:^|;)(?:import|export)\b[^;\"']*?\bfrom\s*[\"']([^\"']+)[\"']|^import\s+[\"']([^\"']+)[\"']", re.M
)
# a comment that has its lines to itself; /*! is a licence
COMMENT = re.compile(r"^[ \t]*/\*(?!!)(?:[^*]|\*(?!/))*\*/[ \t]*\n", re.M)
IMPORT_LINE = re.compile(r'^@import "specviz/([^"]+)";\n', re.M)
# what a data: URL keeps as it is: printable ASCII but "%", which would be decoded, and "#", which would end it
PLAIN = "".join(chr(code) for code in range(32, 127) if chr(code) not in "%#")

ADD_MAP = """document.head.append(
    Object.assign(document.createElement("script"), { type: "importmap", textContent: JSON.stringify({ imports }) }),
  );"""
BUNDLE = """(() => {{
  const blob = (source) => URL.createObjectURL(new Blob([source], {{ type: "text/javascript" }}));
  const imports = Object.fromEntries(Object.entries({sources}).map(([name, source]) => [name, blob(source)]));
  {add}
  const preload = (href) => Object.assign(document.createElement("link"), {{ rel: "modulepreload", href }});
  document.head.append(...{first}.map((name) => preload(imports[name])));
}})();
"""


@dataclass(frozen=True)
class Asset:
    """A file as it is served. ``gzip_data``: compressed by gzip, once for all who ask."""

    data: bytes
    media: str

    @cached_property
    def gzip_data(self) -> bytes:
        return gzip.compress(self.data, 6, mtime=0)


def tops() -> list[Path]:
    """The folders in which the rooms stand: the core's, then the annexes'."""
    return [FOLDER, *(extra.folder / extra.web for extra in extras().values() if extra.web)]


@cache
def files(kind: str) -> Mapping[str, Path]:
    """Name (``base/dom.js``) → path of every file of a kind (``js``): the core's, then the annexes'.

    >>> files("css")["base/page.css"].is_file()
    True
    """
    paths = ((path.relative_to(top).as_posix(), path) for top in tops() for path in sorted(top.glob(f"*/*.{kind}")))
    paths_by_name: dict[str, Path] = {}
    for name, path in paths:
        paths_by_name.setdefault(name, path)  # no annex may replace what another has
    return MappingProxyType(paths_by_name)


@cache
def modules() -> Mapping[str, str]:
    """Specifier → source of every module.

    >>> "specviz/base/dom.js" in modules() and "preact" in modules()
    True
    """
    vendor_names = {file: name for name, file in VENDOR_FILES.items()}
    paths = files("js").items()
    sources = {vendor_names.get(file, PREFIX + file): path.read_text(encoding="utf-8") for file, path in paths}
    return MappingProxyType(sources | {TERMS: _terms()})


def room(name: str) -> str:
    """The folder of a module.

    >>> room("specviz/base/dom.js"), room("@preact/signals")
    ('base', 'vendor')
    """
    return "vendor" if name in VENDOR_FILES else name.split("/")[1]


def _terms() -> str:
    """The meanings of numbers, as a module: one export per table."""
    tables = (
        f"export const {name} = {json.dumps(value, ensure_ascii=False)};" for name, value in terms.table().items()
    )
    return "\n".join(["/* Made by specviz/terms.py. */", *tables, ""])


def imports(source: str) -> tuple[str, ...]:
    """The specifiers a module imports at once; those of ``import()`` are fetched when they are needed.

    >>> imports('import { h } from "specviz/base/dom.js";')
    ('specviz/base/dom.js',)
    """
    return tuple(first or second for first, second in STATIC.findall(source))


@cache
def reachable(entry: str) -> tuple[str, ...]:
    """The modules that ``entry`` needs, itself the last: each stands after those it imports.

    Raises KeyError where one of them does not exist.
    """
    return tuple(_behind_imports([entry], lambda name: imports(modules()[name])))


def _behind_imports(names: Iterable[str], imports_of: Callable[[str], Iterable[str]]) -> dict[str, None]:
    """Names with all that they import, each behind those it imports."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        for dependency in imports_of(name):
            if dependency not in order:
                visit(dependency)
        order[name] = None

    for name in names:
        if name not in order:
            visit(name)
    return order


def styles(names: Iterable[str] | None = None) -> str:
    """The style sheets in the folders of ``names`` (of all modules without it), as one. Each stands after those it
    imports (``@import "specviz/base/page.css";``), so that it may change what they say.
    """
    folders = {room(name) for name in names or modules()}
    return "\n".join(text for name, text in _sheets(files("css")).items() if name.split("/")[0] in folders)


def sheets(*names: str) -> str:
    """Style sheets (``player/page.css``), each behind those it imports."""
    return "\n".join(_sheets(names).values())


def _sheets(names: Iterable[str]) -> dict[str, str]:
    """File → text of style sheets and of those they import, in order."""

    def read(name: str) -> str:
        return files("css")[name].read_text(encoding="utf-8")

    return {
        name: IMPORT_LINE.sub("", read(name))
        for name in _behind_imports(names, lambda name: IMPORT_LINE.findall(read(name)))
    }


def name_by_content(name: str, data: bytes) -> tuple[str, Asset]:
    """A file under a name that has twelve digits of its content's hash: base/dom.js → base/dom.0123456789ab.js."""
    stem, _, kind = name.rpartition(".")
    media = "text/css; charset=utf-8" if kind == "css" else "text/javascript; charset=utf-8"
    return f"{stem}.{hashlib.sha256(data).hexdigest()[:12]}.{kind}", Asset(data, media)


def bundle(entry: str) -> str:
    """All modules as one classic script: after it the page can import them by their names. A module's code is read when
    it is imported, that of ``entry`` at once (one after another, as each names the next, took twice as long); errors
    name the module and its own lines.
    """
    sources = {name: f"{source}\n//# sourceURL={name}" for name, source in modules().items()}
    text = json.dumps(sources, separators=(",", ":"), ensure_ascii=False)
    return BUNDLE.format(sources=text, add=ADD_MAP, first=json.dumps(reachable(entry)))


def inline_map(entry: str) -> dict[str, str]:
    """Specifier → the module itself without its comments, as a ``data:`` URL, of all that ``entry`` needs."""
    sources = {name: COMMENT.sub("", modules()[name]) for name in reachable(entry)}
    return {name: "data:text/javascript;charset=utf-8," + quote(source, PLAIN) for name, source in sources.items()}


def embed_json(value: object) -> str:
    """JSON that is safe inside a script element: no ``<`` and no line separator is left as itself.

    >>> embed_json({"a": "</script>"})
    '{"a":"\\\\u003c/script>"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def gzip_json(value: object) -> str:
    """JSON by gzip in base64, for ``DecompressionStream``: the same text for the same value.

    >>> gzip_json({}) == gzip_json({})
    True
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unzip_json(packed: str) -> Any:
    """The value of ``gzip_json``.

    >>> unzip_json(gzip_json({"a": 1}))
    {'a': 1}
    """
    return json.loads(gzip.decompress(base64.b64decode(packed)))
