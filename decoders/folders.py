"""Folders written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder beside ``folder`` to write in: it takes that place when all is written, and where anything goes
    wrong (an interrupt too) it goes, and what was there stays.
    """
    new, old = (folder.with_name(f".{folder.name}.{which}-{os.getpid()}") for which in ("new", "old"))
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(new, ignore_errors=True)
        raise
