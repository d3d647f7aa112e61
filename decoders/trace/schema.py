"""The trace's format for other programs: its JSON Schema and the tables of ``docs/spectrace.md``.

``python -m decoders.trace.schema`` writes both into ``docs/``, and the type declarations beside them, from
``tables.txt`` and ``run.txt``. The schema bounds a document's shape, types and ranges; ``decoders.trace.check`` also
compares tables with each other.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .check import BIGGEST, HEX, MAX_STRING, ROUNDING, RUN_ID
from .declarations import declarations, remarks
from .tables import (
    MAX_COLUMNS,
    MAX_MORE_TABLES,
    NAME,
    NO_TABLES,
    OPTIONAL_TABLES,
    REQUIRED,
    RUN,
    SCHEMA,
    TABLES,
    TERMS,
    Column,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
JSON_FILE, PAGE = "spectrace.schema.json", "spectrace.md"
MARKERS = "<!-- tables -->\n", "<!-- /tables -->"
_TYPES = {
    "int": "integer", "float": ["number", "null"], "number": ["number", "null"], "real": "number",
    "str": "string", "bool": "boolean", "value": ["number", "string", "boolean", "null"],
    "list": "array", "dict": "object",
}  # fmt: skip


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``Trace.to_json()``: the run record, and each table as column → list."""
    scalar = {"type": ["number", "string", "boolean", "null"], "maxLength": MAX_STRING}
    column = {"type": "array", "items": scalar}
    names = {"pattern": f"^{NAME.pattern}$"}
    object_schema = {"type": "object", "minProperties": 1, "maxProperties": MAX_COLUMNS, "propertyNames": names}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "A run of speculative decoding: its record, and tables as column → list. Lists of one table are "
        "of equal length. docs/spectrace.md says more. Made by python -m decoders.trace.schema",
        "type": "object",
        "required": ["schema", "run", *(table for table in TABLES if table not in OPTIONAL_TABLES)],
        "properties": {
            "schema": {"const": SCHEMA},
            "run": {"$ref": "#/$defs/run"},
            "report": {"description": "of a page; not a part of the trace"},
            **{table: _table(table, columns) for table, columns in TABLES.items()},
        },
        "propertyNames": names,
        "maxProperties": len(NO_TABLES) + len(TABLES) + MAX_MORE_TABLES,
        "additionalProperties": {**object_schema, "additionalProperties": {"$ref": "#/$defs/column"}},
        "$defs": {"column": column, **{part: _record(fields) for part, fields in RUN.items()}},
    }


def _table(table: str, columns: tuple[Column, ...]) -> dict[str, Any]:
    properties = {c.name: {"description": _help(c), "type": "array", "items": _value(c)} for c in columns}
    if table == "pieces":
        properties["hex"]["items"]["pattern"] = f"^{HEX}$"
    terms = {"type": "array", "items": {"type": _TYPES["number"]}}
    return {
        "type": "object",
        "required": [c.name for c in columns if c.default is REQUIRED],
        "properties": properties,
        **({"patternProperties": {"^term:": terms}} if table in TERMS.values() else {}),
        "propertyNames": {"pattern": rf"^(term:.+|{NAME.pattern})$"},
        "maxProperties": MAX_COLUMNS,
        "additionalProperties": {"$ref": "#/$defs/column"},
    }


def _record(fields: tuple[Column, ...]) -> dict[str, Any]:
    properties = {field.name: {"description": field.help, **_field(field)} for field in fields}
    if "id" in properties:
        properties["id"]["pattern"] = f"^{RUN_ID}$"
    required = [field.name for field in fields if field.default is REQUIRED]
    return {"type": "object", "required": required, "properties": properties}


def _field(field: Column) -> dict[str, Any]:
    for kind in field.words:
        item_schema = {"$ref": f"#/$defs/{kind}"} if kind in RUN else {"type": _TYPES[kind]} if kind in _TYPES else {}
        if field.type == "dict" and kind in RUN:
            return item_schema
        return {"type": _TYPES[field.type], "items" if field.type == "list" else "additionalProperties": item_schema}
    types = [_TYPES[field.type], "null"] if field.null else _TYPES[field.type]
    return {"type": types, **({} if field.low is None else {"minimum": field.low})}


