"""The library of stored runs: journals, titles, tags, room."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from decoders.folders import write_bytes
from decoders.trace import files as tracefile
from decoders.trace import journal as runjournal
from decoders.trace import trace as tr
from specviz.places import SUFFIX, is_id, new_id

from .store import EVERYBODY, MAX_TAGS, MAX_TITLE, TraceStore, log, surplus

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None

JOURNAL = ".journal"
ABOUT = ".json"


class Journal:
    """A run's journal while it goes on. Where the disk refuses, it falls silent, and the run goes on without it."""

    def __init__(self, path: Path, failed: Callable[[Exception], None]) -> None:
        self._journal = runjournal.Journal(path)
        self._failed = failed
        self._lock: int | None = None
        self.whole = True  # nothing was lost so far

    def _try(self, act: Callable[..., Any], *arguments: Any) -> None:
        try:
            if self.whole:
                act(*arguments)
        except (tracefile.TraceError, OSError) as error:
            self.whole = False
            self._failed(error)
            with contextlib.suppress(tracefile.TraceError, OSError):
                self._journal.close()

    def start(self, trace: tr.Trace) -> None:
        self._try(self._journal.start, trace)
        if self.whole and fcntl is not None:  # says to other servers that this run goes on
            with contextlib.suppress(OSError):
                self._lock = os.open(self._journal.path, os.O_RDONLY)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def append(self, delta: Mapping[str, Mapping[str, list[Any]]]) -> None:
        self._try(self._journal.append, delta)

    def close(self) -> None:
        self._try(self._journal.close)
        self._unlock()

    def finish(self, trace: tr.Trace) -> None:
        """The trace's file replaces the journal. Raises TraceError or OSError where it cannot be written."""
        self._try(self._journal.close)
        try:
            tracefile.save(trace, self._journal.path.with_suffix(SUFFIX))
            self._journal.path.unlink(missing_ok=True)
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class Guarded:
    """A run that is kept elsewhere once it is over, and journaled until then."""

    def __init__(self, run: Any, library: Library, owner: str) -> None:
        self.trace: tr.Trace = run.trace
        self._run, self._library, self._owner = run, library, owner

    def __iter__(self) -> Iterator[Mapping[str, Mapping[str, list[Any]]]]:
        key = self.trace.run["id"] = new_id()
        journal = self._library.start(self.trace, self._owner)
        try:
            for delta in self._run:
                journal.append(delta)
                yield delta
        finally:
            self._library.forget(key, journal)

    def finished(self) -> tr.Trace:
        """The trace, once the run has come to its end."""
        for _ in self:
            pass
        return self.trace


