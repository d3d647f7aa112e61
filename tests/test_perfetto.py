"""A run's times as Chrome trace events: every stage of every step, in order, none beside the record."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from specviz.cli import main
from specviz.views.perfetto import LANES, trace_events

from .command import refusal


def test_every_timed_stage_is_an_event_and_they_follow_one_another(trace):
    document = trace_events(trace)
    events, steps = document["traceEvents"], trace.tables["steps"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert tuple(lanes.values()) == LANES
    stages = [e for e in events if e["ph"] == "X" and lanes[e["tid"]] != "step"]
    for stage in ("draft", "verify", "commit"):
        timed = [ms for ms in steps[f"{stage}_ms"] if ms is not None]
        assert [e["dur"] for e in stages if e["name"] == stage] == pytest.approx([1e3 * ms for ms in timed], abs=1e-3)
    for before, after in pairwise(stages):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"], abs=0.01)
    whole = [e for e in events if e["name"].startswith("step ")]
    assert [e["args"]["accepted"] for e in whole] == steps["accepted"]
    assert json.loads(json.dumps(document)) == document


def test_the_command_writes_it_beside_the_page_or_alone(trace, tmp_path, capsys):
    from decoders import save

    save(trace, tmp_path / "run.spectrace")
    out = tmp_path / "run.json"
    assert main(["export", str(tmp_path / "run.spectrace"), "--perfetto", str(out)]) == 0
    assert json.loads(out.read_text("utf-8"))["displayTimeUnit"] == "ms" and "perfetto" in capsys.readouterr().out
    assert "say what to write: --html F, --perfetto F" in refusal(capsys, "export", tmp_path / "run.spectrace")
