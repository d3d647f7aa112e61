"""Trace files: a zip of JSON tables, checked before and after it is read.

A ``.spectrace`` file holds ``trace.json`` (schema, run, and per table its rows and columns) and one ``<table>.json``
per table; ``decoders.trace.tables`` says how it outlives its columns. Nothing in it can be executed; sizes are bounded
before anything is unpacked. Stdlib + numpy only.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from decoders.errors import reason_of
from decoders.folders import LFS_POINTER, pointer_words, write_bytes

from .check import MAX_CELLS, check, check_run
from .tables import MAX_COLUMNS, MAX_MORE_TABLES, OPTIONAL_TABLES, SCHEMA, TABLES, TraceError, may_be_named
from .trace import Trace

__all__ = ["SUFFIX", "TraceError", "load", "save"]

SUFFIX = ".spectrace"
MAX_FILE = 128 * 2**20  # bytes of a file on disk or of an upload
MAX_UNPACKED = 256 * 2**20  # bytes of all tables together
MAX_RATIO = 250  # unpacked ÷ packed, for files that unpack to more than 8 MiB (recorded traces reach about 15)
_HEAD_LIMIT, _HEAD_CELLS = 8 * 2**20, 100_000
_MEMBERS = ("trace.json", *(f"{table}.json" for table in TABLES))
_END = struct.Struct("<4s4H2LH")  # the zip's last record
# what zipfile may raise on a container that was tampered with
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ArithmeticError, ValueError)
_ADVICE = "open an undamaged copy or record the run again"


def save(trace: Trace, path: str | os.PathLike[str] | None) -> bytes | None:
    """Write a trace file (through a temporary file: never half of one), or return its bytes where ``path`` is None.

    The same trace gives the same bytes. Raises TraceError if the trace is not whole or the file cannot be written.
    """
    try:
        check(trace)
    except TraceError as fault:
        raise TraceError(f"the trace was not saved: {fault}") from None
    manifest = {table: {"rows": trace.rows(table), "columns": list(columns)} for table, columns in trace.tables.items()}
    parts: dict[str, Any] = {"trace.json": {"schema": SCHEMA, "run": trace.run, "tables": manifest}}
    parts |= {f"{table}.json": columns for table, columns in trace.tables.items()}
    buffer = io.BytesIO()
    total = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, part in parts.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            data = dumps(part).encode()
            total += len(data)
            if total > MAX_UNPACKED:
                raise TraceError(f"the trace was not saved: it exceeds {MAX_UNPACKED >> 20} MiB; record fewer tokens")
            archive.writestr(info, data)
    data = buffer.getvalue()
    if path is None:
        return data
    try:
        write_bytes(Path(path), data)
    except OSError as fault:
        raise TraceError(f"{Path(path).name} cannot be written: {reason_of(fault)}; check the folder") from None
    return None


def load(source: str | os.PathLike[str] | bytes) -> Trace:
    """The trace in a file (a path, or the file's bytes), a zip or one JSON object, wholly checked.

    Raises TraceError, one sentence, for anything that is not a whole trace of a known version: never another exception.
    """
    name = "this file" if isinstance(source, bytes) else Path(source).name
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
            return _load(file, file.seek(0, os.SEEK_END))
    except TraceError as fault:
        raise TraceError(f"{name} cannot be opened as a trace: {fault}; {_ADVICE}") from None
    except (OSError, ValueError) as fault:  # ValueError: a path with a NUL in it
        raise TraceError(f"{name} cannot be opened: {reason_of(fault)}; check the path") from None


def _load(file: BinaryIO, size: int) -> Trace:
    if size > MAX_FILE:
        raise TraceError(f"it has {size >> 20:,} MiB and {MAX_FILE >> 20} are allowed")
    file.seek(0)
    if words := pointer_words(data=file.read(len(LFS_POINTER))):
        raise TraceError(words)
    if size < _END.size:
        raise TraceError(f"it has {size} bytes, which is too few for a {SUFFIX} file")
    if (whole := _as_json(file)) is not None:
        return Trace.from_json(whole)
    _check_directory(file, size)
    try:
        with zipfile.ZipFile(file) as archive:
            members = _members(archive, size)
            head = _part(archive, members["trace.json"], _HEAD_CELLS)
            schema = head.get("schema")
            if schema != SCHEMA:
                raise TraceError(f"it has the version {str(schema)[:40]!r}, and this program reads {SCHEMA}")
            check_run(head.get("run"))
            cells = _manifest(head.get("tables"))
            if {f"{table}.json" for table in cells} != set(members) - {"trace.json"}:
                raise TraceError("its trace.json announces other tables than it holds")
            document: dict[str, Any] = {"schema": schema, "run": head["run"]}
            for table in cells:
                document[table] = _part(archive, members[f"{table}.json"], cells[table])
    except TraceError:
        raise
    except _DAMAGE as fault:
        raise TraceError(f"its zip container is damaged ({str(fault)[:80] or type(fault).__name__})") from None
    for table, columns in head["tables"].items():
        for column, values in document[table].items():
            if isinstance(values, list) and len(values) != columns["rows"]:
                mismatch = f"{len(values):,} rows and trace.json announces {columns['rows']:,}"
                raise TraceError(f"{table}.{column[:40]} has {mismatch}")
    return Trace.from_json(document)


def _as_json(file: BinaryIO) -> dict[str, Any] | None:
    """The document of a trace that is one JSON object; None where the file is none. Raises TraceError."""
    file.seek(0)
    if file.read(1) != b"{":
        return None
    data = b"{" + file.read()
    if data.startswith(b'{"journal"') or b'"schema"' not in data:
        return None
    if (cells := data.count(b",")) > MAX_CELLS:
        raise TraceError(f"it has {cells:,} values and {MAX_CELLS:,} are allowed")
    return loads(data, "of JSON")


def _check_directory(file: BinaryIO, size: int) -> None:
    """Look at the zip's last record before anything parses the directory, whose length an attacker chooses."""
    file.seek(max(0, size - _END.size - 20))
    tail = file.read()
    mark, disk, first, disk_entries, entries, length, _, comment = _END.unpack(tail[-_END.size :])
    if mark != b"PK\x05\x06" or comment:
        file.seek(0)
        if file.read(16).startswith(b'{"journal"'):
            raise TraceError("it is the journal of a run that did not end, so recover() opens it")
        raise TraceError(f"it is not a whole {SUFFIX} file (no zip directory at its end)")
    fewest, limit = len(_MEMBERS) - len(OPTIONAL_TABLES), len(_MEMBERS) + MAX_MORE_TABLES
    odd = tail[:4] == b"PK\x06\x07" or disk or first or disk_entries != entries or length > 16_384
    if odd or not fewest <= entries <= limit:
        raise TraceError(f"its zip directory has {entries} entries, and {fewest} to {limit} are allowed")
    file.seek(0)


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    infos = archive.infolist()
    names = [info.filename for info in infos]
    for name in names:
        if not name.endswith(".json") or not may_be_named(name.removesuffix(".json")):
            raise TraceError(f"it holds {name[:60]!r}; only trace.json and <table>.json are allowed")
    lacking = set(_MEMBERS) - set(names) - {f"{table}.json" for table in OPTIONAL_TABLES}
    if len(set(names)) != len(names) or lacking:
        raise TraceError("it holds a part twice, or lacks one")
    for info in infos:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 0x1:
            raise TraceError(f"its part {info.filename} is encrypted or packed in a way that is not allowed")
    total = sum(info.file_size for info in infos)
    if total > MAX_UNPACKED:
        raise TraceError(f"it unpacks to {total >> 20:,} MiB and {MAX_UNPACKED >> 20} are allowed")
    if total > 8 * 2**20 and total > MAX_RATIO * size:
        raise TraceError(f"it unpacks to {total // size:,} times its size and {MAX_RATIO} times is allowed")
    return {info.filename: info for info in infos}


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """A part's bytes: never more than its header says, and its checksum holds."""
    limit = _HEAD_LIMIT if info.filename == "trace.json" else MAX_UNPACKED
    if info.file_size > limit:
        raise TraceError(f"its part {info.filename} has {info.file_size >> 20:,} MiB and {limit >> 20} are allowed")
    with archive.open(info) as part:
        data = part.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise TraceError(f"its part {info.filename} has {len(data):,} bytes and {info.file_size:,} are announced")
    return data


def _manifest(tables: Any) -> dict[str, int]:
    """Cells per table that is there, as ``trace.json`` announces them; the tables are then held to it."""
    if not isinstance(tables, dict) or not set(tables) >= set(TABLES) - OPTIONAL_TABLES:
        raise TraceError(f"its trace.json does not announce the tables {', '.join(TABLES)}")
    cells: dict[str, int] = {}
    for table, entry in tables.items():
        rows, columns = map(entry.get, ("rows", "columns")) if isinstance(entry, dict) else (None, None)
        if type(rows) is not int or rows < 0 or not isinstance(columns, list) or not 0 < len(columns) <= MAX_COLUMNS:
            raise TraceError(f"its trace.json does not announce the rows and columns of {table[:40]}")
        cells[table] = rows * len(columns)
    if (total := sum(cells.values())) > MAX_CELLS:
        raise TraceError(f"it has {total:,} values and {MAX_CELLS:,} are allowed")
    return cells


def _part(archive: zipfile.ZipFile, info: zipfile.ZipInfo, cells: int) -> dict[str, Any]:
    """Parse one part, once its separators show that it cannot hold much more than what was announced."""
    data = _read(archive, info)
    if data.count(b"[") + data.count(b"{") > 1_000 + cells or data.count(b",") > 1_000 + 2 * cells:
        raise TraceError(f"its part {info.filename} holds more than trace.json announces")
    return loads(data, info.filename)


def loads(data: bytes, name: str) -> dict[str, Any]:
    """An object of strict JSON. Raises TraceError with a sentence about the part ``name``."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_constant, object_pairs_hook=_unique)
    except TraceError as fault:
        raise TraceError(f"its part {name} holds {fault}") from None
    except RecursionError:
        raise TraceError(f"its part {name} is nested too deeply") from None
    except ValueError as fault:  # not UTF-8, not JSON, a number of thousands of digits
        raise TraceError(f"its part {name} is not JSON ({str(fault)[:80]})") from None
    if not isinstance(value, dict):
        raise TraceError(f"its part {name} is not an object")
    return value


def _constant(word: str) -> NoReturn:
    raise TraceError(f"the number {word}, which is not finite")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise TraceError("a name twice in one object")
    return result


dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
