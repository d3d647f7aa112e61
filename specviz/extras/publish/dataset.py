"""Runs as a dataset of Parquet files, in a folder or on the Hugging Face hub, and back again without loss.

One config per table of ``spectrace/1``, each with one schema for all runs: ``data/<table>/<shard>.parquet``, a row of
the table per row, with the ``run`` it belongs to and the ``text`` of its token. Columns that methods declare
(``term:<key>``) would give every method a schema of its own, so their values stand in the config ``terms``; columns and
tables of a later version stand as JSON in ``more``. ``runs`` has a row per run, with its record. A push writes a shard
of each config, the runs' last: what a push that broke off left is not read.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from decoders.errors import UserError, first_line
from decoders.trace.tables import TABLES, TraceError, columns_of
from decoders.trace.trace import Trace
from specviz.groups import group
from specviz.markup import md
from specviz.places import SUFFIX
from specviz.views.frames import TOKENS
from specviz.words import plural

from .dataset_places import RUNS, FolderPlace, Hub, is_hub

TERMS, EXTRA_COLUMNS = "terms", "more"
ARROW = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}
BEGIN, END = "<!-- specviz -->", "<!-- /specviz -->"  # around what a card says of its runs
NUMBERS = ("tokens", "steps", "tokens_per_step", "acceptance_rate", "tokens_per_s")
TAGS = ("speculative-decoding", "specviz")
HELD = 4 << 30  # bytes of a shard, unpacked, at most
_RUN = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "digest", "title", "created", "model", "method")),
        ("prompt_length", pa.int64()), ("output_tokens", pa.int64()),
        *((name, pa.float64()) for name in NUMBERS), ("record", pa.string()),
    ]
)  # fmt: skip
_TERM = pa.schema(
    [("run", pa.string()), ("table", pa.string()), ("key", pa.string()), ("row", pa.int64()), ("value", pa.float64())]
)
_EXTRA_SCHEMA = pa.schema(
    [("run", pa.string()), ("table", pa.string()), ("column", pa.string()), ("values", pa.string())]
)


def schema_of(table: str) -> pa.Schema:
    """The columns of a config: of ``runs``, ``terms`` or ``more``, or of a table of traces."""
    if table in (RUNS, TERMS, EXTRA_COLUMNS):
        return {RUNS: _RUN, TERMS: _TERM, EXTRA_COLUMNS: _EXTRA_SCHEMA}[table]
    text = [("text", pa.string())] if table in TOKENS else []
    return pa.schema([("run", pa.string()), *((c.name, ARROW[c.type]) for c in TABLES[table]), *text])


# --- writing ---


class Shard:
    """Runs on their way into Parquet files of the same name, one per config."""

    def __init__(self) -> None:
        self.parts: dict[str, list[pa.Table]] = {name: [] for name in (RUNS, TERMS, EXTRA_COLUMNS, *TABLES)}
        self.digests: dict[str, str] = {}

    def add(self, trace: Trace) -> None:
        """Take a run. Raises UserError for one of the same id and other content."""
        run, digest = trace.run, trace.digest
        key = str(run["id"])
        if (earlier_digest := self.digests.setdefault(key, digest)) != digest:
            raise UserError(
                f"two different runs are called {key} ({earlier_digest[:8]}, {digest[:8]}): leave one of them out"
            )
        metrics = run.get("metrics") or {}
        row = {
            "run": key, "digest": digest, "title": run.get("title"), "created": run.get("created"),
            "model": (run.get("model") or {}).get("name"), "method": run["method"].get("name"),
            "prompt_length": run["prompt_length"], "output_tokens": len(trace.output_ids),
            **{name: _number(metrics.get(name)) for name in NUMBERS}, "record": json.dumps(run),
        }  # fmt: skip
        self.parts[RUNS].append(pa.Table.from_pylist([row], schema=_RUN))
        for table, columns in trace.tables.items():
            self._add(key, trace, table, columns)

    def _add(self, run: str, trace: Trace, table: str, columns: Mapping[str, list[Any]]) -> None:
        rows, table_columns = trace.rows(table), columns_of(table, trace.run)
        own_columns = {column.name: column for column in TABLES.get(table, ())}
        arrays: dict[str, pa.Array] = {"run": pa.repeat(run, rows)}
        for name, values in columns.items():
            if name in own_columns:
                arrays[name] = pa.array(values, ARROW[own_columns[name].type])
            elif name in table_columns:
                numbers = pa.array(values, pa.float64())
                present_rows = pa.array(np.flatnonzero(numbers.is_valid()), pa.int64())
                keys = [pa.repeat(text, len(present_rows)) for text in (run, table, name.removeprefix("term:"))]
                self.parts[TERMS].append(pa.table([*keys, present_rows, numbers.drop_null()], schema=_TERM))
            else:
                extra_row = {"run": run, "table": table, "column": name, "values": json.dumps(values)}
                self.parts[EXTRA_COLUMNS].append(pa.Table.from_pylist([extra_row], schema=_EXTRA_SCHEMA))
        if table in TABLES and rows:
            if table in TOKENS:
                texts = trace.texts()
                arrays["text"] = pa.array([texts.get(token, "") for token in columns[TOKENS[table]]], pa.string())
            self.parts[table].append(pa.table(arrays, schema=schema_of(table)))

    def write(self, folder: Path) -> str:
        """Write all configs' files below ``folder``, those without rows too, so that each opens; their name."""
        name = hashlib.sha256("".join(sorted(self.digests.values())).encode()).hexdigest()[:16]
        for config, parts in self.parts.items():
            place = folder / "data" / config
            place.mkdir(parents=True, exist_ok=True)
            schema = schema_of(config)
            pq.write_table(pa.concat_tables(parts) if parts else schema.empty_table(), place / f"{name}.parquet")
        return name


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def card(rows: Sequence[Mapping[str, Any]], old_card: str = "") -> str:
    """A dataset's README: how its configs are opened, what runs it has; what people wrote into an earlier one stays."""
    import yaml

    front, body = _front_matter(old_card)
    front["configs"] = [
        {"config_name": name, "data_files": f"data/{name}/*.parquet", **({"default": True} if name == RUNS else {})}
        for name in (RUNS, *TABLES, TERMS, EXTRA_COLUMNS)
    ]
    front["tags"] = list(dict.fromkeys([*(front.get("tags") or []), *TAGS]))
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    about = f"{BEGIN}\n{_about(rows)}\n{END}"
    if BEGIN in body and END in body.partition(BEGIN)[2]:
        first, _, tail = body.partition(BEGIN)
        body = first + about + tail.partition(END)[2]
    else:
        body = (f"{body.rstrip()}\n\n" if body.strip() else "# Runs of speculative decoding\n\n") + about + "\n"
    return f"---\n{head}---\n\n{body.lstrip()}"


