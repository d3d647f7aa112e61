"""The library of stored runs: journals, titles, tags, room."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from decoders.errors import reason_of
from decoders.folders import private_folder, write_bytes, write_text
from decoders.trace import files as tracefile
from decoders.trace import journal as runjournal
from decoders.trace import trace as tr
from specviz.places import SUFFIX, is_id, new_id

from .store import EVERYBODY, FAIR_SHARE, MAX_TAGS, MAX_TITLE, TraceStore, log, surplus, unpack

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None

JOURNAL = ".journal"
ABOUT = ".json"
RETRY_S = 10.0  # between two tries to save what the disk refused


class LibraryJournal:
    """A run's journal while it goes on. Where the disk refuses, it falls silent, and the run goes on without it."""

    def __init__(self, path: Path, failed: Callable[[Exception], None]) -> None:
        self._journal = runjournal.Journal(path)
        self._fail = failed
        self._lock: int | None = None
        self.whole = True  # nothing was lost so far

    def _try(self, act: Callable[..., Any], *arguments: Any) -> None:
        try:
            if self.whole:
                act(*arguments)
        except (tracefile.TraceError, OSError) as error:
            self.whole = False
            self._fail(error)
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

    def stop(self) -> None:
        """No step follows. The file stays, and other servers leave it alone until ``close``."""
        self._try(self._journal.close)

    def close(self) -> None:
        self.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class JournaledRun:
    """A run that is kept elsewhere once it is over, journaled until then: cut off, it is found by the next server."""

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


