"""The journal of a run while it goes on: every step is in a file before anybody hears of it.

A line of JSON with the run and its prompt, then a line per step: the checksum of what follows (CRC-32, eight
hexadecimal digits), a space, and the step's rows as JSON. Journals of version 1 (blocks of columns) can still be
recovered.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from decoders.errors import reason_of
from decoders.folders import private_folder

from .check import check, check_run
from .files import MAX_UNPACKED, SUFFIX, dumps, loads, save
from .tables import SCHEMA, TraceError, columns_of, with_defaults
from .trace import Trace

__all__ = ["Journal", "recover"]

Delta = Mapping[str, Mapping[str, list[Any]]]


class Journal:
    """The steps of a run while it goes on, so that a process that is killed loses none of what was decoded. ::

        journal = Journal(folder / "a1b2.journal")
        journal.start(run.trace)            # the header and the prompt
        for delta in run:
            journal.append(delta)           # one step
        journal.finish(run.trace)           # writes a1b2.spectrace, then removes the journal

    A step is handed to the operating system by ``append``, unbuffered (about 15 µs); ``recover`` gives every step that
    was, whatever became of the process.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file: io.FileIO | None = None

    def start(self, trace: Trace) -> None:
        """Create the file (0600): the run and what the trace holds so far (its prompt), whole or not at all."""
        line = dumps({"journal": 2, "schema": SCHEMA, "run": trace.run, "tables": trace.tables})
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            private_folder(self.path.parent)
            number = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o600)
            self._file = open(number, "wb", buffering=0)  # noqa: SIM115 (open for as long as the run lasts)
            self._write(line.encode() + b"\n")
            os.replace(partial, self.path)
        except OSError as fault:
            self.close()
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise TraceError(f"{self.path.name} cannot be written: {reason_of(fault)}") from fault

    def append(self, delta: Delta) -> None:
        """Add one step. Raises OSError where the disk refuses."""
        if self._file is None:
            raise ValueError("the journal was not started, or is finished already")
        data = _encode(delta)
        self._write(b"%08x %s\n" % (zlib.crc32(data), data))

    def finish(self, trace: Trace, path: str | os.PathLike[str] | None = None) -> Path:
        """Save the trace (to ``path``, or beside the journal as .spectrace), remove the journal, return the path."""
        self.close()
        path = self.path.with_suffix(SUFFIX) if path is None else Path(path)
        save(trace, path)
        if path != self.path:
            self.path.unlink(missing_ok=True)
        return path

    def close(self) -> None:
        """The journal stays as it is, for ``recover``. For ``finally``: closing twice is fine."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        remainder = memoryview(data)
        while remainder:
            remainder = remainder[self._file.write(remainder) :]


def _encode(delta: Delta) -> bytes:
    try:
        import orjson  # five times as fast

        return orjson.dumps(delta)
    except (ImportError, TypeError):  # half a surrogate pair, a number of more than 64 bits
        return dumps(delta).encode()


def _steps(data: bytes) -> Iterator[Delta]:
    """The whole steps at the beginning of ``data``; what follows the first damage is left out."""
    for line in data.split(b"\n"):
        checksum, _, step = line.partition(b" ")
        try:
            if int(checksum, 16) != zlib.crc32(step):
                return
            tables = json.loads(step)
            yield {table: with_defaults(table, columns) for table, columns in tables.items()}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return


Types = Mapping[str, Mapping[str, str]]  # table → column → type


def _types(trace: Trace) -> Types:
    return {t: {c.name: c.type for c in columns_of(t, trace.run).values()} for t in trace.tables}


def _blocks(types: Types, data: bytes) -> Iterator[dict[str, dict[str, list[Any]]]]:
    """Of version 1: the whole blocks at the beginning of ``data``; what follows the first damage is left out."""
    while data:
        line, _, data = data.partition(b"\n")
        try:
            head = loads(line, "block")
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
        for name, column_type in entry["columns"].items():
            kind = column_type or types[table].get(name, "float")  # the first journals tell the words of text alone
            values = np.frombuffer(body, "<f8" if kind == "float" else "<i8", entry["rows"], at).tolist()
            at += 8 * len(values)
            if isinstance(column_type, list):
                values = [column_type[value] for value in values]
            elif kind == "float":
                values = [None if math.isnan(value) else value for value in values]
            elif kind == "bool":
                values = [bool(value) for value in values]
            columns[name] = values
        delta[table] = with_defaults(table, columns)
    return delta


def recover(path: str | os.PathLike[str]) -> Trace:
    """The run in a journal, up to its last whole step: ``complete`` is False and ``stop`` "interrupted".

    Raises TraceError if not even the header is whole.
    """
    name = Path(path).name
    try:
        with open(path, "rb") as file:
            line, _, body = file.read(MAX_UNPACKED).partition(b"\n")
    except OSError as fault:
        raise TraceError(f"{name} cannot be opened: {reason_of(fault)}; check the path") from None
    try:
        head = loads(line, "header")
        version = head.get("journal")
        if version not in (1, 2) or not isinstance(head.get("tables"), dict):
            raise TraceError("it does not begin like a journal")
        check_run(head.get("run"))
        run = {**head["run"], "complete": False, "stop": "interrupted"}
        trace = Trace.from_json({"schema": head.get("schema"), "run": run, **head["tables"]})
        for delta in _blocks(_types(trace), body) if version == 1 else _steps(body):
            trace.extend(delta)
        elapsed = trace.tables["steps"]["elapsed_ms"]
        trace.run["timings"] = {**trace.run["timings"], "decode_ms": elapsed[-1] if elapsed else 0.0}
        check(trace)
    except (TraceError, KeyError) as fault:
        raise TraceError(f"{name} cannot be recovered: {fault}; not even its prompt is whole") from None
    return trace
