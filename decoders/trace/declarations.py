"""Type declarations of the run record and the columns: ``decoders/trace/run.py`` for pyright, and
``assets/web/trace.d.ts`` for tsc. Made from ``run.txt`` and ``tables.txt`` by ``python -m decoders.trace.schema``.
"""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from .tables import OPTIONAL_TABLES, REQUIRED, RUN, TABLES, Column

ROOT = Path(__file__).resolve().parents[2]
PYTHON_FILE, BROWSER_FILE = Path(__file__).with_name("run.py"), ROOT / "assets" / "web" / "trace.d.ts"
WIDTH = 120
_PYTHON = {
    "int": "int", "float": "float | None", "number": "float | None", "real": "float", "str": "str", "bool": "bool",
    "value": "Value", "any": "Any", "list": "list[Any]", "dict": "dict[str, Any]",
}  # fmt: skip
_BROWSER = {
    "int": "number", "float": "number | null", "number": "number | null", "real": "number", "str": "string",
    "bool": "boolean", "value": "Setting", "any": "unknown", "list": "unknown[]", "dict": "Record<string, unknown>",
}  # fmt: skip


def remarks(file: str) -> dict[str, str]:
    """Per table (or part of the run record) of a file the comment under its heading."""
    result = {}
    for part in re.split(r"(?m)^\[", Path(__file__).with_name(file).read_text(encoding="utf-8"))[1:]:
        name, *lines = part.splitlines()
        result[name.rstrip("]")] = " ".join(line[2:] for line in lines if line.startswith("#"))
    return result


def part_name(part: str, whole: str) -> str:
    """The type of a part of the run record; ``whole`` is that of the record itself.

    >>> part_name("run", "RunRecord"), part_name("one_row", "RunRecord")
    ('RunRecord', 'RunOneRow')
    """
    return whole if part == "run" else "Run" + part.title().replace("_", "")


def row_name(table: str) -> str:
    """The type of a table's row.

    >>> [row_name(table) for table in ("pieces", "guesses", "lattice")]
    ['PieceRow', 'GuessRow', 'LatticeRow']
    """
    return re.sub(r"(?<=ss)es$|(?<!s)s$", "", table).title() + "Row"


def python_text() -> str:
    """The module ``decoders/trace/run.py``: a TypedDict per part of the run record."""
    about, parts = remarks("run.txt"), []
    for part, fields in RUN.items():
        name, doc = part_name(part, "RunRecord"), _sentence(about[part])
        types = {field.name: _python(field) for field in fields}
        if any(map(keyword.iskeyword, types)):  # such a field has no class syntax, and its types no late evaluation
            body = "".join(f'        "{key}": "{kind}",\n' for key, kind in types.items())
            parts.append(f'{name} = TypedDict(  # {doc}\n    "{name}",\n    {{\n{body}    }},\n    total=False,\n)\n')
        else:
            body = "".join(f"    {key}: {kind}\n" for key, kind in types.items())
            parts.append(f'class {name}(TypedDict, total=False):\n    """{doc}"""\n\n{body}')
    return (
        '"""Types of the run record, made by ``python -m decoders.trace.schema`` from ``run.txt``."""\n\n'
        "from __future__ import annotations\n\nfrom typing import Any, Required, TypedDict\n\n"
        "Value = int | float | str | bool | None  # of a parameter\n\n\n" + "\n\n".join(parts)
    )


def _python(field: Column) -> str:
    kind = _PYTHON[field.type]
    for word in field.words:
        item_type = part_name(word, "RunRecord") if word in RUN else _PYTHON[word]
        kind = f"list[{item_type}]" if field.type == "list" else item_type if word in RUN else f"dict[str, {item_type}]"
    kind += " | None" * field.null
    return f"Required[{kind}]" if field.default is REQUIRED else kind


def browser_text() -> str:
    """The file ``assets/web/trace.d.ts``: rows of the tables, the tables of a trace, and the run record."""
    tables_about, run_about = remarks("tables.txt"), remarks("run.txt")
    head = (
        "/* The trace as the server sends it. Made by python -m decoders.trace.schema from decoders/trace/tables.txt\n"
        "   and run.txt: edit those. */\n\n/** A table: a list of values per column. "
        "``term:<key>`` are a method's own numbers, null where not measured. */\n"
        "type Columns<Row> = { [name in keyof Row]: Row[name][] } & "
        "{ [term: `term:${string}`]: (number | null)[] | undefined };\n"
        "/** The value of a parameter; null: left open, or off. */\n"
        "type Setting = string | number | boolean | null;\n"
    )
    rows = [_interface(row_name(table), tables_about[table], columns) for table, columns in TABLES.items()]
    tables = "".join(f"  {table}{'?' * (table in OPTIONAL_TABLES)}: Columns<{row_name(table)}>;\n" for table in TABLES)
    parts = [_interface(part_name(part, "Run"), run_about[part], fields) for part, fields in RUN.items()]
    whole = f"/** The tables of a trace by name: each as columns. */\ninterface Tables {{\n{tables}}}\n"
    return "\n".join([head, *rows, whole, *parts])


def _interface(name: str, about: str, columns: tuple[Column, ...]) -> str:
    body = "".join(
        f"  {column.name}{'?' * (column.default is not REQUIRED and name.startswith('Run'))}: {_browser(column)};\n"
        for column in columns
    )
    return f"{_comment(_sentence(about))}interface {name} {{\n{body}}}\n"


def _browser(column: Column) -> str:
    kind = _BROWSER[column.type]
    if column.type in ("list", "dict"):
        for word in column.words:
            item_type = part_name(word, "Run") if word in RUN else _BROWSER[word]
            if column.type == "list":
                kind = f"({item_type})[]" if "|" in item_type else f"{item_type}[]"
            else:
                kind = item_type if word in RUN else f"Record<string, {item_type}>"
    elif column.words:
        kind = " | ".join(f'"{word}"' for word in column.words)
    return kind + " | null" * column.null


def _comment(text: str) -> str:
    """A JSDoc comment of lines that are not too long."""
    return "\n ".join(textwrap.wrap(f"/** {text.replace('*/', '* /')} */", WIDTH - 2)).replace("\n ", "\n * ") + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." * (not text.endswith("."))


def declarations() -> Mapping[Path, str]:
    """The text of every generated file of types."""
    return {PYTHON_FILE: python_text(), BROWSER_FILE: browser_text()}
