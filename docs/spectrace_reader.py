"""Reads and checks a spectrace file: one file to copy (Apache-2.0), Python and numpy alone. The format: spectrace.md.

python spectrace_reader.py RUN.spectrace       checks the file and prints a summary; exit status 1 and the fault if not

>>> trace = read("RUN.spectrace")                            # doctest: +SKIP
>>> trace.tables["steps"]["accepted"].mean()                 # doctest: +SKIP
7.0
"""

from __future__ import annotations

import json
import re
import struct
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# the columns that every file has; others are read as they are, and tables beside these may follow
COLUMNS = {
    "pieces": "id:int hex:str special:bool",
    "tokens": "id:int segment:str passage:int step:int kind:str origin:str source:int pool:int prob:float rank:int",
    "steps": "context:int route:str reason:str drafted:int depth:int accepted:int emitted:int bonus:int outcome:str "
    "origins:str entropy:float draft_ms:float verify_ms:float commit_ms:float elapsed_ms:float",
    "nodes": "step:int token:int parent:int depth:int origin:str source:int pool:int draft_prob:float prob:float "
    "rank:int status:str reason:str",
    "targets": "step:int node:int token:int prob:float",
    "candidates": "step:int position:int pool:int score:float length:int rank:int chosen:bool excluded:str "
    "would_accept:int",
    "probes": "step:int parent:int offset:int kind:str token:int prob:float",
    "pool": "position:int id:int passage:int",
    "plain": "id:int",
}
MAX_FILE, MAX_UNPACKED = 128 * 2**20, 256 * 2**20  # bytes
TYPES: dict[str, set[type]] = {"int": {int}, "float": {float, int, type(None)}, "str": {str}, "bool": {bool}}
DTYPES = {"int": np.int64, "float": np.float64, "str": object, "bool": np.bool_}


class SpectraceError(ValueError):
    """A fault of a file, in one sentence."""


@dataclass
class Trace:
    """A run: its record, and tables as column → array (null in a column of floats is nan)."""

    run: dict[str, Any]
    tables: dict[str, dict[str, np.ndarray]]

    def text(self, ids: Any) -> str:
        """The text of token ids; special tokens are left out."""
        pieces = self.tables["pieces"]
        hexes = {i: h for i, h, s in zip(pieces["id"], pieces["hex"], pieces["special"], strict=True) if not s}
        return bytes.fromhex("".join(hexes.get(i, "") for i in ids)).decode("utf-8", "replace")

    @property
    def output_ids(self) -> np.ndarray:
        return self.tables["tokens"]["id"][self.run["prompt_length"] :]


def read(path: str | Path) -> Trace:
    """The trace in a file. Raises SpectraceError where it is not a whole trace of version 1."""
    try:
        if Path(path).stat().st_size > MAX_FILE:
            raise SpectraceError(f"the file is larger than {MAX_FILE >> 20} MiB")
        with zipfile.ZipFile(path) as archive:
            if sum(info.file_size for info in archive.infolist()) > MAX_UNPACKED:
                raise SpectraceError(f"the file unpacks to more than {MAX_UNPACKED >> 20} MiB")
            head = _part(archive, "trace.json")
            if head["schema"] != "spectrace/1":
                raise SpectraceError(f"the version is {str(head['schema'])[:40]!r}; spectrace/1 can be read")
            tables = {table: _part(archive, f"{table}.json") for table in head["tables"]}
        trace = Trace(head["run"], {table: _arrays(table, columns) for table, columns in tables.items()})
        for table, entry in head["tables"].items():
            if {len(column) for column in trace.tables[table].values()} != {entry["rows"]}:
                raise SpectraceError(f"{table} has not the {entry['rows']} rows in each column that are announced")
        check(trace)
    except SpectraceError:
        raise
    except (OSError, KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RuntimeError, EOFError,
            zipfile.BadZipFile, zlib.error, struct.error) as fault:  # fmt: skip
        raise SpectraceError(f"{type(fault).__name__}: {str(fault)[:200]}") from None
    return trace


def _part(archive: zipfile.ZipFile, name: str) -> Any:
    info = archive.getinfo(name)
    with archive.open(info) as part:
        return json.loads(part.read(info.file_size + 1), parse_constant=_not_finite)


def _not_finite(word: str) -> None:
    raise SpectraceError(f"the number {word} is not finite")


