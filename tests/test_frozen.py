"""A trace outlives its columns: frozen files open for ever, added columns have defaults, unknown ones are kept.

``tests/frozen`` holds the gallery, a run as the browser's JSON and a journal, as the first version wrote them. They are
never written anew. Where a version adds a table or a kind of file, freeze one more beside them.
"""

import csv
import gzip
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from decoders.trace.files import load
from decoders.trace.journal import Journal, recover
from decoders.trace.metrics import compute
from decoders.trace.tables import TABLES, Column, TraceError
from decoders.trace.trace import Trace
from specviz.server.store import pack, unpack
from specviz.views.frames import frame, frames, to_csv, to_parquet

from . import recordings
from .recordings import save_trace

FOLDER = Path(__file__).parent / "frozen"
GALLERY = sorted(recordings.FROZEN_GALLERY.glob("*.spectrace"))
FROZEN = [*(f"gallery/{path.name}" for path in GALLERY), "run.json", "run.journal"]
EXPECTED = FOLDER / "expected.json.gz"
MEASURED_BY_PACKAGES = ("quality_f1", "quality_rouge_l", "quality_edit")  # what they give is theirs to change


def open_file(name: str) -> Trace:
    path = recordings.FROZEN_GALLERY.parent / name if name.startswith("gallery/") else recordings.frozen_file(name)
    if path.suffix == ".json":
        return Trace.from_json(json.loads(path.read_text("utf-8")))
    return recover(path) if path.suffix == ".journal" else load(path)


def summary_of(trace: Trace) -> dict[str, Any]:
    """A file's content, by today's code: rows per table, the text, and every metric."""
    speed = trace.run["timings"].get("plain_tokens_per_s")
    return {
        "rows": {table: trace.rows(table) for table in trace.tables},
        "text": trace.text(trace.output_ids),
        "metrics": {k: v for k, v in compute(trace, speed).items() if k not in MEASURED_BY_PACKAGES},
    }


@pytest.fixture(scope="module")
def expectations() -> dict[str, Any]:
    return json.loads(gzip.decompress(EXPECTED.read_bytes()))


@pytest.mark.parametrize("name", FROZEN)
def test_every_file_written_so_far_opens_and_says_the_same(name: str, expectations: dict[str, Any]):
    now, then = summary_of(open_file(name)), expectations[name]
    assert now["text"] == then["text"] and now["text"]
    assert {table: now["rows"][table] for table in then["rows"]} == then["rows"]
    for key, value in then["metrics"].items():
        assert now["metrics"][key] == (None if value is None else pytest.approx(value, rel=1e-9)), key


def test_all_of_the_frozen_files_are_there(expectations: dict[str, Any]):
    assert len(GALLERY) == 18 and set(expectations) == set(FROZEN)


# --- a column is added ------------------------------------------------------------------------------------------------


@pytest.fixture
def add_column(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Column], None]:
    """Adds a column to a table for the time of a test, as a later version would."""

    def add(table: str, column: Column) -> None:
        monkeypatch.setitem(TABLES, table, (*TABLES[table], column))

    return add


@pytest.mark.parametrize("name", FROZEN)
def test_an_added_column_is_read_as_its_default(name: str, add_column: Callable[[str, Column], None]):
    add_column("candidates", Column("uses", "int", "how often it was drafted from before", 0))
    add_column("nodes", Column("heat", "float", "not measured before", None))
    add_column("steps", Column("note", "str", "a remark", ""))
    trace = open_file(name)
    assert trace.tables["candidates"]["uses"] == [0] * trace.rows("candidates")
    assert trace.tables["nodes"]["heat"] == [None] * trace.rows("nodes")
    assert set(trace.tables["steps"]["note"]) == {""}
    assert load(save_trace(trace)).to_json() == trace.to_json()
    assert set(frame(trace, "steps")["note"]) == {""} and bool(frame(trace, "nodes")["heat"].isna().all())


@pytest.mark.parametrize("name", FROZEN)
def test_a_required_column_that_is_missing_is_refused(name: str, add_column: Callable[[str, Column], None]):
    """Negative control: without a default, no older file opens."""
    add_column("steps", Column("uses", "int", "required"))
    with pytest.raises(TraceError, match=r"steps\.uses is missing"):
        open_file(name)


