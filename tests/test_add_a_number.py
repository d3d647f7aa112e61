"""docs/add-a-number.md followed: a method's own number, and a column of the engine."""

from __future__ import annotations

import inspect
import sys
import textwrap
from dataclasses import replace
from types import ModuleType

import pytest

from decoders import Prompt, record
from decoders.drafters import find_method, pld
from decoders.engine import recording, rows
from decoders.trace.check import check
from decoders.trace.files import load, save
from decoders.trace.report import report
from decoders.trace.schema import json_schema
from decoders.trace.tables import TABLES, TraceError, read_tables
from specviz.views.frames import frame

from . import recordings
from .models import prompt_ids, tiny_target
from .test_readme import snippet

GUIDE = "docs/add-a-number.md"
ROWS = 'rows.add("steps", 1, {\n'  # where the guide sends its reader


def edit(module: ModuleType, *edits: tuple[str, str]) -> ModuleType:
    """A module as it would be with each text in place of another, which stands in it once."""
    text = inspect.getsource(module)
    for before, after in edits:
        assert text.count(before) == 1, f"{module.__name__} has {text.count(before)} times: {before}"
        text = text.replace(before, after)
    changed = ModuleType(module.__name__)
    changed.__dict__.update(__file__=module.__file__, __package__=module.__package__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, changed)  # dataclasses look themselves up there
        exec(compile(text, module.__name__, "exec"), changed.__dict__)
    return changed


def test_a_number_of_a_method_is_a_declaration_and_its_value() -> None:
    scores = inspect.getsource(pld.PldDrafter.scores)
    terms = inspect.getsource(pld).partition("    terms=(\n")[2]
    changed = edit(
        pld,
        (scores, textwrap.indent(snippet("scores", GUIDE), "    ")),
        (terms, textwrap.indent(snippet("term", GUIDE), " " * 8) + terms),
    )
    method = replace(changed.METHOD, terms=changed.METHOD.terms[::-1])  # what ranks is named first
    trace = record(tiny_target("llama"), Prompt.from_ids(prompt_ids(3) * 2), method, max_new_tokens=8)
    trace = load(save(trace, None) or b"")
    check(trace)
    candidates = trace.tables["candidates"]
    roots = [trace.tables["steps"]["context"][step] - 1 for step in candidates["step"]]
    distances = [root - position for root, position in zip(roots, candidates["position"], strict=True)]
    assert candidates["term:distance"] == distances and distances and min(distances) > 0
    assert list(frame(trace, "candidates")["term:distance"]) == distances
    assert [term["key"] for term in trace.run["terms"]] == ["ngram", "distance"]
    assert not any(column["name"] == "term:distance" for column in report(trace)["columns"]["candidates"])


@pytest.fixture
def with_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both files of the guide, as it changes them."""
    (column,) = read_tables(f"[steps]\n{snippet('column', GUIDE)}")["steps"]
    monkeypatch.setitem(TABLES, "steps", (*TABLES["steps"], column))
    value = textwrap.indent(snippet("value", GUIDE), " " * 12)
    monkeypatch.setattr(recording, "Recording", edit(rows, (ROWS, ROWS + value)).Recording)


@pytest.mark.usefixtures("with_the_column")
def test_a_column_of_the_engine_is_a_line_and_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = record(tiny_target("llama"), Prompt.from_ids(prompt_ids(3) * 2), find_method("pld"), max_new_tokens=8)
    trace = load(save(trace, None) or b"")
    steps = trace.tables["steps"]
    assert steps["rows"] == [1 + drafted for drafted in steps["drafted"]] and max(steps["drafted"]) > 0
    assert list(frame(trace, "steps")["rows"]) == steps["rows"]
    (column,) = (column for column in report(trace)["columns"]["steps"] if column["name"] == "rows")
    assert column["help"] == "rows of the forward: the root, the draft and its probes"
    assert json_schema()["properties"]["steps"]["properties"]["rows"]["items"]["minimum"] == 0
    steps["rows"][0] = -1
    with pytest.raises(TraceError, match=r"steps\.rows"):
        check(trace)
    steps["rows"][0] = 1
    monkeypatch.undo()
    assert load(save(trace, None) or b"").tables == trace.tables  # a program before the column keeps it


@pytest.mark.usefixtures("with_the_column")
def test_traces_without_the_column_have_its_default() -> None:
    for trace in (recordings.chain(), recordings.tree(), recordings.casd(), recordings.cape()):
        assert set(trace.tables["steps"]["rows"]) == {0}
        check(load(recordings.save_trace(trace)))
