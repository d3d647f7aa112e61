"""The traces a server holds: bounded in memory, journaled on disk, found again after a crash.

A trace is kept as the compressed JSON the browser gets (a tenth of its size as Python lists) and turned back into a
``Trace`` only when a download or an analysis asks for one.
"""

from __future__ import annotations

import functools
import gzip
import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoders.errors import UserError
from decoders.trace import files as tracefile
from decoders.trace import trace as tr
from decoders.trace.baseline import pair_with_plain
from decoders.trace.metrics import compute, doubts
from decoders.trace.report import payload
from decoders.trace.tables import NO_TABLES
from specviz.places import SUFFIX, is_id, new_id

log = logging.getLogger(__name__)

KINDS = ("run", "opened", "lesson", "gallery", "recovered", "earlier")  # in the order of a list
EVERYBODY = "*"  # the owner of runs that are in everybody's list
NOBODY = "nobody:"  # begins the owner of a request whose sender cannot be told apart; no user and no browser
MAX_TITLE, MAX_TAG, MAX_TAGS = 200, 30, 10  # characters, characters, per run
FAIR_SHARE = 0.25  # of the room, that an owner may fill before the own oldest run goes instead of the oldest of all
LOSS = ("other_share", "divergence")  # metrics of a lossy run
TAG = re.compile(r"[^\s,:\"]+")


class UnknownTrace(KeyError):
    """No trace has this id (any more)."""

    def __str__(self) -> str:
        name = self.args[0]
        return f"There is no run called {name!r} here: it was deleted, removed to make room, or made on another server."


def summary(trace: tr.Trace) -> dict[str, Any]:
    """A run's facts for a list of runs."""
    run = trace.run
    method, model = run.get("method") or {}, run.get("model") or {}
    metrics = run.get("metrics") or compute(trace)
    per_step, speedup = metrics.get("tokens_per_step"), metrics.get("speedup")
    return {
        "id": run.get("id", ""),
        "title": str(run.get("title") or "Untitled run"),
        "method": str(method.get("title") or method.get("name") or "?"),
        "method_name": str(method.get("name") or ""),
        "lossless": bool(method.get("lossless", True) or run.get("forced")),  # a given answer is not the method's loss
        "forced": bool(run.get("forced")),
        "model": str(model.get("name") or ""),
        "created": str(run.get("created") or ""),
        "stop": str(run.get("stop") or ""),
        "error": str(run.get("error") or ""),
        "steps": trace.rows("steps"),
        "tokens": trace.rows("tokens") - int(run.get("prompt_length") or 0),
        "tokens_per_step": None if per_step is None else round(per_step, 2),
        "speedup": None if speedup is None or doubts(metrics) else round(speedup, 2),
        **{key: round(value, 4) for key in LOSS if isinstance(value := metrics.get(key), int | float)},
        "prompt": trace.prompt_key,
    }


def pack(document: Mapping[str, Any], level: int = 5) -> bytes:
    """Compressed JSON."""
    return gzip.compress(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(), level, mtime=0)


def unpack(blob: bytes) -> tr.Trace:
    """The trace inside ``pack(payload(trace))``."""
    document = json.loads(gzip.decompress(blob))
    return tr.Trace(document["run"], {name: table for name, table in document.items() if name not in NO_TABLES})


def checked_tag(text: object) -> str:
    """A tag as it is kept, in lower case. Raises UserError."""
    tag = text.strip().lower() if isinstance(text, str) else ""
    if not TAG.fullmatch(tag) or len(tag) > MAX_TAG:
        raise UserError(
            f"{str(text)[:40]!r} cannot be a tag: use one word of at most {MAX_TAG} characters, "
            "without commas and colons"
        )
    return tag


