"""A trace's tables as pandas frames, CSV and Parquet, with the text of every token beside its id."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd

from decoders.trace.tables import columns_of, type_of
from decoders.trace.trace import Trace
from specviz.markup import inert

# columns that hold a token id, and the column of text that is put after them
TOKENS = {"pieces": "id", "tokens": "id", "nodes": "token", "targets": "token", "probes": "token", "steps": "bonus",
           "pool": "id", "plain": "id", "guesses": "token", "pruned": "token",
           "lattice": "token"}  # fmt: skip
_TEXT = {"steps": "bonus_text"}
# text columns with few distinct values
_CATEGORIES = {"segment", "kind", "origin", "origins", "route", "outcome", "status"}
_DTYPES = {"int": "int64", "float": "float64", "bool": "bool", "str": "str", "any": "str"}


def frames(trace: Trace) -> dict[str, pd.DataFrame]:
    """Every table of the trace as a frame, those of a later version included."""
    return {table: frame(trace, table) for table in trace.tables}


def frame(trace: Trace, table: str) -> pd.DataFrame:
    """One table as a frame, with a ``text`` column (steps: ``bonus_text``) where it holds token ids.

    Undecodable bytes show as the replacement character; ``pieces`` has the bytes themselves, in hexadecimal. A column
    of a later version is there with its plain values. A table that does not exist raises ValueError.
    """
    if table not in trace.tables:
        raise ValueError(f"there is no table {table!r}: choose one of {', '.join(trace.tables)}")
    table_columns = columns_of(table, trace.run)
    columns: dict[str, pd.Series] = {}
    texts: dict[Any, str] = trace.texts() if table in TOKENS else {}
    for name, values in trace.tables[table].items():
        kind = table_columns[name].type if name in table_columns else type_of(values)
        if kind == "any":
            values = ["" if value is None else str(value) for value in values]
        columns[name] = pd.Series(values, dtype=_DTYPES[kind])
        if name in _CATEGORIES:
            columns[name] = columns[name].astype("category")
        if name == TOKENS.get(table):
            columns[_TEXT.get(table, "text")] = pd.Series([texts.get(token, "") for token in values], dtype="str")
    return pd.DataFrame(columns)


def to_csv(trace: Trace, table: str) -> str:
    """One table as CSV, with ``inert`` text. Steps and ranks count from 1, as on the page (a frame's from 0, as they
    are recorded); -1 stays, where there is none. ``steps`` has their numbers in a column ``step``.
    """
    data = frame(trace, table)
    if table == "steps" and "step" not in data:
        data.insert(0, "step", range(len(data)))
    for name in {"step", "rank"} & set(data.columns):
        if pd.api.types.is_integer_dtype(data[name]):
            data[name] = data[name].where(data[name] < 0, data[name] + 1)
    for name in data.columns:
        if not pd.api.types.is_numeric_dtype(data[name]):
            data[name] = [*map(inert, data[name])]
    # RFC 4180's line ends; with them a token that is a lone carriage return is quoted, too
    return data.to_csv(index=False, lineterminator="\r\n")


def to_parquet(trace: Trace, table: str) -> bytes:
    """One table as a Parquet file."""
    buffer = io.BytesIO()
    frame(trace, table).to_parquet(buffer, index=False)
    return buffer.getvalue()
