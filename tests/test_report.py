"""A page's report on a run: every metric with parts that make its value, shares and lists that add up."""

import re
from pathlib import Path

import pytest

from decoders.trace.files import load
from decoders.trace.metrics import METRICS, compute, regrets
from decoders.trace.report import ENGINE_COLUMNS, payload, plain_columns, report
from decoders.trace.tables import REQUIRED, TABLES
from decoders.trace.trace import Trace

from .recordings import FROZEN_GALLERY

FILES = sorted(FROZEN_GALLERY.glob("*.spectrace"))

# the columns that the first version did not have
LATER = {(table, column.name) for table, row in TABLES.items() for column in row if column.default is not REQUIRED}


def worked_out(text: str) -> float:
    """A worked formula, numbers put in, computed as a reader would."""
    sum_ = re.sub(r"[a-z/ ]+of the prompt|tokens/s|tokens|steps|positions|rows|ms|\bs\b", "", text)
    if " in " in sum_ or " of " in sum_:
        return float(re.split(" in | of ", sum_)[0])
    sum_ = re.sub(r"\s[s]\s*$", "", sum_.strip())
    return eval(sum_.replace("÷", "/").replace("×", "*").replace("−", "-").replace("10⁶", "1e6"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_parts_make_the_value(path: Path):
    trace = load(path)
    told = report(trace)["metrics"]
    values = compute(trace, trace.run["timings"].get("plain_tokens_per_s"))
    for metric in METRICS:
        if metric.key.startswith("quality"):
            assert metric.key not in told
            continue
        parts = dict(told[metric.key])
        value = parts.pop("value")
        assert value == values[metric.key]
        assert set(re.findall(r"\{(\w+)\}", metric.worked)) == set(parts), metric.key
        if metric.worked and value is not None:
            assert worked_out(metric.worked.format(**parts)) == pytest.approx(value), metric.key


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shares_and_lists_add_up(path: Path):
    trace = load(path)
    told, steps = report(trace), trace.rows("steps")
    assert sum(n for _, n in told["outcomes"]) == sum(n for _, n in told["routes"]) == steps
    assert sum(n for _, n in told["lengths"]) == steps - told["metrics"]["no_draft_steps"]["value"]
    assert sum(length * n for length, n in told["lengths"]) == told["metrics"]["accepted"]["value"]
    assert sum(told["statuses"][s] for s in ("accepted", "rejected", "unreached")) == sum(
        trace.tables["steps"]["drafted"]
    )
    assert sum(nodes for _, nodes, _ in told["origins"]) == sum(trace.tables["steps"]["drafted"])
    assert sum(accepted for _, _, accepted in told["origins"]) == told["statuses"]["accepted"]
    labels = {origin["name"]: origin["label"] for origin in told["legend"]}
    assert labels.get("main", "chosen copy") == "chosen copy", "files that called it main are worded as today"
    assert sum(one["tokens"] for one in told["regrets"]) == sum(one.tokens for one in regrets(trace))
    assert [one["tokens"] for one in told["regrets"]] == sorted((o["tokens"] for o in told["regrets"]), reverse=True)
    names = [name for name, _ in told["outcomes"]]
    last = [name for name in names if name in ("mismatch", "none")]
    assert names[len(names) - len(last) :] == last
    shown = {(table, column["name"]) for table, columns in told["columns"].items() for column in columns}
    assert shown == LATER - {(table, name) for table, names in ENGINE_COLUMNS.items() for name in names}


def test_a_report_is_made_anew_and_never_read(tree: Trace):
    document = payload(tree)
    document["report"]["metrics"]["tokens"]["value"] = -1
    again = Trace.from_json(document)
    assert again.to_json() == tree.to_json() and payload(again)["report"]["metrics"]["tokens"]["value"] > 0


def test_a_speedup_above_the_tokens_per_step_is_doubted(tree: Trace):
    told = report(tree)["metrics"]
    # the slowest plain decoding that can be
    plain = told["tokens_per_s"]["value"] / told["tokens_per_step"]["value"]
    for factor, doubted in ((1.01, []), (0.9, ["speedup"])):
        tree.run["timings"]["plain_tokens_per_s"] = factor * plain
        assert list(report(tree)["doubts"]) == doubted


def test_views_draw_no_column_that_is_gone():
    assert {(table, name) for table, names in ENGINE_COLUMNS.items() for name in names} <= LATER


def test_columns_that_no_view_draws_are_told(tree: Trace):
    before = plain_columns(tree)
    tree.tables["candidates"]["hit_count"] = [3] * tree.rows("candidates")
    tree.tables["nodes"]["term:warmth"] = [0.5] * tree.rows("nodes")
    told = plain_columns(tree)
    hit_count = {"name": "hit_count", "label": "hit count", "help": "", "type": "int"}
    assert told["candidates"] == [*before["candidates"], hit_count]
    assert [column["label"] for column in told["nodes"] if column not in before["nodes"]] == ["warmth"]
    assert told["steps"] == before["steps"]