def surplus(
    items: Sequence[tuple[str, str, int]], max_count: int, max_bytes: int, share: float = FAIR_SHARE
) -> list[str]:
    """Keys to remove so that the rest fits; ``items`` are (key, owner, bytes), the oldest in front.

    The oldest goes, whosever it is; but nobody pushes out the others: of owners who hold more than ``share`` of the
    room, the one who holds most loses the own oldest first. The last item always stays.

    >>> surplus([("a", "ann", 1), ("b", "bob", 1), ("c", "bob", 1)], 2, 100)
    ['b']
    >>> surplus([("a", "ann", 1), ("b", "bob", 1), ("c", "bob", 1)], 2, 100, share=1)
    ['a']
    """
    entries = [(key, NOBODY if owner.startswith(NOBODY) else owner, count) for key, owner, count in items]
    removed_keys: list[str] = []
    size = sum(item[2] for item in entries)
    while len(entries) > 1 and (len(entries) > max_count or size > max_bytes):
        weight: dict[str, int] = {}
        for _, owner, count in entries:
            weight[owner] = weight.get(owner, 0) + (1 if len(entries) > max_count else count)
        max_weight = max(weight.values())
        heavy = max_weight > share * (max_count if len(entries) > max_count else max_bytes)
        place = next((k for k, item in enumerate(entries[:-1]) if heavy and weight[item[1]] == max_weight), 0)
        key, _, count = entries.pop(place)
        removed_keys.append(key)
        size -= count
    return removed_keys


@dataclass(slots=True)
class StoreEntry:
    """One stored run. ``kind`` is one of ``KINDS``; ``owner`` whose it is, or ``EVERYBODY``; ``keep``: not trimmed."""

    id: str
    kind: str
    owner: str
    blob: bytes
    summary: dict[str, Any]
    tags: tuple[str, ...] = ()
    keep: bool = False

    @property
    def is_pinned(self) -> bool:
        return self.kind == "gallery" or self.keep

    @property
    def row(self) -> dict[str, Any]:
        """The run's row in a list."""
        return {
            **self.summary, "kind": self.kind, "tags": list(self.tags), "keep": self.keep, "bytes": len(self.blob)
        }  # fmt: skip


