"""The trace as a published format: docs/spectrace.md, its JSON Schema, and the reader for others to copy."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import math
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from operator import setitem
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from decoders import Prompt, record
from decoders.trace import schema
from decoders.trace.declarations import declarations
from decoders.trace.files import load, save
from decoders.trace.journal import recover
from decoders.trace.metrics import compute
from decoders.trace.tables import OPTIONAL_TABLES, REQUIRED, RUN, TABLES, TraceError
from decoders.trace.trace import Trace

from .models import prompt_ids, tiny_target
from .recordings import FROZEN_GALLERY, descend, frozen_file, frozen_journal
from .test_readme import snippet

GALLERY = sorted((schema.DOCS.parent / "assets" / "gallery").glob("*.spectrace"))
FILES = [*sorted(FROZEN_GALLERY.glob("*.spectrace")), *GALLERY]
READER = schema.DOCS / "spectrace_reader.py"
VALIDATOR = Draft202012Validator(schema.json_schema())

Document = dict[str, Any]


def raw(path: Path) -> Document:
    """A file's parts as JSON, with nothing added."""
    with zipfile.ZipFile(path) as archive:
        head = json.loads(archive.read("trace.json"))
        tables = {table: json.loads(archive.read(f"{table}.json")) for table in head["tables"]}
    return {"schema": head["schema"], "run": head["run"], **tables}


def faults(document: Document) -> list[str]:
    """Places that the schema refuses. A column's values are judged one by one, so each is judged once."""
    once = {
        table: {c: [v for _, v in dict.fromkeys((type(v), v) for v in values)] for c, values in columns.items()}
        for table, columns in document.items()
        if table not in ("schema", "run")
    }
    return [fault.json_path for fault in VALIDATOR.iter_errors({**document, **once})]


def test_what_is_committed_is_what_is_generated():
    page = (schema.DOCS / schema.PAGE).read_text("utf-8")
    assert (schema.DOCS / schema.JSON_FILE).read_text("utf-8") == schema.schema_text(), (
        "python -m decoders.trace.schema"
    )
    assert page == schema.page_text(page), "python -m decoders.trace.schema"
    assert json.loads(schema.schema_text()) == schema.json_schema()
    assert page.count(schema.tables_text()) == 1
    for path, text in declarations().items():
        assert path.read_text("utf-8") == text, f"{path.name}: python -m decoders.trace.schema"


def test_the_schema_is_one_and_has_every_column_and_field():
    document = schema.json_schema()
    Draft202012Validator.check_schema(document)
    for table, columns in TABLES.items():
        assert list(document["properties"][table]["properties"]) == [c.name for c in columns]
    for part, fields in RUN.items():
        assert list(document["$defs"][part]["properties"]) == [field.name for field in fields]
    text = schema.tables_text()
    assert all(f"| `{c.name}` | " in text for columns in (*TABLES.values(), *RUN.values()) for c in columns)


READS = ("get", "pop", "setdefault")
SERVER_COLUMNS = {  # that only runs of servers have
    "batch", "confidence", "served_prob", "server_prob", "local_accepted", "local_drafted", "differs", "redrafted",
}  # fmt: skip


