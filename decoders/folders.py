"""Where this project keeps things, and folders written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "assets"  # what the repository ships


def settings_folder() -> Path:
    """What is kept of the user's own (calibrations, trained parts): ``SPECVIZ_HOME``, or where settings belong."""
    if home := os.environ.get("SPECVIZ_HOME"):
        return Path(home).expanduser()
    import platformdirs

    return Path(platformdirs.user_config_dir("specviz", appauthor=False))


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
