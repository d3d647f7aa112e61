"""The traces a server holds: bounded in memory, journaled on disk, found again after a crash.

A trace is kept as the compressed JSON the browser gets (a tenth of its size as Python lists) and turned back into a
``Trace`` only when a download or an analysis asks for one.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders import trace as tr
from decoders.metrics import compute

log = logging.getLogger(__name__)

ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
SUFFIX = ".spectrace"
JOURNAL = ".journal"
KINDS = ("run", "opened", "gallery", "recovered", "earlier")  # in the order of a list
EVERYBODY = "*"  # the owner of runs that are in everybody's list


class UnknownTrace(KeyError):
    """No trace has this id (any more)."""

    def __str__(self) -> str:
        return f"There is no run called {self.args[0]!r} here: it was removed to make room, or made on another server."


def home() -> Path:
    """Where specviz keeps what belongs to the user: ``SPECVIZ_HOME``, or the platform's data folder."""
    chosen = os.environ.get("SPECVIZ_HOME")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("specviz", appauthor=False))


def new_id() -> str:
    """A trace id nobody can guess: whoever has the link may look, nobody else."""
    return secrets.token_urlsafe(9).replace("-", "x").replace("_", "y")


def is_id(text: object) -> bool:
    """Whether ``text`` has the form of a trace id."""
    return isinstance(text, str) and ID.fullmatch(text) is not None


def summary(trace: tr.Trace) -> dict[str, Any]:
    """What a list of runs shows of a run."""
    run = trace.run
    method, model = run.get("method") or {}, run.get("model") or {}
    metrics = run.get("metrics") or compute(trace)
    per_step = metrics.get("tokens_per_step")
    return {
        "id": run.get("id", ""),
        "title": str(run.get("title") or "Untitled run"),
        "method": str(method.get("title") or method.get("name") or "?"),
        "method_name": str(method.get("name") or ""),
        "lossless": bool(method.get("lossless", True)),
        "model": str(model.get("name") or ""),
        "created": str(run.get("created") or ""),
        "stop": str(run.get("stop") or ""),
        "error": str(run.get("error") or ""),
        "steps": trace.rows("steps"),
        "tokens": trace.rows("tokens") - int(run.get("prompt_length") or 0),
        "tokens_per_step": None if per_step is None else round(per_step, 2),
    }


def packed(payload: Mapping[str, Any], level: int = 5) -> bytes:
    """Compressed JSON."""
    return gzip.compress(json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode(), level, mtime=0)


def unpacked(blob: bytes) -> tr.Trace:
    """The trace inside ``packed(trace.to_json())``."""
    payload = json.loads(gzip.decompress(blob))
    return tr.Trace(payload["run"], {name: table for name, table in payload.items() if name in tr.TABLES})


@dataclass(slots=True)
class Entry:
    """One stored run. ``kind`` is one of ``KINDS``; ``owner`` is the browser it belongs to, or ``EVERYBODY``."""

    id: str
    kind: str
    owner: str
    blob: bytes
    summary: dict[str, Any]

    @property
    def pinned(self) -> bool:
        return self.kind == "gallery"


class TraceStore:
    """Finished runs, bounded by count and bytes: the least recently used go first, the gallery never.

    >>> from decoders.trace import Trace
    >>> store = TraceStore(max_count=1)
    >>> for name in "ab":
    ...     _ = store.put(Trace.new({"id": name, "prompt_length": 0}))
    >>> "a" in store, "b" in store
    (False, True)
    """

    def __init__(self, *, max_count: int = 200, max_bytes: int = 256 << 20) -> None:
        if max_count < 1 or max_bytes < 1:
            raise ValueError(f"the store needs room for a run; got max_count={max_count}, max_bytes={max_bytes}")
        self.max_count, self.max_bytes = max_count, max_bytes
        self._entries: OrderedDict[str, Entry] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def put(self, trace: tr.Trace, *, kind: str = "run", owner: str = "") -> str:
        """Keep a finished trace; returns its id (a new one where the trace has none or an ill-formed one)."""
        if not is_id(trace.run.get("id")):
            trace.run["id"] = new_id()
        key = trace.run["id"]
        entry = Entry(key, kind, owner, packed(trace.to_json()), summary(trace))
        with self._lock:
            old = self._entries.get(key)
            if old is not None and old.pinned and kind != "gallery":
                return key  # nobody replaces a gallery run
            self._entries[key] = entry
            self._entries.move_to_end(key)
            self._trim()
        return key

    def _trim(self) -> None:
        loose = [e for e in self._entries.values() if not e.pinned]
        size = sum(len(e.blob) for e in loose)
        while len(loose) > 1 and (len(loose) > self.max_count or size > self.max_bytes):
            gone = loose.pop(0)
            size -= len(gone.blob)
            del self._entries[gone.id]

    def blob(self, key: str) -> bytes:
        """The compressed JSON of a run. Raises UnknownTrace."""
        with self._lock:
            if key not in self._entries:
                raise UnknownTrace(key)
            self._entries.move_to_end(key)
            return self._entries[key].blob

    def get(self, key: str) -> tr.Trace:
        """The run as a trace. Raises UnknownTrace."""
        return unpacked(self.blob(key))

    def entry(self, key: str) -> Entry | None:
        with self._lock:
            return self._entries.get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(len(e.blob) for e in self._entries.values())

    def listing(self, owner: str) -> list[dict[str, Any]]:
        """What ``owner`` may see in a list: by kind; the gallery in its order, the others the newest first."""
        with self._lock:
            seen = [e for e in self._entries.values() if e.owner == EVERYBODY or (owner and e.owner == owner)]
        newest = sorted(seen, key=lambda e: e.summary["created"], reverse=True)
        ordered = sorted(newest, key=lambda e: (KINDS.index(e.kind), e.id if e.pinned else ""))
        return [{**e.summary, "kind": e.kind} for e in ordered]


