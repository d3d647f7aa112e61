"""The project's folders for settings and caches, and folders written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from .errors import UserError, reason_of

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None

T = TypeVar("T")
log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
# what comes along: beside the packages where a wheel was installed (setup.py), else the repository's own folder
ASSETS = next((folder for folder in [ROOT / "specviz_assets"] if folder.is_dir()), ROOT / "assets")


LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # how the text begins that stands for a large file


def typed_path(text: str | Path) -> Path:
    """The path that a user typed, its ``~`` replaced. Raises UserError for a text that no file can be called by.

    >>> str(typed_path("models/own"))
    'models/own'
    """
    try:
        path = Path(text).expanduser()
        path.resolve().exists()
    except (OSError, RuntimeError, ValueError) as fault:
        quoted_text = f"{str(text)[:40]} …" if len(str(text)) > 40 else str(text)
        raise UserError(
            f"{quoted_text!r} cannot be a path ({reason_of(fault).rstrip('.')}): give that of a file or folder on this "
            "machine"
        ) from None
    return path


def pointer_words(file: Path | None = None, data: bytes | None = None) -> str | None:
    """A sentence for a file that is only a Git LFS pointer, by its first bytes; None for any other."""
    if data is None:
        try:
            with Path(str(file)).open("rb") as stream:
                data = stream.read(len(LFS_POINTER))
        except OSError:
            return None
    if not data.startswith(LFS_POINTER):
        return None
    return (
        f"{file or 'this file'} is a Git LFS pointer, which stands for the file and does not hold it: run `git lfs "
        "pull` in its repository, or download the file itself"
    )


def refuse_pointer(file: Path) -> None:
    """Raise UserError for a file that is only a Git LFS pointer."""
    if words := pointer_words(file):
        raise UserError(words)


def settings_folder() -> Path:
    """Folder of the user's own (calibrations, trained parts): ``SPECVIZ_HOME``, or where settings belong."""
    if home := os.environ.get("SPECVIZ_HOME"):
        return Path(home).expanduser()
    import platformdirs

    return Path(platformdirs.user_config_dir("specviz", appauthor=False))


def cache_folder() -> Path:
    """Folder of what can be made again (models of GGUF files): ``SPECVIZ_HOME``/cache, or where caches belong."""
    if home := os.environ.get("SPECVIZ_HOME"):
        return Path(home).expanduser() / "cache"
    import platformdirs

    return Path(platformdirs.user_cache_dir("specviz", appauthor=False))


def private_folder(path: Path) -> Path:
    """Make a folder, and those above it that are missing, which only their owner may open (0700)."""
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def write_bytes(path: Path, data: bytes, *, private: bool = False, sync: bool = False) -> Path:
    """Write a file, whole or not at all: where the disk is full, what was there stays. Its folder has to be there.

    ``private``: nobody but its owner may read it (0600); else a file that was there keeps its mode. ``sync``: it
    outlives a loss of power, too. A link is followed; a device or a pipe is written as it is.
    """
    path = path.resolve() if path.is_symlink() else path
    old_stat = path.stat() if path.exists() else None
    if old_stat is not None and not (stat.S_ISREG(old_stat.st_mode) or stat.S_ISDIR(old_stat.st_mode)):
        path.write_bytes(data)
        return path
    partial = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")
    flags = os.O_CREAT | os.O_WRONLY | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(partial, flags, 0o600 if private else 0o666), "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if old_stat is not None and not private:
            with contextlib.suppress(OSError):
                partial.chmod(stat.S_IMODE(old_stat.st_mode))
        os.replace(partial, path)
        if sync:
            sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)
    return path


def sync_folder(folder: Path) -> None:
    """Have the names in a folder outlive a loss of power, where the system can do that."""
    with contextlib.suppress(OSError):  # not a Unix, or a file system without it
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def read_text(path: Path, noun: str) -> str:
    """The text of a file. Raises UserError for one that cannot be read, or is not in UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"the {noun} file {path} is not text in UTF-8: save it as such and try again") from None
    except OSError as error:
        raise UserError(f"cannot read the {noun} file {path}: {reason_of(error)}") from None


def read_own(path: Path, of: Callable[[Any], T]) -> T | None:
    """Read a JSON file by ``of``; None where there is none and, with a warning, where it cannot be read."""
    if not path.is_file():
        return None
    try:
        return of(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        log.warning("%s is left out: %s", path, error)
        return None


@contextmanager
def reading(data: Any, schema: str, noun: str) -> Iterator[None]:
    """Read a record of a schema: what goes wrong becomes one ValueError that names the noun."""
    if not isinstance(data, dict) or data.get("schema") != schema:
        raise ValueError(f"not a {noun} of this version ({schema})")
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a damaged {noun} ({error})") from None


def write_text(path: Path, text: str, *, private: bool = False) -> Path:
    """Write a text file as ``write_bytes`` does; its folder is made where there is none, its line ends stay."""
    if private:
        private_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_bytes(path, text.encode(), private=private)


def write_json(path: Path, data: Any, *, private: bool = False) -> Path:
    """Write a JSON file as ``write_text`` does."""
    return write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", private=private)


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder beside ``folder`` to write in: it takes that place when all is written, and where anything goes
    wrong (an interrupt too) it goes, and what was there stays. Of several at once, the last to end has the place. What
    a killed process left half done is undone first.
    """
    _undo_abandoned(folder)
    token = secrets.token_hex(4)
    new, old = _sibling(folder, "new", token), _sibling(folder, "old", token)
    begun = _sibling(folder, "begun", token)
    begun.mkdir(parents=True)
    lock = _lock_folder(begun)
    begun.rename(new)  # locked already: nobody takes it for abandoned
    try:
        yield new
        _take_place(new, folder, old)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        if old.exists() and not folder.exists():
            old.rename(folder)
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _sibling(folder: Path, role: str, token: str) -> Path:
    return folder.with_name(f".{folder.name}.{role}-{token}")


def _lock_folder(folder: Path) -> int | None:
    """Lock on a folder that ends with the process; None where another process holds it, or there are no such locks."""
    if fcntl is None:
        return None
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(number)
        return None
    return number


def _undo_abandoned(folder: Path) -> None:
    """Remove the folders of killed processes beside ``folder``; one that had moved it away gives it back."""
    if fcntl is None or not folder.parent.is_dir():
        return
    name = re.compile(rf"\.{re.escape(folder.name)}\.(?:new|old)-([0-9a-f]{{8}})")
    tokens = {match[1] for path in folder.parent.iterdir() if (match := name.fullmatch(path.name))}
    for token in tokens:
        new, old = _sibling(folder, "new", token), _sibling(folder, "old", token)
        with contextlib.suppress(OSError):  # another process undoes it
            lock = _lock_folder(new) if new.is_dir() else None
            if new.is_dir() and lock is None:
                continue
            if old.is_dir() and not folder.exists():
                old.rename(folder)
            for leftover in (new, old):
                shutil.rmtree(leftover, ignore_errors=True)
            if lock is not None:
                os.close(lock)


def _take_place(new: Path, folder: Path, old: Path) -> None:
    """Rename ``new`` to ``folder`` and what was there to ``old``; whoever comes in between is replaced as well."""
    for attempts_left in reversed(range(100)):
        with contextlib.suppress(FileNotFoundError):  # nothing was there, or another one has just moved it away
            folder.rename(old)
        try:
            new.rename(folder)
            return
        except OSError as fault:
            if not attempts_left or fault.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(old, ignore_errors=True)  # another one took the place: its folder goes next