class Library:
    """Runs on disk, one file each, bounded; a run that is under way is journaled, so that a crash loses nothing.

    ``<id>.journal`` while a run goes on, ``<id>.spectrace`` when it is over; ``<id>.json`` holds its owner, title, tags
    and whether it is kept. A failing disk costs files, never a run; ``problem`` says so in a sentence.
    """

    def __init__(self, folder: Path, *, max_count: int = 200, max_bytes: int = 512 << 20) -> None:
        self.folder, self.max_count, self.max_bytes = folder, max_count, max_bytes
        self.problem = ""
        self._live: set[str] = set()
        self._finished: dict[str, float] = {}  # when runs of this server ended, by the monotonic clock
        self._lock: int | None = None
        self._about: dict[str, dict[str, Any]] = {}
        self._change = threading.Lock()

    def lock_folder(self) -> bool:
        """Whether no other server writes journals here; this one then holds the folder until ``close``."""
        if fcntl is None:  # not a Unix: journals that rest for a minute count as abandoned
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

    def _failed(self, error: Exception) -> None:
        why = " ".join(str(getattr(error, "strerror", None) or error).split())
        if not self.problem:  # once, however many runs follow
            log.warning("runs are not saved on disk: %s", why)
        self.problem = f"Runs are not saved on disk ({why}): they go on, and are kept until the server ends."

    def start(self, trace: tr.Trace, owner: str = "") -> Journal:
        """A journal for a run that begins now."""
        key = trace.run["id"]
        journal = Journal(self.folder / f"{key}{JOURNAL}", self._failed)
        journal.start(trace)
        if journal.whole and owner:
            self.describe(key, owner=owner)
        self._live.add(key)
        return journal

    def guarded(self, run: Any, owner: str = "") -> Guarded:
        """A run of something that keeps its runs itself: cut off, it is found here by the next server."""
        return Guarded(run, self, owner)

    def forget(self, key: str, journal: Journal) -> None:
        """A guarded run is over: it is kept elsewhere, or not at all."""
        journal.close()
        with contextlib.suppress(OSError):
            self.remove(key)
        self._live.discard(key)

    def finish(self, trace: tr.Trace, journal: Journal | None = None) -> None:
        """The run is over: its file replaces its journal."""
        key = trace.run["id"]
        try:
            if journal is not None:
                journal.finish(trace)
            else:
                self.folder.mkdir(parents=True, exist_ok=True)
                tracefile.save(trace, self.folder / f"{key}{SUFFIX}")
            self.problem = ""
            self._finished[key] = time.monotonic()
            self.trim()
        except (tracefile.TraceError, OSError) as error:
            self._failed(error)
        self._live.discard(key)

    def __contains__(self, key: str) -> bool:
        return is_id(key) and (self.folder / f"{key}{SUFFIX}").is_file()

    def about(self, key: str) -> dict[str, Any]:
        """What is kept beside a run: owner, title, tags, keep; empty where nothing is."""
        if key not in self._about:
            kept: Any = None
            with contextlib.suppress(OSError, ValueError, RecursionError):
                kept = json.loads((self.folder / f"{key}{ABOUT}").read_text(encoding="utf-8"))
            self._about[key] = kept if isinstance(kept, dict) else {}
        return self._about[key]

    def describe(self, key: str, **about: Any) -> None:
        """Change what is kept beside a run."""
        with self._change:
            changed = {**self.about(key), **about}
            self._about[key] = changed
            text = json.dumps(changed, ensure_ascii=False)
            try:
                write_bytes(self.folder / f"{key}{ABOUT}", text.encode(), private=True)
            except OSError as error:
                self._failed(error)

    def remove(self, key: str) -> None:
        """Delete a run's files. Raises OSError where the disk refuses."""
        self._about.pop(key, None)
        if is_id(key):
            for suffix in (SUFFIX, JOURNAL, ABOUT):
                (self.folder / f"{key}{suffix}").unlink(missing_ok=True)

    def trim(self) -> None:
        """Remove the oldest files beyond the limits; runs of this server are the newest, whatever the clock says."""
        with self._change:
            paths = sorted(self._files(SUFFIX), key=lambda path: self._finished.get(path.stem, -1))
            files = [(path.stem, path.stat().st_size) for path in paths]
            self._finished = {key: self._finished[key] for key, _ in files if key in self._finished}
            kept = [size for key, size in files if self.about(key).get("keep")]
            loose = [(key, str(self.about(key).get("owner", "")), size) for key, size in files]
            loose = [item for item in loose if not self.about(item[0]).get("keep")]
            for key in surplus(loose, max(1, self.max_count - len(kept)), max(1, self.max_bytes - sum(kept))):
                self.remove(key)

    def bring(self, key: str, store: TraceStore, *, shared: bool = False) -> bool:
        """Put one run of the folder into the store. Whether it is there and can be read."""
        if key not in self:
            return False
        try:
            trace = tracefile.load(self.folder / f"{key}{SUFFIX}")
        except tracefile.TraceError as error:
            log.warning("%s", error)
            return False
        self._put(trace, key, store, shared)
        return True

    def _put(self, trace: tr.Trace, key: str, store: TraceStore, shared: bool) -> None:
        about = self.about(key)
        trace.run["id"] = key
        if isinstance(about.get("title"), str):
            trace.run["title"] = about["title"][:MAX_TITLE]
        tags = [tag for tag in about.get("tags") or () if isinstance(tag, str)][:MAX_TAGS]
        owner = str(about.get("owner") or "") if shared else EVERYBODY
        kind = "earlier" if trace.run["complete"] else "recovered"
        store.put(trace, kind=kind, owner=owner, tags=tags, keep=bool(about.get("keep")))

    def restore(self, store: TraceStore, *, shared: bool = False) -> None:
        """Put what earlier servers left behind into the store: whole runs as "earlier", cut-off ones as "recovered".

        On a ``shared`` server they belong to whom they belonged to, else to everybody.
        """
        if not self.folder.is_dir():
            return
        try:
            only_server = self.lock_folder()
        except OSError as error:
            self._failed(error)
            only_server = False
        if only_server:
            self._sweep()
        for path in self._files(JOURNAL):
            if path.stem in self._live or not _abandoned(path, only_server):
                continue
            try:
                trace = runjournal.recover(path)
            except tracefile.TraceError as error:
                log.warning("%s", error)
                with contextlib.suppress(OSError):
                    path.rename(path.with_suffix(".unreadable"))
                    path.with_suffix(".unreadable.txt").write_text(f"{error}\n", encoding="utf-8")
                continue
            try:
                tracefile.save(trace, path.with_suffix(SUFFIX))
                path.unlink()
            except (tracefile.TraceError, OSError) as error:  # the journal stays for the next start
                self._failed(error)
                self._put(trace, path.stem, store, shared)
        for path in self._files(SUFFIX)[-self.max_count :]:
            if is_id(path.stem) and path.stem not in store:
                self.bring(path.stem, store, shared=shared)

    def _sweep(self) -> None:
        """Remove what a killed server was about to write and had not renamed yet."""
        for path in self.folder.glob(".*"):
            with contextlib.suppress(OSError):
                if path.name != ".lock" and path.is_file() and _rests(path) > 60:
                    path.unlink()

    def _files(self, suffix: str) -> list[Path]:
        """Oldest first."""
        files = []
        for path in self.folder.glob(f"*{suffix}"):
            with contextlib.suppress(OSError):  # another server removed it
                files.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(files)]


def _rests(path: Path) -> float:
    """Seconds since it was last written; the clock may have been set back since."""
    return abs(time.time() - path.stat().st_mtime)


def _abandoned(path: Path, only_server: bool) -> bool:
    """Whether no server works on this journal any more; ``only_server``: there is no other one, as far as is known."""
    try:
        rests = _rests(path)
        if fcntl is None:
            return rests > 60
        file = os.open(path, os.O_RDONLY)
    except OSError:  # it is over by now
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(file)
    return only_server or rests > 2  # one that begins is not locked yet
