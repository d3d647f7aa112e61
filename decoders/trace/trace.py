"""``spectrace/1``: one run, complete and columnar (stdlib + numpy only, so a trace opens where torch is not installed).

A trace is a ``run`` record plus tables. Everything a view shows is in it; nothing is derived later by searching text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from decoders.extra import entries_of

from .check import as_float, check, check_run, quote
from .run import RunRecord
from .tables import NO_TABLES, OPTIONAL_TABLES, SCHEMA, TABLES, TraceError, columns_of, may_be_named, with_defaults


@dataclass(slots=True, repr=False)
class Trace:
    """A run: its record ``run`` (model, method, parameters, seed, timings, …) and ``tables`` (table → column → values).

    >>> trace = Trace.new({"id": "a", "method": {"name": "pld"}})
    >>> trace.rows("tokens")
    0
    """

    run: RunRecord
    tables: dict[str, dict[str, list[Any]]] = field(default_factory=dict)

    @classmethod
    def new(cls, run: Mapping[str, Any]) -> Trace:
        return cls(RunRecord(**run), {table: {name: [] for name in columns_of(table, run)} for table in TABLES})

    def __repr__(self) -> str:
        """A line for consoles and notebooks; ``show`` draws the run.

        >>> Trace.new({"id": "a", "method": {"name": "pld"}, "prompt_length": 0})
        <Trace 'a' of 'pld': 0 rows of tokens, 0 of steps>
        """
        rows = [len(next(iter(self.tables.get(table, {}).values()), ())) for table in ("tokens", "steps")]
        method = self.run.get("method")
        name = method.get("name") if isinstance(method, dict) else method
        return f"<Trace {quote(self.run.get('id'))} of {quote(name)}: {rows[0]} rows of tokens, {rows[1]} of steps>"

    def rows(self, table: str) -> int:
        return len(next(iter(self.tables[table].values())))

    def extend(self, delta: Mapping[str, Mapping[str, list[Any]]]) -> None:
        """Rows of several tables at once, column by column: one step, as it is journaled and streamed."""
        for table, columns in delta.items():
            own_columns = self.tables[table]
            for name, values in columns.items():
                own_columns[name].extend(values)

    @property
    def prompt_ids(self) -> list[int]:
        return self.tables["tokens"]["id"][: self.run["prompt_length"]]

    @property
    def output_ids(self) -> list[int]:
        return self.tables["tokens"]["id"][self.run["prompt_length"] :]

    @property
    def prompt_key(self) -> str:
        """The same for all runs of one model on the same prompt tokens.

        >>> a, b = (Trace.new({"prompt_length": 1, "model": {"name": name}}) for name in ("x", "y"))
        >>> a.prompt_key == b.prompt_key
        False
        """
        model = str((self.run.get("model") or {}).get("name") or "")
        return prompt_key(model, self.tables["tokens"]["id"][: self.run.get("prompt_length") or 0])

    @property
    def digest(self) -> str:
        """Of all that the run holds, 32 hexadecimal digits: the same for the same run.

        >>> Trace.new({"id": "a"}).digest == Trace.new({"id": "a"}).digest != Trace.new({"id": "b"}).digest
        True
        """
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:32]

    def texts(self) -> dict[int, str]:
        """Every token's text by its id; of a character that is cut into tokens, each has a replacement sign."""
        pieces = self.tables["pieces"]
        rows = zip(pieces["id"], pieces["hex"], strict=True)
        return {token: bytes.fromhex(digits).decode("utf-8", "replace") for token, digits in rows}

    def text(self, ids: Iterable[int]) -> str:
        """The text of token ids that occur in the trace; special tokens left out, undecodable bytes replaced."""
        pieces = self.tables["pieces"]
        hexes = {i: h for i, h, s in zip(pieces["id"], pieces["hex"], pieces["special"], strict=True) if not s}
        return bytes.fromhex("".join(hexes.get(i, "") for i in ids)).decode("utf-8", "replace")

    def show(self, step: int = 0, height: int = 980) -> Any:
        """The inspector in a notebook, opened at ``step``. The front end that draws it is found by its entry point."""
        for viewer in entry_points(group="specviz.viewers"):
            return viewer.load()(self, step, height)
        raise TraceError("no viewer is installed: run pip install -e . in the project's folder, or specviz view TRACE")

    def widget(self, step: int = 0, height: int = 720) -> Any:
        """The inspector as a widget, opened at ``step``: its traits ``step``, ``token`` and ``node`` say what is
        selected, and select it. The annex that draws it is found by its ``Extra``.
        """
        for _, module in entries_of("widgets"):
            return module.widget(self, step, height)
        raise TraceError("no widget is installed: trace.show() shows the run without one")

    def to_json(self) -> dict[str, Any]:
        """The document: {"schema", "run", and each table as column → list}."""
        return {"schema": SCHEMA, "run": self.run, **self.tables}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Trace:
        """The inverse of ``to_json``, for documents of any origin: wholly checked, TraceError names the first fault."""
        schema = document.get("schema")
        if schema != SCHEMA:
            raise TraceError(f"it has the version {quote(schema)}, and this program reads {SCHEMA}")
        document = {**{table: {c.name: [] for c in TABLES[table]} for table in OPTIONAL_TABLES}, **document}
        tables = [*TABLES, *(name for name in document if name not in (*TABLES, *NO_TABLES))]
        if odd := [name for name in tables if not may_be_named(name)]:
            raise TraceError(f"it has a part named {quote(odd[0])}; a letter, then letters, digits and _ are allowed")
        if missing := [name for name in ("run", *tables) if not isinstance(document.get(name), dict)]:
            raise TraceError(f"its part {missing[0]} is missing or not an object")
        check_run(document["run"])
        trace = cls(document["run"])
        for table in tables:
            columns = trace.tables[table] = dict(document[table])
            if all(isinstance(values, list) for values in columns.values()):
                columns = trace.tables[table] = with_defaults(table, columns)
            for name, column in columns_of(table, trace.run).items():
                values = columns.get(name)
                if column.type == "float" and isinstance(values, list) and int in set(map(type, values)):
                    columns[name] = [as_float(v) for v in values]
        check(trace)
        return trace


def prompt_key(model: str, tokens: Sequence[int]) -> str:
    """A digest of a model's name and prompt token ids."""
    return hashlib.sha256("\0".join((model, *map(str, tokens))).encode("utf-8", "replace")).hexdigest()[:16]