def _front_matter(text: str) -> tuple[dict[str, Any], str]:
    import yaml

    if not text.startswith("---\n") or "\n---" not in text[4:]:
        return {}, text
    head, _, body = text[4:].partition("\n---")
    try:
        front = yaml.safe_load(head)
    except yaml.YAMLError as fault:
        raise UserError(f"the front matter of its README.md is no YAML: {str(fault).splitlines()[0]}") from None
    if not isinstance(front, dict | None):
        raise UserError("the front matter of its README.md is no list of names and values")
    return front or {}, body.partition("\n")[2]


def _about(rows: Sequence[Mapping[str, Any]]) -> str:
    """The runs by model and method: tokens per step pooled, as every table of ours is."""
    lines = [
        f"{plural(len(rows), 'run')} recorded with specviz, one config per table:"
        " `runs` has a row per run, `steps` one per verify step, `nodes` one per drafted token with its decision. "
        "`specviz pull` makes trace files of it again.",
        "", "| model | method | runs | tokens | steps | tokens per step |", "| --- | --- | --: | --: | --: | --: |",
    ]  # fmt: skip
    for (model, method), part in sorted(
        group(((row["model"] or "–", row["method"] or "–"), row) for row in rows).items()
    ):
        tokens, steps = (sum(int(row[name] or 0) for row in part) for name in ("tokens", "steps"))
        rate = f"{tokens / steps:.2f}" if steps else ""
        lines.append(f"| {md(model)} | {md(method)} | {len(part)} | {tokens:,} | {steps:,} | {rate} |")
    return "\n".join([*lines, "", "Tokens per step: emitted tokens ÷ verify steps, over all runs of the row."])


# --- reading ---


@dataclass(slots=True)
class DatasetRead:
    """The contents of a dataset: its runs as traces, and sentences on what could not be taken."""

    traces: int = 0
    problems: list[str] = field(default_factory=list)


