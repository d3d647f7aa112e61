"""A site's folder, with a record of what each of its files was made of: what is made of the same stays as it is.

The record is written while files are, so a publish that broke off goes on where it was. A file's ``note`` is a value
that came of making it, and is needed again when the file is not made again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import plotly

import decoders
import specviz
from decoders.errors import UserError
from decoders.folders import write_bytes
from specviz.places import GALLERY, LESSONS
from specviz.views import web

RECORD, SCHEMA = "specviz-site.json", "specviz-site/1"
DATA_FOLDERS = "traces", "players", "judged", "answers", "prompts", "lessons"
BRANCH_FILES = {".git", ".gitattributes", ".gitignore", "CNAME", "LICENSE", "README.md"}  # of a branch that is a site
SAVE_S = 0.5  # between two writings of the record

FileContent = tuple[bytes | None, Any]  # a file's content, None where there is none, and its note


@cache
def program() -> str:
    """Digest of all that a site's files follow from beside runs: code, browser modules, lessons and their runs."""
    packages = [Path(str(package.__file__)).parent for package in (decoders, specviz)]
    files = [path for folder in packages for path in folder.rglob("*") if path.suffix in (".py", ".toml")]
    files += [path for kind in ("js", "css") for path in web.files(kind).values()]
    files += [path for folder in (LESSONS, GALLERY) for path in folder.rglob("*") if path.is_file()]
    hasher = hashlib.sha256(plotly.__version__.encode())
    for path in sorted(path for path in files if "tests" not in path.parts[-3:]):
        hasher.update(path.read_bytes())
    return hasher.hexdigest()[:32]


def digest(*parts: Any) -> str:
    """Digest of the program and of what else a file is made of."""
    return hashlib.sha256(json.dumps([program(), *parts]).encode()).hexdigest()[:32]


class SiteFolder:
    """The folder that a site is written to. Raises UserError for one that holds anything else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        record = _read_record(folder)
        self.old = record or {}
        self.files: dict[str, list[Any]] = {}  # name → [digest of what it is made of, whether it is there, its note]
        self.write_count = 0  # files that were written
        self._save_time = time.monotonic()
        if record is None:
            if folder.is_file() or (
                folder.is_dir() and any(path.name not in BRANCH_FILES for path in folder.iterdir())
            ):
                raise UserError(f"{folder} is there and no site of ours: give a new folder, or remove it")
            folder.mkdir(parents=True, exist_ok=True)
            self._save()
        for name in DATA_FOLDERS:
            (folder / name).mkdir(exist_ok=True)

    def make(self, name: str, made_of: str, build: Callable[[], FileContent]) -> Any:
        """Write a file unless it is there and was made of the same; gives its note."""
        entry = self.old.get(name)
        if entry is None or not self.is_current(name, made_of):
            data, note = build()
            if data is not None:
                write_bytes(self.folder / name, data)
                self.write_count += 1
            entry = [made_of, data is not None, note]
        self.files[name] = entry
        if time.monotonic() > self._save_time + SAVE_S:
            self._save()
        return entry[2]

    def is_current(self, name: str, made_of: str) -> bool:
        """True where a file need not be made."""
        entry = self.old.get(name)
        return entry is not None and entry[0] == made_of and (not entry[1] or (self.folder / name).is_file())

    def keep(self, names: Iterable[str]) -> bool:
        """Leave files as an earlier publish wrote them; False where one is not there."""
        entries = {name: self.old.get(name) for name in names}
        if any(entry is None or not (self.folder / name).is_file() for name, entry in entries.items()):
            return False
        self.files = {**{name: entry for name, entry in entries.items() if entry}, **self.files}
        return True

    @property
    def names(self) -> list[str]:
        """The site's files."""
        return sorted(name for name, entry in self.files.items() if entry[1])

    def finish(self) -> None:
        """Write the record, and delete the files of an earlier publish that this one has not."""
        self._save(whole=True)
        data_files = {path.relative_to(self.folder).as_posix() for name in DATA_FOLDERS for path in self._in(name)}
        for name in {name for name, entry in self.old.items() if entry[1]} | data_files:
            if name not in self.files or not self.files[name][1]:
                (self.folder / name).unlink(missing_ok=True)
        for name in DATA_FOLDERS:
            if not any((self.folder / name).iterdir()):
                (self.folder / name).rmdir()

    def _in(self, name: str) -> Iterable[Path]:
        return (self.folder / name).glob("*.js")

    def _save(self, whole: bool = False) -> None:
        files = self.files if whole else {**self.old, **self.files}
        record = {"schema": SCHEMA, "complete": whole, "files": files}
        write_bytes(self.folder / RECORD, json.dumps(record, separators=(",", ":")).encode())
        self._save_time = time.monotonic()


def _read_record(folder: Path) -> dict[str, list[Any]] | None:
    """The record of an earlier publish; {} for one that cannot be read, None where there is none."""
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        if record["schema"] != SCHEMA:
            return {}
        return {str(name): [str(of), bool(exists), note] for name, (of, exists, note) in record["files"].items()}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
