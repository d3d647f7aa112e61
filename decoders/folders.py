"""Where this project keeps things, and folders written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).resolve().parent.parent / "assets"  # what the repository ships


def settings_folder() -> Path:
    """What is kept of the user's own (calibrations, trained parts): ``SPECVIZ_HOME``, or where settings belong."""
    if home := os.environ.get("SPECVIZ_HOME"):
        return Path(home).expanduser()
    import platformdirs

    return Path(platformdirs.user_config_dir("specviz", appauthor=False))


def cache_folder() -> Path:
    """What can be made again (models converted from GGUF files): ``SPECVIZ_HOME``/cache, or where caches belong."""
    if home := os.environ.get("SPECVIZ_HOME"):
        return Path(home).expanduser() / "cache"
    import platformdirs

    return Path(platformdirs.user_cache_dir("specviz", appauthor=False))


def write_bytes(path: Path, data: bytes, *, private: bool = False) -> Path:
    """Write a file, whole or not at all; ``private``: nobody but its owner may read it. Its folder has to be there."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    flags, mode = os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600 if private else 0o666
    try:
        with open(os.open(partial, flags, mode), "wb") as file:
            file.write(data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write a text file as ``write_bytes`` does; its folder is made where there is none, its line ends stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_bytes(path, text.encode())


def write_json(path: Path, data: Any) -> Path:
    """Write a JSON file as ``write_text`` does."""
    return write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


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