def runs_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of ``runs``, without the records. Raises UserError for files that a push did not write."""
    return [row for path in sorted((folder / "data" / RUNS).glob("*.parquet")) for row in _rows(path)]


def _rows(path: Path) -> list[dict[str, Any]]:
    names = [name for name in _RUN.names if name != "record"]
    return [{**row, "shard": path.name} for row in _table(path, _RUN, names).to_pylist()]


def traces_in(folder: Path, is_requested: Callable[[Mapping[str, Any]], bool], read: DatasetRead) -> Iterator[Trace]:
    """The runs that are ``is_requested``, by their rows of ``runs``, each checked as a file is; a faulty one, and a
    faulty shard, is a sentence in ``read.problems``, and the others follow. Raises UserError where no shard can be
    read.
    """
    shards = sorted((folder / "data" / RUNS).glob("*.parquet"))
    faults: list[UserError] = []
    for path in shards:
        try:
            keys = [row["run"] for row in _rows(path) if is_requested(row)]
            if not keys:
                continue
            records = _table(path, _RUN, ["run", "record"]).to_pylist()
            tables = {name: _by_run(folder, name, path.name, read) for name in (*TABLES, TERMS, EXTRA_COLUMNS)}
        except UserError as fault:
            faults.append(fault)
            read.problems.append(f"the runs of {path.name} were left out: {fault}")
            continue
        run_records = {row["run"]: row["record"] for row in records}
        for key in keys:
            try:
                trace = _trace(json.loads(run_records[key]), {name: part.get(key) for name, part in tables.items()})
                if str(trace.run["id"]) != key:
                    raise TraceError(f"its record calls it {str(trace.run['id'])[:40]!r}")
            except Exception as fault:  # a record is anybody's text, so whatever it makes wrong
                read.problems.append(f"run {str(key)[:40]} of {path.name} was left out: {first_line(fault, 200)}")
                continue
            read.traces += 1
            yield trace
    if faults and len(faults) == len(shards):
        raise faults[0]


def _by_run(folder: Path, config: str, shard: str, read: DatasetRead) -> dict[str, pa.Table]:
    """A shard's rows of a config by their run; nothing where a later version added the table."""
    path = folder / "data" / config / shard
    if not path.is_file():
        read.problems.append(f"data/{config}/{shard} is missing: the runs of this shard are read without it")
        return {}
    schema = schema_of(config)
    table = _table(path, schema, [name for name in schema.names if name != "text"])
    if foreign := set(pq.read_schema(path).names) - set(schema.names):
        read.problems.append(f"data/{config}/{shard} has columns that are not read: {', '.join(sorted(foreign)[:8])}")
    runs = table.column("run").to_pylist()
    starts = [row for row, run in enumerate(runs) if not row or run != runs[row - 1]]
    ends = [*starts[1:], len(runs)]
    parts = group((runs[at], table.slice(at, end - at)) for at, end in zip(starts, ends, strict=False))  # no rows: none
    return {run: pa.concat_tables(part) for run, part in parts.items()}


def _trace(run: dict[str, Any], parts: Mapping[str, pa.Table | None]) -> Trace:
    document: dict[str, Any] = {"schema": "spectrace/1", "run": run}
    rows: dict[str, int] = {}
    for table in TABLES:
        part = parts.get(table)
        rows[table] = part.num_rows if part is not None else 0
        names = [column.name for column in TABLES[table]]
        document[table] = {name: part.column(name).to_pylist() if part is not None else [] for name in names}
        document[table] |= {name: [None] * rows[table] for name in columns_of(table, run) if name not in names}
    if (terms := parts.get(TERMS)) is not None:
        for row in terms.to_pylist():
            document[row["table"]][f"term:{row['key']}"][row["row"]] = row["value"]
    if (extra_table := parts.get(EXTRA_COLUMNS)) is not None:
        for row in extra_table.to_pylist():
            document.setdefault(row["table"], {})[row["column"]] = json.loads(row["values"])
    return Trace.from_json(document)


