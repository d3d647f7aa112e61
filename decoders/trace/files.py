"""Trace files: a zip of JSON tables, checked before and after it is read, and the journal kept while a run goes on.

A ``.spectrace`` file holds ``trace.json`` (schema, run, and per table its rows and columns) and one ``<table>.json``
per table; ``decoders.trace.tables`` says how it outlives its columns. Nothing in it can be executed; sizes are bounded
before anything is unpacked. Stdlib + numpy only.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import time
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from .check import MAX_CELLS, check, check_run
from .tables import (
    MAX_COLUMNS,
    MAX_MORE_TABLES,
    OPTIONAL_TABLES,
    SCHEMA,
    TABLES,
    TraceError,
    columns_of,
    may_be_named,
    type_of,
    with_defaults,
)
from .trace import Trace

__all__ = ["SUFFIX", "Journal", "TraceError", "load", "recover", "save"]

SUFFIX = ".spectrace"
MAX_FILE = 128 * 2**20  # bytes of a file on disk or of an upload
MAX_UNPACKED = 256 * 2**20  # bytes of all tables together
MAX_RATIO = 250  # unpacked ÷ packed, for files that unpack to more than 8 MiB (recorded traces reach about 15)
_HEAD_LIMIT, _HEAD_CELLS = 8 * 2**20, 100_000
_MEMBERS = ("trace.json", *(f"{table}.json" for table in TABLES))
_END = struct.Struct("<4s4H2LH")  # the zip's last record
# what zipfile may raise on a container that was tampered with
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ArithmeticError, ValueError)
_AGAIN = "open an undamaged copy or record the run again"


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
            data = _dumps(part).encode()
            total += len(data)
            if total > MAX_UNPACKED:
                raise TraceError(f"the trace was not saved: it exceeds {MAX_UNPACKED >> 20} MiB; record fewer tokens")
            archive.writestr(info, data)
    data = buffer.getvalue()
    if path is None:
        return data
    _replace(Path(path), data)
    return None


def load(source: str | os.PathLike[str] | bytes) -> Trace:
    """The trace in a file (a path, or the file's bytes), wholly checked.

    Raises TraceError, one sentence, for anything that is not a whole trace of a known version: never another exception.
    """
    name = "this file" if isinstance(source, bytes) else Path(source).name
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
            return _load(file, file.seek(0, os.SEEK_END))
    except TraceError as fault:
        raise TraceError(f"{name} cannot be opened as a trace: {fault}; {_AGAIN}") from None
    except (OSError, ValueError) as fault:  # ValueError: a path with a NUL in it
        raise TraceError(f"{name} cannot be opened: {_why(fault)}; check the path") from None


def _load(file: BinaryIO, size: int) -> Trace:
    if size > MAX_FILE:
        raise TraceError(f"it has {size >> 20:,} MiB and {MAX_FILE >> 20} are allowed")
    if size < _END.size:
        raise TraceError(f"it has {size} bytes, which is too few for a {SUFFIX} file")
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
                announced = f"{len(values):,} rows and trace.json announces {columns['rows']:,}"
                raise TraceError(f"{table}.{column[:40]} has {announced}")
    return Trace.from_json(document)


def _check_directory(file: BinaryIO, size: int) -> None:
    """Look at the zip's last record before anything parses the directory, whose length an attacker chooses."""
    file.seek(max(0, size - _END.size - 20))
    tail = file.read()
    mark, disk, first, here, entries, length, _, comment = _END.unpack(tail[-_END.size :])
    if mark != b"PK\x05\x06" or comment:
        file.seek(0)
        if file.read(16).startswith(b'{"journal"'):
            raise TraceError("it is the journal of a run that did not end, so recover() opens it")
        raise TraceError(f"it is not a whole {SUFFIX} file (no zip directory at its end)")
    fewest, most = len(_MEMBERS) - len(OPTIONAL_TABLES), len(_MEMBERS) + MAX_MORE_TABLES
    odd = tail[:4] == b"PK\x06\x07" or disk or first or here != entries or length > 16_384
    if odd or not fewest <= entries <= most:
        raise TraceError(f"its zip directory has {entries} entries, and {fewest} to {most} are allowed")
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
    return _loads(data, info.filename)


def _loads(data: bytes, name: str) -> dict[str, Any]:
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


_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _why(fault: Exception) -> str:
    return (getattr(fault, "strerror", None) or str(fault)).lower()


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        try:
            part.write_bytes(data)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as fault:
        raise TraceError(f"{path.name} cannot be written: {_why(fault)}; check the folder") from None


class Journal:
    """The steps of a run while it goes on, so that a crash loses next to nothing of what was decoded. ::

        journal = Journal(folder / "a1b2.journal")
        journal.start(run.trace)            # the header and the prompt
        for delta in run:
            journal.append(delta)           # one step
        journal.finish(run.trace)           # writes a1b2.spectrace, then removes the journal

    A line of JSON with the run and its prompt, then blocks of steps: a line of JSON that says what follows, and the
    columns as 8-byte numbers (text by dictionary), which is several times faster than plain JSON. A block is written,
    unbuffered, when a step comes ``interval`` seconds after the last block, and by ``close``; after a crash ``recover``
    gives every step of every whole block.
    """

    def __init__(self, path: str | os.PathLike[str], interval: float = 0.25) -> None:
        self.path = Path(path)
        self.interval = interval
        self._file: io.FileIO | None = None
        self._pending: list[Mapping[str, Mapping[str, list[Any]]]] = []
        self._written = 0.0
        self._types: Types = {}

    def start(self, trace: Trace) -> None:
        """Create the file: the run's record, and whatever the trace holds so far (its prompt)."""
        self._types = _types(trace)
        line = _dumps({"journal": 1, "schema": SCHEMA, "run": trace.run, "tables": trace.tables})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "wb", buffering=0)  # noqa: SIM115 (open for as long as the run lasts)
            self._write(line.encode() + b"\n")
        except OSError as fault:
            raise TraceError(f"{self.path.name} cannot be written: {_why(fault)}") from None

    def append(self, delta: Mapping[str, Mapping[str, list[Any]]]) -> None:
        """Add one step; the delta is kept until its block is written, so it must not change."""
        if self._file is None:
            raise ValueError("the journal was not started, or is finished already")
        self._pending.append(delta)
        if len(self._pending) >= 256 or time.monotonic() - self._written >= self.interval:
            self.flush()

    def flush(self) -> None:
        """Write the steps that are still in memory."""
        if self._pending:
            block = _block(self._types, self._pending)
            self._pending = []
            self._write(block)

    def finish(self, trace: Trace, path: str | os.PathLike[str] | None = None) -> Path:
        """Save the trace (to ``path``, or beside the journal as .spectrace), remove the journal, return the path."""
        self.close()
        path = self.path.with_suffix(SUFFIX) if path is None else Path(path)
        save(trace, path)
        if path != self.path:
            self.path.unlink(missing_ok=True)
        return path

    def close(self) -> None:
        """Write what is left; the journal stays as it is, for ``recover``. For ``finally``: closing twice is fine."""
        if self._file is not None:
            try:
                self.flush()
            finally:  # the disk may be full
                self._file.close()
                self._file = None

    def _write(self, block: bytes) -> None:
        assert self._file is not None
        data = memoryview(block)
        while data:
            data = data[self._file.write(data) :]
        self._written = time.monotonic()


