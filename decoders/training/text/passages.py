"""Text that lies on this machine, in passages: Python's library, descriptions of packages, manual pages."""

from __future__ import annotations

import ast
import gzip
import hashlib
import importlib.metadata
import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CODE, PROSE = "code", "prose"
SHORTEST, LONGEST = 160, 1500  # characters of a passage
ALIKE = 30  # manual pages whose names begin alike, at most: some programs have thousands
LINES = 4, 40  # of code, at least and at most
HELD_OUT = 12  # one source in so many is for validation
MANUALS = Path("/usr/share/man")
PACKAGES = Path("/var/lib/dpkg/status")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text. ``origin``: which kind of source it comes from; ``source``: the module, package or page."""

    kind: str
    origin: str
    source: str
    text: str

    @property
    def held_out(self) -> bool:
        """Whether it is for validation: so are all passages of its source, or none."""
        return zlib.crc32(self.source.encode()) % HELD_OUT == 0


def found_passages(manuals: Path = MANUALS, packages: Path = PACKAGES, library: Path | None = None) -> list[Passage]:
    """Everything that is here, each text once, in an order that does not depend on the file system's."""
    library = library or Path(sysconfig.get_paths()["stdlib"])
    passages = [*_library(library), *_described(), *_packages(packages), *_manuals(manuals)]
    once = {hashlib.sha256(p.text.encode()).hexdigest(): p for p in reversed(passages)}
    return sorted(once.values(), key=lambda p: (p.kind, p.origin, p.source, p.text))


def _library(folder: Path) -> Iterator[Passage]:
    """Functions and small classes as code, longer docstrings as prose."""
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if any(part in {"site-packages", "test", "tests", "idlelib", "lib2to3", "encodings"} for part in path.parts):
            continue
        with suppress(SyntaxError, UnicodeDecodeError, ValueError, OSError):
            text = path.read_text("utf-8")
            tree = ast.parse(text)
            lines = text.splitlines()
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (said := ast.get_docstring(node)):
                    yield from _prose("python documentation", name, said)
                if isinstance(node, ast.FunctionDef) and node.end_lineno:
                    code = _outdented(lines[node.lineno - 1 : node.end_lineno])
                    if LINES[0] <= code.count("\n") + 1 <= LINES[1] and SHORTEST <= len(code) <= LONGEST:
                        yield Passage(CODE, "python code", name, code)


def _outdented(lines: list[str]) -> str:
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] if not line[:indent].strip() else line for line in lines)


def _described() -> Iterator[Passage]:
    """What installed Python packages say of themselves."""
    for distribution in importlib.metadata.distributions():
        with suppress(Exception):
            said: Any = distribution.metadata  # an email.message.Message
            text = str(said.get("Description") or said.get_payload() or "")
            yield from _prose("python packages", str(said["Name"]), text)


def _packages(status: Path) -> Iterator[Passage]:
    """The descriptions of Debian's packages."""
    with suppress(OSError):
        for entry in status.read_text("utf-8", "replace").split("\n\n"):
            name = re.match(r"Package: (\S+)", entry)
            said = re.search(r"^Description: (.*(?:\n .*)*)", entry, re.M)
            if name and said:
                text = re.sub(r"^ ", "", re.sub(r"^ \.$", "", said[1], flags=re.M), flags=re.M)
                yield from _prose("debian packages", name[1], text)


def _manuals(folder: Path) -> Iterator[Passage]:
    """Manual pages in English: their paragraphs, without the macros."""
    family: Counter[str] = Counter()
    for path in sorted(folder.glob("man[1578]/*.gz")):
        family[name := re.split(r"[-_.:]", path.name)[0]] += 1
        if family[name] > ALIKE or "ssl" in path.name:
            continue
        with suppress(OSError, EOFError, zlib.error, UnicodeDecodeError):
            if path.is_symlink() or path.stat().st_size > 60_000:
                continue
            page = gzip.decompress(path.read_bytes()).decode()
            yield from _prose("manual pages", path.name.removesuffix(".gz"), _plain(page))


def _plain(roff: str) -> str:
    """The running text of a manual page."""
    out: list[str] = []
    for line in roff.splitlines():
        if line.startswith((".", "'")):
            macro, _, rest = line[1:].strip().partition(" ")
            if macro in {"B", "I", "BR", "IR", "RB", "RI", "BI", "IB", "Nm", "Ar", "Fl", "Pa"}:
                out.append(rest.replace('"', ""))
            elif macro in {"PP", "P", "LP", "SH", "SS", "TP", "IP", "Pp", "Sh", "sp", "br"}:
                out.append("")
            continue
        out.append(line)
    text = re.sub(r"\\f[A-Z]|\\f\(..|\\f\[\w*\]|\\[&,/:|^]|\\s[-+]?\d", "", "\n".join(out))
    return re.sub(r"\\\((?:aq|cq|oq)", "'", text.replace("\\-", "-").replace("\\(em", " - ").replace("\\e", "\\"))


def _prose(origin: str, source: str, text: str) -> Iterator[Passage]:
    """Paragraphs of running text, short ones joined."""
    kept = ""
    for paragraph in re.split(r"\n\s*\n", text):
        joined = " ".join(paragraph.split())
        letters = sum(character.isalpha() or character == " " for character in joined)
        if len(joined) < 60 or letters < 0.85 * len(joined) or not joined.isascii() or "\\" in joined:
            continue
        if len(kept) + len(joined) > LONGEST:
            yield from _passage(origin, source, kept)
            kept = ""
        kept = f"{kept}\n\n{joined}".strip()
        if len(kept) >= 2 * SHORTEST:
            yield from _passage(origin, source, kept)
            kept = ""
    yield from _passage(origin, source, kept)


def _passage(origin: str, source: str, text: str) -> Iterable[Passage]:
    if SHORTEST <= len(text) <= LONGEST:
        yield Passage(PROSE, origin, source, text)
