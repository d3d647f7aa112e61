"""Frames, CSV and Parquet of a trace."""

import csv
import io

import pandas as pd
import pytest

from decoders.trace.tables import TABLES
from decoders.trace.trace import Trace
from specviz.views.frames import frame, frames, to_csv, to_parquet

from . import recordings
from .recordings import append


def test_every_table_has_its_columns_and_rows(trace: Trace):
    made = frames(trace)
    assert list(made) == list(TABLES)
    for table, data in made.items():
        assert len(data) == trace.rows(table)
        assert [name for name in data.columns if name not in ("text", "bonus_text")] == list(trace.tables[table])


def test_types(tree: Trace):
    made = frames(tree)
    assert made["steps"]["drafted"].dtype == "int64" and made["steps"]["draft_ms"].dtype == "float64"
    assert made["candidates"]["chosen"].dtype == bool and made["candidates"]["term:cosine"].dtype == "float64"
    assert isinstance(made["nodes"]["status"].dtype, pd.CategoricalDtype)
    assert pd.isna(made["tokens"]["prob"].iloc[0])  # a prompt token has no probability
    assert made["steps"].groupby("outcome", observed=True)["accepted"].sum()["none"] == 0


def test_text_stands_beside_the_ids(tree: Trace):
    made = frames(tree)
    output = made["tokens"][made["tokens"]["step"] >= 0]
    special = set(made["pieces"].loc[made["pieces"]["special"], "id"])
    assert "".join(output.loc[~output["id"].isin(special), "text"]) == tree.text(tree.output_ids)
    assert (made["nodes"].loc[made["nodes"]["depth"] == 0, "text"] != "").all()
    assert list(made["nodes"].columns[:3]) == ["step", "token", "text"]
    for table in ("guesses", "pruned"):
        assert "text" in made[table]
    append(tree, "guesses", dict.fromkeys(tree.tables["guesses"], 0) | {"token": tree.output_ids[0]})
    assert frame(tree, "guesses")["text"].iloc[-1] == tree.text(tree.output_ids[:1])
    assert made["steps"]["bonus_text"].iloc[0] == tree.text([tree.tables["steps"]["bonus"][0]])


def test_an_unknown_table_is_named(tree: Trace):
    with pytest.raises(ValueError, match="there is no table 'words': choose one of pieces, tokens"):
        frame(tree, "words")


def test_an_empty_table_keeps_its_types(tree: Trace):
    assert len(frame(tree, "probes")) == 0
    assert frame(tree, "probes")["token"].dtype == "int64"
    assert to_csv(tree, "probes") == "step,parent,offset,kind,token,text,prob\r\n"


def with_pieces(*texts: str) -> Trace:
    trace = Trace.new({"prompt_length": len(texts)})
    for token, text in enumerate(texts):
        append(trace, "pieces", {"id": token, "hex": text.encode().hex(), "special": False})
        row = {"id": token, "segment": "text", "passage": -1, "step": -1, "kind": "prompt", "origin": "", "source": -1}
        append(trace, "tokens", {**row, "pool": -1, "rank": -1, "prob": -0.5 if token == 0 else None})
    return trace


def test_csv_cannot_carry_a_formula():
    texts = ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "a=b", " =1", "'", "", 'say "x", y', "two\nlines"]
    rows = list(csv.DictReader(io.StringIO(to_csv(with_pieces(*texts), "tokens"), newline="")))
    found = [row["text"] for row in rows]
    assert found[:6] == ["'" + text for text in texts[:6]]
    assert found[6:] == texts[6:]
    # numbers stay numbers
    assert rows[0]["source"] == "-1" and rows[0]["prob"] == "-0.5" and rows[1]["prob"] == ""


def test_csv_counts_steps_and_ranks_from_1_as_the_page_does(tree: Trace):
    rows = {table: list(csv.DictReader(io.StringIO(to_csv(tree, table), newline=""))) for table in TABLES}
    count = tree.rows("steps")
    assert [row["step"] for row in rows["steps"]] == [str(step) for step in range(1, count + 1)]
    for table in ("tokens", "nodes", "candidates"):
        for column in ("step", "rank"):
            recorded = tree.tables[table][column]
            assert [int(row[column]) for row in rows[table]] == [one + 1 if one >= 0 else one for one in recorded]
    assert frame(tree, "nodes")["step"].tolist() == tree.tables["nodes"]["step"]


def test_csv_of_hostile_text_can_be_read_back():
    trace = recordings.nasty()
    for table in TABLES:
        rows = list(csv.reader(io.StringIO(to_csv(trace, table), newline="")))
        assert len(rows) == trace.rows(table) + 1
        assert {len(row) for row in rows} == {len(rows[0])}
        assert not any(cell.startswith(("=", "@", "+")) for row in rows for cell in row)


def test_parquet_round_trip(trace: Trace):
    for table in TABLES:
        data = pd.read_parquet(io.BytesIO(to_parquet(trace, table)))
        assert list(data.columns) == list(frame(trace, table).columns)
        if len(data):  # an empty category has no type in a Parquet file
            pd.testing.assert_frame_equal(data, frame(trace, table), check_categorical=False)


def test_lone_bytes_are_replaced():
    trace = Trace.new({"prompt_length": 1})
    append(trace, "pieces", {"id": 3, "hex": "f09f", "special": False})
    assert frame(trace, "pieces")["text"].tolist() == ["\ufffd"]