def _value(column: Column) -> dict[str, Any]:
    if column.words:
        return {"enum": list(column.words)}
    value: dict[str, Any] = {"type": _TYPES[column.type]}
    if column.type == "str":
        value["maxLength"] = MAX_STRING
    if column.type == "int":
        value |= {"minimum": -BIGGEST, "maximum": BIGGEST}
    if column.low is not None:
        value["minimum"] = column.low
    if column.high is not None:
        value["maximum"] = column.high + ROUNDING
    return value


def _help(column: Column) -> str:
    """A column's help, with what its type cannot say."""
    rows = {"pieces": "an id of pieces", "steps": "a row of steps", "pool": "a position of pool"}
    parts = [column.help]
    if column.refers:
        parts.append(rows[column.refers] + (" or -1" if column.low else ""))
    if column.default is not REQUIRED:
        parts.append(f"added later, {json.dumps(column.default)} where missing")
    return "; ".join(parts)


def schema_text() -> str:
    """``docs/spectrace.schema.json``: a column or field per line."""
    return _lines(json_schema(), 4) + "\n"


def _lines(value: Any, depth: int, indent: str = "\n") -> str:
    if not depth or not isinstance(value, dict) or not any(isinstance(item, dict) for item in value.values()):
        return json.dumps(value, ensure_ascii=False)
    within = indent + " "
    return (
        "{"
        + ",".join(f"{within}{json.dumps(k)}: {_lines(v, depth - 1, within)}" for k, v in value.items())
        + indent
        + "}"
    )


def tables_text() -> str:
    """The generated part of ``docs/spectrace.md``: the run record, its parts, and every table."""
    parts = []
    for file, tables in (("run.txt", RUN), ("tables.txt", TABLES)):
        about = remarks(file)
        for table, columns in tables.items():
            suffix = " (inside the run record)" if tables is RUN and table != "run" else ""
            optional = "May be missing: read as empty." if table in OPTIONAL_TABLES else ""
            lines = (about[table], optional)
            text = "".join(f"{_mark(line[0].upper() + line[1:])}\n\n" for line in lines if line)
            rows = "".join(
                f"| `{c.name}` | {_type(c)} | {_mark(_help(c) if tables is TABLES else c.help)} |\n" for c in columns
            )
            parts.append(f"### `{table}`{suffix}\n\n{text}| name | type | holds |\n| --- | --- | --- |\n{rows}")
    return "\n".join(parts)


def _mark(text: str) -> str:
    return re.sub(r'"(term:<key>)"', r"`\1`", text).replace("|", r"\|")


def _type(column: Column) -> str:
    """A column's or field's type in words.

    >>> _type(Column("a", "float", "", low=0, high=1)), _type(Column("b", "list", "", None, words=("int",)))
    ('float or null, 0 to 1', 'list of int, optional')
    """
    words = column.type + (" or null" if column.null or column.type in ("float", "number", "value") else "")
    if column.type in ("list", "dict"):
        words += "".join(f" of {kind}" for kind in column.words)
    elif column.words:
        words = ", ".join(f"`{word}`" for word in column.words)
    elif column.low is not None and not column.refers:
        words += f", {column.low} or more" if column.high is None else f", {column.low} to {column.high}"
    return words + (", optional" if column.default is not REQUIRED else "")


def page_text(page: str) -> str:
    """``docs/spectrace.md`` with its generated part made anew."""
    head, _, tail = page.partition(MARKERS[0])
    return head + MARKERS[0] + tables_text() + MARKERS[1] + tail.partition(MARKERS[1])[2]


def main() -> None:
    (DOCS / JSON_FILE).write_text(schema_text(), encoding="utf-8")
    page = (DOCS / PAGE).read_text(encoding="utf-8")
    (DOCS / PAGE).write_text(page_text(page), encoding="utf-8")
    for path, text in declarations().items():
        path.write_text(text, encoding="utf-8")
    print(f"wrote {DOCS / JSON_FILE}, the tables of {DOCS / PAGE}, {' and '.join(map(str, declarations()))}")


if __name__ == "__main__":
    main()