Types = Mapping[str, Mapping[str, str]]  # table → column → type


def _types(trace: Trace) -> Types:
    return {t: {c.name: c.type for c in columns_of(t, trace.run).values()} for t in trace.tables}


def _block(types: Types, deltas: list[Mapping[str, Mapping[str, list[Any]]]]) -> bytes:
    """Several steps as one block: its line of JSON, then every column's numbers.

    The line has, per column, its values once (a dictionary: text, and whatever has no one type) or its type.
    """
    tables: dict[str, Any] = {}
    parts: list[bytes] = []
    for table in dict.fromkeys(chain.from_iterable(deltas)):
        those = [delta[table] for delta in deltas if table in delta]
        columns: dict[str, list[Any] | str] = {}
        rows = 0
        for name in those[0]:
            values = list(chain.from_iterable([columns_[name] for columns_ in those]))
            rows = len(values)
            columns[name] = kind = types.get(table, {}).get(name) or type_of(values)
            if kind in ("str", "any"):
                if kind == "any":  # 1, 1.0 and True are equal
                    values = list(map(_dumps, values))
                words = {word: i for i, word in enumerate(dict.fromkeys(values))}
                columns[name] = list(words) if kind == "str" else [json.loads(word) for word in words]
                values = list(map(words.__getitem__, values))
            elif kind == "float":
                values = [math.nan if value is None else value for value in values]
            parts.append(struct.pack(f"<{rows}{'d' if kind == 'float' else 'q'}", *values))
        if rows:
            tables[table] = {"rows": rows, "columns": columns}
        else:
            del parts[len(parts) - len(columns) :]
    data = b"".join(parts)
    return _dumps({"tables": tables, "bytes": len(data), "crc": zlib.crc32(data)}).encode() + b"\n" + data + b"\n"