def load_folder(store: TraceStore, folder: Path, kind: str) -> int:
    """Put every readable trace file of a folder into the store; unreadable ones are logged and skipped."""
    from decoders import tracefile

    count = 0
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
        try:
            trace = tracefile.load(path)
        except tracefile.TraceError as error:
            log.warning("%s", error)
            continue
        trace.run["id"] = path.stem if is_id(path.stem) else new_id()
        store.put(trace, kind=kind, owner=EVERYBODY)
        count += 1
    return count


class Library:
    """Runs on disk, one file each, bounded; a run that is under way is journaled, so that a crash loses nothing.

    ``<id>.journal`` while a run goes on, ``<id>.spectrace`` when it is over. A failing disk costs files, never a run.
    """

    def __init__(self, folder: Path, *, max_count: int = 100, max_bytes: int = 512 << 20) -> None:
        self.folder, self.max_count, self.max_bytes = folder, max_count, max_bytes
        self._live: set[str] = set()
        self._lock: int | None = None

    def alone(self) -> bool:
        """Whether no other server writes journals here; this one then holds the folder until ``close``."""
        try:
            import fcntl
        except ImportError:  # not a Unix: journals that rest for a minute count as abandoned
            return False
        if self._lock is not None:
            return True
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def close(self) -> None:
        """Let another server have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def start(self, trace: tr.Trace) -> Any:
        """A journal for a run that begins now; None (and a log line) where it cannot be written."""
        from decoders import tracefile

        journal = tracefile.Journal(self.folder / f"{trace.run['id']}{JOURNAL}")
        try:
            journal.start(trace)
        except (tracefile.TraceError, OSError) as error:
            log.warning("this run is not journaled: %s", error)
            return None
        self._live.add(trace.run["id"])
        return journal

    def finish(self, trace: tr.Trace, journal: Any) -> None:
        """The run is over: its file replaces its journal."""
        from decoders import tracefile

        try:
            journal.finish(trace)
            self.trim()
        except (tracefile.TraceError, OSError) as error:
            log.warning("run %s stays a journal: %s", trace.run["id"], error)
        self._live.discard(trace.run["id"])

    def trim(self) -> None:
        """Remove the oldest files beyond the limits."""
        size = 0
        for place, path in enumerate(reversed(self._files(SUFFIX))):
            size += path.stat().st_size
            if place and (place >= self.max_count or size > self.max_bytes):
                path.unlink(missing_ok=True)

    def restore(self, store: TraceStore) -> None:
        """Put what earlier servers left behind into the store: whole runs as "earlier", cut-off ones as "recovered"."""
        from decoders import tracefile

        if not self.folder.is_dir():
            return
        alone = self.alone()
        for path in self._files(JOURNAL):
            if path.stem in self._live or not (alone or time.time() - path.stat().st_mtime > 60):
                continue
            try:
                trace = tracefile.recover(path)
                tracefile.save(trace, path.with_suffix(SUFFIX))
                path.unlink()
            except (tracefile.TraceError, OSError) as error:
                log.warning("%s", error)
                with contextlib.suppress(OSError):
                    path.rename(path.with_suffix(".unreadable"))
        for path in self._files(SUFFIX)[-self.max_count :]:
            if not is_id(path.stem) or path.stem in store:
                continue
            try:
                trace = tracefile.load(path)
            except tracefile.TraceError as error:
                log.warning("%s", error)
                continue
            trace.run["id"] = path.stem
            store.put(trace, kind="earlier" if trace.run["complete"] else "recovered", owner=EVERYBODY)

    def _files(self, suffix: str) -> list[Path]:
        """Oldest first."""
        return sorted(self.folder.glob(f"*{suffix}"), key=lambda p: p.stat().st_mtime)
