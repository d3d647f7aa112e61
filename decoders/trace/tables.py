"""The tables of ``spectrace/1`` and what every column holds; ``tables.txt`` is the one list, of which all else is made.

A trace outlives its columns. The version stays ``spectrace/1``: columns and tables are only ever added. The columns of
the first version are required; one that is added later carries a default, which is read where a file has no such
column. Columns and tables that this program does not know, of a later version, are kept as they are and shown as plain
values. ``tests/frozen`` holds files of earlier versions, and a test opens every one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = "spectrace/1"
MAX_COLUMNS = 64  # of one table
NO_TABLES = ("schema", "run", "report")  # parts of a trace's JSON; a report is made anew, and never read
MAX_MORE_TABLES = 8  # that this program does not know
REQUIRED = object()  # the default of a column that every file has


class TraceError(ValueError):
    """A fault of a trace or its file, in one sentence."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type and what it holds.

    The types are int, float (None: not measured), str and bool; any, of a column that this program does not know, is
    each of them. ``default`` stands in every row of a file that was written before there was the column.

    ``low`` and ``high`` bound numbers; ``words`` are the only values of text; ``refers`` names the table whose rows the
    numbers stand for. A field of the run record is a column, too: ``words`` name the type of a list's or object's
    values, a default means that it may be missing, and ``null`` that it may be null.
    """

    name: str
    type: str
    help: str
    default: Any = REQUIRED
    low: int | None = None
    high: int | None = None
    words: tuple[str, ...] = ()
    refers: str = ""
    null: bool = False


_TYPE = re.compile(r"(\w+)(?:\((?:(-?\d+)\.\.(\d*)|@(\w+)(\|-1)?|(\w+(?:\|\w+)*))\))?(\|null)?(\?)?(?:=(.+))?")


def read_tables(text: str) -> dict[str, tuple[Column, ...]]:
    """Per ``[table]`` a column a line: name, type (with what is allowed, and a default as JSON) and what it holds.

    >>> (rank, kind) = read_tables("[t]\\nrank int(-1..)=-1 its rank\\nkind str(a|b) its kind")["t"]
    >>> rank.low, rank.high, rank.default, kind.words
    (-1, None, -1, ('a', 'b'))
    """
    tables: dict[str, tuple[Column, ...]] = {}
    for part in re.split(r"(?m)^\[", text)[1:]:
        table, *lines = part.strip().splitlines()
        tables[table.rstrip("]")] = tuple(_column(*line.split(None, 2)) for line in lines if not line.startswith("#"))
    return tables


def _column(name: str, spec: str, help: str) -> Column:
    if not (parts := _TYPE.fullmatch(spec)):
        raise ValueError(f"the type of {name} is {spec}; int, int(0..), int(@steps|-1), str(a|b), int=-1 are allowed")
    kind, low, high, refers, none_word, words, null, optional, default = parts.groups()
    if refers:
        low = "-1" if none_word else "0"
    return Column(
        name, kind, help, json.loads(default) if default else None if optional else REQUIRED,
        int(low) if low else None, int(high) if high else None, tuple(words.split("|")) if words else (), refers or "",
        null is not None,
    )  # fmt: skip


TABLES = read_tables(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
RUN = read_tables(Path(__file__).with_name("run.txt").read_text(encoding="utf-8"))  # the run record, and its parts

# added later: a file without them is read as if they were empty
OPTIONAL_TABLES = {"guesses", "attention", "pruned", "lattice", "transitions", "assistant"}

# the run's lists of declared numbers, and the table whose columns "term:<key>" hold them
TERMS = {"terms": "candidates", "node_terms": "nodes", "step_terms": "steps"}


NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:+-]{0,79}")


def may_be_named(name: object) -> bool:
    """Allow a name of a later version's column or table: it begins a cell of a CSV, and names a file."""
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def columns_of(table: str, run: Mapping[str, Any]) -> dict[str, Column]:
    """The columns that this program knows of a run's table, by name: its own, then the numbers the method declared.

    >>> list(columns_of("targets", {}))
    ['step', 'node', 'token', 'prob']
    >>> list(columns_of("candidates", {"terms": [{"key": "cosine", "help": "of both states"}]}))[-1]
    'term:cosine'
    """
    columns = {column.name: column for column in TABLES.get(table, ())}
    for field, owner in TERMS.items():
        if owner == table:
            for term in run.get(field, ()):
                columns[f"term:{term['key']}"] = Column(f"term:{term['key']}", "float", term.get("help", ""))
    return columns


def with_defaults(table: str, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns, and the defaults of those that were added to the table since they were written."""
    rows = len(next(iter(columns.values()), ()))
    defaults = {c.name: c.default for c in TABLES.get(table, ()) if c.default is not REQUIRED and c.name not in columns}
    return {**columns, **{name: [default] * rows for name, default in defaults.items()}}


def type_of(values: Collection[Any]) -> str:
    """The type of a column that no table lists, by its values.

    >>> type_of([1, 2]), type_of([1, None]), type_of([True]), type_of(["a"]), type_of(["a", 1]), type_of([])
    ('int', 'float', 'bool', 'str', 'any', 'float')
    """
    types = set(map(type, values))
    if types in ({int}, {bool}, {str}):
        return types.pop().__name__
    return "float" if types <= {int, float, type(None)} else "any"
