"""A folder of results, on a disk or behind an address: the only state of a sweep.

A finished unit is the file ``units/<key>.json`` with its rows, one of which something failed ``failed/<key>.json``; the
files that belong to a unit (its traces) are written before it, so that a unit that is listed is whole. Each file is
written under another name and renamed. To go on is to list: nothing else is remembered, and no time is compared.
Several drivers and workers may write at once, since the same unit has the same names and the same contents. A driver
marks a unit that it hands out (``begun/<key>.json``): the others leave that one to the last, and no mark forbids any.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from decoders.errors import UserError, reason_of
from decoders.folders import write_bytes

UNITS, FAILED, BEGUN, ABOUT = "units", "failed", "begun", "sweep.json"
SCHEMA, UNIT_SCHEMA = "specsweep/1", "specunit/1"
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
KEY = re.compile(r"([0-9a-f]{64})\.json")

Row = dict[str, Any]


class FolderFault(UserError):
    """The results folder cannot be read or written: nobody's unit failed, and the sweep stops."""


class ResultFolder:
    """Results at ``place``: a path, or an address that fsspec knows (s3://…, gs://…, sftp://…)."""

    def __init__(self, place: str | Path) -> None:
        self.place = str(place)
        kind = ADDRESS.match(self.place)
        self.local = kind is None or kind[1].lower() == "file"
        path = Path(self.place.removeprefix("file://")).expanduser().absolute() if self.local else None
        self.path = path
        self._files = _Disk(path) if path is not None else _remote(self.place)
        if path is not None:
            self.place = str(path)

    # --- what it says of itself ---

    def open(self) -> str:
        """Make it a results folder where it is none, and give its token. Raises FolderFault."""
        if (token := self.token()) is None:
            description = {"schema": SCHEMA, "token": secrets.token_hex(16)}
            with self._explain("written to"):
                self._files.create(ABOUT, json.dumps(description).encode())
            token = self.token()
        if token is None:
            raise FolderFault(f"{self.place} has a {ABOUT} of another version of specviz: name another folder")
        return token

    def token(self) -> str | None:
        """The mark that tells it from any other folder; None where it is not a results folder."""
        with contextlib.suppress(FileNotFoundError, ValueError), self._explain("read"):
            description = json.loads(self._files.read(ABOUT))
            if isinstance(description, dict) and description.get("schema") == SCHEMA:
                return str(description["token"])
        return None

    # --- units ---

    def finish(self, key: str, rows: Sequence[Row], error: str = "") -> None:
        """Keep a unit's rows: from now on it is over (with an ``error``: failed). Raises FolderFault."""
        import orjson

        document = {"schema": UNIT_SCHEMA, "key": key, "error": error, "rows": list(rows)}
        self.put(f"{FAILED if error else UNITS}/{key}.json", orjson.dumps(document, default=float))
        if not error:
            self.forget_failure(key)
        with self._explain("written to"):
            self._files.remove(f"{BEGUN}/{key}.json")

    def begin(self, key: str, driver: str) -> bool:
        """Mark a unit as begun; False where another driver's mark is on it. Raises FolderFault."""
        name = f"{BEGUN}/{key}.json"
        with self._explain("written to"):
            self._files.create(name, driver.encode())
        with contextlib.suppress(FileNotFoundError), self._explain("read"):
            return self._files.read(name).decode() == driver
        return True

    def forget_failure(self, key: str) -> None:
        """A unit of which something failed is to be done again. Raises FolderFault."""
        with self._explain("written to"):
            self._files.remove(f"{FAILED}/{key}.json")

    def list_units(self) -> tuple[set[str], set[str]]:
        """The keys of the finished units, and of those of which something failed and that did not succeed since."""
        with self._explain("read"):
            finished_keys, failed = (
                {match[1] for name in self._files.names(kind) if (match := KEY.fullmatch(name))}
                for kind in (UNITS, FAILED)
            )
        return finished_keys, failed - finished_keys

    def has(self, key: str) -> bool:
        """True for a unit that is finished."""
        with self._explain("read"):
            return self._files.has(f"{UNITS}/{key}.json")

    def rows(self, key: str) -> list[Row] | None:
        """The result of a unit; None where it is not over, or its file is damaged (it is to be done again)."""
        import orjson

        for kind in (UNITS, FAILED):
            with contextlib.suppress(FileNotFoundError, ValueError), self._explain("read"):
                document = orjson.loads(self._files.read(f"{kind}/{key}.json"))
                if isinstance(document, dict) and (document.get("schema"), document.get("key")) == (UNIT_SCHEMA, key):
                    return document["rows"]
        return None

    # --- files ---

    def put(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all. Raises FolderFault."""
        with self._explain("written to"):
            self._files.write(name, data)

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError, FolderFault."""
        with self._explain("read"):
            return self._files.read(name)

    @contextlib.contextmanager
    def _explain(self, action: str) -> Iterator[None]:
        """Any fault of the disk or the store, in one sentence; only that a file is not there is told as it is."""
        try:
            yield
        except (UserError, ValueError):
            raise
        except Exception as fault:
            if isinstance(fault, FileNotFoundError) and action == "read":
                raise
            raise FolderFault(
                f"the results folder {self.place} cannot be {action} ({reason_of(fault)}); all that is finished is "
                "kept in it"
            ) from None


class _Disk:
    """A folder of this machine, or one that machines share. Names of its files are relative, with slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, data: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(self.root / name, data)

    def create(self, name: str, data: bytes) -> None:
        """Write a file unless there is one already, which is never replaced."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
        try:
            part.write_bytes(data)
            try:
                os.link(part, path)
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                if not path.is_file():
                    os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def has(self, name: str) -> bool:
        return (self.root / name).is_file()

    def names(self, folder: str) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / folder) as entries:
            yield from (entry.name for entry in entries)

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)


class _Store:
    """A folder behind an address."""

    def __init__(self, files: Any, root: str) -> None:
        self.files, self.root = files, root.rstrip("/")

    def write(self, name: str, data: bytes) -> None:
        path = f"{self.root}/{name}"
        part = f"{path}.{secrets.token_hex(6)}.part"
        self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            self.files.pipe_file(part, data)
            self.files.mv(part, path)
        except BaseException:
            with contextlib.suppress(Exception):
                self.files.rm_file(part)
            raise

    def create(self, name: str, data: bytes) -> None:
        if not self.has(name):
            self.write(name, data)

    def read(self, name: str) -> bytes:
        return self.files.cat_file(f"{self.root}/{name}")

    def has(self, name: str) -> bool:
        return self.files.isfile(f"{self.root}/{name}")

    def names(self, folder: str) -> Iterator[str]:
        self.files.invalidate_cache()  # others write, too
        with contextlib.suppress(FileNotFoundError):
            yield from (str(path).rpartition("/")[2] for path in self.files.ls(f"{self.root}/{folder}", detail=False))

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.rm_file(f"{self.root}/{name}")


def _remote(place: str) -> _Store:
    import fsspec

    try:
        return _Store(*fsspec.core.url_to_fs(place))
    except (ImportError, ValueError) as fault:
        raise UserError(f"the results folder {place} cannot be opened: {fault}") from None