def unknown_keys(source: str) -> list[str]:
    """Literal keys by which code reads a run record, one of its parts or a table, and that the schema does not list.

    The record is ``X.run`` and names that ``X.run`` was given to; ``X.tables`` are tables.
    """

    def place(node: ast.expr, names: set[str]) -> tuple[str, ...] | None:
        """Keys from the record ("run") or the tables ("tables") on to an expression; None for anything else."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return place(node.values[0], names)
        if isinstance(node, ast.Attribute) and node.attr in ("run", "tables"):
            return (node.attr,)
        if isinstance(node, ast.Name) and node.id in names:
            return ("run",)
        if isinstance(node, ast.Subscript):
            owner, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in READS
            and node.args
        ):
            owner, key = node.func.value, node.args[0]
        else:
            return None
        before = place(owner, names)
        return None if before is None or not isinstance(key, ast.Constant) else (*before, str(key.value))

    def fault(path: tuple[str, ...]) -> bool:
        if path[0] == "tables":
            columns = {column.name for column in TABLES.get(path[1], ())} | SERVER_COLUMNS
            return path[1] not in TABLES or (len(path) == 3 and path[2] not in columns and ":" not in path[2])
        part = "run"
        for key in path[1:]:
            field = next((field for field in RUN[part] if field.name == key), None)
            if field is None:
                return True
            part = next((word for word in field.words if field.type == "dict" and word in RUN), "")
            if not part:
                return False
        return False

    result = []
    for scope in ast.walk(ast.parse(source)):
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {arg.arg for arg in scope.args.args if arg.annotation and ast.unparse(arg.annotation) == "RunRecord"}
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                pairs = [(node.targets[0], node.value)]
                if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
                for name, value in pairs:
                    if isinstance(name, ast.Name) and isinstance(value, ast.Attribute) and value.attr == "run":
                        names.add(name.id)
        for node in ast.walk(scope):
            if isinstance(node, ast.expr) and (path := place(node, names)) and len(path) > 1 and fault(path):
                result.append(".".join(path))
    return sorted(set(result))


def test_every_key_that_code_reads_of_a_run_is_in_the_schema():
    source = "def f(trace):\n    run = trace.run\n    return {}"
    for read in (
        'run["modle"]',
        'trace.run.get("modle")',
        '(run.get("model") or {}).get("nam")',
        'trace.tables["step"]',
    ):
        assert unknown_keys(source.format(read)), read
    for read in ('run["model"]["name"]', 'run["metrics"]["beta"]', 'trace.tables["steps"]["term:x"]', 'other["modle"]'):
        assert unknown_keys(source.format(read)) == [], read
    root = schema.DOCS.parent
    files = [path for folder in ("decoders", "specviz") for path in (root / folder).rglob("*.py")]
    files = [path for path in files if "tests" not in path.relative_to(root).parts]
    faults = {str(path): keys for path in files if (keys := unknown_keys(path.read_text("utf-8")))}
    assert len(files) > 300 and not faults, f"list these in decoders/trace/run.txt or tables.txt: {faults}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}/{path.stem}")
def test_every_file_is_valid(path: Path):
    assert faults(raw(path)) == []
    assert faults(load(path).to_json()) == []


def test_the_other_frozen_forms_and_recorded_runs_are_valid(trace: Trace):
    assert faults(json.loads(frozen_file("run.json").read_text("utf-8"))) == []
    assert faults(recover(frozen_journal()).to_json()) == []
    assert faults(trace.to_json()) == []


@pytest.mark.parametrize("method", ["plain", "pld", "pld+h", "recycling"])
def test_a_run_that_is_recorded_now_is_valid(method: str):
    trace = record(tiny_target(), Prompt.from_ids(prompt_ids(3)), method, max_new_tokens=24)
    assert trace.rows("steps") > 0 and faults(json.loads(json.dumps(trace.to_json()))) == []
    listed = {field.name for field in RUN["run"]}
    assert set(trace.run) <= listed, "describe the run record's new field in decoders/trace/run.txt"


@pytest.fixture(scope="module")
def hello(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The minimal trace, as the page's example writes it."""
    folder = tmp_path_factory.mktemp("hello")
    (folder / schema.JSON_FILE).write_text(schema.schema_text(), "utf-8")
    with contextlib.chdir(folder):
        exec(snippet("write", "docs/spectrace.md"), {})
    return folder / "hello.spectrace"


def without(*keys: str) -> Callable[[Document], None]:
    return lambda document: descend(document, keys[:-1]).pop(keys[-1])


