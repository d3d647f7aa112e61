"""What a lab keeps on disk: finding a run among its results, and removing the oldest of them."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from specviz.experiments.results import ABOUT
from specviz.experiments.spread import run_file
from specviz.places import SUFFIX, TRACES

MAX_RESULTS, MAX_BYTES = 40, 1 << 30


def found(trace: str, folder: Path, shipped: Path) -> Path | bytes | None:
    """The run of an experiment: among the lab's own results and those that come along, else where listed results lie;
    None where there is none.
    """
    folders = [place for place in (folder, shipped) if place.is_dir()]
    path = next((path for place in folders for path in place.glob(f"*/{TRACES}/{trace}{SUFFIX}")), None)
    return path or run_file(folder, trace)


def place_of(key: str, folder: Path, shipped: Path) -> Path | None:
    """Where results lie: the lab's own in a folder, those that come along in a folder or a zip file."""
    folders = [place / key for place in (folder, shipped) if (place / key / ABOUT).is_file()]
    files = [file for file in [shipped / f"{key}.zip"] if file.is_file()]
    return next(iter(folders + files), None)


def trim(folder: Path, newest: Collection[str], most: int = MAX_RESULTS, most_bytes: int = MAX_BYTES) -> None:
    """Remove the oldest results beyond the limits; ``newest`` (ids) are the newest, whatever the clock says."""
    size = 0
    paths = sorted(
        folder.glob(f"*/{ABOUT}"), key=lambda path: (path.parent.name in newest, path.stat().st_mtime), reverse=True
    )
    for place, path in enumerate(paths):
        size += sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file())
        if place and (place >= most or size > most_bytes):
            shutil.rmtree(path.parent, ignore_errors=True)
