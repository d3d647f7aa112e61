"""The search of the drawer of runs, in what they read and wrote."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query

from specviz.places import GALLERY
from specviz.server.desk import Desk, Service, get
from specviz.server.http import Owner
from specviz.server.store import unpack

from .index import RunIndex, Source, file_sources

log = logging.getLogger(__name__)
START_S = 20.0  # after the server's start, when the model is loaded
QUERY_S = 0.03  # in which a search indexes what is new; the rest is indexed in the background
Words = Annotated[list[Annotated[str, Query(max_length=200)]], Query(max_length=10)]


class Find(Service):
    """Two indexes: of the runs that files hold, in the library's folder, and of those in memory alone."""

    name, order = "find", 96
    cannot = "The search cannot"

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self._files: RunIndex | None = None
        self._memory = RunIndex(None)
        self._change = threading.Lock()
        self._ends = threading.Event()
        self._work: threading.Thread | None = None
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        self._timer = threading.Timer(START_S, self._index)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        self._ends.set()
        for thread in (self._timer, self._work):
            if isinstance(thread, threading.Timer):
                thread.cancel()
            if thread is not None and thread.is_alive():
                thread.join(2.0)
        with self._change:
            for index in (self._files, self._memory):
                if index is not None:
                    index.close()

    @property
    def files(self) -> RunIndex:
        """The index of the runs that files hold; in memory on a server without a library."""
        with self._change:
            if self._files is None:
                self._files = RunIndex(None if self.desk.library is None else self.desk.library.folder)
            return self._files

    def _sources(self) -> tuple[dict[str, Source], dict[str, Source]]:
        """The runs that files hold, and the others: what somebody opened, and what the disk refused."""
        in_files = {} if self.desk.library is None else file_sources(self.desk.library.folder)
        in_files.update(file_sources(GALLERY))
        store, in_memory = self.desk.store, {}
        for key in store.ages():
            entry = store.entry(key)
            if entry is not None and key not in in_files:
                in_memory[key] = Source(str(len(entry.blob)), lambda blob=entry.blob: unpack(blob))
        return in_files, in_memory

    def _index(self) -> None:
        """Index everything; in a thread of its own."""
        try:
            self.files.check()
            for index, sources in zip((self.files, self._memory), self._sources(), strict=True):
                while index.sync(sources, seconds=1.0) and not self._ends.is_set():
                    pass
        except Exception:
            log.exception("runs cannot be indexed")

    def _index_later(self) -> None:
        with self._change:
            if self._work is None or not self._work.is_alive():
                self._work = threading.Thread(target=self._index, name="index of runs", daemon=True)
                self._work.start()

    @get()
    def search(self, owner: Owner, word: Words = []) -> dict[str, Any]:  # noqa: B006
        """Runs of ``owner``'s list that hold some of the words, each with the words and the places; ``pending``: runs
        that are not indexed yet.
        """
        words = [text for text in dict.fromkeys(word) if text.strip()]
        visible = [row["id"] for row in self.desk.store.listing(owner)]
        matches: dict[str, Mapping[str, Any]] = {}
        pending: list[str] = []
        for index, sources in zip((self.files, self._memory), self._sources(), strict=True):
            keys, count = [key for key in visible if key in sources], -1
            while count != index.beginnings:  # a search may find that the index is damaged
                count = index.beginnings
                unread = index.sync(sources, seconds=QUERY_S)
                runs = index.find(words, keys)
            pending += unread
            for key, run in runs.items():
                matches[key] = {"words": run.words, "count": run.count, "places": list(map(asdict, run.places))}
        if pending:
            self._index_later()
        return {"runs": matches, "pending": len(set(pending).intersection(visible))}
