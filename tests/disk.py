"""A disk that refuses: the n-th thing that is written below a folder fails, and (where asked) all that follow."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock


class Disk:
    """Counts what is written: files opened for writing, writes, renames, folders, removals."""

    def __init__(self, folder: Path, at: int, lasting: bool, error: int) -> None:
        self.folder, self.at, self.lasting, self.error = str(folder), at, lasting, error
        self.count = 0
        self.failed: list[str] = []

    def touch(self, what: str) -> None:
        self.count += 1
        if self.count == self.at or (self.lasting and self.count > self.at):
            self.failed.append(what)
            raise OSError(self.error, os.strerror(self.error), what)

    def below(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder)


class _Writing:
    """A file opened for writing."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self.file, self.disk = file, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()

    def write(self, data: Any) -> int:
        self.disk.touch("write")
        return self.file.write(data)


@contextlib.contextmanager
def refusing(folder: Path, at: int, *, lasting: bool = True, error: int = errno.ENOSPC) -> Iterator[Disk]:
    """From the ``at``-th (1, 2, …) thing on that is written below ``folder`` the disk refuses with ``error``."""
    disk = Disk(folder, at, lasting, error)
    whole = {name: getattr(os, name) for name in ("open", "replace", "rename", "mkdir")}
    opened: set[int] = set()

    def open_(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        ours = disk.below(file) or (isinstance(file, int) and file in opened)
        if not ours or not set(mode) & set("wax+"):
            return io_open(file, mode, *rest, **more)
        if not isinstance(file, int):
            disk.touch(f"open {os.path.basename(file)}")
        return _Writing(io_open(file, mode, *rest, **more), disk)

    def os_open(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if not disk.below(path) or not flags & (os.O_WRONLY | os.O_RDWR):
            return whole["open"](path, flags, *rest, **more)
        disk.touch(f"open {os.path.basename(path)}")
        number = whole["open"](path, flags, *rest, **more)
        opened.add(number)
        return number

    def changing(name: str) -> Any:
        def change(path: Any, *rest: Any, **more: Any) -> Any:
            if disk.below(path):
                disk.touch(f"{name} {os.path.basename(path)}")
            return whole[name](path, *rest, **more)

        return change

    io_open = builtins.open
    with contextlib.ExitStack() as stack:
        for module, name, act in (
            (builtins, "open", open_), (io, "open", open_), (os, "open", os_open),
            *((os, name, changing(name)) for name in ("replace", "rename", "mkdir")),
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(module, name, act))
        yield disk