def _table(path: Path, schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    """Columns of a Parquet file in the types that they are to have, no more than ``HELD`` bytes of them. Raises
    UserError.

    Texts are read as dictionaries: a file may repeat a long one a billion times in a few bytes.
    """
    place = "/".join(path.parts[-3:])
    try:
        file = pq.ParquetFile(path)
        meta = file.metadata
        packed = sum(meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
        _check_held(place, max(packed, 8 * meta.num_rows * len(names)))
        if missing := [name for name in names if name not in file.schema_arrow.names]:
            raise UserError(f"{place} lacks the column {missing[0]}: it was not written by specviz push")
        if nested := [name for name in names if pa.types.is_nested(file.schema_arrow.field(name).type)]:
            raise UserError(f"{place} has lists in the column {nested[0]}: it was not written by specviz push")
        texts = [name for name in names if schema.field(name).type == pa.string()]
        table = pq.ParquetFile(path, read_dictionary=texts).read(columns=list(names)).select(list(names))
        _check_held(place, sum(_text_bytes(table.column(name)) for name in texts))
        return table.cast(pa.schema([schema.field(name) for name in names]))
    except (pa.ArrowException, OSError, OverflowError) as fault:
        raise UserError(f"{place} cannot be read: {str(fault).splitlines()[0][:120]}; pull it again") from None


def _check_held(place: str, size: int) -> None:
    if size > HELD:
        raise UserError(f"{place} unpacks to {size >> 20:,} MiB, and {HELD >> 20:,} are allowed")


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Bytes of a column of texts once each stands for itself."""
    size = 0
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            lengths = pc.call_function("binary_length", [chunk.dictionary])
            size += lengths.take(chunk.indices).sum().as_py() or 0
        else:
            size += chunk.nbytes
    return size


# --- both ways ---


@dataclass(frozen=True, slots=True)
class PushResult:
    """The result of a push: the runs it added, those that were there already, and where the dataset is now."""

    added_count: int
    known_count: int
    place: str


def push(name: str, traces: Iterable[Trace], *, private: bool = True) -> PushResult:
    """Add runs to a dataset: a folder, or a dataset on the hub (made where there is none). On the hub they come in one
    commit; a run that is there already is left out. Raises UserError, with nothing written, for a run whose id is taken
    by another, and where the hub does not answer.
    """
    place: FolderPlace | Hub = Hub(name, private) if is_hub(name) else FolderPlace(Path(name).expanduser())
    with tempfile.TemporaryDirectory(prefix="specviz-push-") as scratch:
        old_folder = place.read(Path(scratch) / "before")
        rows = runs_in(old_folder)
        digests = {row["run"]: row["digest"] for row in rows}
        shard, present_count = Shard(), 0
        for trace in traces:
            key = str(trace.run["id"])
            if key not in digests:
                shard.add(trace)
            elif digests[key] == trace.digest:
                present_count += 1
            else:
                raise UserError(f"{name} has another run that is called {key}: nothing was written, use another place")
        if shard.digests:
            new = Path(scratch) / "new"
            shard.write(new)
            readme = old_folder / "README.md"
            text = card([*rows, *runs_in(new)], readme.read_text(encoding="utf-8") if readme.is_file() else "")
            (new / "README.md").write_text(text, encoding="utf-8")
            place.write(new, f"{plural(len(shard.digests), 'run')} from specviz")
    return PushResult(len(shard.digests), present_count, place.title)


def pull(
    name: str, folder: Path, is_requested: Callable[[Mapping[str, Any]], bool], save: Callable[[Trace, Path], Any]
) -> DatasetRead:
    """Write the ``is_requested`` runs of a dataset as trace files into ``folder``. A file that is there with other
    content is not written over, which ``Read.problems`` says. Raises UserError.
    """
    place: FolderPlace | Hub = Hub(name, True) if is_hub(name) else FolderPlace(Path(name).expanduser())
    read = DatasetRead()
    with tempfile.TemporaryDirectory(prefix="specviz-pull-") as scratch:
        source = place.read(Path(scratch) / "data", with_data=True)
        if not (source / "data" / RUNS).is_dir():
            raise UserError(f"{name} has no runs of specviz (data/{RUNS}): check the name, or push runs to it first")
        folder.mkdir(parents=True, exist_ok=True)
        for trace in traces_in(source, is_requested, read):
            path = folder / f"{trace.run['id']}{SUFFIX}"
            if path.exists() and not _is_same(path, trace):
                read.problems.append(f"{path.name} is there with other content and was left as it is")
                read.traces -= 1
                continue
            save(trace, path)
    return read


def _is_same(path: Path, trace: Trace) -> bool:
    from decoders.trace.files import load

    try:
        return load(path).digest == trace.digest
    except TraceError:
        return False