class Library:
    """Runs on disk, one file each, bounded; a run that is under way is journaled, so that a crash loses nothing.

    ``<id>.journal`` while a run goes on, ``<id>.spectrace`` when it is over; ``<id>.json`` holds its owner, title, tags
    and whether it is kept. A run that the disk refuses stays in the memory that the library ``belongs_to``, and is
    written as soon as that works; until then ``problem`` says so in a sentence. Only their owner reads the files.
    """

    def __init__(self, folder: Path, *, max_count: int = 200, max_bytes: int = 512 << 20) -> None:
        self.folder, self.max_count, self.max_bytes = folder, max_count, max_bytes
        self.unsaved: dict[str, None] = {}  # ids of runs that are over and that no file holds, the oldest first
        self._reason = ""
        self._memory: TraceStore | None = None
        self._saving = threading.Lock()
        self._try_time = 0.0
        self._flush_timer: threading.Timer | None = None
        self._live: set[str] = set()
        self._end_times: dict[str, float] = {}  # when runs of this server ended, by the monotonic clock
        self._lock: int | None = None
        self._about: dict[str, dict[str, Any]] = {}
        self._change = threading.Lock()

    def belongs_to(self, store: TraceStore) -> None:
        """Keep what the disk refuses in ``store``, and remove files in the order in which it was used."""
        self._memory, store.unsaved = store, self.unsaved

    @property
    def problem(self) -> str:
        """A sentence for the user where runs are in memory alone; "" where all are on disk."""
        if not self._reason:
            return ""
        return (
            f"Runs are not saved on disk ({self._reason}): they are kept in memory, as many as fit there, and saved as "
            "soon as the disk takes them."
        )

    def lock_folder(self) -> bool:
        """True where no other server writes journals here; this one then holds the folder until ``close``."""
        if fcntl is None:  # not a Unix: journals that rest for a minute count as abandoned
            return False
        if self._lock is not None:
            return True
        private_folder(self.folder)
        lock = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def close(self) -> None:
        """Save what is not saved yet, and let another server have the folder."""
        self.save_unsaved(at_once=True)
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _fail(self, error: Exception, key: str = "") -> None:
        """The disk refused; ``key`` is a run that is over and is to be written later."""
        error = error.__cause__ if isinstance(error.__cause__, OSError) else error
        reason = " ".join(reason_of(error).split())
        if getattr(error, "errno", None) in (errno.EROFS, errno.EACCES, errno.EPERM):
            reason = "the folder is read-only"
        if not self._reason:  # once, however many runs follow
            log.warning("runs are not saved on disk (%s): %s", self.folder, reason)
        self._reason = reason
        if key:
            self.unsaved.setdefault(key)
        if self.unsaved and (self._flush_timer is None or not self._flush_timer.is_alive()):
            self._flush_timer = threading.Timer(RETRY_S, self.save_unsaved, kwargs={"at_once": True})
            self._flush_timer.daemon = True
            self._flush_timer.start()

    def save_unsaved(self, *, at_once: bool = False) -> None:
        """Write the runs that memory alone has, if the disk takes them; once a second, unless ``at_once``."""
        due = at_once or time.monotonic() - self._try_time > 1
        if not self.unsaved or self._memory is None or not due or not self._saving.acquire(blocking=False):
            return
        try:
            for key in [key for key in list(self.unsaved) if key not in self._live]:
                entry = self._memory.entry(key)
                if entry is not None:
                    try:
                        self._save(unpack(entry.blob))
                    except tracefile.TraceError as error:
                        log.warning("%s", error)
                elif key in self:
                    self._write_about(key)
                else:
                    log.warning("run %s was never saved on disk, and made room for later ones", key)
                if self.unsaved.pop(key, self) is self:  # it was deleted in the meantime
                    self.remove(key)
            if not self.unsaved:
                self._reason = ""
        except OSError as error:
            if self._flush_timer is not None:  # this may be its thread
                self._flush_timer.cancel()
                self._flush_timer = None
            self._fail(error)
        finally:
            self._try_time = time.monotonic()
            self._saving.release()

    def _save(self, trace: tr.Trace) -> None:
        """Write a run's file in place of its journal, so that it outlives a loss of power. Raises TraceError for a
        trace that is not whole, and OSError.
        """
        key = trace.run["id"]
        data = tracefile.save(trace, None)
        assert data is not None
        private_folder(self.folder)
        if self.about(key):
            self._write_about(key, sync=True)
        write_bytes(self.folder / f"{key}{SUFFIX}", data, private=True, sync=True)
        (self.folder / f"{key}{JOURNAL}").unlink(missing_ok=True)

    def start(self, trace: tr.Trace, owner: str = "") -> LibraryJournal:
        """A journal for a run that begins now."""
        key = trace.run["id"]
        journal = LibraryJournal(self.folder / f"{key}{JOURNAL}", self._fail)
        journal.start(trace)
        self._live.add(key)
        if owner:
            self.describe(key, owner=owner)
        return journal

    def forget(self, key: str, journal: LibraryJournal) -> None:
        """A guarded run is over: it is kept elsewhere, or not at all."""
        journal.close()
        with contextlib.suppress(OSError):
            self.remove(key)
        self._live.discard(key)

    def finish(self, trace: tr.Trace, journal: LibraryJournal | None = None) -> None:
        """The run is over: its file replaces its journal."""
        key = trace.run["id"]
        if journal is not None:
            journal.stop()
        try:
            self._save(trace)
            self.unsaved.pop(key, None)
            self._end_times[key] = time.monotonic()
            if not self.unsaved:
                self._reason = ""
        except tracefile.TraceError as error:  # no disk ever takes it
            self._fail(error)
        except OSError as error:
            self._fail(error, key)
        finally:
            self._live.discard(key)
            if journal is not None:
                journal.close()
        if key not in self.unsaved:
            self.save_unsaved(at_once=True)
            self.trim()

    def __contains__(self, key: str) -> bool:
        return is_id(key) and (self.folder / f"{key}{SUFFIX}").is_file()

    def about(self, key: str) -> dict[str, Any]:
        """Facts kept beside a run: owner, title, tags, keep; empty where nothing is."""
        if key not in self._about:
            facts: Any = None
            path = self.folder / f"{key}{ABOUT}"
            with contextlib.suppress(OSError, ValueError, RecursionError):
                facts = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
            self._about[key] = facts if isinstance(facts, dict) else {}
        return self._about[key]

    def describe(self, key: str, **about: Any) -> None:
        """Change what is kept beside a run."""
        with self._change:
            description = {**self.about(key), **about}
            self._about[key] = description
        try:
            self._write_about(key)
        except OSError as error:
            self._fail(error, key)

    def _write_about(self, key: str, *, sync: bool = False) -> None:
        with self._change:
            text = json.dumps(self.about(key), ensure_ascii=False)
            write_bytes(self.folder / f"{key}{ABOUT}", text.encode(), private=True, sync=sync)

    def remove(self, key: str) -> None:
        """Delete a run's files. Raises OSError where the disk refuses."""
        self._about.pop(key, None)
        self.unsaved.pop(key, None)
        if is_id(key):
            for suffix in (SUFFIX, JOURNAL, ABOUT):
                (self.folder / f"{key}{suffix}").unlink(missing_ok=True)

    def trim(self) -> None:
        """Remove files beyond the limits, the least recently used first; this server's own runs are the newest."""
        memory = self._memory
        use_times, share = ({}, FAIR_SHARE) if memory is None else (memory.ages(), memory.fair_share)
        with self._change:
            files = [(path.stem, about.st_size) for path, about in self._stats(SUFFIX)]
            files.sort(key=lambda file: (use_times.get(file[0], -1), self._end_times.get(file[0], -1)))
            self._end_times = {key: self._end_times[key] for key, _ in files if key in self._end_times}
            kept_sizes = [size for key, size in files if self.about(key).get("keep")]
            loose = [(key, str(self.about(key).get("owner", "")), size) for key, size in files]
            loose = [item for item in loose if not self.about(item[0]).get("keep")]
            count, size = max(1, self.max_count - len(kept_sizes)), max(1, self.max_bytes - sum(kept_sizes))
            for key in surplus(loose, count, size, share):
                try:
                    self.remove(key)
                except OSError as error:  # the next run tries again
                    log.warning("run %s cannot be removed to make room: %s", key, error)

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
        """Put the files of earlier servers into the store: whole runs as "earlier", those that ``recover`` made as
        "recovered".

        On a ``shared`` server they belong to whom they belonged to, else to everybody.
        """
        for path in self._files(SUFFIX)[-self.max_count :]:
            if is_id(path.stem) and path.stem not in store:
                self.bring(path.stem, store, shared=shared)

    def recover(self, store: TraceStore, *, shared: bool = False) -> None:
        """Make files of the journals that a crash left behind; into the store with those that the disk refuses."""
        if not self.folder.is_dir():
            return
        try:
            only_server = self.lock_folder()
        except OSError as error:
            self._fail(error)
            only_server = False
        if only_server:
            self._sweep()
        for path in self._files(JOURNAL):
            if path.stem in self._live or not _is_abandoned(path, only_server):
                continue
            try:
                trace = runjournal.recover(path)
            except tracefile.TraceError as error:
                log.warning("%s", error)
                with contextlib.suppress(OSError):
                    path.rename(path.with_suffix(".unreadable"))
                    write_text(path.with_suffix(".unreadable.txt"), f"{error}\n", private=True)
                continue
            trace.run["id"] = path.stem
            try:
                self._save(trace)
            except (tracefile.TraceError, OSError) as error:  # the journal stays until then
                self._put(trace, path.stem, store, shared)
                self._fail(error, path.stem if isinstance(error, OSError) else "")

    def _sweep(self) -> None:
        """Remove what a killed server had not renamed yet; hide from others what earlier versions let them read."""
        for path in (self.folder, *self.folder.iterdir()):
            with contextlib.suppress(OSError):
                mode = path.stat().st_mode
                if mode & 0o077:
                    path.chmod(mode & ~0o077)
                if path.name.startswith(".") and path.name != ".lock" and path.is_file() and _rests(path) > 60:
                    path.unlink()

    def _stats(self, suffix: str) -> list[tuple[Path, os.stat_result]]:
        """Regular files, the oldest first: to open a pipe would wait for ever."""
        files = []
        for path in self.folder.glob(f"*{suffix}"):
            with contextlib.suppress(OSError):  # another thread or server removed it
                about = path.stat()
                if stat.S_ISREG(about.st_mode):
                    files.append((path, about))
        return sorted(files, key=lambda file: (file[1].st_mtime, file[0]))

    def _files(self, suffix: str) -> list[Path]:
        return [path for path, _ in self._stats(suffix)]


def _rests(path: Path) -> float:
    """Seconds since it was last written; the clock may have been set back since."""
    return abs(time.time() - path.stat().st_mtime)


def _is_abandoned(path: Path, only_server: bool) -> bool:
    """True for a journal that no server works on any more; ``only_server``: no other one is known."""
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