def with_value(value: Any, *keys: str | int) -> Callable[[Document], None]:
    return lambda document: setitem(descend(document, keys[:-1]), keys[-1], value)


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (with_value("spectrace/2", "schema"), "$.schema"),
        (without("run"), "$"),
        (without("run", "id"), "$.run"),
        (with_value("../x", "run", "id"), "$.run.id"),
        (with_value(True, "run", "max_new_tokens"), "$.run.max_new_tokens"),
        (with_value(0, "run", "prompt_length"), "$.run.prompt_length"),
        (with_value("fast", "run", "timings", "prefill_ms"), "$.run.timings.prefill_ms"),
        (with_value(["2"], "run", "stop_ids"), "$.run.stop_ids[0]"),
        (with_value(None, "run", "model"), "$.run.model"),
        (with_value(["cosine"], "run", "terms"), "$.run.terms[0]"),
        (without("run", "method", "name"), "$.run.method"),
        (with_value({"drafts": 1}, "run", "method", "code"), "$.run.method.code.drafts"),
        (with_value([7], "run", "unknown"), "$.run.unknown[0]"),
        (without("probes"), "$"),
        (without("steps", "route"), "$.steps"),
        (with_value({}, "more"), "$.more"),
        (with_value({"a": [[]]}, "more"), "$.more.a[0]"),
        (with_value({"a": [1]}, "../more"), "$"),
        (with_value("3", "steps", "drafted", 0), "$.steps.drafted[0]"),
        (with_value(None, "nodes", "parent", 0), "$.nodes.parent[0]"),
        (with_value(-2, "nodes", "rank", 0), "$.nodes.rank[0]"),
        (with_value(2.0, "tokens", "prob", 0), "$.tokens.prob[0]"),
        (with_value("guessed", "tokens", "kind", 0), "$.tokens.kind[0]"),
        (with_value("abc", "pieces", "hex", 0), "$.pieces.hex[0]"),
        (with_value("x" * 3000, "steps", "reason", 0), "$.steps.reason[0]"),
        (with_value(["high"], "candidates", "term:cosine"), "$.candidates['term:cosine'][0]"),
    ],
)  # fmt: skip
def test_what_the_schema_refuses_is_refused_by_the_checks(hello: Path, damage: Any, place: str):
    """Negative controls."""
    document = raw(hello)
    Trace.from_json(document)
    assert not list(VALIDATOR.iter_errors(document))
    damage(document)
    assert place in [fault.json_path for fault in VALIDATOR.iter_errors(document)]
    with pytest.raises(TraceError):
        Trace.from_json(document)


@pytest.mark.parametrize("table", TABLES)
def test_the_bounds_of_every_column_are_in_the_schema(table: str):
    for column in TABLES[table]:
        judge = Draft202012Validator(schema.json_schema()["properties"][table]["properties"][column.name])
        right, wrong = {"int": (1, 1.5), "float": (None, "1"), "str": ("aa", 1), "bool": (True, 1)}[column.type]
        least = right if column.low is None else column.low
        assert judge.is_valid([column.words[0] if column.words else least]) and not judge.is_valid([wrong])
        assert judge.is_valid(["aa"]) == (column.type == "str" and not column.words)
        assert column.low is None or not judge.is_valid([column.low - 1])
        if column.high is not None:
            assert judge.is_valid([column.high]) and not judge.is_valid([column.high + 1])


# --- the page's examples, and the reader ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reader() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spectrace_reader", READER)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_examples_of_the_page_write_and_read_a_trace(
    hello: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reader: ModuleType,
):
    shutil.copy(hello, tmp_path / "run.spectrace")
    monkeypatch.chdir(tmp_path)
    trace = load(hello)
    assert trace.text(trace.output_ids) == " world!" and faults(raw(hello)) == []
    assert compute(trace)["tokens_per_step"] == 2
    assert "1 of 2 drafted tokens accepted" in reader.summary(reader.read(hello))
    read = snippet("read", "docs/spectrace.md")
    assert len([line for line in read.splitlines() if line]) <= 10
    exec(read, {})
    assert capsys.readouterr().out == "my-method 2.0 tokens per step\n"


