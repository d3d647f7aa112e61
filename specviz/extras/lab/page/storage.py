"""A lab's results on disk: written as they grow, found again by their runs, and removed where there are too many."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from decoders.errors import reason_of
from decoders.folders import private_folder, write_bytes, write_text
from decoders.trace import files as tracefile
from decoders.trace.trace import Trace
from specviz.places import SUFFIX, TRACES
from specviz.server.store import TraceStore, UnknownTrace

from ..experiments.results import ABOUT, Results
from ..experiments.spread import run_file

log = logging.getLogger(__name__)

MAX_RESULTS, MAX_BYTES = 40, 1 << 30
OWNER = "owner"
LATEST = "latest.jsonl"  # rows since the results were saved as a whole: [place, row] a line


@dataclass(eq=False)
class SavedResults:
    """The results of an experiment and their ``folder``, which their owner alone can read.

    What the disk refuses stays in memory, a note among the results says so, and the next ``save`` writes it.
    """

    results: Results
    folder: Path
    owner: str
    rows: int = 0  # on disk
    note: str = ""  # about what the disk refused
    runs: list[str] = field(default_factory=list)  # ids of those that it refused

    def keep(self, trace: Trace) -> bool:
        """Write a run. Whether the disk took it."""
        try:
            self._write(trace)
        except (tracefile.TraceError, OSError) as problem:
            self._on_refusal(problem)
            self.runs.append(trace.run["id"])
            return False
        return True

    def _write(self, trace: Trace) -> None:
        private_folder(self.folder / TRACES)
        data = tracefile.save(trace, None)
        write_bytes(self.folder / TRACES / f"{trace.run['id']}{SUFFIX}", data or b"", private=True)

    def save(self, memory: TraceStore) -> bool:
        """Write all there is; runs that were refused are in ``memory``. Whether the disk took it."""
        about = self.results.about
        try:
            for key in list(self.runs):
                try:
                    self._write(memory.get(key))
                except (tracefile.TraceError, UnknownTrace) as problem:
                    log.warning("%s", problem)
                self.runs.remove(key)
            about["notes"] = [note for note in about["notes"] if note != self.note]
            self.results.save(self.folder, private=True)
            self.rows = len(self.results.rows)
            (self.folder / LATEST).unlink(missing_ok=True)
            write_text(self.folder / OWNER, self.owner, private=True)
            self.note = ""
        except OSError as problem:
            self._on_refusal(problem)
            return False
        return True

    def append(self) -> None:
        """Write the rows that are new: little work, so that a process that is killed loses none."""
        new = list(enumerate(self.results.rows[self.rows :], self.rows))
        if not new:  # a training goes on
            return
        try:
            (self.folder / LATEST).touch(0o600)
            with (self.folder / LATEST).open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(row, default=float) + "\n" for row in new))
            self.rows += len(new)
        except OSError as problem:
            self._on_refusal(problem)

    def _on_refusal(self, problem: Exception) -> None:
        if not self.note:
            log.warning("experiment %s is not saved on disk: %s", self.results.id, reason_of(problem))
        notes = [note for note in self.results.about["notes"] if note != self.note]
        self.note = (
            f"Not all of this is saved on disk ({reason_of(problem)}): it is in memory, and saved once the disk "
            "takes it."
        )
        self.results.about["notes"] = [*notes, self.note]


def find_run(trace: str, folder: Path, shipped_folder: Path) -> Path | bytes | None:
    """An experiment's run: among the lab's results and those shipped, else where listed results lie; or None."""
    folders = [place for place in (folder, shipped_folder) if place.is_dir()]
    path = next((path for place in folders for path in place.glob(f"*/{TRACES}/{trace}{SUFFIX}")), None)
    return path or run_file(folder, trace)


def place_of(key: str, folder: Path, shipped_folder: Path) -> Path | None:
    """Folders of results: the lab's own in a folder, those that come along in a folder or a zip file."""
    folders = [place / key for place in (folder, shipped_folder) if (place / key / ABOUT).is_file()]
    files = [file for file in [shipped_folder / f"{key}.zip"] if file.is_file()]
    return next(iter(folders + files), None)


def trim(folder: Path, newest: Collection[str], max_results: int = MAX_RESULTS, most_bytes: int = MAX_BYTES) -> None:
    """Remove the oldest results beyond the limits; ``newest`` (ids) are the newest, whatever the clock says."""
    size = 0
    paths = sorted(
        folder.glob(f"*/{ABOUT}"), key=lambda path: (path.parent.name in newest, path.stat().st_mtime), reverse=True
    )
    for place, path in enumerate(paths):
        size += sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file())
        if place and (place >= max_results or size > most_bytes):
            shutil.rmtree(path.parent, ignore_errors=True)