def _arrays(table: str, columns: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    kinds = dict(column.split(":") for column in COLUMNS.get(table, "").split())
    if missing := [name for name in kinds if name not in columns]:
        raise SpectraceError(f"{table}.{missing[0]} is missing")
    return {name: _array(f"{table}.{name}", kinds.get(name), values) for name, values in columns.items()}


def _array(where: str, kind: str | None, values: list[Any]) -> np.ndarray:
    if not isinstance(values, list):
        raise SpectraceError(f"{where} is not a list")
    types = set(map(type, values))
    if kind is None:  # a column of a method or of a later version: its type is that of its values
        kind = next((k for k in ("int", "bool", "float", "str") if types <= TYPES[k]), "str")
    elif types - TYPES[kind]:
        raise SpectraceError(f"{where} holds something else than {kind}")
    return np.array(values, dtype=DTYPES[kind])


def check(trace: Trace) -> None:
    """Raise SpectraceError unless the tables agree with each other: the steps' trees, counts and the output."""
    if missing := [table for table in COLUMNS if table not in trace.tables]:
        raise SpectraceError(f"the table {missing[0]} is missing")
    run = trace.run
    named = isinstance(run["id"], str) and isinstance(run["method"]["name"], str) and isinstance(run["model"], dict)
    _require(named and isinstance(run.get("unknown", []), list), "the run's id, method, model or unknown is malformed")
    _require(type(run["prompt_length"]) is int and run["prompt_length"] > 0, "run.prompt_length is not 1 or more")
    tokens, steps, nodes, pieces = (trace.tables[table] for table in ("tokens", "steps", "nodes", "pieces"))
    start, drafted, accepted, step = run["prompt_length"], steps["drafted"], steps["accepted"], nodes["step"]
    ids, count = tokens["id"], len(drafted)
    emitted = accepted + (steps["bonus"] >= 0)
    context = start + np.concatenate([[0], np.cumsum(emitted)]).astype(int)
    _require(all(re.fullmatch("(?:[0-9a-fA-F]{2})*", text) for text in pieces["hex"]), "pieces.hex is not hexadecimal")
    for where in ("tokens.id", "nodes.token", "targets.token", "probes.token", "pool.id", "plain.id"):
        table, name = where.split(".")
        _require(np.isin(trace.tables[table][name], pieces["id"]), f"{where} has an id that pieces lacks")
    for table in ("nodes", "targets", "candidates", "probes"):
        row = trace.tables[table]["step"]
        in_order = (row < count) & (np.diff(row, prepend=0) >= 0)
        _require(in_order, f"{table}.step names a step that is not there, or out of order")
    _require(steps["emitted"] == emitted, "steps.emitted is not accepted, plus one where there is a bonus")
    _require(steps["context"] == context[:-1], "steps.context is not the number of tokens before the step")
    _require(len(ids) == context[-1], "the prompt and the steps' emitted tokens are not the rows of tokens")
    _require(np.bincount(step, minlength=count) == drafted + 1, "a step's nodes are not its root and drafted tokens")
    first = np.searchsorted(step, np.arange(count))
    number, root = np.arange(len(step)) - first[step], nodes["parent"] == -1
    _require(root == (number == 0), "a step's first node, and no other, is its root")
    _require(root | (nodes["parent"] >= 0) & (nodes["parent"] < number), "a node's parent does not stand before it")
    above = np.where(root, np.arange(len(step)), first[step] + nodes["parent"])
    _require(nodes["depth"] == np.where(root, 0, nodes["depth"][above] + 1), "nodes.depth is not the parent's plus one")
    stands = nodes["status"] == "accepted"
    _require(np.bincount(step[stands], minlength=count) == accepted, "steps.accepted is not the accepted nodes' number")
    committed = root | stands
    _require(committed[above] | ~stands, "a node is accepted below one that is not")
    place = np.minimum(context[step] + nodes["depth"] - 1, len(ids) - 1)
    _require((nodes["token"] == ids[place]) | ~committed, "an accepted node's token is not the output's")


def _require(holds: Any, fault: str) -> None:
    if not np.all(holds):
        raise SpectraceError(fault)


def summary(trace: Trace) -> str:
    """The run in a few lines: counts, the mean number of tokens per step, and the output's beginning."""
    steps, run = trace.tables["steps"], trace.run
    count, drafted, accepted = len(steps["drafted"]), steps["drafted"].sum(), steps["accepted"].sum()
    lines = [
        f"{run.get('title') or run['id']}: {run['method']['name']} on {run['model'].get('name', 'an unnamed model')}",
        f"{run['prompt_length']} prompt tokens, {len(trace.output_ids)} output tokens in {count} steps",
        f"{accepted} of {drafted} drafted tokens accepted, {1 + accepted / max(1, count):.2f} tokens per step",
        trace.text(trace.output_ids)[:300],
    ]
    if unknown := run.get("unknown"):
        lines.insert(3, f"not recorded: {', '.join(map(str, unknown))}")
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(summary(read(sys.argv[1])))
    except SpectraceError as fault:
        sys.exit(f"{sys.argv[1]} is not a whole trace: {fault}")