def test_the_reader_needs_numpy_alone_and_knows_the_required_columns(reader: ModuleType):
    tree = ast.parse(READER.read_text("utf-8"))
    names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"numpy"}
    required = {
        table: " ".join(f"{c.name}:{c.type}" for c in columns if c.default is REQUIRED)
        for table, columns in TABLES.items()
        if table not in OPTIONAL_TABLES
    }
    assert required == reader.COLUMNS


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}/{path.stem}")
def test_the_reader_reads_what_specviz_reads(path: Path, reader: ModuleType):
    read, trace = reader.read(path), load(path)
    assert read.run == trace.run and set(read.tables) <= set(trace.tables)
    for table, columns in read.tables.items():
        for name, values in columns.items():
            expected = [math.nan if v is None else v for v in trace.tables[table][name]]
            assert (
                values.tolist() == pytest.approx(expected, nan_ok=True, abs=0)
                if values.dtype == float
                else (values.tolist() == expected)
            ), f"{table}.{name}"
    assert read.text(read.output_ids) == trace.text(trace.output_ids)
    assert f"{compute(trace)['tokens_per_step']:.2f} tokens per step" in reader.summary(read)


@pytest.mark.parametrize(
    ("part", "damage", "says"),
    [
        ("trace", with_value("spectrace/2", "schema"), "spectrace/2"),
        ("trace", with_value(3, "run", "prompt_length"), "steps.context"),
        ("trace", with_value(0, "run", "prompt_length"), "prompt_length"),
        ("trace", with_value(5, "tables", "steps", "rows"), "announced"),
        ("trace", without("tables", "probes"), "probes is missing"),
        ("trace", without("run", "method"), "method"),
        ("steps", without("route"), "steps.route is missing"),
        ("steps", with_value("3", "drafted", 0), "something else than int"),
        ("steps", with_value(math.nan, "verify_ms", 0), "not finite"),
        ("steps", with_value(99, "emitted", 0), "steps.emitted"),
        ("steps", with_value(2**80, "context", 0), "OverflowError"),
        ("nodes", with_value(500, "token", 1), "pieces lacks"),
        ("nodes", with_value(1, "parent", 1), "parent does not stand before"),
        ("nodes", with_value("rejected", "status", 1), "steps.accepted"),
        ("nodes", with_value(9, "step", -1), "nodes.step"),
        ("pieces", with_value("zz", "hex", 0), "hexadecimal"),
        ("tokens", with_value("x", "id"), "not a list"),
    ],
)  # fmt: skip
def test_the_reader_refuses_what_specviz_refuses(
    hello: Path, tmp_path: Path, reader: ModuleType, part: str, damage: Any, says: str
):
    """Negative controls, on the minimal trace."""
    with zipfile.ZipFile(hello) as archive:
        parts = {name: json.loads(archive.read(name)) for name in archive.namelist()}
    reader.read(hello)
    damage(parts[f"{part}.json"])
    with zipfile.ZipFile(tmp_path / "bad.spectrace", "w") as archive:
        for name, value in parts.items():
            archive.writestr(name, json.dumps(value))
    with pytest.raises(reader.SpectraceError, match=says):
        reader.read(tmp_path / "bad.spectrace")
    with pytest.raises(TraceError):
        load(tmp_path / "bad.spectrace")


def test_the_reader_keeps_what_it_does_not_know(tree: Trace, tmp_path: Path, reader: ModuleType):
    tree.tables["steps"]["heat"] = [None] * tree.rows("steps")
    tree.tables["banks"] = {"bank": ["a", "b"], "hits": [3, 4], "mixed": [1, "x"]}
    save(tree, tmp_path / "a.spectrace")
    read = reader.read(tmp_path / "a.spectrace")
    assert np.isnan(read.tables["steps"]["heat"]).all() and read.tables["banks"]["hits"].dtype == np.int64
    assert read.tables["banks"]["mixed"].tolist() == [1, "x"]


def test_the_reader_is_a_command(tmp_path: Path):
    done = subprocess.run([sys.executable, READER, GALLERY[0]], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0 and "tokens per step" in done.stdout, done.stderr
    half = tmp_path / "half.spectrace"
    half.write_bytes(GALLERY[0].read_bytes()[:5000])
    done = subprocess.run([sys.executable, READER, half], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 1 and "half.spectrace is not a whole trace" in done.stderr