def _blocks(types: Types, data: bytes) -> Iterator[dict[str, dict[str, list[Any]]]]:
    """The whole blocks at the beginning of ``data``; what follows the first damage is left out."""
    while data:
        line, _, data = data.partition(b"\n")
        try:
            head = _loads(line, "block")
            body, data = data[: head["bytes"]], data[head["bytes"] + 1 :]
            if len(body) != head["bytes"] or zlib.crc32(body) != head["crc"]:
                return
            yield _delta(types, head["tables"], body)
        except (ValueError, LookupError, TypeError, AttributeError):
            return


def _delta(types: Types, tables: Mapping[str, Any], body: bytes) -> dict[str, dict[str, list[Any]]]:
    delta: dict[str, dict[str, list[Any]]] = {}
    at = 0
    for table, entry in tables.items():
        columns: dict[str, list[Any]] = {}
        for name, told in entry["columns"].items():
            kind = told or types[table].get(name, "float")  # the first journals tell the words of text alone
            values = np.frombuffer(body, "<f8" if kind == "float" else "<i8", entry["rows"], at).tolist()
            at += 8 * len(values)
            if isinstance(told, list):
                values = [told[value] for value in values]
            elif kind == "float":
                values = [None if math.isnan(value) else value for value in values]
            elif kind == "bool":
                values = [bool(value) for value in values]
            columns[name] = values
        delta[table] = with_defaults(table, columns)
    return delta


def recover(path: str | os.PathLike[str]) -> Trace:
    """The run in a journal, up to its last whole block: ``complete`` is False and ``stop`` "interrupted".

    Raises TraceError if not even the header is whole.
    """
    name = Path(path).name
    try:
        with open(path, "rb") as file:
            line, _, rest = file.read(MAX_UNPACKED).partition(b"\n")
    except OSError as fault:
        raise TraceError(f"{name} cannot be opened: {_why(fault)}; check the path") from None
    try:
        head = _loads(line, "header")
        if head.get("journal") != 1 or not isinstance(head.get("tables"), dict):
            raise TraceError("it does not begin like a journal")
        check_run(head.get("run"))
        run = {**head["run"], "complete": False, "stop": "interrupted"}
        trace = Trace.from_json({"schema": head.get("schema"), "run": run, **head["tables"]})
        for delta in _blocks(_types(trace), rest):
            trace.extend(delta)
        elapsed = trace.tables["steps"]["elapsed_ms"]
        trace.run["timings"] = {**trace.run["timings"], "decode_ms": elapsed[-1] if elapsed else 0.0}
        check(trace)
    except (TraceError, KeyError) as fault:
        raise TraceError(f"{name} cannot be recovered: {fault}; not even its prompt is whole") from None
    return trace
