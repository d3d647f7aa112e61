"""The index of runs' contents: SQLite's full-text search (FTS5) over trigrams, one row per run."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from decoders.errors import UserError
from decoders.folders import private_folder
from decoders.trace import files as tracefile
from decoders.trace.trace import Trace
from specviz.places import SUFFIX, is_id
from specviz.server.store import summary

from .texts import PARTS, PartText, Place, part_texts, places

FILE = "search.sqlite"
VERSION = 1  # of the tables: an index of another version is made anew
MIN_TRIGRAM = 3  # characters; shorter words are looked for in every text
MAX_RUNS = 100  # whose places are shown
LOCK_S = 5.0
TABLES = f"""
CREATE TABLE runs(
    id INTEGER PRIMARY KEY, key TEXT UNIQUE, stamp TEXT, title TEXT, method TEXT,
    {", ".join(f"{part} BLOB" for part in PARTS)}
);
CREATE VIRTUAL TABLE texts USING fts5({", ".join(PARTS)}, tokenize='trigram');
PRAGMA user_version={VERSION};
"""
LACKS_SEARCH = (
    f"runs cannot be searched: SQLite {sqlite3.sqlite_version} of this Python lacks FTS5 with trigrams; use another "
    "Python, with SQLite 3.34 or newer"
)
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """A run to be indexed: ``load`` reads it; another ``stamp``: it has changed since."""

    stamp: str
    load: Callable[[], Trace]


def file_sources(folder: Path) -> dict[str, Source]:
    """The runs in a folder's regular files (to open a pipe would wait for ever), the newest first."""
    files = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX) and is_id(entry.name.removesuffix(SUFFIX)):
                with contextlib.suppress(OSError):  # another server removed it
                    facts = entry.stat()
                    if stat.S_ISREG(facts.st_mode):
                        files.append((facts.st_mtime_ns, facts.st_size, entry.name))
    return {
        name.removesuffix(SUFFIX): Source(f"{changed} {size}", lambda name=name: tracefile.load(folder / name))
        for changed, size, name in sorted(files, reverse=True)
    }


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run that holds some of the words, and where; ``count``: all places, of which the first are named."""

    title: str
    method: str
    words: tuple[str, ...]
    places: tuple[Place, ...] = ()
    count: int = 0


class RunIndex:
    """Contents of runs, by key. It lies in a file of the folder; without one, or where the disk refuses, in memory. A
    file that is damaged is made anew: nothing stands in it that the runs do not hold.
    """

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / FILE
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self.beginnings = 0  # how often it was made anew, or in memory

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            place = ":memory:" if self.path is None else str(self.path)
            if self.path is not None and not self.path.exists():
                private_folder(self.path.parent)
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
            connection = sqlite3.connect(place, timeout=LOCK_S, check_same_thread=False)
            self._connection = connection
            connection.execute("PRAGMA synchronous=OFF")  # what a loss of power damages is made anew
            connection.execute("PRAGMA secure_delete=ON")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if not version:
                connection.executescript(f"BEGIN IMMEDIATE; {TABLES} COMMIT;")
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"it has version {version}")
        return self._connection

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Work on the tables as one transaction; made anew where they are damaged, in memory where the disk refuses."""
        with self._lock:
            for attempt in range(3):
                try:
                    with (connection := self._connect()):
                        return work(connection)
                except (sqlite3.DatabaseError, OSError) as problem:
                    self._disconnect()
                    if re.match("no such (module|tokenizer)", str(problem)):
                        raise UserError(LACKS_SEARCH) from None
                    if self.path is None or attempt == 2:
                        raise
                    self._repair(problem)
        raise AssertionError

    def _repair(self, problem: Exception) -> None:
        code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        assert self.path is not None
        self.beginnings += 1
        if isinstance(problem, OSError) or code in REFUSALS:
            log.warning("the index of runs is in memory alone (%s): %s", self.path, problem)
            self.path = None
        elif code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            log.warning("the index of runs is made anew (%s): %s", self.path, problem)
            remove(self.path)

    def check(self) -> None:
        """Make the file anew where something in it is damaged that no search would notice."""

        def integrity(connection: sqlite3.Connection) -> None:
            (words,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if words != "ok":
                raise sqlite3.DatabaseError(words)
            connection.execute("INSERT INTO texts(texts) VALUES('integrity-check')")

        self._do(integrity)

    def sync(
        self, sources: Mapping[str, Source], *, seconds: float = float("inf"),
        progress: Callable[[int, int], None] = lambda count, total: None,
    ) -> list[str]:  # fmt: skip
        """Index the runs that are new or changed, as many as the time allows, and forget those that are gone; returns
        the runs that are left.
        """
        end = time.monotonic() + seconds
        stamps = self._do(lambda db: dict(db.execute("SELECT key, stamp FROM runs")))
        self._do(lambda db: [_forget(db, key) for key in stamps if key not in sources])
        new_keys = [key for key, source in sources.items() if stamps.get(key) != source.stamp]
        for place, key in enumerate(new_keys):
            if time.monotonic() > end:
                return new_keys[place:]
            self._add(key, sources[key])
            progress(place + 1, len(new_keys))
        return []

    def _add(self, key: str, source: Source) -> None:
        title, method, parts = "", "", {part: PartText() for part in PARTS}
        try:
            trace = source.load()
            facts, parts = summary(trace), part_texts(trace)
            title, method = facts["title"], facts["method"]
        except (tracefile.TraceError, OSError) as problem:  # it stands in the index without a text
            log.info("%s", problem)
        blobs, texts = [parts[part].blob() for part in PARTS], [parts[part].text for part in PARTS]

        def insert(connection: sqlite3.Connection) -> None:
            _forget(connection, key)
            names, marks = ", ".join(PARTS), ", ".join("?" * len(PARTS))
            values = (key, source.stamp, title, method, *blobs)
            row = connection.execute(
                f"INSERT INTO runs(key, stamp, title, method, {names}) VALUES(?, ?, ?, ?, {marks})", values
            )
            connection.execute(f"INSERT INTO texts(rowid, {names}) VALUES(?, {marks})", (row.lastrowid, *texts))

        self._do(insert)

    def find(self, words: Sequence[str], keys: Collection[str]) -> dict[str, FoundRun]:
        """Look for words in the runs ``keys``; returns those that hold some of them, in that order. The
        ``MAX_RUNS`` that hold most of them have their places.
        """

        def search(connection: sqlite3.Connection) -> dict[str, FoundRun]:
            words_of: dict[str, list[str]] = {}
            rows: dict[str, tuple[int, str, str]] = {}
            for word in words:
                for row, key, *about in connection.execute(*_query(word)):
                    words_of.setdefault(key, []).append(word)
                    rows[key] = row, *about
            matches = {key: FoundRun(*rows[key][1:], tuple(words_of[key])) for key in keys if key in words_of}
            for key in sorted(matches, key=lambda key: -len(matches[key].words))[:MAX_RUNS]:
                columns = ", ".join(f"{table}.{part}" for table in ("texts", "runs") for part in PARTS)
                query = f"SELECT {columns} FROM texts JOIN runs ON id=texts.rowid WHERE id=?"
                values = connection.execute(query, (rows[key][0],)).fetchone()
                texts, blobs = (
                    dict(zip(PARTS, part, strict=True)) for part in (values[: len(PARTS)], values[len(PARTS) :])
                )
                run_places, count = places(matches[key].words, texts, blobs)
                matches[key] = replace(matches[key], places=tuple(run_places), count=count)
            return matches

        return self._do(search)


REFUSALS = (
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
)  # fmt: skip


def remove(path: Path) -> None:
    """Remove an index with what SQLite may have left beside it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _forget(connection: sqlite3.Connection, key: str) -> None:
    if row := connection.execute("SELECT id FROM runs WHERE key=?", (key,)).fetchone():
        connection.execute("DELETE FROM texts WHERE rowid=?", row)
        connection.execute("DELETE FROM runs WHERE id=?", row)


def _query(word: str) -> tuple[str, tuple[str, ...]]:
    """The question for the rows whose texts hold a word, upper and lower case alike."""
    if len(word) >= MIN_TRIGRAM:
        phrase = '"{}"'.format(word.replace('"', '""'))
        return "SELECT id, key, title, method FROM texts JOIN runs ON id=texts.rowid WHERE texts MATCH ?", (phrase,)
    pattern = f"%{word.translate({ord(c): f'!{c}' for c in '%_!'})}%"
    tests = " OR ".join(f"texts.{part} LIKE ? ESCAPE '!'" for part in PARTS)
    return f"SELECT id, key, title, method FROM texts JOIN runs ON id=texts.rowid WHERE {tests}", (pattern,) * len(
        PARTS
    )