class TraceStore:
    """Finished runs, bounded by count and bytes: the least recently used go first, the gallery and kept ones never.

    >>> from decoders.trace.trace import Trace
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
        self.own_share = 0.5  # of the room, for the runs that one owner keeps
        self.fair_share = FAIR_SHARE
        self.unsaved: Container[str] = ()  # ids of runs that no file holds yet: they go last
        self._entries: OrderedDict[str, StoreEntry] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def put(
        self, trace: tr.Trace, *, kind: str = "run", owner: str = "", tags: Sequence[str] = (), keep: bool = False
    ) -> str:
        """Keep a finished trace; returns its id (a new one where the trace has none or an ill-formed one)."""
        if not is_id(trace.run.get("id")):
            trace.run["id"] = new_id()
        key = trace.run["id"]
        self.keep(StoreEntry(key, kind, owner, pack(payload(trace)), summary(trace), tuple(tags), keep))
        return key

    def keep(self, entry: StoreEntry) -> None:
        """Keep a run that is packed already; nobody replaces a gallery run."""
        with self._lock:
            old = self._entries.get(entry.id)
            if old is not None and old.kind == "gallery" and entry.kind != "gallery":
                return
            self._entries[entry.id] = entry
            self._entries.move_to_end(entry.id)
            self._trim()

    def _trim(self) -> None:
        loose = [(e.id, e.owner, len(e.blob)) for e in self._entries.values() if not e.is_pinned]
        loose[:-1] = sorted(loose[:-1], key=lambda item: item[0] in self.unsaved)
        kept_sizes = [len(e.blob) for e in self._entries.values() if e.keep]
        count, size = max(1, self.max_count - len(kept_sizes)), max(1, self.max_bytes - sum(kept_sizes))
        for key in surplus(loose, count, size, self.fair_share):
            del self._entries[key]

    def ages(self) -> dict[str, int]:
        """Per run its place in the order of use, the least recently used first."""
        with self._lock:
            return {key: place for place, key in enumerate(self._entries)}

    def change(
        self, key: str, *, title: str | None = None, tags: Sequence[str] | None = None, keep: bool | None = None
    ) -> StoreEntry:
        """Another title, other tags, kept or not. Raises UnknownTrace, and UserError where too much would be kept."""
        old_entry = self.entry(key)
        if old_entry is None:
            raise UnknownTrace(key)
        blob = None
        if title is not None and title != old_entry.summary["title"]:
            trace = unpack(old_entry.blob)
            trace.run["title"] = title
            blob = pack(payload(trace))
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                raise UnknownTrace(key)
            if keep and not entry.keep:
                kept_entries = [e for e in self._entries.values() if e.keep]
                own_entries = [e for e in kept_entries if e.owner == entry.owner]
                for group, share in ((kept_entries, 0.5), (own_entries, self.own_share)):
                    size = sum(len(e.blob) for e in group) + len(entry.blob)
                    if len(group) + 1 > share * self.max_count or size > share * self.max_bytes:
                        raise UserError(
                            f"{len(group)} runs {'of yours ' if group is own_entries else ''}are kept already, and no "
                            "more than "
                            f"{100 * share:.0f} % of the room here may be: let go of one first"
                        )
            if keep is not None:
                entry.keep = keep
            if tags is not None:
                entry.tags = tuple(tags)
            if blob is not None and title is not None:
                entry.blob, entry.summary = blob, {**entry.summary, "title": title}
        return entry

    def remove(self, key: str) -> bool:
        """Delete a run. Whether it was there; a gallery run stays."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.kind == "gallery":
                return False
            del self._entries[key]
        return True

    def blob(self, key: str) -> bytes:
        """The compressed JSON of a run. Raises UnknownTrace."""
        with self._lock:
            if key not in self._entries:
                raise UnknownTrace(key)
            self._entries.move_to_end(key)
            return self._entries[key].blob

    def get(self, key: str) -> tr.Trace:
        """The run as a trace. Raises UnknownTrace."""
        return unpack(self.blob(key))

    def entry(self, key: str) -> StoreEntry | None:
        with self._lock:
            return self._entries.get(key)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def usage(self) -> dict[str, int]:
        """Number of runs (the gallery apart) and the bytes they take, with the limits."""
        with self._lock:
            sizes = [len(e.blob) for e in self._entries.values() if e.kind != "gallery"]
        return {"count": len(sizes), "max_count": self.max_count, "bytes": sum(sizes), "max_bytes": self.max_bytes}

    def listing(self, owner: str) -> list[dict[str, Any]]:
        """The lists that ``owner`` may see: by kind; the gallery in its order, the others the newest first."""
        with self._lock:
            visible_entries = [
                e for e in self._entries.values() if e.owner == EVERYBODY or (owner and e.owner == owner)
            ]
        newest = sorted(visible_entries, key=lambda e: e.summary["created"], reverse=True)
        return [e.row for e in sorted(newest, key=lambda e: (KINDS.index(e.kind), _place(e)))]


def _place(entry: StoreEntry) -> tuple[int, str]:
    """A gallery run's place: by the number that its id begins with, then by id; the same for all others."""
    if entry.kind != "gallery":
        return 0, ""
    number = re.match(r"\d+", entry.id)
    return int(number[0]) if number else 0, entry.id


def load_folder(store: TraceStore, folder: Path, kind: str) -> int:
    """Put every readable trace file of a folder into the store, each with its speedup against a plain run of the folder
    that is alike (``pair_with_plain``); unreadable ones are logged and skipped.

    Files are read once per process for as long as all stay as they are: many stores begin with the gallery.
    """
    files = []
    for path in sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else ():
        stat = path.stat()
        files.append((path, stat.st_mtime_ns, stat.st_size))
    entries = _entries(tuple(files))
    for key, blob, about in entries:
        store.keep(StoreEntry(key, kind, EVERYBODY, blob, dict(about)))
    return len(entries)


@functools.lru_cache(maxsize=16)
def _entries(files: Sequence[tuple[Path, int, int]]) -> list[tuple[str, bytes, dict[str, Any]]]:
    """Per readable file its id, compressed JSON and summary; change time (ns) and size (bytes) tell versions apart."""
    traces = []
    for path, _, _ in files:
        try:
            trace = tracefile.load(path)
        except (OSError, tracefile.TraceError) as error:
            log.warning("%s", error)
            continue
        trace.run["id"] = path.stem if is_id(path.stem) else new_id()
        traces.append(trace)
    pair_with_plain(traces)
    return [(trace.run["id"], pack(payload(trace)), summary(trace)) for trace in traces]