def test_defaults_are_declared_with_the_column():
    from decoders.trace import tables

    columns = "uses int=-1 how often\nheat float=null how hot\nplain int nothing more"
    (uses, heat, plain) = tables.read_tables(f"[steps]\n# a comment\n{columns}")["steps"]
    assert (uses.type, uses.default, uses.help) == ("int", -1, "how often")
    assert heat.default is None and plain.default is tables.REQUIRED


# --- a later version's file -------------------------------------------------------------------------------------------


VALUES: dict[str, Callable[[int], Any]] = {
    "count": lambda row: row,
    "heat": lambda row: row / 7 if row % 3 else None,
    "good": lambda row: row % 2 == 0,
    "note": lambda row: f"=SUM(A{row})",
    "mixed": lambda row: [1, 1.0, True, "1", None][row % 5],
}


@pytest.fixture
def later() -> Trace:
    """A run with columns, a table and keys that this program does not know."""
    trace = recordings.tree()
    for table in ("candidates", "nodes", "steps", "tokens"):
        for name, value in VALUES.items():
            trace.tables[table][name] = [value(row) for row in range(trace.rows(table))]
    trace.tables["banks"] = {"bank": ["a", "b"], "hits": [3, 4]}
    trace.run["weather"] = {"sun": True, "note": "naïve 日本語", "list": [1, 2.5, None, True]}
    return trace


def test_what_is_not_known_is_kept(later: Trace):
    for again in (
        load(save_trace(later)),
        load(save_trace(load(save_trace(later)))),
        Trace.from_json(json.loads(json.dumps(later.to_json()))),
        unpack(pack(later.to_json())),
        unpack(gzip.compress(json.dumps(later.to_json()).encode())),
    ):
        assert again.tables == later.tables and again.run == later.run
        types = {name: [type(v) for v in values] for name, values in again.tables["nodes"].items()}
        assert types == {name: [type(v) for v in values] for name, values in later.tables["nodes"].items()}
        assert list(again.tables) == [*TABLES, "banks"]


def test_a_journal_keeps_what_is_not_known(later: Trace, tmp_path: Path):
    banks = later.tables.pop("banks")
    opening, deltas = recordings.deltas(later)
    for table in ("candidates", "nodes", "steps"):
        opening.tables[table] |= {name: [] for name in VALUES}
    for name, values in later.tables["tokens"].items():
        opening.tables["tokens"][name] = values[: later.run["prompt_length"]]
    opening.tables["banks"] = banks
    journal = Journal(tmp_path / "a.journal")
    journal.start(opening)
    for delta in deltas:
        journal.append(delta)
    journal.close()
    found = recover(tmp_path / "a.journal")
    later.tables["candidates"]["would_accept"] = [-1] * later.rows("candidates")
    assert found.tables == {**later.tables, "banks": banks} and found.run["weather"] == later.run["weather"]
    mixed = [type(value) for value in found.tables["nodes"]["mixed"]]
    assert mixed == [type(value) for value in later.tables["nodes"]["mixed"]]


def test_a_journal_of_a_later_version_is_read_by_its_own_types(later: Trace, add_column: Any, tmp_path: Path):
    """A whole number is not read as the bits of a float, whatever this program takes the column for."""
    opening, deltas = recordings.deltas(recordings.beginning(recordings.tree(), 2))
    opening.tables["steps"]["uses"] = []
    for number, delta in enumerate(deltas):
        delta["steps"]["uses"] = [number]
    journal = Journal(tmp_path / "a.journal")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLES, "steps", (*TABLES["steps"], Column("uses", "int", "of a later version", 0)))
        journal.start(opening)
        for delta in deltas:
            journal.append(delta)
        journal.close()
    assert recover(tmp_path / "a.journal").tables["steps"]["uses"] == list(range(len(deltas)))


def test_frames_show_what_is_not_known(later: Trace):
    made = frames(later)
    assert list(made) == [*TABLES, "banks"] and list(made["banks"]["hits"]) == [3, 4]
    for table in ("candidates", "nodes", "steps", "tokens"):
        data = made[table]
        assert data["count"].dtype == "int64" and data["heat"].dtype == "float64" and data["good"].dtype == bool
        assert list(data["mixed"][:5]) == ["1", "1.0", "True", "1", ""]
        assert math.isnan(data["heat"].iloc[0])
        rows = list(csv.DictReader(io.StringIO(to_csv(later, table), newline="")))
        assert rows[1]["count"] == "1" and rows[0]["note"] == "'=SUM(A0)" and rows[2]["good"] == "True"
        assert list(pd.read_parquet(io.BytesIO(to_parquet(later, table)))["count"]) == list(data["count"])
